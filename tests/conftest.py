"""What every test may ask for: uvloop as the event loop, scripted upstreams, and sidecars before them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Protocol

import pytest
import uvloop

from tests.kit.process import SidecarProcess, upstream_config
from tests.kit.upstream import Script, ScriptedUpstream


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Tests run on the loop that production runs on."""
    return {"uvloop": uvloop.new_event_loop}


class UpstreamFactory(Protocol):
    """`await upstream(script, tls=…, host=…, handshake_delay=…)`: a ScriptedUpstream that is already listening."""

    def __call__(self, script: Script, **options: Any) -> Awaitable[ScriptedUpstream]: ...


class SidecarFactory(Protocol):
    """`await sidecar_factory(upstream, upstream_settings={…}, environment={…}, **config)`: a ready SidecarProcess.

    `upstream` is a ScriptedUpstream or a URL; without one `config` names the `upstreams` itself.
    """

    def __call__(
        self,
        upstream: ScriptedUpstream | str | None = None,
        *,
        upstream_settings: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
        **config: Any,
    ) -> Awaitable[SidecarProcess]: ...


@pytest.fixture
async def upstream() -> AsyncIterator[UpstreamFactory]:
    """Starts scripted upstreams, and closes them after the test; a script that failed fails the test."""
    async with AsyncExitStack() as running:

        async def start(script: Script, **options: Any) -> ScriptedUpstream:
            return await running.enter_async_context(ScriptedUpstream(script, **options))

        yield start


@pytest.fixture
async def sidecar_factory(tmp_path: Path) -> AsyncIterator[SidecarFactory]:
    """Starts sidecars as processes, and asserts after the test that each ends cleanly and without a traceback."""
    async with AsyncExitStack() as running:

        async def start(
            upstream: ScriptedUpstream | str | None = None,
            *,
            upstream_settings: Mapping[str, Any] | None = None,
            environment: Mapping[str, str] | None = None,
            **config: Any,
        ) -> SidecarProcess:
            if upstream is not None:
                url = upstream if isinstance(upstream, str) else upstream.url
                config = {"upstreams": [upstream_config(url, **(upstream_settings or {}))], **config}
            sidecar = SidecarProcess(config, tmp_path, environment=environment)
            running.push_async_callback(sidecar.stop)
            return await sidecar.start()

        yield start
