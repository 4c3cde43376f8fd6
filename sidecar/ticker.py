"""One timer for everything that happens by the clock: sweeping pools, and how late the loop runs timers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

INTERVAL_SECONDS = 0.1
"""Timeouts are kept to this precision, at no cost per request."""


class Ticker:
    """Calls `sweep(now)` ten times a second and reports to `lag` by how many seconds each call was late."""

    def __init__(
        self, sweep: Callable[[float], None], lag: Callable[[float], None], clock: Callable[[], float]
    ) -> None:
        self._sweep = sweep
        self._lag = lag
        self._clock = clock
        self._due = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin; `stop` ends it."""
        self._loop = loop
        self._arm()

    def stop(self) -> None:
        """Call nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        assert self._loop is not None
        self._due = self._clock() + INTERVAL_SECONDS
        self._timer = self._loop.call_later(INTERVAL_SECONDS, self._tick)

    def _tick(self) -> None:
        now = self._clock()
        self._lag(max(0.0, now - self._due))
        try:
            self._sweep(now)
        finally:
            # One sweep that fails is the loop's to report; the timeouts of everything else hang on the next one.
            self._arm()
