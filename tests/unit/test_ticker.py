from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from sidecar.ticker import INTERVAL_SECONDS, Ticker
from tests.kit.fakes import Clock


class TimerLoop:
    """Holds the one timer that was set, until a test fires it."""

    def __init__(self) -> None:
        self.callback: Callable[[], None] | None = None
        self.delays: list[float] = []

    def call_later(self, delay: float, callback: Callable[[], None]) -> TimerLoop:
        assert self.callback is None, "one timer at a time"
        self.delays.append(delay)
        self.callback = callback
        return self

    def cancel(self) -> None:
        self.callback = None

    def fire(self) -> None:
        assert self.callback is not None
        callback, self.callback = self.callback, None
        callback()


class Ticked:
    def __init__(self) -> None:
        self.clock = Clock()
        self.loop = TimerLoop()
        self.swept: list[float] = []
        self.lags: list[float] = []
        self.ticker = Ticker(self.sweep, self.lags.append, self.clock)
        self.ticker.start(self.loop)  # type: ignore[arg-type]

    def sweep(self, now: float) -> None:
        self.swept.append(now)

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.loop.fire()


@pytest.fixture
def ticked() -> Ticked:
    return Ticked()


def test_it_sweeps_at_every_tick_with_the_time(ticked: Ticked) -> None:
    for _ in range(3):
        ticked.pass_time(INTERVAL_SECONDS)
    assert ticked.swept == pytest.approx([100.1, 100.2, 100.3])
    assert ticked.loop.delays == [INTERVAL_SECONDS] * 4


def test_a_late_tick_is_reported_by_how_late_it_was(ticked: Ticked) -> None:
    ticked.pass_time(INTERVAL_SECONDS)
    ticked.pass_time(INTERVAL_SECONDS + 0.25)
    ticked.pass_time(INTERVAL_SECONDS)
    assert ticked.lags == pytest.approx([0.0, 0.25, 0.0], abs=1e-9)


def test_an_early_tick_is_no_negative_lag(ticked: Ticked) -> None:
    ticked.pass_time(INTERVAL_SECONDS / 2)
    assert ticked.lags == [0.0]


def test_a_sweep_that_fails_does_not_end_the_timeouts_of_everything_else(ticked: Ticked) -> None:
    ticked.ticker._sweep = lambda now: 1 / 0  # type: ignore[assignment, return-value]
    with pytest.raises(ZeroDivisionError):
        ticked.pass_time(INTERVAL_SECONDS)
    ticked.ticker._sweep = ticked.sweep
    ticked.pass_time(INTERVAL_SECONDS)
    assert len(ticked.swept) == 1


def test_nothing_is_called_after_stop(ticked: Ticked) -> None:
    ticked.ticker.stop()
    ticked.ticker.stop()
    assert ticked.loop.callback is None


async def test_it_runs_on_a_real_loop() -> None:
    loop = asyncio.get_running_loop()
    done = asyncio.Event()
    ticker = Ticker(lambda now: done.set(), lambda lag: None, loop.time)
    ticker.start(loop)
    await asyncio.wait_for(done.wait(), 5)
    ticker.stop()
