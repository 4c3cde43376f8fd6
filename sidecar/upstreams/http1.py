"""One HTTP/1.1 connection to an upstream: one request at a time, every read handed on in the callback it came in.

States of a connection: idle → sending → waiting (request sent, no head yet) → receiving → idle or closed, and tunnel
after a 101.
"""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Callable
from typing import Protocol

from sidecar.exchange import Headers, Phase
from sidecar.failures import Code, ErrorReason, Failure
from sidecar.http_fields import Framing
from sidecar.upstreams import tcp_info
from sidecar.upstreams.dial import reason_of
from sidecar.upstreams.http1_response import BadResponse, ResponseHead, ResponseParser


class Receiver(Protocol):
    """Whoever takes a response. All calls come from the connection's own callbacks, in the order of the wire."""

    def interim(self, status: int, reason: bytes, headers: Headers) -> None:
        """A 1xx response other than 101."""

    def received(self, head: ResponseHead | None, body: bytes, ended: bool, trailers: Headers, now: float) -> None:
        """What one read brought: the head (once), body bytes, and whether the response is complete."""

    def failed(self, failure: Failure, now: float) -> None:
        """The response will not be completed. Nothing follows."""

    def tunnelled(self, data: bytes, now: float) -> None:
        """Bytes after a 101."""


