"""The catalogue: every metric is declared once, with its type, labels, buckets, meaning and reason to exist.

Accumulators, exposition and the generated page docs/metrics.md are all built from `CATALOGUE`: a metric that is not in
it does not exist. Names are written without the prefix `llm_sidecar_`; units are the base units of Prometheus.
"""

from __future__ import annotations

from sidecar.metrics.metric import PREFIX, Kind, Label, Metric
from sidecar.metrics.own_metrics import CONNECTIONS, SELF
from sidecar.metrics.request_metrics import ATTRIBUTION, REQUESTS, TOKENS, TOKENS_IN_TIME

__all__ = ["CATALOGUE", "KNOWN_HISTOGRAMS", "PREFIX", "Kind", "Label", "Metric"]

CATALOGUE: tuple[Metric, ...] = (*REQUESTS, *TOKENS_IN_TIME, *TOKENS, *ATTRIBUTION, *CONNECTIONS, *SELF)
"""In the order of exposition."""

KNOWN_HISTOGRAMS: frozenset[str] = frozenset(metric.name for metric in CATALOGUE if metric.kind is Kind.HISTOGRAM)
"""Names (without prefix) that `metrics.buckets` of the configuration may override."""
