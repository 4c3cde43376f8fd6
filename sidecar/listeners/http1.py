"""HTTP/1.1 from the application: aiohttp's low-level server, with a request and a response as light as they get.

aiohttp parses and guards the connection (limits, pipelining, lingering close). What it would do for a web application
is left out: no cookies, no decompression, no multidict of headers, no response object that formats itself.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader

from sidecar.exchange import Headers
from sidecar.failures import Code, Failure
from sidecar.http_fields import HOP_BY_HOP, Framing, lower, value_of
from sidecar.proxy.answers import error_response
from sidecar.proxy.downstream import Downstream, FlowObserver, TunnelPeer
from sidecar.upstreams.http1_response import ResponseHead

MAX_HEADER_FIELDS = 512
"""aiohttp's own 128 rejects applications that send their cookies one by one."""

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)

Handler = Callable[[Downstream], Awaitable[None]]
Rejected = Callable[[Failure], None]


class _Answer:
    """What aiohttp takes for a response; its bytes were written by the relay already."""

    __slots__ = ("keep_alive",)

    def __init__(self, keep_alive: bool) -> None:
        self.keep_alive = keep_alive

    async def prepare(self, request: object) -> None:
        """Nothing is left to do."""

    async def write_eof(self) -> None:
        """Nothing is left to do."""


def _bad_body(error: object) -> Failure:
    return Failure(Code.BAD_REQUEST, f"the request body is not framed as HTTP/1.1 says: {type(error).__name__}")


class _Tunnel:
    """Where aiohttp's connection delivers what follows an accepted upgrade."""

    __slots__ = ("_peer",)

    def __init__(self, peer: TunnelPeer) -> None:
        self._peer = peer

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        self._peer.from_client(data)
        return False, b""

    def feed_eof(self) -> None:
        self._peer.client_closed()


