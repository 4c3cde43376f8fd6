"""Reads an exposition, and tells how much a family changed between two of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

PREFIX = "llm_sidecar_"

VOCABULARY: dict[str, tuple[str, dict[str, str]]] = {
    "ttft": ("time_to_first_token_seconds", {}),
    "first_output": ("time_to_first_output_token_seconds", {}),
    "time_per_token": ("time_per_output_token_seconds", {}),
    "inter_token": ("inter_chunk_seconds", {}),
    "tokens_per_second": ("output_tokens_per_second", {}),
    "tokens_in": ("tokens_total", {"type": "input"}),
    "tokens_out": ("tokens_total", {"type": "output"}),
    "tokens_cached": ("tokens_total", {"type": "cached_input"}),
    "tokens_cache_creation": ("tokens_total", {"type": "cache_creation_input"}),
    "tokens_reasoning": ("tokens_total", {"type": "reasoning"}),
    "request_duration": ("request_duration_seconds", {}),
    "requests": ("requests_total", {}),
    "cache": ("cache_lookups_total", {}),
    "dns": ("connection_phase_seconds", {"phase": "dns"}),
    "connect": ("connection_phase_seconds", {"phase": "connect"}),
    "tls": ("connection_phase_seconds", {"phase": "tls"}),
    "blocked": ("request_phase_seconds", {"phase": "blocked"}),
    "send": ("request_phase_seconds", {"phase": "send"}),
    "wait": ("request_phase_seconds", {"phase": "wait"}),
    "receive": ("request_phase_seconds", {"phase": "receive"}),
    "inflight": ("requests_in_flight", {}),
    "refresh": ("credential_refreshes_total", {}),
}
"""The words of the catalogue of cases, each as a family (without prefix) and the labels that select from it."""

Series = tuple[str, frozenset[tuple[str, str]]]


@dataclass(frozen=True, slots=True)
class Change:
    """What happened to a selection between two scrapes. `value` is for counters and gauges, the rest for histograms."""

    count: float
    sum: float
    value: float


class Metrics:
    """One scrape. Names may be words of VOCABULARY, names without the prefix, or full names.

    A selection by labels adds up all series that carry these labels, whatever their others are.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.samples: dict[Series, float] = {}
        self.types: dict[str, str] = {}
        for family in text_string_to_metric_families(text):
            self.types[family.name] = family.type
            for sample in family.samples:
                self.samples[(sample.name, frozenset(sample.labels.items()))] = sample.value

    def _matching(self, name: str, suffix: str, labels: dict[str, str]) -> Iterator[tuple[dict[str, str], float]]:
        family, preset = VOCABULARY.get(name, (name, {}))
        full = family if family.startswith((PREFIX, "process_", "python_")) else PREFIX + family
        wanted = {**preset, **{key: str(value) for key, value in labels.items()}}.items()
        for (sample, series), value in self.samples.items():
            if sample == full + suffix and wanted <= dict(series).items():
                yield dict(series), value

    def value(self, name: str, **labels: str) -> float:
        """Sum of the matching counters or gauges, 0.0 when there is none."""
        return math.fsum(value for _, value in self._matching(name, "", labels))

    def count(self, name: str, **labels: str) -> float:
        """Number of observations of the matching histograms."""
        return math.fsum(value for _, value in self._matching(name, "_count", labels))

    def sum(self, name: str, **labels: str) -> float:
        """Sum of the observations of the matching histograms."""
        return math.fsum(value for _, value in self._matching(name, "_sum", labels))

    def buckets(self, name: str, **labels: str) -> dict[float, float]:
        """Upper bound → cumulative count over the matching histograms."""
        found: dict[float, float] = {}
        for series, value in self._matching(name, "_bucket", labels):
            bound = float(series["le"])
            found[bound] = found.get(bound, 0.0) + value
        return dict(sorted(found.items()))

    def label_values(self, name: str, label: str, **labels: str) -> set[str]:
        """Distinct values of `label` among the matching series of a counter, gauge or histogram."""
        found = [*self._matching(name, "", labels), *self._matching(name, "_count", labels)]
        return {series[label] for series, _ in found if label in series}

    def has(self, name: str, **labels: str) -> bool:
        """A matching series is there, whatever its value."""
        return any(True for suffix in ("", "_count") for _ in self._matching(name, suffix, labels))

    def not_finite(self) -> list[Series]:
        """Series whose value is NaN or infinite: there must be none."""
        return [series for series, value in self.samples.items() if not math.isfinite(value)]


def delta(before: Metrics, after: Metrics, name: str, **labels: str) -> Change:
    """The change of the matching series from `before` to `after`."""
    return Change(
        after.count(name, **labels) - before.count(name, **labels),
        after.sum(name, **labels) - before.sum(name, **labels),
        after.value(name, **labels) - before.value(name, **labels),
    )


def outcomes(before: Metrics, after: Metrics, **labels: str) -> dict[str, int]:
    """How many requests ended how between the two scrapes; outcomes without any are left out."""
    names = after.label_values("requests", "outcome", **labels)
    changes = {name: delta(before, after, "requests", outcome=name, **labels).value for name in sorted(names)}
    return {name: round(change) for name, change in changes.items() if change}
