"""The children of one upstream and of each of its models, made once and held by attribute, and the limit of models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecar.exchange import CacheState, Outcome, Phase
from sidecar.failures import ErrorReason
from sidecar.metrics.metric import (
    COMPONENTS,
    DIAL_PHASES,
    NO_TOKEN_REASONS,
    OUTPUT_SIZES,
    PROVIDER_PHASES,
    RATELIMIT_KINDS,
)

if TYPE_CHECKING:
    from sidecar.config.model import Models
    from sidecar.dialects.reading import Operation
    from sidecar.metrics.accumulators import Counter, Histogram
    from sidecar.metrics.families import Families

OTHER = "other"
UNKNOWN = "unknown"
MAX_LABEL_CHARS = 128

USUAL_ERRORS: dict[Phase, tuple[ErrorReason, ...]] = {
    Phase.DNS: (ErrorReason.NOT_FOUND, ErrorReason.TIMEOUT, ErrorReason.OTHER),
    Phase.CONNECT: (
        ErrorReason.REFUSED,
        ErrorReason.RESET,
        ErrorReason.UNREACHABLE,
        ErrorReason.TIMEOUT,
        ErrorReason.PROXY,
        ErrorReason.OTHER,
    ),
    Phase.TLS: (
        ErrorReason.CERTIFICATE,
        ErrorReason.PROTOCOL,
        ErrorReason.RESET,
        ErrorReason.CLOSED,
        ErrorReason.TIMEOUT,
        ErrorReason.OTHER,
    ),
    Phase.SEND: (ErrorReason.RESET, ErrorReason.CLOSED, ErrorReason.TIMEOUT),
    Phase.WAIT: (ErrorReason.RESET, ErrorReason.CLOSED, ErrorReason.TIMEOUT, ErrorReason.PROTOCOL),
    Phase.RECEIVE: (ErrorReason.RESET, ErrorReason.CLOSED, ErrorReason.TIMEOUT, ErrorReason.PROTOCOL),
}
"""The pairs that happen, shown from the start; the product of both sets is mostly pairs that cannot."""


def label_value(text: object) -> str:
    """A model's name as a label: at most 128 characters, `_` for what does not print, `unknown` for what is no name.

    A lone surrogate from a JSON escape does not print either, and could not be encoded.
    """
    if not isinstance(text, str):
        return UNKNOWN
    text = text[:MAX_LABEL_CHARS].strip()
    if not text.isprintable():
        text = "".join(char if char.isprintable() else "_" for char in text)
    return text or UNKNOWN


class ModelSeries:
    """The children with one pair of upstream and model."""

    def __init__(self, families: Families, upstream: str, model: str) -> None:
        counters, histograms = families.counters, families.histograms
        self.upstream = upstream
        self.model = model
        self._requests_family = counters["requests_total"]
        self._requests: dict[tuple[Operation, int, Outcome, bool, CacheState], tuple[Counter, Histogram]] = {}
        self.duration = {
            (streamed, cache): histograms["request_duration_seconds"].child(upstream, model, flag, cache.value)
            for streamed, flag in ((True, "true"), (False, "false"))
            for cache in CacheState
        }
        phases = histograms["request_phase_seconds"]
        self.blocked = phases.child(upstream, model, Phase.BLOCKED.value)
        self.send = phases.child(upstream, model, Phase.SEND.value)
        self.wait = phases.child(upstream, model, Phase.WAIT.value)
        self.receive = phases.child(upstream, model, Phase.RECEIVE.value)
        first_token = histograms["time_to_first_token_seconds"]
        self.first_token_new = first_token.child(upstream, model, "new")
        self.first_token_reused = first_token.child(upstream, model, "reused")
        self.first_output = histograms["time_to_first_output_token_seconds"].child(upstream, model)
        self.per_token = histograms["time_per_output_token_seconds"].child(upstream, model)
        self.gaps = histograms["inter_chunk_seconds"].child(upstream, model)
        self.speed = histograms["output_tokens_per_second"].child(upstream, model)
        self.input_tokens = histograms["request_tokens"].child(upstream, model, "input")
        self.output_tokens = histograms["request_tokens"].child(upstream, model, "output")
        tokens = counters["tokens_total"]
        self.input_total = tokens.child(upstream, model, "input")
        self.output_total = tokens.child(upstream, model, "output")
        self.cached_total = tokens.child(upstream, model, "cached_input")
        self.creation_total = tokens.child(upstream, model, "cache_creation_input")
        self.reasoning_total = tokens.child(upstream, model, "reasoning")
        self.good = counters["slo_requests_total"].child(upstream, model, "good")
        self.bad = counters["slo_requests_total"].child(upstream, model, "bad")

    def request(
        self, operation: Operation, code: int, outcome: Outcome, streamed: bool, cache: CacheState
    ) -> tuple[Counter, Histogram]:
        """The children of requests_total and of the duration; only the combinations that happen come into being."""
        key = (operation, code, outcome, streamed, cache)
        found = self._requests.get(key)
        if found is None:
            flag = "true" if streamed else "false"
            labels = (self.upstream, self.model, operation.value, str(code), outcome.value, flag, cache.value)
            found = (self._requests_family.child(*labels), self.duration[streamed, cache])
            self._requests[key] = found
        return found


class UpstreamSeries:
    """The children of one upstream; those with a closed set of labels are there, at zero, from the start."""

    def __init__(self, families: Families, name: str, models: Models) -> None:
        counters, gauges, histograms = families.counters, families.gauges, families.histograms
        self.name = name
        self._families = families
        self._models: dict[str, ModelSeries] = {}
        self._overflow = counters["label_overflow_total"].child("model")
        self.in_flight = gauges["requests_in_flight"].child(name)
        self.in_flight.set(0.0)
        dialling = histograms["connection_phase_seconds"]
        self.resolved, self.connected, self.handshaken = (dialling.child(name, phase.value) for phase in DIAL_PHASES)
        self.generation = {size: histograms["generation_seconds"].child(name, size) for size in OUTPUT_SIZES}
        self.no_token = {why: counters["streams_without_token_total"].child(name, why) for why in NO_TOKEN_REASONS}
        sources = counters["token_count_source_total"]
        self.source_usage = sources.child(name, "usage")
        self.source_events = sources.child(name, "events")
        self.source_none = sources.child(name, "none")
        ratio = histograms["network_ratio"]
        self.network_ratio = {basis: ratio.child(name, basis) for basis in ("reported", "estimated")}
        time = counters["time_seconds_total"]
        self.time_network, self.time_provider, self.time_sidecar, self.time_client = (
            time.child(name, component) for component in COMPONENTS
        )
        provider = histograms["provider_phase_seconds"]
        self.provider_total, self.provider_queue, self.provider_load, self.provider_prompt, self.provider_generation = (
            provider.child(name, phase) for phase in PROVIDER_PHASES
        )
        # A gauge that is not set is not shown: a 0 that nobody reported would raise an alarm.
        self.ratelimit = {kind: gauges["ratelimit_remaining"].child(name, kind) for kind in RATELIMIT_KINDS}
        self.rtt = histograms["tcp_rtt_seconds"].child(name)
        self.retransmits = counters["tcp_retransmits_total"].child(name)
        self.opened = counters["connections_opened_total"].child(name)
        self.reused = counters["connections_reused_total"].child(name)
        for phase, reasons in USUAL_ERRORS.items():
            for reason in reasons:
                counters["connection_errors_total"].child(name, phase.value, reason.value)
        self.limit_models(models)

    def limit_models(self, models: Models) -> None:
        """Set the limit. Allowed names have their series at once, and their place; series that exist stay."""
        for name in models.allow:
            self._known(label_value(name))
        reserved = set(map(label_value, models.allow))
        came = sum(1 for name in self._models if name not in reserved and name not in (OTHER, UNKNOWN))
        self._free = models.limit - len(reserved) - came

    def model(self, name: object, *, proven: bool) -> ModelSeries:
        """The series of the model that a request named.

        A name that is not known yet takes one of the free places, but only when the upstream answered it with success
        (`proven`): a flood of invented names must not use them up. Refused names are not remembered.
        """
        found = self._models.get(name) if isinstance(name, str) else None
        if found is None:
            label = label_value(name)
            found = self._models.get(label)
            if found is None:
                if label not in (OTHER, UNKNOWN):
                    if proven and self._free > 0:
                        self._free -= 1
                    else:
                        label = OTHER
                found = self._known(label)
        if found.model == OTHER:
            self._overflow.inc()
        return found

    def _known(self, label: str) -> ModelSeries:
        found = self._models.get(label)
        if found is None:
            found = self._models[label] = ModelSeries(self._families, self.name, label)
        return found
