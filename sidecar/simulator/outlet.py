"""The way to the socket: straight through, or in small pieces for clients that must bear any cut."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from random import Random

from sidecar.simulator.knobs import Knobs, Split

PAUSE = 0.001
"""Seconds between two pieces of a split; event loops have no finer timer."""


class Dribble:
    """Writes to a transport in pieces, each in a turn of the loop of its own, so that each is a packet of its own.

    `then` of a write is called when its last byte has been handed to the transport.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, knobs: Knobs) -> None:
        self._loop, self._transport = loop, transport
        self._split = None if knobs.one_byte else knobs.split or Split(1)
        self._random = Random(self._split.seed if self._split else 0)
        self._waiting: deque[tuple[bytes, Callable[[], None] | None]] = deque()
        self._handle: asyncio.Handle | None = None

    def write(self, data: bytes, then: Callable[[], None] | None = None) -> None:
        """Take bytes; they go out after those that are still waiting."""
        self._waiting.append((data, then))
        if self._handle is None:
            self._handle = self._loop.call_soon(self._pump)

    def stop(self) -> None:
        """Forget what waits."""
        self._waiting.clear()
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _pump(self) -> None:
        self._handle = None
        data, then = self._waiting.popleft()
        size = self._size()
        self._transport.write(data[:size])
        rest = data[size:]
        if rest:
            self._waiting.appendleft((rest, then))
        elif then is not None:
            then()
        if self._waiting and self._handle is None:
            if self._split is None:
                self._handle = self._loop.call_soon(self._pump)
            else:
                self._handle = self._loop.call_later(PAUSE, self._pump)

    def _size(self) -> int:
        if self._split is None:
            return 1
        return self._split.size or self._random.randint(1, 64)
