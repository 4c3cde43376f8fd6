from __future__ import annotations

import itertools
import math

import pytest

from sidecar.config.model import Slo
from sidecar.metrics.buckets import SETS, bounds_of
from sidecar.metrics.catalogue import CATALOGUE, Kind, Metric

HISTOGRAMS = {metric.name: metric for metric in CATALOGUE if metric.kind is Kind.HISTOGRAM}

# name: the smallest boundary is at most, the largest at least
MET_18 = {
    "request_duration_seconds": (0.05, 600),
    "time_to_first_token_seconds": (0.01, 120),
    "time_to_first_output_token_seconds": (0.01, 120),
    "time_per_output_token_seconds": (0.005, 5),
    "inter_chunk_seconds": (0.005, 5),
    "connection_phase_seconds": (0.001, 10),
    "output_tokens_per_second": (1, 1000),
    "request_tokens": (1, 128_000),
}


@pytest.mark.parametrize("metric", HISTOGRAMS.values(), ids=lambda metric: metric.name)
def test_met_18_boundaries_are_finite_positive_and_strictly_increasing(metric: Metric) -> None:
    bounds = bounds_of(metric, {}, Slo())
    assert all(0 < low < high < math.inf for low, high in itertools.pairwise(bounds))
    assert all(isinstance(bound, float) for bound in bounds)


@pytest.mark.parametrize("name", MET_18)
def test_met_18_boundaries_span_what_happens(name: str) -> None:
    smallest, largest = MET_18[name]
    bounds = bounds_of(HISTOGRAMS[name], {}, Slo())
    assert bounds[0] <= smallest
    assert bounds[-1] >= largest


def test_the_default_objectives_are_boundaries_already() -> None:
    for metric in HISTOGRAMS.values():
        assert bounds_of(metric, {}, Slo()) == SETS[metric.buckets]


def test_thresholds_of_the_objectives_become_boundaries() -> None:
    slo = Slo(ttft=1.75, tpot=0.042)
    assert 1.75 in bounds_of(HISTOGRAMS["time_to_first_token_seconds"], {}, slo)
    assert 0.042 in bounds_of(HISTOGRAMS["time_per_output_token_seconds"], {}, slo)
    assert 1.75 not in bounds_of(HISTOGRAMS["request_duration_seconds"], {}, slo)


def test_an_override_replaces_the_set_and_gets_the_threshold() -> None:
    metric = HISTOGRAMS["time_to_first_token_seconds"]
    assert bounds_of(metric, {"time_to_first_token_seconds": (1.0, 5.0)}, Slo(ttft=2.0)) == (1.0, 2.0, 5.0)
    assert bounds_of(HISTOGRAMS["tcp_rtt_seconds"], {"tcp_rtt_seconds": (1, 5)}, Slo()) == (1.0, 5.0)
