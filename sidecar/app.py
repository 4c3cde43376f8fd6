"""The composition root: builds the parts, starts and stops them, and swaps what a reload changes."""

from __future__ import annotations

import asyncio
import gc
import platform
import time
from collections.abc import Callable
from typing import Any

from aiohttp import web

from sidecar import __version__, log
from sidecar.admin.exchanges import describe
from sidecar.admin.server import Admin
from sidecar.config.model import Address, Config
from sidecar.config.redaction import fingerprint, redacted
from sidecar.dialects.reading import RequestFacts
from sidecar.exchange import Exchange
from sidecar.failures import Failure
from sidecar.listeners.http1 import DataServer
from sidecar.metrics.exposition import Exposition
from sidecar.metrics.recorder import Recorder
from sidecar.origins import make_origins
from sidecar.proxy.forward import Proxy
from sidecar.proxy.ledger import Ledger
from sidecar.proxy.route import Origin, Router
from sidecar.ticker import Ticker
from sidecar.upstreams.resolver import Lookup, Resolver, system_lookup

BACKLOG = 1024

ABORT_SECONDS = 1.0
"""How long exchanges that are broken off at the end may take to tell their applications so."""

_POLL_SECONDS = 0.01


class App:
    """One sidecar. Its `clock` is monotonic seconds; all instants of exchanges come from it."""

    def __init__(
        self, config: Config, *, clock: Callable[[], float] = time.monotonic, lookup: Lookup | None = None
    ) -> None:
        """Raises OSError or ssl.SSLError when a file of `tls` cannot be read any more."""
        self.config = config
        self.draining = False
        self.started = False
        self._clock = clock
        self.recorder = Recorder(config)
        self._exposition = Exposition(self.recorder, clock)
        self._resolver = Resolver(lookup or system_lookup(), clock)
        self.ledger = Ledger(self.recorder)
        origins = make_origins(config, [], self._resolver, self.recorder, clock)
        self.proxy = Proxy(config, Router(origins), self.ledger, self.recorder, clock)
        self._retired: list[Origin] = []
        self._servers: list[asyncio.Server] = []
        self._ticker = Ticker(self._sweep, self.recorder.loop_lag, clock)
        self.recorder.build_info(__version__, platform.python_version())
        self._announce(origins)

    # ---- life ----

    async def start(self) -> None:
        """Listen. Raises OSError when an address cannot be bound."""
        loop = asyncio.get_running_loop()
        self._data = DataServer(self.proxy.handle, self._rejected, self._clock, self.config.limits.max_header_bytes)
        admin = Admin(self)
        self._admin = web.Server(admin.handle, access_log=None)
        data_server = await _listen(self._data, self.config.listen)
        self._servers.append(data_server)
        try:
            admin_server = await _listen(self._admin, self.config.admin)
        except OSError:
            data_server.close()
            raise
        self._servers.append(admin_server)
        self.data_address = _bound(data_server, self.config.listen)
        self.admin_address = _bound(admin_server, self.config.admin)
        self._ticker.start(loop)
        self.started = True
        self.recorder.config_reloaded(True, time.time())
        log.info("listening", data=str(self.data_address), admin=str(self.admin_address))

    def drain(self) -> None:
        """Serve on, but let connections go after their answer and turn unready.

        Idle connections stay open until the end: a request may be on its way on any of them.
        """
        self.draining = True
        self._data.draining = True
        self.recorder.draining(True)

    async def stop(self) -> None:
        """Close everything. What is under way is broken off: answered where it can be, recorded, logged once in all."""
        self._ticker.stop()
        for server in self._servers:
            server.close()
        if self.proxy.in_flight:
            log.warning("exchanges_aborted", in_flight=self.proxy.in_flight)
        for origin in [*self.proxy.router.origins, *self._retired]:
            origin.pool.abort()
        await self._settle()
        # Not 0, by which aiohttp means to wait for ever.
        await self._data.shutdown(_POLL_SECONDS)
        await self._settle()
        self.ledger.flush()
        await self._admin.shutdown(1)

    async def _settle(self) -> None:
        """Let exchanges that were broken off come to their end."""
        for _ in range(round(ABORT_SECONDS / _POLL_SECONDS)):
            if not self.proxy.in_flight:
                break
            await asyncio.sleep(_POLL_SECONDS)

    async def reload(self, config: Config) -> None:
        """Serve new requests by `config`; running ones end by the old. Not to be called while it runs.

        Raises OSError or ssl.SSLError when a file of `tls` cannot be read any more; then nothing has changed.
        """
        if (config.listen, config.admin) != (self.config.listen, self.config.admin):
            log.warning("reload_needs_restart", keys="listen, admin")
        old = self.proxy.router.origins
        # In a thread: a TLS context with the system's certificates takes 30 ms, for which no stream must wait.
        origins = await asyncio.to_thread(make_origins, config, old, self._resolver, self.recorder, self._clock)
        self.config = config
        self.recorder.configure(config)
        self.proxy.config, self.proxy.router = config, Router(origins)
        for origin in old:
            if origin not in origins:
                origin.pool.retire()
                self._retired.append(origin)
        self._announce(origins)

    def _announce(self, origins: list[Origin]) -> None:
        """Show on /metrics what is configured."""
        self.recorder.config_info(fingerprint(self.config))
        for origin in origins:
            upstream, pool = origin.upstream, origin.pool
            address = f"{upstream.url.host}:{upstream.url.port}"
            self.recorder.upstream_info(upstream.name, str(upstream.dialect), "http/1.1", address)
            self.recorder.connections(upstream.name, pool.count_active, pool.count_idle)

    def _sweep(self, now: float) -> None:
        for origin in [*self.proxy.router.origins, *self._retired]:
            origin.pool.sweep(now)
        self._retired = [origin for origin in self._retired if origin.pool.in_use]

    def _rejected(self, failure: Failure) -> None:
        """Count what could not even be parsed as a request."""
        now = self._clock()
        exchange = Exchange("", "generic", "", "", now, time.time(), t_end=now, failure=failure, status=failure.status)
        self.recorder.record(exchange, RequestFacts())
        log.warning("request_rejected", code=failure.code, message=failure.message)

    # ---- what the admin port shows ----

    @property
    def ready(self) -> bool:
        """Listeners are up and nothing is being drained."""
        return self.started and not self.draining

    async def metrics(self, accept: str, accept_encoding: str) -> tuple[bytes, list[tuple[str, str]]]:
        """The exposition, with everything that has ended until now in it."""
        self.ledger.flush()
        return await self._exposition.render(accept, accept_encoding)

    def exchanges(self, limit: int) -> list[dict[str, Any]]:
        """The last finished exchanges, the newest first."""
        self.ledger.flush()
        newest = list(self.ledger.last)[::-1][:limit]
        return [describe(exchange) for exchange in newest]

    def effective_config(self) -> dict[str, Any]:
        """The configuration in force, without its secrets."""
        return redacted(self.config)

    @property
    def quiet_since(self) -> float | None:
        """Monotonic seconds of the last end of an exchange when none is running; None while one is."""
        return self.proxy.last_ended if not self.proxy.in_flight else None


async def _listen(factory: Callable[[], asyncio.BaseProtocol], address: Address) -> asyncio.Server:
    return await asyncio.get_running_loop().create_server(factory, address.host, address.port, backlog=BACKLOG)


def _bound(server: asyncio.Server, address: Address) -> Address:
    """The address with the port the kernel picked."""
    return Address(address.host, server.sockets[0].getsockname()[1])


def settle_memory() -> None:
    """Take what start-up made out of the garbage collector's sight: it is kept anyway (-8 % CPU per request)."""
    gc.enable()  # the command line switches it off for the imports
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
