"""What may stand between a sidecar and an API: HTTP proxies, doors that shut, hosts that are silent."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Self

Place = tuple[str, int]

_RESET = struct.pack("ii", 1, 0)
_READ = 64 * 1024


async def splice(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, place: Place, first: bytes = b"") -> None:
    """Connect to `place`, send it `first`, and pass bytes both ways until both sides have ended."""
    there_reader, there_writer = await asyncio.open_connection(*place)

    async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await source.read(_READ):
                sink.write(data)
                await sink.drain()
        sink.close()

    try:
        there_writer.write(first)
        await asyncio.gather(pump(reader, there_writer), pump(there_reader, writer))
    finally:
        there_writer.close()


class _Server:
    """Serves each connection by `_serve` on a free port of the loopback."""

    def __init__(self) -> None:
        self.port = 0
        self.accepted = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.accepted += 1
        try:
            await self._serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise NotImplementedError


class RecordingProxy(_Server):
    """An HTTP proxy that notes the head of each request. `routes` is its name server: authority → where that is.

    `answer` is sent instead of serving a CONNECT, for proxies that refuse, or say nothing when it is empty.
    """

    def __init__(self, routes: Mapping[str, Place], *, answer: bytes | None = None) -> None:
        super().__init__()
        self.heads: list[bytes] = []
        self._routes = routes
        self._answer = answer

    def url(self, credentials: str = "") -> str:
        """Its address, as HTTPS_PROXY takes it."""
        return f"http://{credentials}{'@' if credentials else ''}127.0.0.1:{self.port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.heads.append(head)
        method, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
        if self._answer is not None:
            writer.write(self._answer)
            await reader.read()
        elif method == "CONNECT":
            writer.write(b"HTTP/1.1 200 Connection established\r\nX-Proxy: yes\r\n\r\n")
            await splice(reader, writer, self._routes[target])
        else:
            authority = target.split("/", 3)[2]
            await splice(reader, writer, self._routes[authority], head)


class FirstHandshakesReset(_Server):
    """Before a TLS server: resets the first `number` connections when the handshake has begun, then lets all pass."""

    def __init__(self, place: Place, number: int) -> None:
        super().__init__()
        self._place = place
        self._left = number

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._left <= 0:
            await splice(reader, writer, self._place)
            return
        self._left -= 1
        await reader.readexactly(5)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        writer.transport.abort()


@contextmanager
def blackhole(host: str) -> Iterator[int]:
    """A port of `host` that neither accepts nor refuses: its backlog is full, so the kernel drops what comes."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with contextlib.ExitStack() as held:
        door = held.enter_context(socket.socket(family))
        door.bind((host, 0))
        door.listen(0)
        port: int = door.getsockname()[1]
        for _ in range(4):
            filler = held.enter_context(socket.socket(family))
            filler.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                filler.connect((host, port))
        yield port


def connecting_sockets(port: int) -> int:
    """Sockets of this machine that are in the middle of connecting to `port` (Linux: state 02 of /proc/net/tcp*)."""
    found = 0
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(FileNotFoundError), open(table) as lines:
            rows = [line.split() for line in list(lines)[1:]]
            found += sum(row[2].endswith(f":{port:04X}") and row[3] == "02" for row in rows)
    return found
