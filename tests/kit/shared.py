"""One sidecar process for all tests of a file, and one exchange with the instants that its numbers must lie between.

Tests that assert durations compare the sidecar's numbers with instants at both ends of it: an event cannot have been
read before the upstream wrote it, nor after the client had it. So a slow machine widens the bounds and fails no test.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop

from tests.kit import events
from tests.kit.client import CHAT_REQUEST, RawClient
from tests.kit.h1 import RawResponse
from tests.kit.metrics import Change, Metrics, delta, outcomes
from tests.kit.process import Admin, SidecarProcess, upstream_config
from tests.kit.upstream import Connection
from tests.kit.wire import PATIENCE


class SharedSidecar(SidecarProcess):
    """A sidecar whose upstreams are all at `upstream_port`, where each test starts a server of its own."""

    upstream_port: int


@contextmanager
def shared_sidecar(
    directory: Path,
    *upstreams: Mapping[str, Any],
    environment: Mapping[str, str] | None = None,
    **config: Any,
) -> Iterator[SharedSidecar]:
    """Run a sidecar; `upstreams` are the settings of each beside its URL, by default one named `default`.

    For a fixture of the scope of a module: it runs outside of any event loop.
    """
    with socket.socket() as reserved:
        # Bound and never listening: tests can listen there (SO_REUSEADDR), and the kernel gives it to nobody else.
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        port: int = reserved.getsockname()[1]
        url = f"http://127.0.0.1:{port}"
        config["upstreams"] = [upstream_config(url, **settings) for settings in upstreams or [{}]]
        sidecar = SharedSidecar(config, directory, environment=environment)
        sidecar.upstream_port = port
        uvloop.run(sidecar.start())
        try:
            yield sidecar
        finally:
            uvloop.run(sidecar.stop())


class Telling:
    """A script that streams `parts` to each request and notes when it wrote each; a number is a pause in seconds.

    `head` is sent with the first part. `end` closes the body: b"" leaves it open and closes the connection instead.
    """

    def __init__(
        self, *parts: bytes | float, head: bytes | None = None, end: bytes = events.LAST_CHUNK, framed: bool = True
    ) -> None:
        self.written: list[tuple[float, bytes]] = []
        self.asked_at = 0.0
        self._parts = parts
        self._head = events.sse_head() if head is None else head
        self._end = end
        self._framed = framed

    @property
    def body(self) -> bytes:
        """All parts that are bytes."""
        return b"".join(part for part in self._parts if isinstance(part, bytes))

    async def __call__(self, connection: Connection) -> None:
        while True:
            request = await connection.read_request(timeout=600)
            self.asked_at = request.at
            await self._answer(connection)
            if not self._end:
                return

    async def _answer(self, connection: Connection) -> None:
        lead = self._head
        for part in self._parts:
            if isinstance(part, bytes):
                self.written.append((time.monotonic(), part))
                await connection.send(lead + (events.chunk(part) if self._framed else part))
                lead = b""
            else:
                await asyncio.sleep(part)
        if lead + self._end:
            await connection.send(lead + self._end)

    def written_at(self, part: bytes) -> float:
        """When `part` was written first."""
        return next(at for at, written in self.written if written == part)


@dataclass(frozen=True, slots=True)
class Between:
    """Seconds that a duration must lie between."""

    low: float
    high: float

    def __contains__(self, seconds: float) -> bool:
        # Sums of histograms are differences of decimal numbers.
        return self.low - 1e-6 <= seconds <= self.high + 1e-6


@dataclass(frozen=True, slots=True)
class Told:
    """One exchange: what the client got, and the metrics around it."""

    response: RawResponse
    before: Metrics
    after: Metrics
    sent_at: float
    log: list[tuple[float, bytes]]

    def delta(self, name: str, **labels: str) -> Change:
        """How much a family changed."""
        return delta(self.before, self.after, name, **labels)

    @property
    def outcomes(self) -> dict[str, int]:
        """How the requests ended."""
        return outcomes(self.before, self.after)

    def tokens(self) -> dict[str, float]:
        """Counted tokens by type, those that are none left out."""
        types = ("input", "output", "cached_input", "cache_creation_input", "reasoning")
        found = {type_: self.delta("tokens_total", type=type_).value for type_ in types}
        return {type_: number for type_, number in found.items() if number}

    def arrived_at(self, needle: bytes) -> float:
        """When the client had the last byte of `needle`."""
        end = b"".join(data for _, data in self.log).index(needle) + len(needle)
        for at, data in self.log:
            end -= len(data)
            if end <= 0:
                return at
        raise AssertionError("unreachable: the needle was found")

    def until(self, part: bytes, script: Telling) -> Between:
        """Bounds of the time from the sidecar's reading of the request to its reading of `part`."""
        return Between(script.written_at(part) - script.asked_at, self.arrived_at(part) - self.sent_at)

    def from_to(self, first: bytes, last: bytes, script: Telling) -> Between:
        """Bounds of the time between the sidecar's reading of two parts."""
        low = script.written_at(last) - self.arrived_at(first)
        return Between(max(0.0, low), self.arrived_at(last) - script.written_at(first))


async def tell(sidecar: Admin, request: bytes = CHAT_REQUEST, *, timeout: float = PATIENCE) -> Told:
    """Send one request on a connection of its own, and scrape before and after."""
    before = await sidecar.metrics()
    async with await sidecar.client() as client:
        sent_at = time.monotonic()
        await client.send(request)
        response = await client.response(timeout=timeout)
        log = list(client.log)
    return Told(response, before, await sidecar.metrics_after(before), sent_at, log)


async def leave(client: RawClient, how: str) -> float:
    """End a client's connection by `close` or `rst`; the instant it began to."""
    left = time.monotonic()
    if how == "rst":
        client.rst()
    await client.close()
    return left


async def eventually(condition: Callable[[], bool | Awaitable[bool]], timeout: float = PATIENCE) -> None:
    """Ask again and again until `condition` holds, for what announces itself in no event of this process."""
    until = time.monotonic() + timeout
    while True:
        holds = condition()
        if holds if isinstance(holds, bool) else await holds:
            return
        assert time.monotonic() < until, f"not so after {timeout:g} s"
        await asyncio.sleep(0.02)
