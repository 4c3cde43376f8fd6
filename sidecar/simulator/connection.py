"""One connection of the simulator: HTTP/1.1 on a bare protocol, because it is the load target of benchmarks."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from time import monotonic
from typing import cast

import httptools

from sidecar.simulator.faults import arm_reset, set_socket_option
from sidecar.simulator.knobs import KnobError, read_knobs
from sidecar.simulator.outlet import Dribble
from sidecar.simulator.realtime import Realtime
from sidecar.simulator.request import Request
from sidecar.simulator.responder import Link, Responder, Setting
from sidecar.simulator.routing import choose
from sidecar.simulator.truths import Ending

_MAX_QUEUED = 16
"""Pipelined requests that wait for their turn before reading stops."""

_SLOW_BUFFER = 4096
"""Bytes of the kernel's receive buffer when a body is read slowly, that the client may feel it."""


class _Waiting:
    """A pipelined request that was received while another one is being answered."""

    def __init__(self, responder: Responder) -> None:
        self.responder = responder
        self.pieces: list[bytes] = []
        self.complete = False

    def body(self, data: bytes) -> None:
        self.pieces.append(data)

    def end(self) -> None:
        self.complete = True


class Connection(asyncio.Protocol):
    """Parses requests, hands them to responders one after the other, and ends as they wish.

    `live` is the set of open connections, in which it keeps itself.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, setting: Setting, live: set[Connection]) -> None:
        self._loop, self._setting, self._live = loop, setting, live
        self._parser = httptools.HttpRequestParser(self)
        self._current: Responder | None = None
        self._receiving: Responder | _Waiting | None = None
        self._queue: deque[_Waiting] = deque()
        self._tunnel: Realtime | None = None
        self._holds: set[str] = set()
        self._rate = 0
        self._ended_slowly: Responder | _Waiting | None = None
        self._lost = False
        self._url, self._headers, self._wishes = b"", dict[bytes, bytes](), list[tuple[bytes, bytes]]()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's, so there is nothing to assert.
        self._transport = cast(asyncio.Transport, transport)
        self._live.add(self)
        self._facts = self._setting.ledger.open_connection(monotonic())
        tls = transport.get_extra_info("ssl_object")
        if tls is not None:
            self._facts.tls_version, self._facts.tls_resumed = tls.version(), bool(tls.session_reused)
            self._facts.alpn = tls.selected_alpn_protocol()
            self._setting.ledger.tls_resumed += self._facts.tls_resumed

    def data_received(self, data: bytes) -> None:
        if self._tunnel is not None:
            self._tunnel.receive(data)
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if isinstance(self._current, Realtime):
                self._tunnel = self._current
                self._tunnel.receive(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self._transport.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            self._transport.close()
        if self._rate:
            self._hold("rate")
            self._loop.call_later(len(data) / self._rate, self._read_on)

    def eof_received(self) -> None:
        """A client that stops sending has left; the transport closes."""

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self._live.discard(self)
        self._setting.ledger.connections_open -= 1
        current, self._current = self._current, None
        unfinished = [waiting.responder for waiting in self._queue]
        if current is not None:
            current.gone()
            if current.link.dribble is not None:
                current.link.dribble.stop()
            unfinished.append(current)
        for responder in unfinished:
            if responder.truth.ending is Ending.RUNNING:
                responder.truth.ended_at, responder.truth.ending = monotonic(), Ending.CANCELLED
        self._queue.clear()

    def pause_writing(self) -> None:
        if self._current is not None:
            self._current.pause()

    def resume_writing(self) -> None:
        if self._current is not None:
            self._current.resume()

    # What the parser calls.

    def on_message_begin(self) -> None:
        self._url, self._headers, self._wishes = b"", {}, []

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        self._headers[name] = value
        if name.startswith(b"x-sim-"):
            self._wishes.append((name, value))

    def on_headers_complete(self) -> None:
        knobs, problem = self._setting.defaults, ""
        if self._wishes:
            try:
                knobs = read_knobs(tuple(self._wishes), knobs)
            except KnobError as error:
                problem = str(error)
        parser = self._parser
        request = Request(
            parser.get_method().decode("latin-1"),
            self._url.decode("latin-1"),
            parser.get_http_version(),
            self._headers,
            knobs,
            monotonic(),
            parser.should_keep_alive() and not parser.should_upgrade(),
            parser.should_upgrade() and self._headers.get(b"upgrade", b"").lower() == b"websocket",
        )
        if knobs.slow_read:
            self._rate = knobs.slow_read
            handle = self._transport.get_extra_info("socket").fileno()
            set_socket_option(handle, socket.SOL_SOCKET, socket.SO_RCVBUF, _SLOW_BUFFER)
        if self._headers.get(b"expect", b"").lower() == b"100-continue":
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        responder = choose(self._link(request), request, self._facts, self._setting, problem)
        if self._current is None and not self._queue:
            self._current = self._receiving = responder
            responder.begin()
        else:
            self._receiving = waiting = _Waiting(responder)
            self._queue.append(waiting)
            if len(self._queue) >= _MAX_QUEUED:
                self._hold("queue")

    def on_body(self, data: bytes) -> None:
        if self._receiving is not None:
            self._receiving.body(data)

    def on_message_complete(self) -> None:
        receiving, self._receiving = self._receiving, None
        if self._rate:
            self._ended_slowly = receiving
        elif receiving is not None:
            receiving.end()

    # What responders call, and the rest.

    def _link(self, request: Request) -> Link:
        knobs = request.knobs
        dribble = Dribble(self._loop, self._transport, knobs) if knobs.one_byte or knobs.split else None
        return Link(
            self._loop,
            self._transport,
            dribble,
            self._finish,
            lambda: self._hold("echo"),
            lambda: self._release("echo"),
        )

    def _finish(self, ending: Ending, close: bool) -> None:
        current, self._current = self._current, None
        if self._lost or current is None:
            return
        current.truth.ended_at, current.truth.ending = monotonic(), ending
        if ending is Ending.RESET:
            self._reset()
        elif close:
            self._transport.close()
        elif self._queue:
            self._loop.call_soon(self._promote)

    def _promote(self) -> None:
        """Start on the next pipelined request."""
        if self._lost or not self._queue:
            return
        waiting = self._queue.popleft()
        self._release("queue")
        self._current = responder = waiting.responder
        responder.begin()
        for piece in waiting.pieces:
            responder.body(piece)
        if waiting.complete:
            responder.end()
        elif self._receiving is waiting:
            self._receiving = responder

    def _reset(self) -> None:
        """Close by RST, but not before what was written has gone out."""
        if self._lost:
            return
        if self._transport.get_write_buffer_size():
            self._loop.call_later(0.001, self._reset)
            return
        arm_reset(self._transport.get_extra_info("socket").fileno())
        self._transport.abort()

    def close(self) -> None:
        """Drop the connection at once."""
        self._transport.abort()

    def _read_on(self) -> None:
        ended, self._ended_slowly = self._ended_slowly, None
        if self._lost:
            return
        if ended is not None:
            self._rate = 0
            ended.end()
        self._release("rate")

    def _hold(self, reason: str) -> None:
        if not self._holds and not self._lost:
            self._transport.pause_reading()
        self._holds.add(reason)

    def _release(self, reason: str) -> None:
        if reason in self._holds:
            self._holds.remove(reason)
            if not self._holds and not self._lost and not self._transport.is_closing():
                self._transport.resume_reading()