class Http1Exchange:
    """One request on a connection, and the way back (a `Downstream`); also the request object aiohttp keeps."""

    __slots__ = (
        "_http10",
        "_message",
        "_payload",
        "_protocol",
        "_sent_chunked",
        "_sent_framing",
        "_task",
        "chunked",
        "headers",
        "keep_alive",
        "method",
        "received_at",
        "target",
        "upgrade",
    )

    def __init__(self, message: RawRequestMessage, payload: StreamReader, protocol: DataProtocol) -> None:
        self._protocol = protocol
        self._payload = payload
        self._message = message
        self._task: object = None
        self._http10 = message.version.minor == 0
        self._sent_chunked = False
        self._sent_framing = Framing.NONE
        self.method = message.method
        self.target = message.path.encode("utf-8", "surrogateescape")
        self.headers: Headers = message.raw_headers  # type: ignore[assignment]  # a tuple, never changed
        self.chunked = message.chunked
        self.upgrade = message.upgrade and message.headers.get("Upgrade", "").lower() == "websocket"
        self.keep_alive = not message.should_close
        self.received_at = protocol.head_received()

    # ---- what aiohttp's connection calls ----

    def _finish(self) -> None:
        """The response was handed over."""

    def _cancel(self, exc: BaseException) -> None:
        """The connection is gone; the handler's task is cancelled besides."""

    # ---- RequestBody: the body, out of aiohttp's stream ----

    def at_end(self) -> bool:
        return self._payload.at_eof()

    def whole(self) -> bytes | None:
        payload = self._payload
        error = payload.exception()
        if error is not None:
            raise _bad_body(error)
        return payload.read_nowait(-1) if payload.is_eof() else None

    async def read(self) -> bytes:
        try:
            return await self._payload.readany()
        except (web.RequestPayloadError, HttpProcessingError) as error:
            raise _bad_body(error) from error

    # ---- Downstream ----

    @property
    def body(self) -> Http1Exchange:
        return self

    @property
    def declared_length(self) -> int | None:
        value = self._message.headers.get("Content-Length")
        return int(value) if value is not None and value.isdecimal() else None

    @property
    def gone(self) -> bool:
        return self._protocol.transport is None

    @property
    def writing_paused(self) -> bool:
        return self._protocol.writing_paused

    def observe_flow(self, observer: FlowObserver | None) -> None:
        self._protocol.flow = observer

    def interim(self, status: int, reason: bytes, headers: Headers) -> None:
        transport = self._protocol.transport
        if transport is not None and not self._http10:
            lines = [b"HTTP/1.1 %d %b" % (status, reason)]
            lines += [name + b": " + value for name, value in headers if lower(name) not in HOP_BY_HOP]
            transport.write(b"\r\n".join(lines) + b"\r\n\r\n")

    def send(self, head: ResponseHead | None, extra: list[bytes], body: bytes, ended: bool, trailers: Headers) -> None:
        transport = self._protocol.transport
        if transport is None:
            return
        out = self._head(head, extra) if head is not None else b""
        if self._sent_chunked:
            if body:
                out += b"%x\r\n%b\r\n" % (len(body), body)
            if ended:
                out += b"0\r\n\r\n" if not trailers else _last_chunk(trailers)
        elif len(body) < 16 * 1024:
            out += body
        else:
            if out:
                transport.write(out)
            out = body
        if out:
            transport.write(out)

    def _head(self, head: ResponseHead, extra: list[bytes]) -> bytes:
        lines = [b"HTTP/1.1 %d %b" % (head.status, head.reason)]
        # One of our own has no fields that would end here.
        lines += head.lines if head.lines is not None else map(b": ".join, head.headers)
        lines += extra
        framing = head.framing
        if framing is Framing.CHUNKED:
            if self._http10:
                framing = Framing.CLOSE
            else:
                self._sent_chunked = True
                lines.append(b"Transfer-Encoding: chunked")
        if head.status == 101:
            lines.append(b"Connection: Upgrade\r\nUpgrade: websocket")
            self.keep_alive = False
        elif framing is Framing.CLOSE or not self.keep_alive or self._protocol.draining or not self._payload.is_eof():
            # The last: what is left of the request body will not be used, and a client that waits for a 100 may
            # never send it; only the end of the connection says where the next request begins (RFC 9110 §10.1.1).
            self.keep_alive = False
            lines.append(b"Connection: close")
        elif self._http10:
            lines.append(b"Connection: keep-alive")
        self._sent_framing = framing
        lines.append(b"\r\n")
        return b"\r\n".join(lines)

    def abort(self) -> None:
        self.keep_alive = False
        transport = self._protocol.transport
        if transport is None:
            return
        if self._sent_framing is Framing.CLOSE:
            # A FIN would be the regular end of such a body.
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            transport.abort()
        else:
            self._protocol.force_close()

    def start_tunnel(self, peer: TunnelPeer) -> None:
        self._protocol.set_parser(_Tunnel(peer))  # type: ignore[arg-type]  # all it needs of a parser

    def tunnel_write(self, data: bytes) -> None:
        transport = self._protocol.transport
        if transport is not None:
            transport.write(data)

    def pause_reading(self) -> None:
        transport = self._protocol.transport
        if transport is not None:
            transport.pause_reading()

    def resume_reading(self) -> None:
        transport = self._protocol.transport
        if transport is not None:
            transport.resume_reading()

    def close(self) -> None:
        transport = self._protocol.transport
        if transport is not None:
            transport.close()


def _last_chunk(trailers: Headers) -> bytes:
    lines = [b"0"] + [name + b": " + value for name, value in trailers] + [b"\r\n"]
    return b"\r\n".join(lines)


