"""An upstream that does exactly what a test says, byte by byte, and remembers all it saw."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Awaitable, Callable
from typing import Self

from tests.kit import events
from tests.kit.h1 import Body, RawRequest, request_framing, split_head
from tests.kit.wire import PATIENCE, ConnectionEnded, Wire

Script = Callable[["Connection"], Awaitable[None]]
"""What happens on one connection. When it returns the connection is closed; ConnectionEnded may leave it."""


class Connection(Wire):
    """One connection that the sidecar opened."""

    def __init__(self, upstream: ScriptedUpstream) -> None:
        super().__init__()
        self.opened_at = time.monotonic()
        self.requests: list[RawRequest] = []
        self._upstream = upstream

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._upstream._start(self)

    async def read_request(self, timeout: float = PATIENCE, *, interim: bytes = b"") -> RawRequest:
        """The next request with its whole body. `interim` is sent between head and body (100-continue).

        Raises ConnectionEnded when the peer left before the request was complete.
        """
        await self.until(lambda: split_head(self.buffer) is not None, timeout)
        parsed = split_head(self.buffer)
        assert parsed is not None
        line, headers, size = parsed
        head = bytes(self.buffer[:size])
        if interim:
            await self.send(interim)
        body = Body(*request_framing(headers))
        del self.buffer[:size]
        await self.until(lambda: self._read_into(body), timeout)
        method, target, version = line.split(b" ", 2)
        request = RawRequest(
            method.decode(), target, version, head, headers, bytes(body.data), body.trailers, time.monotonic()
        )
        self.requests.append(request)
        self._upstream._note_request(request)
        return request

    def _read_into(self, body: Body) -> bool:
        piece = bytes(self.buffer)
        self.buffer.clear()
        body.feed(piece)
        if body.complete:
            self.buffer += body.rest
        return body.complete

    async def chunk(self, data: bytes) -> None:
        """Send `data` as one chunk."""
        await self.send(events.chunk(data))

    async def last_chunk(self, trailers: bytes = b"") -> None:
        """End a chunked body; `trailers` are whole field lines with their CRLF."""
        await self.send(b"0\r\n" + trailers + b"\r\n")

    async def stream(self, *parts: bytes | float) -> None:
        """Head of an event stream, then each part as a chunk, then the last chunk. A number is a pause in seconds."""
        await self.send(events.sse_head())
        for part in parts:
            if isinstance(part, bytes):
                await self.chunk(part)
            else:
                await asyncio.sleep(part)
        await self.last_chunk()


def each_request(handler: Callable[[Connection, RawRequest], Awaitable[None]]) -> Script:
    """A script that lets `handler` answer one request after the other on a connection that is kept open."""

    async def script(connection: Connection) -> None:
        while True:
            await handler(connection, await connection.read_request(timeout=600))

    return script


def answering(*responses: bytes) -> Script:
    """A script that answers with these bytes, one for each request of a connection, the last one again and again."""

    async def script(connection: Connection) -> None:
        for number in range(1_000_000):
            await connection.read_request(timeout=600)
            await connection.send(responses[min(number, len(responses) - 1)])

    return script


def streaming(*parts: bytes | float) -> Script:
    """A script that answers each request with the same event stream (see `Connection.stream`)."""

    async def handler(connection: Connection, _: RawRequest) -> None:
        await connection.stream(*parts)

    return each_request(handler)


class ScriptedUpstream:
    """Listens on a free port of the loopback; `script` may be replaced between connections.

    `handshake_delay` is how many seconds after TCP's accept the TLS handshake begins.
    """

    def __init__(
        self,
        script: Script,
        *,
        tls: ssl.SSLContext | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        handshake_delay: float = 0.0,
    ) -> None:
        self.script = script
        self.host = host
        self.port = port
        self.connections: list[Connection] = []
        self.requests: list[RawRequest] = []
        self.server_names: list[str | None] = []
        """The SNI of each handshake, in order."""
        self.accepted = 0
        self.errors: list[BaseException] = []
        self._tls = tls
        self._delay = handshake_delay
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._acceptor: asyncio.Task[None] | None = None
        self._listening: socket.socket | None = None
        self._changed = asyncio.Event()
        if tls is not None:
            tls.sni_callback = lambda _socket, name, _context: self.server_names.append(name)

    @property
    def url(self) -> str:
        """Scheme, host and port, for the sidecar's configuration."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self._tls is None else 'https'}://{host}:{self.port}"

    @property
    def open_connections(self) -> list[Connection]:
        """Those that neither side has ended."""
        return [connection for connection in self.connections if connection.end is None]

    async def start(self) -> Self:
        """Bind and listen."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        listening = socket.create_server((self.host, self.port), family=family, backlog=1024)
        listening.setblocking(False)
        self.port = listening.getsockname()[1]
        self._listening = listening
        if self._delay:
            self._acceptor = asyncio.ensure_future(self._accept_slowly(listening))
        else:
            loop = asyncio.get_running_loop()
            self._server = await loop.create_server(self._connection, sock=listening, ssl=self._tls)
        return self

    async def stop(self) -> None:
        """Close everything. A script that failed fails the test here."""
        await self.refuse()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for connection in self.connections:
            await connection.close()
        if self.errors:
            raise self.errors[0]

    async def refuse(self) -> None:
        """Stop listening, so that new connections are refused; those that are open stay."""
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._acceptor is not None:
            self._acceptor.cancel()
            await asyncio.gather(self._acceptor, return_exceptions=True)
            self._acceptor = None
        if self._listening is not None:
            self._listening.close()
            self._listening = None

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def wait_for_requests(self, number: int, timeout: float = PATIENCE) -> None:
        """Wait until `number` requests have come in all."""
        async with asyncio.timeout(timeout):
            while len(self.requests) < number:
                self._changed.clear()
                await self._changed.wait()

    async def wait_for_connections(self, number: int, timeout: float = PATIENCE) -> None:
        """Wait until `number` connections have been accepted in all (after the handshake, with TLS)."""
        async with asyncio.timeout(timeout):
            while len(self.connections) < number:
                self._changed.clear()
                await self._changed.wait()

    def _note_request(self, request: RawRequest) -> None:
        self.requests.append(request)
        self._changed.set()

    def _connection(self) -> Connection:
        return Connection(self)

    def _start(self, connection: Connection) -> None:
        self.accepted += 1
        self.connections.append(connection)
        self._changed.set()
        self._spawn(self._run(connection))

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, connection: Connection) -> None:
        try:
            await self.script(connection)
        except ConnectionEnded:
            pass
        except Exception as error:
            self.errors.append(error)
        finally:
            connection.fin()

    async def _accept_slowly(self, listening: socket.socket) -> None:
        # Not start_tls after the delay: uvloop may already have given the client's hello to the plain protocol.
        loop = asyncio.get_running_loop()
        while True:
            accepted, _ = await loop.sock_accept(listening)
            self._spawn(self._handshake_later(accepted))

    async def _handshake_later(self, accepted: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            await asyncio.sleep(self._delay)
            await loop.connect_accepted_socket(self._connection, accepted, ssl=self._tls)
        except OSError:
            # The client did not wait, or does not trust us: its affair, and its test's.
            accepted.close()
        except asyncio.CancelledError:
            accepted.close()
            raise
