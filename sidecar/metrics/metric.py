"""What a declaration of a metric consists of, and the labels and closed sets that declarations share."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sidecar.exchange import CacheState, Phase

PREFIX = "llm_sidecar_"


class Kind(StrEnum):
    """The Prometheus type."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Label:
    """A label with its closed set of values; None: the values come from the configuration or the program."""

    name: str
    values: tuple[str, ...] | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric family.

    `buckets` names a set of sidecar.metrics.buckets. `shown_untouched` says whether a histogram child is exposed
    before its first observation: it is not where most children of a closed set stay empty (see docs/metrics.md, size).
    """

    name: str
    kind: Kind
    labels: tuple[Label, ...] = ()
    buckets: str = ""
    help: str
    reason: str
    shown_untouched: bool = True

    @property
    def full_name(self) -> str:
        """As it is exposed."""
        return PREFIX + self.name


UPSTREAM = Label("upstream", note="name of the upstream in the configuration")
MODEL = Label("model", note="model asked for, within `models.limit`; `other` beyond it, `unknown` when none was named")
CACHE = Label("cache", tuple(CacheState))
STREAM = Label("stream", ("true", "false"))
NO_TOKEN_REASONS = ("client_cancelled", "timeout", "error", "no_output")
TOKEN_TYPES = ("input", "output", "cached_input", "cache_creation_input", "reasoning")
OUTPUT_SIZES = ("le128", "le512", "le2048", "gt2048")
COMPONENTS = ("network", "provider", "sidecar", "client")
PROVIDER_PHASES = ("total", "queue", "load", "prompt", "generation")
REQUEST_PHASES = (Phase.BLOCKED, Phase.SEND, Phase.WAIT, Phase.RECEIVE)
DIAL_PHASES = (Phase.DNS, Phase.CONNECT, Phase.TLS)
RATELIMIT_KINDS = ("requests", "tokens")
ERROR_PHASES = (*DIAL_PHASES, Phase.SEND, Phase.WAIT, Phase.RECEIVE)


def counter(name: str, *labels: Label, help: str, reason: str) -> Metric:
    """Declare a counter; its name ends in `_total`."""
    return Metric(name=name, kind=Kind.COUNTER, labels=labels, help=help, reason=reason)


def gauge(name: str, *labels: Label, help: str, reason: str) -> Metric:
    """Declare a gauge."""
    return Metric(name=name, kind=Kind.GAUGE, labels=labels, help=help, reason=reason)


def histogram(name: str, buckets: str, *labels: Label, help: str, reason: str, shown: bool = True) -> Metric:
    """Declare a histogram on the bucket set `buckets`."""
    return Metric(
        name=name,
        kind=Kind.HISTOGRAM,
        labels=labels,
        buckets=buckets,
        help=help,
        reason=reason,
        # The children of a model come into being with the model, so none of them can be there at start.
        shown_untouched=shown and MODEL not in labels,
    )
