"""Starts sidecars in the test's own process, and asserts at the end that they left nothing behind."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import pytest

from sidecar.upstreams.resolver import literal_address
from tests.kit.process import LocalSidecar, split_address, upstream_config
from tests.kit.upstream import ScriptedUpstream
from tests.kit.wire import PATIENCE


class StubbedSidecar(LocalSidecar):
    """A LocalSidecar with an environment and a name server of the test's choice."""

    def __init__(
        self, config: Mapping[str, Any], directory: Path, environ: Mapping[str, str] | None, lookup: Any
    ) -> None:
        super().__init__(config, directory)
        self._environ = dict(environ or {})
        self._lookup = lookup

    async def start(self) -> StubbedSidecar:
        import yaml

        from sidecar.app import App
        from sidecar.config.load import load

        path = self._directory / f"local-{id(self):x}.yaml"
        path.write_text(yaml.safe_dump(self._config, sort_keys=False))
        self.app = App(load(path, environ=self._environ), lookup=self._lookup)
        await self.app.start()
        self.data = split_address(str(self.app.data_address))
        self.admin = split_address(str(self.app.admin_address))
        return self

    @property
    def in_use(self) -> int:
        """Exchanges that run, and connections to upstreams with an exchange on them."""
        active = sum(origin.pool.count_active() for origin in self.app.proxy.router.origins)
        return int(self.app.proxy.in_flight + active)

    async def until_quiet(self, timeout: float = PATIENCE) -> None:
        """Wait until no exchange runs and no connection is in use."""
        until = time.monotonic() + timeout
        while self.in_use:
            assert time.monotonic() < until, f"{self.app.proxy.in_flight} in flight, {self.app.proxy.router.origins}"
            await asyncio.sleep(0.01)


class LocalSidecars:
    """`await sidecars(upstream, settings={…}, **config)` in an `async with`; `upstream` as for `sidecar_factory`.

    At the end no exchange may run any more and no connection be in use, and nothing may have been logged with a
    traceback or as an error, by asyncio neither.
    """

    def __init__(self, directory: Path, caplog: pytest.LogCaptureFixture) -> None:
        self._directory = directory
        self._caplog = caplog
        self._started: list[StubbedSidecar] = []

    async def __call__(
        self,
        upstream: ScriptedUpstream | str | None = None,
        *,
        settings: Mapping[str, Any] | None = None,
        environ: Mapping[str, str] | None = None,
        lookup: Any = None,
        **config: Any,
    ) -> StubbedSidecar:
        """Start one."""
        if upstream is not None:
            url = upstream if isinstance(upstream, str) else upstream.url
            config = {"upstreams": [upstream_config(url, **(settings or {}))], **config}
        sidecar = await StubbedSidecar(config, self._directory, environ, lookup).start()
        self._started.append(sidecar)
        return sidecar

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                for sidecar in self._started:
                    await sidecar.until_quiet()
        finally:
            for sidecar in self._started:
                await sidecar.stop()
        records = [*self._caplog.get_records("call"), *self._caplog.get_records("teardown")]
        bad = [record for record in records if record.exc_info or record.levelno >= logging.ERROR]
        assert not bad, [(record.name, record.getMessage(), record.exc_info) for record in bad]


def name_server(hosts: Mapping[str, list[tuple[str, int]]]) -> Any:
    """A `lookup` that gives a name its (address, port) pairs in order, whatever port was asked for.

    A name that is not there does not exist.
    """

    async def lookup(host: str, port: int) -> tuple[list[Any], float]:
        if host not in hosts:
            raise OSError(f"no such name: {host}")
        return [literal_address(address, there) for address, there in hosts[host]], 60.0

    return lookup
