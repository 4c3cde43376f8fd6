"""The accumulators as families of prometheus_client, on a registry of our own.

The library's metric classes are not used, only its families: they read no environment variable, so that
PROMETHEUS_MULTIPROC_DIR, which an application's container may set for itself, changes nothing here. Times of creation
(`_created`) are never given, and so never exposed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import CollectorRegistry
from prometheus_client.samples import Exemplar
from prometheus_client.utils import floatToGoString

from sidecar.metrics.accumulators import Counter, Gauge, Histogram

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client.metrics_core import Metric as LibraryMetric

    from sidecar.metrics.families import Families, Family, Labels
    from sidecar.metrics.metric import Metric

go_number: Callable[[float], str] = floatToGoString
"""A number as Go prints it, and so as Prometheus compares `le`."""


def visible(family: Family[Histogram]) -> Iterator[tuple[Labels, Histogram]]:
    """The children that are exposed: all, or those with an observation (see Metric.shown_untouched)."""
    shown = family.metric.shown_untouched
    for labels, child in family.children.items():
        if shown or any(child.counts):
            yield labels, child


def histogram_head(metric: Metric) -> HistogramMetricFamily:
    """The library's family of a histogram, with no sample in it."""
    return HistogramMetricFamily(metric.full_name, metric.help, labels=_names(metric))


def library_family(family: Family[Counter] | Family[Gauge] | Family[Histogram]) -> LibraryMetric:
    """A snapshot of one family."""
    metric = family.metric
    counters = CounterMetricFamily(metric.full_name, metric.help, labels=_names(metric))
    gauges = GaugeMetricFamily(metric.full_name, metric.help, labels=_names(metric))
    histograms = histogram_head(metric)
    for labels, child in family.children.items():
        match child:
            case Counter():
                counters.add_metric(labels, child.value)
            case Gauge():
                value = child.value
                if value is not None:
                    gauges.add_metric(labels, value)
            case Histogram():
                if metric.shown_untouched or any(child.counts):
                    histograms.add_metric(labels, _buckets(child), child.sum)
    return {"counter": counters, "gauge": gauges, "histogram": histograms}[metric.kind.value]


class SidecarCollector:
    """Gives prometheus_client what the accumulators hold."""

    def __init__(self, families: Families) -> None:
        self._families = families

    def describe(self) -> Iterable[LibraryMetric]:
        """The families without samples: what the registry needs to refuse a name that is taken."""
        for family in self._families:
            snapshot = library_family(family)
            snapshot.samples = []
            yield snapshot

    def collect(self) -> Iterable[LibraryMetric]:
        """All families that have a sample, in the order of the catalogue."""
        for family in self._families:
            snapshot = library_family(family)
            if snapshot.samples:
                yield snapshot


def process_registry() -> CollectorRegistry:
    """process_* and python_info."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    return registry


def _names(metric: Metric) -> list[str]:
    return [label.name for label in metric.labels]


def _buckets(child: Histogram) -> list[tuple[str, float] | tuple[str, float, Exemplar]]:
    cumulative = 0
    buckets: list[tuple[str, float] | tuple[str, float, Exemplar]] = []
    for index, bound in enumerate((*child.bounds, float("inf"))):
        cumulative += child.counts[index]
        exemplar = child.exemplars[index] if child.exemplars is not None else None
        if exemplar is None:
            buckets.append((go_number(bound), cumulative))
        else:
            trace_id, value, at = exemplar
            buckets.append((go_number(bound), cumulative, Exemplar({"trace_id": trace_id}, value, at)))
    return buckets