class Http1Connection(asyncio.Protocol):
    """See the module. `on_idle` and `on_closed` tell the pool; after `on_closed` the connection is forgotten."""

    def __init__(
        self,
        clock: Callable[[], float],
        max_header_bytes: int,
        on_idle: Callable[[Http1Connection], None],
        on_closed: Callable[[Http1Connection], None],
    ) -> None:
        self._clock = clock
        self._on_idle = on_idle
        self._on_closed = on_closed
        self.transport: asyncio.Transport | None = None
        self.sock: socket.socket | None = None
        self.requests = 0
        self.last_read = self.idle_since = clock()
        self.request_sent_at = 0.0
        self.closed = False
        self.tunnel = False
        self.write_paused = False
        """The upstream takes no more for now."""
        self.on_writable: Callable[[], None] | None = None
        """Called once when the upstream takes bytes again (a tunnel's way to hold its client)."""
        self._parser = ResponseParser(max_header_bytes)
        self._receiver: Receiver | None = None
        self._acked = -1
        self._retransmits = 0
        self._reading_paused = False
        self._writable: asyncio.Future[None] | None = None
        self._poller: select.poll | None = None

    def __repr__(self) -> str:
        if self.closed:
            state = "closed"
        elif self.tunnel:
            state = "tunnel"
        elif self._receiver is None:
            state = "idle"
        elif self._parser.head is not None:
            state = "receiving"
        else:
            state = "waiting" if self.request_sent_at else "sending"
        return f"<Http1Connection {state}, {self.requests} requests>"

    # ---- the request ----

    def start(self, receiver: Receiver, method: bytes, data: bytes) -> None:
        """Send the head of a request, with what is there of its body."""
        self._receiver = receiver
        self._parser.expect(method)
        self.requests += 1
        self.request_sent_at = 0.0
        self.last_read = self._clock()
        assert self.transport is not None
        self.transport.write(data)

    def write(self, data: bytes) -> None:
        """Send more of the request body, framed already, or bytes of a tunnel."""
        if self.transport is not None and not self.closed:
            self.transport.write(data)
            if self.tunnel:
                self.last_read = self._clock()

    async def drain(self) -> None:
        """Wait while the upstream takes no more."""
        if self.write_paused and not self.closed:
            if self._writable is None:
                self._writable = asyncio.get_running_loop().create_future()
            await self._writable

    def request_sent(self, now: float) -> None:
        """The last byte of the request was written."""
        self.request_sent_at = self.last_read = now

    # ---- flow control ----

    def pause_reading(self) -> None:
        """The client is slow: read no more for now."""
        if not self._reading_paused and self.transport is not None and not self.closed:
            self._reading_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Read on; the idle time starts anew."""
        if self._reading_paused and self.transport is not None and not self.closed:
            self._reading_paused = False
            self.last_read = self._clock()
            self.transport.resume_reading()

    def pause_writing(self) -> None:
        self.write_paused = True

    def resume_writing(self) -> None:
        self.write_paused = False
        self.last_read = self._clock()
        self._wake_writer()

    def _wake_writer(self) -> None:
        if self.on_writable is not None:
            wake, self.on_writable = self.on_writable, None
            wake()
        if self._writable is not None:
            if not self._writable.done():
                self._writable.set_result(None)
            self._writable = None

    # ---- callbacks of the transport ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # TCP and TLS transports read and write

    def data_received(self, data: bytes) -> None:
        now = self.last_read = self._clock()
        receiver = self._receiver
        if receiver is None:
            # An answer to nothing: whoever spoke to us last did not stop where it should have.
            self.discard()
            return
        if self.tunnel:
            receiver.tunnelled(data, now)
            return
        parser = self._parser
        bad: BadResponse | None = None
        rest: bytes | None = None
        try:
            rest = parser.feed(data)
        except BadResponse as error:
            bad = error
        if parser.interims:
            self._pass_interims(receiver)
        if parser.head is not None:
            head, body = parser.take()
            if parser.complete and rest is None:
                self._end(receiver, head, body, now)
                return
            if head is not None or body:
                receiver.received(head, body, False, [], now)
        if bad is not None:
            self._fail(_protocol(str(bad)), now)
        elif rest is not None:
            self.tunnel = True
            if rest:
                receiver.tunnelled(rest, now)

    def eof_received(self) -> bool | None:
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        receiver, self._receiver = self._receiver, None
        self._close()
        if receiver is None:
            return
        now = self._clock()
        head = self._parser.head
        if self.tunnel or (head is not None and head.framing is Framing.CLOSE and exc is None):
            receiver.received(None, b"", True, [], now)
        else:
            receiver.failed(self._lost(exc), now)

    # ---- what they add up to ----

    def _pass_interims(self, receiver: Receiver) -> None:
        interims, self._parser.interims = self._parser.interims, []
        for status, reason, headers in interims:
            receiver.interim(status, reason, headers)

    def _end(self, receiver: Receiver, head: ResponseHead | None, body: bytes, now: float) -> None:
        parser = self._parser
        reusable = parser.persistent and self.request_sent_at > 0.0
        self._receiver = None
        receiver.received(head, body, True, parser.trailers, now)
        if self.closed:
            return
        if not reusable:
            self.discard()
            return
        self.resume_reading()
        self.idle_since = now
        self._on_idle(self)

    def _lost(self, exc: Exception | None) -> Failure:
        if self._parser.head is not None:
            phase = Phase.RECEIVE
        else:
            phase = Phase.WAIT if self.request_sent_at else Phase.SEND
        reason = ErrorReason.CLOSED if exc is None else reason_of(exc)
        # A reset says nothing of what came before it: its acknowledgement is not taken into account by the kernel.
        untouched = exc is None and self.requests > 1 and self._parser.nothing_seen and self._nothing_accepted()
        return Failure(
            Code.UPSTREAM_CLOSED,
            "the upstream closed the connection before its answer was complete",
            phase,
            reason,
            untouched,
        )

    def _nothing_accepted(self) -> bool:
        """The peer's FIN acknowledged no byte since the last answer: it had closed before our request reached it."""
        return self.sock is not None and self._acked >= 0 and tcp_info.read(self.sock).bytes_acked == self._acked

    def measure(self) -> tuple[float, int]:
        """Smoothed round trip in seconds, and segments sent again since the last call; when a head has arrived."""
        if self.sock is None:
            return 0.0, 0
        info = tcp_info.read(self.sock)
        self._acked = info.bytes_acked if self.request_sent_at else -1
        again, self._retransmits = info.retransmits - self._retransmits, info.retransmits
        return info.rtt, again

    def is_usable(self) -> bool:
        """An idle connection on which nothing has arrived: no FIN, no RST, no stray byte (one system call)."""
        if self.closed or self.transport is None or self.transport.is_closing() or self.sock is None:
            return False
        poller = self._poller
        if poller is None:
            poller = self._poller = select.poll()
            poller.register(self.sock, select.POLLIN)
        return not poller.poll(0)

    # ---- the end ----

    def check_silence(self, now: float, headers: float, idle: float) -> None:
        """Give the exchange up when the upstream said, or took, nothing for too long (seconds)."""
        silent = now - self.last_read
        if self._receiver is None or self._reading_paused:
            return
        if self._parser.head is not None:
            if silent >= idle:
                self.timed_out(Code.IDLE_TIMEOUT, Phase.RECEIVE, f"nothing more came from the upstream for {idle:g} s")
        elif self.request_sent_at:
            if now - self.request_sent_at >= headers:
                self.timed_out(
                    Code.HEADERS_TIMEOUT, Phase.WAIT, f"no response head in {headers:g} s (timeouts.headers)"
                )
        elif self.write_paused and silent >= idle:
            self.timed_out(Code.SEND_TIMEOUT, Phase.SEND, f"the upstream took no byte of the request for {idle:g} s")

    def timed_out(self, code: Code, phase: Phase, message: str) -> None:
        """Give the running exchange up."""
        self._fail(Failure(code, message, phase, ErrorReason.TIMEOUT), self._clock())

    def _fail(self, failure: Failure, now: float) -> None:
        receiver = self._receiver
        self.discard()
        if receiver is not None:
            receiver.failed(failure, now)

    def discard(self) -> None:
        """Close at once, whatever is still to come or to go."""
        self._receiver = None
        transport = self.transport
        self._close()
        if transport is not None:
            transport.abort()

    def _close(self) -> None:
        if not self.closed:
            self.closed = True
            self._wake_writer()
            self._on_closed(self)


def _protocol(detail: str) -> Failure:
    message = f"the upstream does not speak HTTP/1.1 as it must: {detail}"
    return Failure(Code.UPSTREAM_PROTOCOL, message, Phase.RECEIVE, ErrorReason.PROTOCOL)
