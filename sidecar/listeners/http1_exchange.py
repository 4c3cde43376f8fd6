"""One HTTP/1.1 request of the application and the way back for its response.

It stands in for both objects that aiohttp would make, and does what little is left to do: no multidict of headers, no
response that formats itself.
"""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader

from sidecar.exchange import Headers
from sidecar.failures import Code, Failure
from sidecar.http_fields import HOP_BY_HOP, Framing, lower
from sidecar.proxy.downstream import FlowObserver, TunnelPeer
from sidecar.upstreams.http1_response import ResponseHead

if TYPE_CHECKING:
    from sidecar.listeners.http1 import DataProtocol

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


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
        if head is None and self._sent_chunked and body and not ended:
            transport.write(b"%x\r\n%b\r\n" % (len(body), body))  # an event of a stream
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
