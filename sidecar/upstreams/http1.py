"""One HTTP/1.1 connection to an upstream: one request at a time, every read handed on in the callback it came in.

States of a connection: idle → sending → waiting (request sent, no head yet) → receiving → idle or closed, and tunnel
after a 101. Parsing is llhttp's, by httptools; what it leaves open (HEAD, bodies that end with the connection, limits)
is decided here.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import httptools

from sidecar.exchange import Headers, Phase
from sidecar.failures import Code, ErrorReason, Failure
from sidecar.http_fields import Framing, lower
from sidecar.upstreams import tcp_info
from sidecar.upstreams.dial import reason_of

SILENT_LIMIT_BYTES = 256 * 1024
"""Most bytes that may come in a row without a body byte among them: chunk extensions and trailers have no other bound."""


@dataclass(slots=True)
class ResponseHead:
    """Status line and fields of a response, as received; `reason` may be empty."""

    status: int
    reason: bytes
    headers: Headers
    framing: Framing
    options: set[bytes] = field(default_factory=set)
    """Field names that `Connection` ends here."""


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
        self._max_header_bytes = max_header_bytes
        self._on_idle = on_idle
        self._on_closed = on_closed
        self.transport: asyncio.Transport | None = None
        self.sock: socket.socket | None = None
        self.requests = 0
        self.last_read = self.idle_since = clock()
        self.request_sent_at = 0.0
        self.closed = False
        self.tunnel = False
        self._parser = httptools.HttpResponseParser(self)
        self._receiver: Receiver | None = None
        self._method = b""
        self._acked = -1
        self._retransmits = 0
        self._paused_reading = False
        self._writable: asyncio.Future[None] | None = None
        self._write_paused = False
        self.on_writable: Callable[[], None] | None = None
        """Called once when the upstream takes bytes again (a tunnel's way to hold its client)."""
        self._reset()

    def _reset(self) -> None:
        self._reason = b""
        self._headers: Headers = []
        self._header_bytes = 0
        self._silent_bytes = 0
        self._parts: list[bytes] = []
        self._head: ResponseHead | None = None
        self._head_pending = False
        self._trailers: Headers = []
        self._complete = False
        self._keep_alive = False

    def __repr__(self) -> str:
        if self.closed:
            state = "closed"
        elif self.tunnel:
            state = "tunnel"
        elif self._receiver is None:
            state = "idle"
        elif self._head is not None:
            state = "receiving"
        else:
            state = "waiting" if self.request_sent_at else "sending"
        return f"<Http1Connection {state}, {self.requests} requests>"

    # ---- the request ----

    def start(self, receiver: Receiver, method: bytes, data: bytes) -> None:
        """Send the head of a request, with what is there of its body."""
        self._receiver = receiver
        self._method = method
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
        if self._write_paused and not self.closed:
            if self._writable is None:
                self._writable = asyncio.get_running_loop().create_future()
            await self._writable

    @property
    def write_paused(self) -> bool:
        """The upstream takes no more for now."""
        return self._write_paused

    def request_sent(self, now: float) -> None:
        """The last byte of the request was written."""
        self.request_sent_at = self.last_read = now

    # ---- flow control ----

    def pause_reading(self) -> None:
        """The client is slow: read no more for now."""
        if not self._paused_reading and self.transport is not None and not self.closed:
            self._paused_reading = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Read on; the idle time starts anew."""
        if self._paused_reading and self.transport is not None and not self.closed:
            self._paused_reading = False
            self.last_read = self._clock()
            self.transport.resume_reading()

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        self._wake_writer()
        self.last_read = self._clock()

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
        if self.tunnel:
            if receiver is not None:
                receiver.tunnelled(data, now)
            return
        if receiver is None:
            # An answer to nothing: whoever spoke to us last did not stop where it should have.
            self.discard()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._deliver(receiver, now)
            self._switch(receiver, data[upgrade.args[0] :], now)
            return
        except httptools.HttpParserError as error:
            self._deliver_broken(receiver, error, now)
            return
        if self._head is None:
            self._header_bytes += len(data)
            if self._header_bytes > self._max_header_bytes:
                self._fail(_too_large(), now)
            return
        self._deliver(receiver, now)
        if not self._complete and not self._parts and self._silent_bytes > SILENT_LIMIT_BYTES:
            self._fail(_too_large(), now)

    def eof_received(self) -> bool | None:
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        receiver = self._receiver
        was_closed = self.closed
        self._close()
        if receiver is None or was_closed:
            return
        now = self._clock()
        head = self._head
        if self.tunnel or (head is not None and head.framing is Framing.CLOSE and exc is None):
            self._receiver = None
            receiver.received(None, b"", True, [], now)
            return
        self._receiver = None
        receiver.failed(self._lost(exc), now)

    # ---- callbacks of the parser ----

    def on_message_begin(self) -> None:
        if self._complete:
            raise ValueError("more than one response")

    def on_status(self, reason: bytes) -> None:
        self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > self._max_header_bytes:
            raise ValueError("header limit")
        (self._headers if self._head is None else self._trailers).append((name, value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200 and status != 101:
            return
        self._head = self._make_head(status)
        self._head_pending = True
        self._keep_alive = self._parser.should_keep_alive()

    def on_body(self, data: bytes) -> None:
        self._parts.append(data)

    def on_message_complete(self) -> None:
        if self._head is None:
            receiver = self._receiver
            if receiver is not None:
                receiver.interim(self._parser.get_status_code(), self._reason, self._headers)
            self._reason, self._headers, self._header_bytes = b"", [], 0
        else:
            self._complete = True

    # ---- what they add up to ----

    def _make_head(self, status: int) -> ResponseHead:
        framing, chunked, length, options = Framing.CLOSE, False, False, set()
        for name, value in self._headers:
            low = lower(name)
            if low == b"content-length":
                length = True
            elif low == b"transfer-encoding":
                if chunked or value.strip().lower() != b"chunked":
                    # Not asked for (TE ends here), and unreadable for the client once the field is gone.
                    raise ValueError("a transfer coding other than chunked")
                chunked = True
            elif low == b"connection":
                options |= {option.strip().lower() for option in value.split(b",")}
        if chunked and length:
            # RFC 9112 §6.3: whoever lets this through lets responses be split.
            raise ValueError("Content-Length and Transfer-Encoding")
        if self._method == b"HEAD" or status in (204, 304) or status == 101:
            framing = Framing.NONE
        elif chunked:
            framing = Framing.CHUNKED
        elif length:
            framing = Framing.LENGTH
        return ResponseHead(status, self._reason, self._headers, framing, options)

    def _deliver(self, receiver: Receiver, now: float, *, broken: bool = False) -> None:
        head = None
        if self._head_pending:
            head = self._head
            self._head_pending = False
            self._silent_bytes = 0
        parts = self._parts
        if parts:
            body = parts[0] if len(parts) == 1 else b"".join(parts)
            self._parts = []
            self._silent_bytes = 0
        else:
            body = b""
        if self._method == b"HEAD" and self._head is not None and not self.tunnel:
            if body:
                self._fail(_protocol("a body after HEAD"), now)
                return
            self._complete = True
            # llhttp does not know of HEAD and would wait for the body; this parser is of no more use.
            self._parser = httptools.HttpResponseParser(self)
        if self._complete:
            self._end(receiver, head, body, now, broken)
        elif head is not None or body:
            receiver.received(head, body, False, [], now)

    def _end(self, receiver: Receiver, head: ResponseHead | None, body: bytes, now: float, broken: bool) -> None:
        trailers = self._trailers
        known = head or self._head
        assert known is not None
        reusable = (
            not broken
            and self.request_sent_at > 0.0
            and known.framing is not Framing.CLOSE
            and (self._keep_alive or self._method == b"HEAD")
            and b"close" not in known.options
        )
        self._receiver = None
        self._reset()
        receiver.received(head, body, True, trailers, now)
        if self.closed:
            return
        if reusable:
            if self._paused_reading:
                self.resume_reading()
            self.idle_since = now
            self._on_idle(self)
        else:
            self.discard()

    def _deliver_broken(self, receiver: Receiver, error: Exception, now: float) -> None:
        """Hand over what was good before the bytes that were not; what was complete before them is complete."""
        if self._complete or (self._method != b"HEAD" and self._head is not None):
            self._deliver(receiver, now, broken=True)
        cause = error.__context__ if isinstance(error, httptools.HttpParserCallbackError) else error
        self._fail(_too_large() if str(cause) == "header limit" else _protocol(str(cause or error)), now)

    def _switch(self, receiver: Receiver, rest: bytes, now: float) -> None:
        self.tunnel = True
        if rest:
            receiver.tunnelled(rest, now)

    def _lost(self, exc: Exception | None) -> Failure:
        if self._head is not None:
            phase = Phase.RECEIVE
        else:
            phase = Phase.WAIT if self.request_sent_at else Phase.SEND
        reason = ErrorReason.CLOSED if exc is None else reason_of(exc)
        untouched = self.requests > 1 and self._head is None and self._nothing_accepted()
        return Failure(
            Code.UPSTREAM_CLOSED, "the upstream closed the connection before its answer was complete", phase, reason,
            untouched,
        )  # fmt: skip

    def _nothing_accepted(self) -> bool:
        """The peer's kernel acknowledged no byte since the last answer: the connection was dead when we wrote."""
        if self._acked < 0 or self.sock is None or self._header_bytes:
            return False
        return tcp_info.read(self.sock).bytes_acked == self._acked

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
        try:
            self.sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except (OSError, ValueError):
            return False
        return False

    # ---- the end ----

    def check_silence(self, now: float, headers: float, idle: float) -> None:
        """Give the exchange up when the upstream said, or took, nothing for too long (seconds)."""
        silent = now - self.last_read
        if self._receiver is None or self._paused_reading:
            return
        if self._head is not None:
            if silent >= idle:
                self.timed_out(Code.IDLE_TIMEOUT, Phase.RECEIVE, f"nothing more came from the upstream for {idle:g} s")
        elif self.request_sent_at:
            if now - self.request_sent_at >= headers:
                self.timed_out(
                    Code.HEADERS_TIMEOUT, Phase.WAIT, f"no response head in {headers:g} s (timeouts.headers)"
                )
        elif self._write_paused and silent >= idle:
            self.timed_out(Code.SEND_TIMEOUT, Phase.SEND, f"the upstream took no byte of the request for {idle:g} s")

    def timed_out(self, code: Code, phase: Phase, message: str) -> None:
        """Give the running exchange up."""
        self._fail(Failure(code, message, phase, ErrorReason.TIMEOUT), self._clock())

    def _fail(self, failure: Failure, now: float) -> None:
        receiver, self._receiver = self._receiver, None
        self.discard()
        if receiver is not None:
            receiver.failed(failure, now)

    def discard(self) -> None:
        """Close at once, whatever is still to come or to go."""
        if self.closed:
            return
        transport = self.transport
        self._receiver = None
        self._close()
        if transport is not None:
            transport.abort()

    def _close(self) -> None:
        if not self.closed:
            self.closed = True
            self._wake_writer()
            self._on_closed(self)


def _protocol(detail: str) -> Failure:
    return Failure(
        Code.UPSTREAM_PROTOCOL, f"the upstream does not speak HTTP/1.1 as it must: {detail}", Phase.RECEIVE,
        ErrorReason.PROTOCOL,
    )  # fmt: skip


def _too_large() -> Failure:
    return _protocol("header or trailer fields larger than limits.max_header_bytes")
