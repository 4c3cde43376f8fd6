"""All metric families of one process, built from the catalogue. A family keeps its children by their label values."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from sidecar.metrics.accumulators import Counter, Gauge, Histogram
from sidecar.metrics.buckets import bounds_of
from sidecar.metrics.catalogue import CATALOGUE, Kind, Metric

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from sidecar.config.model import Slo
    from sidecar.metrics.buckets import Bounds

Labels = tuple[str, ...]
"""Label values in the order of `Metric.labels`."""

Child = TypeVar("Child", Counter, Gauge, Histogram)

MAX_OPEN_VALUES = 16
"""Bound of a label whose values other parts of the program name; the next ones are "other"."""


class Family(Generic[Child]):
    """One metric with its children."""

    def __init__(self, metric: Metric, make: Callable[[], Child]) -> None:
        self.metric = metric
        self.children: dict[Labels, Child] = {}
        self._make: Callable[[], Child] = make

    def child(self, *labels: str) -> Child:
        """The child with these label values, made when it is not there. Keep it: this is not for the hot path."""
        found = self.children.get(labels)
        if found is None:
            if len(labels) != len(self.metric.labels):
                raise ValueError(f"{self.metric.name} has the labels {[label.name for label in self.metric.labels]}")
            found = self.children[labels] = self._make()
        return found

    def bounded_child(self, upstream: str, value: str) -> Child:
        """The child of a label (upstream, value) whose values are bounded by number only."""
        if (upstream, value) not in self.children:
            used = sum(1 for labels in self.children if labels[0] == upstream)
            if used >= MAX_OPEN_VALUES:
                value = "other"
        return self.child(upstream, value)

    def forget(self, label: str, value: str) -> None:
        """Drop every child with this label value, where the family has the label."""
        names = [label.name for label in self.metric.labels]
        if label in names:
            at = names.index(label)
            self.children = {labels: child for labels, child in self.children.items() if labels[at] != value}


class Families:
    """The families by type and by name (without prefix)."""

    def __init__(self, overrides: Mapping[str, Bounds], slo: Slo) -> None:
        self.counters: dict[str, Family[Counter]] = {}
        self.gauges: dict[str, Family[Gauge]] = {}
        self.histograms: dict[str, Family[Histogram]] = {}
        for metric in CATALOGUE:
            match metric.kind:
                case Kind.COUNTER:
                    self.counters[metric.name] = Family(metric, Counter)
                case Kind.GAUGE:
                    self.gauges[metric.name] = Family(metric, Gauge)
                case Kind.HISTOGRAM:
                    bounds = bounds_of(metric, overrides, slo)
                    self.histograms[metric.name] = Family(metric, partial(Histogram, bounds))

    def __iter__(self) -> Iterator[Family[Counter] | Family[Gauge] | Family[Histogram]]:
        """In the order of the catalogue."""
        for metric in CATALOGUE:
            match metric.kind:
                case Kind.COUNTER:
                    yield self.counters[metric.name]
                case Kind.GAUGE:
                    yield self.gauges[metric.name]
                case Kind.HISTOGRAM:
                    yield self.histograms[metric.name]

    def forget(self, label: str, value: str) -> None:
        """Drop the children with this label value from all families."""
        for family in self:
            family.forget(label, value)

    @property
    def rejected(self) -> int:
        """Measurements that were dropped because they were not finite, negative or absurdly large."""
        return sum(child.rejected for family in self for child in family.children.values())
