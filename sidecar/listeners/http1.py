"""HTTP/1.1 from the application: aiohttp's low-level server, with a request and a response as light as they get.

aiohttp parses and guards the connection (limits, pipelining, lingering close). What it would do for a web application
is left out: no cookies, no decompression, no multidict of headers, no response object that formats itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import LineTooLong
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader

from sidecar.exchange import Headers
from sidecar.failures import Code, Failure
from sidecar.http_fields import value_of
from sidecar.listeners.http1_exchange import Http1Exchange
from sidecar.proxy.answers import error_response
from sidecar.proxy.downstream import Downstream, FlowObserver

MAX_HEADER_FIELDS = 512
"""aiohttp's own 128 rejects applications that send their cookies one by one."""

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
