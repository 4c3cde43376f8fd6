"""The stage for the official SDKs: a simulated API over TLS, a sidecar before it, and what a call did to both."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

import pytest

from sidecar.simulator.certificate import make_certificate
from sidecar.simulator.server import Simulator
from sidecar.simulator.truths import Truth
from tests.kit.metrics import Change, Metrics, delta, outcomes
from tests.kit.process import SidecarProcess, upstream_config
from tests.kit.wire import PATIENCE

T = TypeVar("T")

TTFT, ITL, TOKENS, HANDSHAKE = 0.15, 0.01, 24, 0.03
"""What the simulated API does unless a request asks otherwise; HANDSHAKE is how long it holds a TLS hello back."""

DIALLING = ("dns", "connect", "tls")

ATTEMPTS = 3
"""How often a call is made that is to agree with the simulator: a busy machine spoils one, a mistake of ours all."""


@dataclass(slots=True)
class Call:
    """What one call (or `requests` of them) did: the metrics around it, and what the simulator really did."""

    before: Metrics
    after: Metrics
    truths: list[Truth] = field(default_factory=list)

    @property
    def truth(self) -> Truth:
        """Of the only request."""
        (only,) = self.truths
        return only

    def delta(self, name: str, **labels: str) -> Change:
        """How much a family changed."""
        return delta(self.before, self.after, name, **labels)

    def outcomes(self, **labels: str) -> dict[str, int]:
        """How the requests with these labels ended."""
        return outcomes(self.before, self.after, **labels)

    def true_ttft(self) -> float:
        """Seconds to the first token as the simulator has them, with the dialling, which it cannot see."""
        assert self.truth.ttft is not None
        return self.truth.ttft + sum(self.delta(phase).sum for phase in DIALLING)

    def true_rate(self) -> float:
        """Tokens per second after the first token event, as the simulator sent them."""
        truth = self.truth
        times = truth.token_times()
        first = truth.event_tokens[truth.event_times.index(times[0])]
        return (truth.output_tokens - first) / (times[-1] - times[0])

    def agrees(self) -> bool:
        """First token and speed are what the simulator did: within 30 ms or a fifth, and within a fifth."""
        ttft, rate = self.delta("ttft").sum, self.delta("tokens_per_second").sum
        return ttft == seconds(self.true_ttft()) and rate == pytest.approx(self.true_rate(), rel=0.2)


def seconds(expected: float) -> Any:
    """Within 30 ms or a fifth: what a machine needs on which other tests run."""
    return pytest.approx(expected, rel=0.2, abs=0.03)


class Stage:
    """A simulator over TLS and a sidecar process with the upstreams of `settings`, all of them at the simulator.

    `settings` maps a prefix to the settings of its upstream. `async with`.
    """

    def __init__(self, directory: Path, settings: Mapping[str, Mapping[str, Any]], **config: Any) -> None:
        self._directory = directory
        self._settings = settings
        self._config = config
        self._certificate = make_certificate()
        self.simulator = Simulator(ttft=TTFT, itl=ITL, tokens=TOKENS, tls_delay=HANDSHAKE)

    async def __aenter__(self) -> Self:
        address = await self.simulator.start(tls=self._certificate.context)
        authority = self._directory / "authority.pem"
        authority.write_text(self._certificate.ca_pem)
        url = f"https://localhost:{address.port}"
        upstreams = [
            upstream_config(
                **{"url": url, "name": prefix.strip("/"), "prefix": prefix, "tls": {"ca_file": str(authority)}, **more}
            )
            for prefix, more in self._settings.items()
        ]
        self.sidecar = SidecarProcess({"upstreams": upstreams, **self._config}, self._directory)
        await self.sidecar.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.sidecar.stop()
        await self.simulator.stop()

    def url(self, prefix: str) -> str:
        """The base URL that an application would set, without `/v1`."""
        host, port = self.sidecar.data
        return f"http://{host}:{port}{prefix}"

    async def requests_after(self, seen: int) -> None:
        """Wait until the simulator has had more than `seen` requests."""
        until = time.monotonic() + PATIENCE
        while self.simulator.requests <= seen:
            assert time.monotonic() < until, "the request never came"
            await asyncio.sleep(0.01)

    async def agreeing_call(self, ask: Callable[[], Awaitable[T]]) -> tuple[Call, T]:
        """The first call of ATTEMPTS whose measured times agree with the true ones, else the last."""
        for attempt in range(1, ATTEMPTS + 1):
            async with self.call() as call:
                answer = await ask()
            if attempt == ATTEMPTS or call.agrees():
                return call, answer
        raise AssertionError("unreachable: the last attempt returns")

    @asynccontextmanager
    async def call(self, requests: int = 1) -> AsyncIterator[Call]:
        """Scrape before and after what is done within; the second time when `requests` more have been recorded."""
        before = await self.sidecar.metrics()
        seen = self.simulator.requests
        call = Call(before, before)
        yield call
        call.after = await self.sidecar.metrics_after(before, requests)
        call.truths = [truth for truth in self.simulator.truths if truth.id > seen]


def forget_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take from the SDKs what this machine's environment tells them: proxies, keys, base URLs, headers."""
    for name in os.environ:
        if name.lower().endswith("_proxy") or name.startswith(("OPENAI_", "ANTHROPIC_")):
            monkeypatch.delenv(name)
