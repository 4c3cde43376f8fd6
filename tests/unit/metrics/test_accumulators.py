from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.metrics.accumulators import Counter, Gauge, Histogram

BAD = [math.nan, math.inf, -math.inf, -1.0, 1e300]


@pytest.mark.parametrize("bad", BAD)
def test_no_accumulator_takes_a_value_that_would_spoil_it(bad: float) -> None:
    counter, gauge, histogram = Counter(), Gauge(), Histogram((1.0,))
    counter.inc(bad)
    gauge.set(bad)
    histogram.observe(bad)
    histogram.observe_traced(bad, "a", 1.0)
    histogram.observe_all([0.5, bad])
    assert (counter.value, counter.rejected) == (0.0, 1)
    assert (gauge.value, gauge.rejected) == (None, 1)
    assert (histogram.counts, histogram.sum, histogram.rejected, histogram.exemplars) == ([1, 0], 0.5, 3, None)


def test_a_value_on_a_boundary_belongs_to_the_bucket_it_bounds() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.0, 1.0, 1.5, 2.0, 2.1):
        histogram.observe(value)
    assert histogram.counts == [2, 2, 1]
    assert histogram.count == 5


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True)))
def test_many_at_once_are_counted_like_one_by_one(values: list[float]) -> None:
    together, apart = Histogram((0.1, 1.0, 10.0)), Histogram((0.1, 1.0, 10.0))
    together.observe_all(values)
    for value in values:
        apart.observe(value)
    assert together.counts == apart.counts
    assert together.sum == pytest.approx(apart.sum)
    assert together.rejected == apart.rejected


def test_a_bucket_keeps_its_last_exemplar() -> None:
    histogram = Histogram((1.0,))
    histogram.observe_traced(0.5, "aa", 10.0)
    histogram.observe_traced(0.7, "bb", 11.0)
    histogram.observe_traced(3.0, "cc", 12.0)
    assert histogram.exemplars == [("bb", 0.7, 11.0), ("cc", 3.0, 12.0)]


def test_a_gauge_does_not_go_below_zero() -> None:
    gauge = Gauge()
    gauge.add(1)
    gauge.add(-1)
    gauge.add(-1)
    assert gauge.value == 0.0


def test_a_gauge_whose_source_fails_keeps_its_last_value() -> None:
    answers = iter([3.0])
    gauge = Gauge()
    gauge.source = lambda: next(answers)
    assert gauge.value == 3.0
    assert gauge.value == 3.0
    assert gauge.rejected == 1
