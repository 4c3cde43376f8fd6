"""A steady, open-loop load: requests leave on time whatever became of the ones before."""

from __future__ import annotations

import asyncio
import contextlib

from sidecar.config.model import Address
from sidecar.demo.kinds import Kind

NEW_CONNECTION_EVERY = 4
"""Every so many requests the simulated server closes afterwards, so that there are handshakes to measure."""


class Load:
    """Drives one kind of traffic through the sidecar's data port."""

    def __init__(self, kind: Kind, sidecar: Address) -> None:
        self.kind = kind
        self.failed = 0
        self.done = 0
        self._sidecar = sidecar
        self._running: set[asyncio.Task[None]] = set()

    async def run(self, stop: asyncio.Event) -> None:
        """Send until `stop` is set, then wait for what is under way."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        number = 0
        while not stop.is_set():
            number += 1
            task = loop.create_task(self._ask(close=number % NEW_CONNECTION_EVERY == 0))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
            due += 1.0 / self.kind.rate
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), max(0.0, due - loop.time()))
        if self._running:
            await asyncio.wait(self._running)

    async def _ask(self, *, close: bool) -> None:
        kind = self.kind
        body = kind.body.encode()
        head = (
            f"POST /{kind.name}{kind.path} HTTP/1.1\r\nHost: demo\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n{'x-sim-close: 1' if close else 'x-demo: 1'}\r\n\r\n"
        )
        try:
            reader, writer = await asyncio.open_connection(self._sidecar.host, self._sidecar.port)
            writer.write(head.encode() + body)
            answer = await reader.read(-1)
            writer.close()
        except OSError:
            answer = b""
        if answer.startswith(b"HTTP/1.1 200 "):
            self.done += 1
        else:
            self.failed += 1
