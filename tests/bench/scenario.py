"""A scenario: its upstream, its proxies, and rounds in which every variant runs once."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bench import json_load, sse_load
from tests.bench.load import Figures, Target
from tests.bench.proxies import PROXIES, Setting, Unavailable
from tests.bench.report import Rounds
from tests.kit.authority import ca_file, client_context, server_context

Load = Callable[[Target], Awaitable[Figures]]


@dataclass(frozen=True, slots=True)
class Scenario:
    """`width` is the number of connections or streams; `rate` events per second and stream (0: JSON)."""

    title: str
    width: int
    duration: float
    rate: float = 0.0
    tls: bool = False

    @property
    def streaming(self) -> bool:
        """Events, not whole answers."""
        return self.rate > 0


@asynccontextmanager
async def upstream_of(scenario: Scenario, directory: Path) -> AsyncIterator[tuple[Setting, Load, Target]]:
    """Run the scenario's upstream: what proxies must know, the load, and the upstream itself as a target."""
    server_tls = server_context("localhost", "127.0.0.1") if scenario.tls else None
    load: Load
    if scenario.streaming:
        events = sse_load.SseUpstream(scenario.rate)
        server = await events.serve(server_tls)

        async def load(target: Target) -> Figures:
            return await sse_load.run(events, target, streams=scenario.width, duration=scenario.duration)
    else:
        events = None
        server = await json_load.serve(server_tls)

        async def load(target: Target) -> Figures:
            return await json_load.run(target, connections=scenario.width, duration=scenario.duration)

    try:
        port = server.sockets[0].getsockname()[1]
        certificate = ca_file(directory) if scenario.tls else None
        direct = Target(port, tls=client_context() if scenario.tls else None)
        yield Setting(port, scenario.streaming, directory, certificate), load, direct
    finally:
        if events is not None:
            events.stop()
        server.close()


async def play(scenario: Scenario, variants: list[str], rounds: int) -> Rounds:
    """Start all proxies, then let every variant run once in each round; a variant that cannot run is left out."""
    results: Rounds = []
    # Readable by the worker of a proxy that has dropped its rights.
    with tempfile.TemporaryDirectory() as name:
        async with upstream_of(scenario, Path(name)) as (setting, load, direct), AsyncExitStack() as running:
            targets: dict[str, Target] = {"direct": direct} if "direct" in variants else {}
            for variant in variants:
                if variant in PROXIES:
                    try:
                        proxy = await PROXIES[variant](setting)
                    except Unavailable as reason:
                        print(f"{variant} is left out: {reason}", file=sys.stderr)
                        continue
                    running.push_async_callback(proxy.stop)
                    targets[variant] = Target(proxy.port, proxy.pid)
            for number in range(rounds):
                results.append({})
                for variant, target in targets.items():
                    results[-1][variant] = figures = await load(target)
                    print(
                        f"{scenario.title}, round {number + 1}, {variant}: {figures.rate:.0f}/s, "
                        f"CPU {figures.cpu * 1e6:.0f} µs, p50 {figures.p50 * 1e6:.0f} µs, errors {figures.errors}",
                        file=sys.stderr,
                    )
    return results
