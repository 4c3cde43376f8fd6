"""What both loads share: a run's figures, connections that are opened once, and answers checked once."""

from __future__ import annotations

import asyncio
import gc
import ssl
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from tests.bench.cores import Stopwatch, rss_mebibytes

WARM_UP = 1.0

TAIL = b',"end":1}'
"""Ends each request body, so that a message is complete when the connection's last bytes are these."""


@dataclass(frozen=True, slots=True)
class Figures:
    """One run. Latencies are seconds; `cpu` is the proxy's processor time per request or event, in seconds."""

    rate: float
    p50: float
    p99: float
    cpu: float
    load: float
    """Share of its core that load generator and upstream used: near 1.0 they were the limit."""
    errors: int
    memory: float
    """Mebibytes resident at the end."""

    @classmethod
    def of(cls, watch: Stopwatch, latencies: array[float], errors: int, memory: float) -> Figures:
        """From a finished run with one latency for each request or event."""
        ordered = sorted(latencies) or [0.0]
        count, last = len(latencies), len(ordered) - 1
        cpu = watch.cpu / count if count else 0.0
        p50, p99 = ordered[last // 2], ordered[int(last * 0.99)]
        return cls(count / watch.wall, p50, p99, cpu, watch.load / watch.wall, errors, memory)


def request_bytes(body: bytes) -> bytes:
    """The request that is sent again and again."""
    return (
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Authorization: Bearer sk-bench\r\nAccept: */*\r\nUser-Agent: bench/1\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    )


class Ending:
    """Tells whether a connection's bytes have just ended with `marker`, even when a read cut it in two."""

    __slots__ = ("_kept", "_marker")

    def __init__(self, marker: bytes) -> None:
        self._marker = marker
        self._kept = b""

    def seen(self, data: bytes) -> bool:
        """Whether the message is complete with `data`."""
        if data.endswith(self._marker):
            self._kept = b""
            return True
        if len(data) < len(self._marker):
            data = self._kept + data
            if data.endswith(self._marker):
                self._kept = b""
                return True
        self._kept = data[-len(self._marker) :]
        return False


P = TypeVar("P", bound=asyncio.Protocol)


@dataclass(frozen=True, slots=True)
class Target:
    """Where a load goes: a proxy's port and process, or the upstream itself (no process, and its TLS)."""

    port: int
    pid: int | None = None
    tls: ssl.SSLContext | None = None

    async def connect(self, factory: Callable[[], P]) -> P:
        """Open one connection."""
        _, protocol = await asyncio.get_running_loop().create_connection(
            factory, "127.0.0.1", self.port, ssl=self.tls, server_hostname="localhost" if self.tls else None
        )
        return protocol


class Sink:
    """Where all connections of a run put their latencies (seconds) and count what went wrong."""

    def __init__(self) -> None:
        self.latencies = array("d")
        self.errors = 0
        self.running = True


async def measure(sink: Sink, pid: int | None, duration: float) -> Figures:
    """Warm up for a second, or half of `duration`, then measure for `duration` seconds."""
    watch = Stopwatch(pid)
    # The load generator's own collections must not stand in the latencies.
    gc.collect()
    gc.disable()
    try:
        await asyncio.sleep(min(WARM_UP, duration / 2))
        del sink.latencies[:]
        watch.start()
        await asyncio.sleep(duration)
        watch.stop()
        latencies = array("d", sink.latencies)
    finally:
        gc.enable()
    memory = rss_mebibytes(pid) if pid is not None else 0.0
    return Figures.of(watch, latencies, sink.errors, memory)
