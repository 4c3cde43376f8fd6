"""Stand-ins for the edges of the data path: a clock that is turned by hand, a transport, an application, a recorder."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from sidecar.config.model import Pool, Upstream, Url
from sidecar.exchange import Exchange, Headers, Outcome
from sidecar.upstreams.http1_response import ResponseHead


class Clock:
    """Monotonic seconds that pass when a test says so."""

    def __init__(self, now: float = 100.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> float:
        """Let time pass; the new instant."""
        self.now += seconds
        return self.now


class FakeTransport(asyncio.Transport):
    """Keeps what is written, and tells whether it was paused, closed or aborted."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.paused = False
        self.aborted = False
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def is_closing(self) -> bool:
        return self.closed or self.aborted

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True


class FakeBody:
    """A request body: `parts` arrive one for each read; a ConnectionError among them breaks it off."""

    def __init__(self, parts: list[bytes | Exception], *, arrived: bool) -> None:
        self._parts = parts
        self._arrived = arrived

    def whole(self) -> bytes | None:
        if not self._arrived:
            return None
        whole = b"".join(part for part in self._parts if isinstance(part, bytes))
        self._parts = []
        return whole

    async def read(self) -> bytes:
        await asyncio.sleep(0)
        if not self._parts:
            return b""
        part = self._parts.pop(0)
        if isinstance(part, Exception):
            raise part
        return part


@dataclass
class Sent:
    """One call of `Downstream.send`."""

    head: ResponseHead | None
    extra: list[bytes]
    body: bytes
    ended: bool
    trailers: Headers


@dataclass
class FakeDownstream:
    """An application that keeps what it is sent; `calls` names everything that was done to it, in order."""

    method: str = "POST"
    target: bytes = b"/v1/chat/completions"
    headers: Headers = field(default_factory=lambda: [(b"Host", b"localhost")])
    parts: list[bytes | Exception] = field(default_factory=list)
    arrived: bool = True
    chunked: bool = False
    declared_length: int | None = None
    upgrade: bool = False
    received_at: float = 100.0
    writing_paused: bool = False
    sent: list[Sent] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    interims: list[int] = field(default_factory=list)
    tunnelled: bytes = b""
    observer: Any = None

    def __post_init__(self) -> None:
        self.body = FakeBody(list(self.parts), arrived=self.arrived)

    @property
    def data(self) -> bytes:
        """All body bytes that were sent."""
        return b"".join(sent.body for sent in self.sent)

    def observe_flow(self, observer: Any) -> None:
        self.observer = observer

    def interim(self, status: int, reason: bytes, headers: Headers) -> None:
        self.interims.append(status)

    def send(self, head: ResponseHead | None, extra: list[bytes], body: bytes, ended: bool, trailers: Headers) -> None:
        self.calls.append("send")
        self.sent.append(Sent(head, extra, body, ended, trailers))

    def abort(self) -> None:
        self.calls.append("abort")

    def start_tunnel(self, peer: Any) -> None:
        self.calls.append("start_tunnel")
        self.observer = peer

    def tunnel_write(self, data: bytes) -> None:
        self.tunnelled += data

    def pause_reading(self) -> None:
        self.calls.append("pause_reading")

    def resume_reading(self) -> None:
        self.calls.append("resume_reading")

    def close(self) -> None:
        self.calls.append("close")


class Observed:
    """Takes what the data path reports and keeps it as tuples."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []
        self.recorded: list[Exchange] = []
        self.running = 0

    def names(self) -> list[str]:
        """Of the events, in order."""
        return [event[0] for event in self.events]

    def connection_opened(self, upstream: str, dns: float | None, connect: float, tls: float | None) -> None:
        self.events.append(("opened", upstream, dns, connect, tls))

    def connection_reused(self, upstream: str) -> None:
        self.events.append(("reused", upstream))

    def connection_error(self, upstream: str, phase: str, reason: str) -> None:
        self.events.append(("error", upstream, phase, reason))

    def in_flight(self, upstream: str, delta: int) -> None:
        self.running += delta

    def retry(self, upstream: str, reason: str) -> None:
        self.events.append(("retry", upstream, reason))

    def record(self, exchange: Exchange, facts: object) -> Outcome:
        self.recorded.append(exchange)
        return Outcome.OK


def make_upstream(url: Url | None = None, **settings: Any) -> Upstream:
    """An upstream `api` at http://api.example, with settings of its pool among the others."""
    pool = {name: settings.pop(name) for name in list(settings) if name in Pool.__dataclass_fields__}
    if pool:
        settings["pool"] = Pool(**pool)
    return Upstream(settings.pop("name", "api"), url or Url("http", "api.example", 80), **settings)


def make_exchange(**values: Any) -> Exchange:
    """A chat request that arrived at 100.0 s."""
    known = {"upstream": "api", "dialect": "openai", "method": "POST", "target": "/v1/chat/completions"}
    return Exchange(**{**known, "t0": 100.0, "started_at": 1_700_000_000.0, **values})
