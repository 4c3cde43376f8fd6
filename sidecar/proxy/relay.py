"""The answer on its way back: bytes to the application first, then their copy to the meter, all in one callback."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sidecar.exchange import Exchange, Headers, Phase
from sidecar.failures import Code, ErrorReason, Failure
from sidecar.http_fields import NEVER_CONNECTION_OPTIONS, Framing, end_to_end, value_of
from sidecar.proxy.downstream import Downstream
from sidecar.proxy.meter import Meter
from sidecar.proxy.request_head import VIA
from sidecar.proxy.usage_injection import UsageFilter
from sidecar.upstreams.http1 import Http1Connection
from sidecar.upstreams.http1_response import ResponseHead

_NOTHING: list[bytes] = []


class Relay:
    """Receives one response from a connection and passes it on; also what a tunnel's two ends meet in.

    `done` resolves once: to None when the exchange ended (well or not) with a response head sent, or to the Failure
    when nothing was sent to the application yet, so that it can be tried again or answered.
    """

    __slots__ = (
        "_clock",
        "_downstream",
        "_filter",
        "_paused_at",
        "_server_timing",
        "_via",
        "connection",
        "done",
        "exchange",
        "finished",
        "head_sent",
        "meter",
    )

    def __init__(
        self,
        exchange: Exchange,
        downstream: Downstream,
        meter: Meter,
        clock: Callable[[], float],
        *,
        server_timing: bool,
        via: bool,
    ) -> None:
        self.exchange = exchange
        self.meter = meter
        self.connection: Http1Connection | None = None
        self.done: asyncio.Future[Failure | None] = asyncio.get_running_loop().create_future()
        self.head_sent = False
        self.finished = False
        self._downstream = downstream
        self._clock = clock
        self._server_timing = server_timing
        self._via = via
        self._filter: UsageFilter | None = None
        self._paused_at = 0.0
        downstream.observe_flow(self)

    def hide_usage(self) -> None:
        """Usage was asked for on the application's behalf: it is read here, and does not go on."""
        self._filter = UsageFilter()

    def attach(self, connection: Http1Connection) -> None:
        """The response will come on this connection; not before the application has taken what came before it."""
        self.connection = connection
        if self._paused_at or self._downstream.writing_paused:
            self._paused_at = self._paused_at or self._clock()
            connection.pause_reading()

    def rearm(self) -> None:
        """Get ready for another try of the same request: nothing has been sent to the application."""
        self.done = asyncio.get_running_loop().create_future()
        self.finished = False
        self.connection = None

    # ---- from the upstream ----

    def interim(self, status: int, reason: bytes, headers: Headers) -> None:
        """Pass a 1xx on."""
        if not self.finished:
            self._downstream.interim(status, reason, headers)

    def received(self, head: ResponseHead | None, body: bytes, ended: bool, trailers: Headers, now: float) -> None:
        """Pass on what one read brought, then keep its copy."""
        if self.finished:
            return
        exchange = self.exchange
        extra = _NOTHING
        if head is not None:
            if head.status == 101 and not self._downstream.upgrade:
                self._refuse_switch(now)
                return
            self._mark_head(head, now)
            extra = self._added_fields()
            self.head_sent = True
        shown = body
        if self._filter is not None:
            shown = self._filtered(head, body, ended)
        # A transport that has more than it can send calls `client_paused` from within.
        self._downstream.send(head, extra, shown, ended, trailers)
        if exchange.tunnel and head is not None:
            self._downstream.start_tunnel(self)
        if body:
            exchange.response_overheads.append(self._clock() - now)
            exchange.response_bytes += len(body)
            self.meter.add(now, body)
        if ended:
            self._end(now)

    def _added_fields(self) -> list[bytes]:
        """The field lines that a response gets on its way."""
        lines = [server_timing(self.exchange)] if self._server_timing else []
        if self._via:
            lines.append(VIA)
        return lines

    def _refuse_switch(self, now: float) -> None:
        """A 101 that was not asked for: nobody here knows what the bytes after it mean (RFC 9110 §15.2.2)."""
        if self.connection is not None:
            self.connection.discard()
        message = "the upstream switched to a protocol that it was not asked for"
        self.failed(Failure(Code.UPSTREAM_PROTOCOL, message, Phase.RECEIVE, ErrorReason.PROTOCOL), now)

    def _filtered(self, head: ResponseHead | None, body: bytes, ended: bool) -> bytes:
        """What of a body goes on; anything but an event stream goes on whole."""
        assert self._filter is not None
        if head is not None:
            kind = value_of(head.headers, b"content-type") or b""
            coding = value_of(head.headers, b"content-encoding") or b"identity"
            if head.status != 200 or b"event-stream" not in kind or coding.lower() != b"identity":
                self._filter = None
                return body
            if head.framing is Framing.LENGTH:
                head.framing = Framing.CHUNKED
                dropped = (head.options - NEVER_CONNECTION_OPTIONS) | {b"content-length"}
                head.headers, head.lines = end_to_end(head.headers, dropped), None
        shown = self._filter.feed(body)
        return shown + self._filter.finish() if ended else shown

    def tunnelled(self, data: bytes, now: float) -> None:
        """Pass on bytes of an upgraded connection."""
        if self.finished:
            return
        self._downstream.tunnel_write(data)
        self.exchange.response_overheads.append(self._clock() - now)
        self.exchange.response_bytes += len(data)
        self.meter.add(now, data)

    def failed(self, failure: Failure, now: float) -> None:
        """The response broke off: never let it look complete."""
        if self.finished:
            return
        if not self.head_sent:
            self.finished = True
            self.done.set_result(failure)
            return
        self.exchange.failure = failure
        self._downstream.abort()
        self._end(now)

    # ---- from the application ----

    def client_paused(self) -> None:
        """It does not take what was sent: stop reading, so that the upstream notices."""
        if not self._paused_at and not self.finished:
            self._paused_at = self._clock()
            if self.connection is not None:
                self.connection.pause_reading()

    def client_resumed(self) -> None:
        """It takes more."""
        if self._paused_at:
            self.exchange.client_wait += self._clock() - self._paused_at
            self._paused_at = 0.0
            if self.connection is not None and not self.finished:
                self.connection.resume_reading()

    def client_gone(self) -> None:
        """It left: so do we, at once, so that the upstream stops generating."""
        if not self.finished:
            self.exchange.client_gone = True
            self._end(self._clock())
        if self.connection is not None:
            self.connection.discard()

    def from_client(self, data: bytes) -> None:
        """Bytes of the tunnel; the application is read no faster than the upstream takes them."""
        connection = self.connection
        if connection is None or self.finished:
            return
        self.exchange.request_bytes += len(data)
        connection.write(data)
        if connection.write_paused:
            self._downstream.pause_reading()
            connection.on_writable = self._downstream.resume_reading

    def client_closed(self) -> None:
        """The application closed its end of the tunnel."""
        self.client_gone()

    # ---- the end ----

    def _mark_head(self, head: ResponseHead, now: float) -> None:
        exchange = self.exchange
        exchange.t_hdr = now
        exchange.status = head.status
        exchange.response_headers = head.headers
        connection = self.connection
        if connection is not None:
            exchange.rtt, exchange.retransmits = connection.measure()
        if head.status == 101:
            exchange.tunnel = True

    def _end(self, now: float) -> None:
        self.finished = True
        exchange = self.exchange
        exchange.t_end = now
        if self._paused_at:
            exchange.client_wait += self._clock() - self._paused_at
            self._paused_at = 0.0
        self._downstream.observe_flow(None)
        if exchange.tunnel:
            self._downstream.close()
        if not self.done.done():
            self.done.set_result(None)


def server_timing(exchange: Exchange) -> bytes:
    """The field line Server-Timing (W3C): milliseconds of each phase that this exchange had until its head."""
    sent = exchange.t_send1 or exchange.t_hdr
    blocked = exchange.blocked * 1e3
    last = (sent - exchange.t_send0) * 1e3, (exchange.t_hdr - sent) * 1e3
    if exchange.connection_reused:
        return b"Server-Timing: blocked;dur=%.2f, send;dur=%.2f, wait;dur=%.2f" % (blocked, *last)
    parts = [b"blocked;dur=%.2f" % blocked]
    if exchange.dns:
        parts.append(b"dns;dur=%.2f" % (exchange.dns * 1e3))
    if exchange.connect:
        parts.append(b"connect;dur=%.2f" % (exchange.connect * 1e3))
    if exchange.tls:
        parts.append(b"tls;dur=%.2f" % (exchange.tls * 1e3))
    parts.append(b"send;dur=%.2f, wait;dur=%.2f" % last)
    return b"Server-Timing: " + b", ".join(parts)
