"""The connections of one upstream: idle ones last in first out, a bound on all, a queue of those who wait."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from sidecar.config.model import Upstream
from sidecar.exchange import Exchange, Phase
from sidecar.failures import Code, ErrorReason, Failure
from sidecar.upstreams.dial import Dialler
from sidecar.upstreams.http1 import Http1Connection


class ConnectionObserver(Protocol):
    """What the pool reports; sidecar.metrics has it."""

    def connection_opened(self, upstream: str, dns: float | None, connect: float, tls: float | None) -> None: ...

    def connection_reused(self, upstream: str) -> None: ...

    def connection_error(self, upstream: str, phase: str, reason: str) -> None: ...


class Pool:
    """Hands out connections, one exchange each at a time."""

    def __init__(
        self,
        upstream: Upstream,
        dialler: Dialler,
        observer: ConnectionObserver,
        clock: Callable[[], float],
        max_header_bytes: int,
    ) -> None:
        self.upstream = upstream
        self._dialler = dialler
        self._observer = observer
        self._clock = clock
        self.max_header_bytes = max_header_bytes
        self._idle: list[Http1Connection] = []
        self._active: set[Http1Connection] = set()
        self._opening = 0
        self._waiters: deque[asyncio.Future[Http1Connection | None]] = deque()
        self._dialling: set[asyncio.Timeout] = set()
        self._retired = False
        self._aborted = False

    def __repr__(self) -> str:
        return (
            f"<Pool {self.upstream.name}: {len(self._active)} active, {len(self._idle)} idle, "
            f"{self._opening} opening, {len(self._waiters)} waiting>"
        )

    def count_active(self) -> int:
        """Connections with an exchange on them."""
        return len(self._active)

    def count_idle(self) -> int:
        """Connections that wait for one."""
        return len(self._idle)

    @property
    def in_use(self) -> bool:
        """Somebody has a connection or will get one: time still matters here (see `sweep`)."""
        return bool(self._active or self._opening or self._waiters)

    def take(self) -> Http1Connection | None:
        """An idle connection that is alive, the youngest first, so that the surplus ages out. No waiting."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable():
                self._active.add(connection)
                self._observer.connection_reused(self.upstream.name)
                return connection
            connection.discard()
        return None

    async def acquire(self, exchange: Exchange) -> Http1Connection:
        """A connection, dialled or waited for, with the phases noted on `exchange`.

        Raises Failure: what dialling raises, pool_exhausted when `pool.acquire_timeout` passes, or stopping.
        """
        if self._is_full():
            connection = await self._wait()
            if connection is not None:
                exchange.connection_reused = True
                self._observer.connection_reused(self.upstream.name)
                return connection
        else:
            self._opening += 1
        try:
            connection = await self._open(exchange)
        except BaseException:
            self._opening -= 1
            self._wake_one()
            raise
        self._opening -= 1
        self._active.add(connection)
        return connection

    def _is_full(self) -> bool:
        return len(self._active) + len(self._idle) + self._opening >= self.upstream.pool.max_connections

    async def _wait(self) -> Http1Connection | None:
        """A connection that came free, or None: a place came free, counted in `_opening` already."""
        pool = self.upstream.pool
        waiter: asyncio.Future[Http1Connection | None] | None = None
        try:
            async with asyncio.timeout(pool.acquire_timeout):
                while True:
                    waiter = asyncio.get_running_loop().create_future()
                    self._waiters.append(waiter)
                    connection = await waiter
                    if connection is None or connection.is_usable():
                        return connection
                    # The answer before came with the end of the connection: nothing sent on it would be heard of.
                    connection.discard()
                    if not self._is_full():
                        self._opening += 1
                        return None
        except BaseException as error:
            if waiter is not None:
                self._give_back(waiter)
            if isinstance(error, TimeoutError):
                raise Failure(
                    Code.POOL_EXHAUSTED,
                    f"all {pool.max_connections} connections to upstream {self.upstream.name!r} were busy for "
                    f"{pool.acquire_timeout:g} s (pool.max_connections, pool.acquire_timeout)",
                    Phase.BLOCKED,
                    ErrorReason.TIMEOUT,
                    request_untouched=True,
                ) from error
            raise

    def _give_back(self, waiter: asyncio.Future[Http1Connection | None]) -> None:
        """Undo a wait: what was handed over at the last moment goes to the next one."""
        if waiter in self._waiters:
            self._waiters.remove(waiter)
        elif waiter.done() and not waiter.cancelled() and waiter.exception() is None:
            connection = waiter.result()
            if connection is None:
                self._opening -= 1
                self._wake_one()
            else:
                self._released(connection)

    async def _open(self, exchange: Exchange) -> Http1Connection:
        if self._aborted:
            raise _stopping()
        try:
            async with asyncio.timeout(None) as scope:  # `abort` ends it
                self._dialling.add(scope)
                dialled = await self._dialler.dial(
                    lambda: Http1Connection(self._clock, self.max_header_bytes, self._released, self._forget)
                )
        except Failure as failure:
            self._report(failure)
            raise
        except TimeoutError:
            if not self._aborted:
                raise
            raise _stopping() from None
        finally:
            self._dialling.discard(scope)
        connection = dialled.protocol
        assert isinstance(connection, Http1Connection)
        if connection.closed:
            gone = _closed_at_once(dialled.tls is not None)
            self._report(gone)
            raise gone
        connection.sock = dialled.sock
        exchange.dns = dialled.dns or 0.0
        exchange.connect = dialled.connect
        exchange.tls = dialled.tls or 0.0
        self._observer.connection_opened(self.upstream.name, dialled.dns, dialled.connect, dialled.tls)
        return connection

    def _report(self, failure: Failure) -> None:
        if failure.phase is not None:
            self._observer.connection_error(self.upstream.name, failure.phase, failure.reason)

    # ---- what the connections tell ----

    def _released(self, connection: Http1Connection) -> None:
        """An exchange ended and the connection is good for another."""
        if connection.closed:
            return  # `_forget` has seen to its place
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(connection)
                return
        self._active.discard(connection)
        if self._retired or len(self._idle) >= self.upstream.pool.max_idle:
            connection.discard()
        else:
            self._idle.append(connection)

    def _forget(self, connection: Http1Connection) -> None:
        """A connection closed."""
        if connection in self._active:
            self._active.discard(connection)
        elif connection in self._idle:
            self._idle.remove(connection)
        else:
            return  # it failed while it was dialled: `acquire` keeps that account
        self._wake_one()

    def _wake_one(self) -> None:
        """Hand the place that came free to the one who waits longest."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                self._opening += 1
                waiter.set_result(None)
                return

    # ---- time ----

    def sweep(self, now: float) -> None:
        """Close what was idle too long and give up exchanges whose upstream is silent. Called some times a second."""
        idle_timeout = self.upstream.pool.idle_timeout
        for connection in [c for c in self._idle if now - c.idle_since >= idle_timeout]:
            connection.discard()
        timeouts = self.upstream.timeouts
        for connection in list(self._active):
            connection.check_silence(now, timeouts.headers, timeouts.idle)

    def retire(self) -> None:
        """Close the connections nobody uses, and keep none from now on; what runs on the others may end."""
        self._retired = True
        for connection in list(self._idle):
            connection.discard()

    def abort(self) -> None:
        """Close everything at once: whoever has a connection, or is about to get one, has failed with `stopping`."""
        self._aborted = True
        self.retire()
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_exception(_stopping())
        dialling, self._dialling = self._dialling, set()
        for scope in dialling:
            scope.reschedule(0.0)
        for connection in list(self._active):
            connection.timed_out(Code.STOPPING, Phase.RECEIVE, _STOPPED)


_STOPPED = "the sidecar was stopped"


def _stopping() -> Failure:
    return Failure(Code.STOPPING, _STOPPED, Phase.BLOCKED, request_untouched=True)


def _closed_at_once(secure: bool) -> Failure:
    return Failure(
        Code.UPSTREAM_CLOSED,
        "the upstream closed a new connection before a request was sent",
        Phase.TLS if secure else Phase.CONNECT,
        ErrorReason.CLOSED,
        request_untouched=True,
    )
