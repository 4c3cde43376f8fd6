"""The bucket sets, and how the configuration changes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sidecar.config.model import Slo
    from sidecar.metrics.catalogue import Metric

Bounds = tuple[float, ...]

# fmt: off
SETS: dict[str, Bounds] = {
    "PH": (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
    "RQ": (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600),
    "TT": (0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 7.5, 10, 20, 30, 60, 120),
    "TP": (0.001, 0.0025, 0.005, 0.01, 0.015, 0.025, 0.035, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2.5, 5),
    "TS": (1, 2, 5, 10, 15, 20, 30, 40, 50, 75, 100, 150, 200, 300, 500, 1000),
    "TK": (1, 4, 16, 64, 256, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144),
    "RT": (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1),
    "RA": (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.75, 0.9, 1),
    "OV": (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25),
}
# fmt: on
"""Upper bounds by the name of the set, +Inf understood; the units are those of MEANING."""

MEANING = {
    "PH": "phases of dialling, seconds",
    "RQ": "requests and their phases, seconds",
    "TT": "time to a first token, seconds; `slo.ttft` is added",
    "TP": "time per token or chunk, seconds; `slo.tpot` is added",
    "TS": "tokens per second",
    "TK": "tokens",
    "RT": "round-trip times, seconds",
    "RA": "ratio",
    "OV": "overhead, seconds",
}


def bounds_of(metric: Metric, overrides: Mapping[str, Bounds], slo: Slo) -> Bounds:
    """The upper bounds of a histogram, strictly increasing, without +Inf.

    A threshold of an objective becomes a boundary of every histogram on its set, overridden ones too: the share of
    requests within it can only be read at a boundary.
    """
    bounds = overrides.get(metric.name, SETS[metric.buckets])
    threshold = {"TT": slo.ttft, "TP": slo.tpot}.get(metric.buckets)
    extra = () if threshold is None else (threshold,)
    return tuple(sorted({float(bound) for bound in (*bounds, *extra)}))
