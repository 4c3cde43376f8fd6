"""Counter, gauge and histogram: plain objects that are held by reference and cost a fraction of a microsecond.

The client library's own metrics cost several times as much per observation, because they lock and scan buckets one by
one. Everything here belongs to the one event loop of the process, so nothing is locked.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sidecar.metrics.buckets import Bounds

LIMIT = 1e12
"""No duration, ratio or token count is as large. What is above it is an error of measurement, like NaN and a negative
number, and is dropped: one of them would spoil a sum for as long as the process lives."""

Exemplar = tuple[str, float, float]
"""Trace id, observed value, Unix time in seconds."""


class Counter:
    """A sum that never goes back."""

    __slots__ = ("rejected", "value")

    def __init__(self) -> None:
        self.value = 0.0
        self.rejected = 0

    def inc(self, amount: float = 1.0) -> None:
        """Add a finite amount that is not negative; any other is dropped and counted in `rejected`."""
        if 0.0 <= amount < LIMIT:
            self.value += amount
        else:
            self.rejected += 1


class Gauge:
    """A value that goes up and down, set or read from `source` at the scrape. None: not known, not exposed."""

    __slots__ = ("_value", "rejected", "source")

    def __init__(self) -> None:
        self._value: float | None = None
        self.rejected = 0
        self.source: Callable[[], float] | None = None

    def set(self, value: float) -> None:
        """Take a finite value that is not negative (timestamps are below LIMIT too); any other is dropped."""
        if 0.0 <= value < LIMIT:
            self._value = float(value)
        else:
            self.rejected += 1

    def add(self, delta: float) -> None:
        """Move by `delta`, not below zero: what began under an upstream since replaced may end under the new one."""
        value = (self._value or 0.0) + delta
        self._value = value if value > 0.0 else 0.0

    @property
    def value(self) -> float | None:
        """The value now. A source that raises leaves the last one, for a scrape must not fail by one of its parts."""
        if self.source is not None:
            try:
                self.set(self.source())
            except Exception:
                self.rejected += 1
        return self._value


class Histogram:
    """Counts by upper bound (not cumulative, the last is +Inf), their sum, and the last exemplar of each bucket."""

    __slots__ = ("__weakref__", "bounds", "counts", "exemplars", "rejected", "sum")

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0
        self.rejected = 0
        self.exemplars: list[Exemplar | None] | None = None

    def observe(self, value: float) -> None:
        """Count one value; not finite, negative or absurdly large ones are dropped and counted in `rejected`."""
        if 0.0 <= value < LIMIT:
            self.counts[bisect_left(self.bounds, value)] += 1
            self.sum += value
        else:
            self.rejected += 1

    def observe_traced(self, value: float, trace_id: str, at: float) -> None:
        """As `observe`, and remember the trace `trace_id` that ended at Unix time `at`."""
        self.observe(value)
        if 0.0 <= value < LIMIT and 0.0 <= at < LIMIT:
            if self.exemplars is None:
                self.exemplars = [None] * len(self.counts)
            self.exemplars[bisect_left(self.bounds, value)] = (trace_id, value, at)

    def observe_all(self, values: Sequence[float]) -> None:
        """Count many values, at half the cost of one by one."""
        if not values:
            return
        total = sum(values)
        # A NaN makes the total NaN, an infinity makes it infinite: one comparison finds both.
        if min(values) >= 0.0 and 0.0 <= total < LIMIT:
            counts, bounds = self.counts, self.bounds
            for value in values:
                counts[bisect_left(bounds, value)] += 1
            self.sum += total
        else:
            for value in values:
                self.observe(value)

    @property
    def count(self) -> int:
        """How many values were counted."""
        return sum(self.counts)
