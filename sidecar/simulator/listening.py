"""The simulator's ear: an ordinary server, or one that lets each connection wait before it is heard.

A kernel accepts connections by itself, so a delay shows where the protocol first needs an answer: in the TLS handshake
when there is TLS, else in the first response.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable

from sidecar.config.model import Address


class DelayedServer:
    """Accepts TCP at once and starts to read (and to shake hands) `delay` seconds later."""

    def __init__(
        self, sock: socket.socket, factory: Callable[[], asyncio.Protocol], tls: ssl.SSLContext | None, delay: float
    ) -> None:
        self._sock, self._factory, self._tls, self._delay = sock, factory, tls, delay
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop.add_reader(sock.fileno(), self._accept)

    def close(self) -> None:
        """Accept no more, and drop the connections that still wait."""
        self._loop.remove_reader(self._sock.fileno())
        self._sock.close()
        for task in self._tasks:
            task.cancel()

    async def wait_closed(self) -> None:
        """All waiting connections are gone."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self) -> None:
        try:
            client, _ = self._sock.accept()
        except OSError:
            return
        client.setblocking(False)
        task = self._loop.create_task(self._serve(client))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, client: socket.socket) -> None:
        try:
            await asyncio.sleep(self._delay)
        except asyncio.CancelledError:
            client.close()
            raise
        with contextlib.suppress(OSError):  # the client has left, or does not like the certificate
            await self._loop.connect_accepted_socket(self._factory, client, ssl=self._tls)


def listen(host: str, port: int) -> tuple[socket.socket, Address]:
    """A listening socket and where it is bound. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setblocking(False)
        sock.bind((host, port))
        sock.listen(1024)
    except OSError:
        sock.close()
        raise
    return sock, Address(host, sock.getsockname()[1])


async def serve(
    sock: socket.socket, factory: Callable[[], asyncio.Protocol], tls: ssl.SSLContext | None, delay: float
) -> asyncio.Server | DelayedServer:
    """Serve `factory`'s protocols on a listening socket."""
    if delay:
        return DelayedServer(sock, factory, tls, delay)
    return await asyncio.get_running_loop().create_server(factory, sock=sock, ssl=tls)
