"""A pool of real connections over fake transports, dialled when a test says so."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

from sidecar.exchange import Headers
from sidecar.failures import Failure
from sidecar.upstreams.dial import Dialled
from sidecar.upstreams.http1 import Http1Connection
from sidecar.upstreams.http1_response import ResponseHead
from sidecar.upstreams.pool import Pool
from tests.kit.fakes import Clock, FakeTransport, Observed, make_exchange, make_upstream

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Nobody:
    """Takes a response and cares for its failure only."""

    def __init__(self) -> None:
        self.failure: Failure | None = None

    def interim(self, status: int, reason: bytes, headers: Headers) -> None: ...

    def received(self, head: ResponseHead | None, body: bytes, ended: bool, trailers: Headers, now: float) -> None: ...

    def failed(self, failure: Failure, now: float) -> None:
        self.failure = failure

    def tunnelled(self, data: bytes, now: float) -> None: ...


class Pooled:
    """A pool, the dials it has asked for, and the far ends of its connections."""

    def __init__(self, **settings: Any) -> None:
        self.clock = Clock()
        self.observed = Observed()
        self.dials: list[asyncio.Future[bool]] = []
        """Asked for and not ended: True makes a connection, False one that is closed at once."""
        self.peers: dict[Http1Connection, socket.socket] = {}
        self._ours: list[socket.socket] = []
        self.pool = Pool(make_upstream(**settings), self, self.observed, self.clock, 8192)  # type: ignore[arg-type]

    async def dial(self, factory: Callable[[], asyncio.BaseProtocol]) -> Dialled:
        wanted = asyncio.get_running_loop().create_future()
        self.dials.append(wanted)
        try:
            alive = await wanted
        finally:
            self.dials.remove(wanted)
        connection = factory()
        assert isinstance(connection, Http1Connection)
        transport = FakeTransport()
        connection.connection_made(transport)
        ours, self.peers[connection] = socket.socketpair()
        self._ours.append(ours)
        if not alive:
            connection.connection_lost(None)
        return Dialled(transport, connection, ours, 0.001, 0.002, None)

    async def use(self) -> Http1Connection:
        """Get a connection as an exchange does, and send a request on it."""
        connection = self.pool.take() or await self.pool.acquire(make_exchange())
        connection.start(Nobody(), b"GET", b"GET / HTTP/1.1\r\n\r\n")
        connection.request_sent(self.clock())
        return connection

    async def open(self, number: int = 1) -> list[Http1Connection]:
        """So many new connections, each in use."""
        asking = [asyncio.ensure_future(self.use()) for _ in range(number)]
        await self.turn()
        for wanted in list(self.dials):
            wanted.set_result(True)
        return await asyncio.gather(*asking)

    async def turn(self) -> None:
        """Let everybody run who can."""
        for _ in range(10):
            await asyncio.sleep(0)

    def answer(self, connection: Http1Connection) -> None:
        """End the exchange on a connection well."""
        connection.data_received(ANSWER)

    def counts(self) -> tuple[int, int]:
        """Active and idle."""
        return self.pool.count_active(), self.pool.count_idle()

    def close(self) -> None:
        for end in [*self.peers.values(), *self._ours]:
            end.close()
