"""A raw HTTP/1.1 client: sends exact bytes, times every read, and can leave in every way a client leaves."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Self

from tests.kit import events
from tests.kit.h1 import (
    Body,
    Headers,
    Malformed,
    RawResponse,
    parse_response,
    response_framing,
    split_head,
    status_line,
)
from tests.kit.wire import PATIENCE, ConnectionEnded, Wire


def request_bytes(
    method: str = "POST",
    target: str | bytes = "/v1/chat/completions",
    headers: Headers | None = None,
    body: bytes | None = None,
    *,
    host: bytes = b"localhost",
) -> bytes:
    """A request as bytes: Host, `headers` as given, then Content-Length when there is a body and no framing."""
    lines = [b"%b %b HTTP/1.1" % (method.encode(), target.encode() if isinstance(target, str) else target)]
    fields = list(headers or [])
    names = {name.lower() for name, _ in fields}
    if b"host" not in names:
        fields.insert(0, (b"Host", host))
    if body is not None and not names & {b"content-length", b"transfer-encoding"}:
        fields.append((b"Content-Length", str(len(body)).encode()))
    lines += [name + b": " + value for name, value in fields]
    return b"\r\n".join(lines) + b"\r\n\r\n" + (body or b"")


CHAT_REQUEST = request_bytes(headers=events.DEFAULT_HEADERS, body=events.DEFAULT_BODY)
"""The default request: a streaming chat completion."""
MESSAGES_REQUEST = request_bytes(
    target="/v1/messages", headers=events.DEFAULT_HEADERS, body=events.DEFAULT_BODY.replace(b'"m1"', b'"m2"')
)


class RawClient(Wire):
    """One client connection. Use `async with await RawClient.connect(address)`."""

    @classmethod
    async def connect(
        cls, address: tuple[str, int], *, receive_buffer: int | None = None, tls: ssl.SSLContext | None = None
    ) -> Self:
        """Connect; `receive_buffer` is SO_RCVBUF in bytes, so that a client that does not read stalls its peer soon."""
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        raw = socket.socket(family, socket.SOCK_STREAM)
        try:
            raw.setblocking(False)
            if receive_buffer is not None:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(raw, address)
            name = address[0] if tls is not None else None
            _, client = await loop.create_connection(cls, sock=raw, ssl=tls, server_hostname=name)
        except BaseException:
            raw.close()
            raise
        return client

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def request(
        self,
        method: str = "POST",
        target: str | bytes = "/v1/chat/completions",
        headers: Headers | None = None,
        body: bytes | None = None,
        *,
        timeout: float = PATIENCE,
    ) -> RawResponse:
        """Send one request (see `request_bytes`) and read its whole response."""
        await self.send(request_bytes(method, target, headers, body))
        return await self.response(method, timeout=timeout)

    async def chat(self, timeout: float = PATIENCE) -> RawResponse:
        """Send the default request and read its whole response."""
        await self.send(CHAT_REQUEST)
        return await self.response(timeout=timeout)

    async def recv_head(self, timeout: float = PATIENCE) -> tuple[int, Headers]:
        """Status and fields of the next final response as soon as they are here; the bytes stay in `buffer`."""

        await self.until(lambda: self._final_head() is not None, timeout)
        head = self._final_head()
        assert head is not None
        return head[:2]

    def _final_head(self) -> tuple[int, Headers, int] | None:
        """Status and fields of the first final response in the buffer, and where its body begins."""
        start = 0
        while (head := split_head(self.buffer[start:])) is not None:
            start += head[2]
            status, _ = status_line(head[0])
            if status >= 200 or status == 101:
                return status, head[1], start
        return None

    async def response(self, method: str = "POST", *, timeout: float = PATIENCE) -> RawResponse:
        """The next response, whole or as far as it came (`clean_end`). Raises ConnectionEnded without a head."""
        try:
            await self.recv_head(timeout)
            await self._until_complete(method, timeout)
        except ConnectionEnded:
            if split_head(self.buffer) is None:
                raise
        response, rest = parse_response(bytes(self.buffer), method, ended=self.end is not None)
        self.buffer[:] = rest
        return response

    async def _until_complete(self, method: str, timeout: float) -> None:
        head = self._final_head()
        assert head is not None
        status, headers, position = head
        body = Body(*response_framing(status, headers, method))

        def complete() -> bool:
            nonlocal position
            body.feed(self.buffer[position:])
            position = len(self.buffer)
            return body.complete

        await self.until(complete, timeout)

    async def read_all(self, timeout: float = PATIENCE) -> bytes:
        """Everything that came until the connection ended."""
        await self.wait_closed(timeout)
        return self.received

    def partial(self, method: str = "POST") -> RawResponse | None:
        """What has come of the current response so far, None before its head."""
        try:
            return parse_response(bytes(self.buffer), method, ended=self.end is not None)[0]
        except Malformed:
            return None


async def get(
    address: tuple[str, int], target: str, headers: Headers | None = None, method: str = "GET"
) -> RawResponse:
    """One request without a body on a connection of its own."""
    async with await RawClient.connect(address) as client:
        return await client.request(method, target, [*(headers or []), (b"Connection", b"close")])


async def post(address: tuple[str, int], target: str, body: bytes, headers: Headers | None = None) -> RawResponse:
    """One POST of JSON on a connection of its own."""
    async with await RawClient.connect(address) as client:
        return await client.request("POST", target, [*events.DEFAULT_HEADERS, *(headers or [])], body)