class DataProtocol(web.RequestHandler):
    """A connection of the application."""

    __slots__ = ("_clock", "_head_at", "_server", "flow", "read_bytes")

    def __init__(self, server: DataServer, clock: Callable[[], float], **kwargs: Any) -> None:
        super().__init__(server, **kwargs)
        self._server = server
        self._clock = clock
        self._head_at = 0.0
        self.read_bytes = 0
        self.flow: FlowObserver | None = None

    @property
    def draining(self) -> bool:
        """New requests are served, but connections are not kept."""
        return self._server.draining

    def data_received(self, data: bytes) -> None:
        if not self._head_at:
            self._head_at = self._clock()
        self.read_bytes += len(data)
        super().data_received(data)
        if self._messages:
            self.check_body()

    def head_received(self) -> float:
        """When the request that is now taken up arrived."""
        return self._head_at or self._clock()

    def request_ended(self) -> None:
        """The next read begins a new request."""
        self._head_at = 0.0
        if not self._messages:  # else what was read belongs to pipelined requests as well
            self.read_bytes = 0

    def check_body(self) -> None:
        """End the body of the running request when what follows it is an error found inside it.

        aiohttp queues that error as a message of its own and would let the request wait for the rest for ever.
        """
        request: Any = self._current_request
        if request is not None and self._messages and not request._payload.is_eof():
            request.keep_alive = False
            request._payload.set_exception(web.RequestPayloadError("malformed"))
            request._payload.feed_eof()

    def head_exceeds(self, headers: Headers, limit: int) -> bool:
        """The fields of the request are larger than `limit` bytes; most requests have been read in less than that."""
        return self.read_bytes > limit and sum(len(name) + len(value) + 4 for name, value in headers) > limit

    def pause_writing(self) -> None:
        super().pause_writing()
        if self.flow is not None:
            self.flow.client_paused()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.flow is not None:
            self.flow.client_resumed()

    def handle_error(
        self,
        request: Any,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> Any:
        """Answer what could not be parsed as a request."""
        too_large = isinstance(exc, LineTooLong) or "Too many headers" in str(message)
        if too_large:
            failure = Failure(Code.HEADERS_TOO_LARGE, "request line or header fields above limits.max_header_bytes")
        else:
            failure = Failure(Code.BAD_REQUEST, f"not an HTTP/1.1 request: {_first_line(message)}")
        self._server.rejected(failure)
        head, body = error_response(failure, "openai")
        request.keep_alive = False
        request.send(head, [], body, True, [])
        return _Answer(False)


def _first_line(message: str | None) -> str:
    """The parser's reason without the bytes it quotes, which may hold a credential."""
    return (message or "unreadable").split("\n", 1)[0].rstrip(":")[:120]


class DataServer(web.Server):
    """Makes a DataProtocol for each connection and calls `handler` for each request."""

    def __init__(self, handler: Handler, rejected: Rejected, clock: Callable[[], float], max_header_bytes: int) -> None:
        super().__init__(
            self._handle,  # type: ignore[arg-type]  # our request and response stand in for aiohttp's
            request_factory=self._request,  # type: ignore[arg-type]
            handler_cancellation=True,
        )
        self._serve = handler
        self._clock = clock
        self.rejected = rejected
        self.draining = False
        self._options: dict[str, Any] = {
            "loop": asyncio.get_running_loop(),
            "access_log": None,
            "auto_decompress": False,
            "max_line_size": max_header_bytes,
            "max_field_size": max_header_bytes,
            "max_headers": MAX_HEADER_FIELDS,
        }
        self._max_header_bytes = max_header_bytes

    def __call__(self) -> DataProtocol:
        return DataProtocol(self, self._clock, **self._options)

    def _request(
        self, message: RawRequestMessage, payload: StreamReader, protocol: Any, writer: object, task: object
    ) -> Http1Exchange:
        return Http1Exchange(message, payload, protocol)

    async def _handle(self, request: Http1Exchange) -> _Answer:
        protocol = request._protocol
        try:
            if protocol._messages:
                protocol.check_body()
            failure = None
            if request.chunked or protocol.read_bytes > self._max_header_bytes:
                failure = self._refusal(request)
            if failure is not None:
                self.rejected(failure)
                head, body = error_response(failure, "openai")
                request.keep_alive = False
                request.send(head, [], body, True, [])
            else:
                await self._serve(request)
        finally:
            protocol.flow = None
            protocol.request_ended()
        return _Answer(request.keep_alive)

    def _refusal(self, request: Http1Exchange) -> Failure | None:
        """What aiohttp lets through and we do not."""
        if request._protocol.head_exceeds(request.headers, self._max_header_bytes):
            return Failure(Code.HEADERS_TOO_LARGE, "header fields above limits.max_header_bytes")
        coding = value_of(request.headers, b"transfer-encoding") if request.chunked else None
        if coding is not None and coding.strip().lower() != b"chunked":
            # The field ends at this hop: nobody behind it would know of the other coding (RFC 9112 §6.1).
            return Failure(Code.BAD_REQUEST, "a transfer coding other than chunked")
        return None
