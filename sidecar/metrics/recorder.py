"""The recorder turns an exchange that has ended into observations, once, by the definitions of docs/metrics.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecar.dialects.reading import Operation
from sidecar.exchange import Outcome
from sidecar.metrics.events import Events
from sidecar.metrics.measures import (
    network_of,
    output_size,
    seconds_per_token,
    spans_of,
    split_of,
)
from sidecar.metrics.outcomes import (
    OUTSIDE_OBJECTIVES,
    SERVED_BY_CACHE,
    code_of,
    is_stream,
    no_token_reason,
    outcome_of,
    succeeded,
)
from sidecar.metrics.series import UNKNOWN

if TYPE_CHECKING:
    from sidecar.dialects.reading import Reading, RequestFacts, Usage
    from sidecar.exchange import Exchange
    from sidecar.metrics.accumulators import Histogram
    from sidecar.metrics.series import ModelSeries, UpstreamSeries

UNROUTED = "none"
"""Label `upstream` of requests that no upstream was found for."""


class Recorder(Events):
    """All metrics of the process. Holds no clock: instants come with what is recorded."""

    def record(self, exchange: Exchange, facts: RequestFacts) -> Outcome:
        """Observe one exchange that has ended, and tell its outcome. Call once; marks may be missing or absurd."""
        outcome = outcome_of(exchange)
        streamed = is_stream(exchange, facts)
        series = self._upstreams.get(exchange.upstream)
        if series is None:
            if exchange.upstream in ("", UNROUTED):
                self._unrouted(exchange, facts, outcome, streamed)
            return outcome
        model = series.model(facts.model, proven=succeeded(exchange))
        requests, durations = model.request(facts.operation, code_of(exchange), outcome, streamed, exchange.cache)
        requests.inc()
        _observe(durations, exchange.t_end - exchange.t0, exchange)
        if exchange.cache in SERVED_BY_CACHE:
            return outcome
        self._timing(series, model, exchange, streamed)
        reading = exchange.reading
        first_token: float | None = None
        per_token: float | None = None
        if reading is not None:
            usage = None if reading.usage is None else reading.usage.normalised()
            self._answer(series, exchange, facts, reading)
            _tokens(model, usage)
            if streamed and not exchange.tunnel:
                first_token = _first_token(model, exchange, reading)
                per_token = _generation(series, model, exchange, reading, usage)
        if exchange.tunnel:
            return outcome
        if streamed and first_token is None:
            reason = no_token_reason(outcome)
            if reason is not None:
                series.no_token[reason].inc()
        self._objectives(model, outcome, first_token, per_token)
        return outcome

    def _unrouted(self, exchange: Exchange, facts: RequestFacts, outcome: Outcome, streamed: bool) -> None:
        flag = "true" if streamed else "false"
        labels = (facts.operation.value, str(code_of(exchange)), outcome.value, flag, exchange.cache.value)
        self.families.counters["requests_total"].child(UNROUTED, UNKNOWN, *labels).inc()

    def _timing(self, series: UpstreamSeries, model: ModelSeries, exchange: Exchange, streamed: bool) -> None:
        spans = spans_of(exchange)
        blocked, send, wait, receive, overhead = spans
        if blocked is not None:
            model.blocked.observe(blocked)
        if send is not None:
            model.send.observe(send)
            self._overhead_request.observe(overhead)
        if wait is not None:
            model.wait.observe(wait)
        if receive is not None:
            model.receive.observe(receive)
            if exchange.rtt > 0.0:
                series.rtt.observe(exchange.rtt)
            self._overhead_response.observe_all(exchange.response_overheads)
        if exchange.retransmits:
            series.retransmits.inc(exchange.retransmits)
        if exchange.tunnel:
            # A connection that idles for hours would weigh more than all requests together.
            return
        network, basis = network_of(exchange, spans, streamed)
        of_network, of_provider, of_sidecar, of_client = split_of(exchange, spans, network)
        series.time_network.inc(of_network)
        series.time_provider.inc(of_provider)
        series.time_sidecar.inc(of_sidecar)
        if of_client:
            series.time_client.inc(of_client)
        duration = exchange.t_end - exchange.t0
        if basis is not None and duration > 0.0:
            ratio = network / duration
            series.network_ratio[basis].observe(ratio if ratio < 1.0 else 1.0)

    def _answer(self, series: UpstreamSeries, exchange: Exchange, facts: RequestFacts, reading: Reading) -> None:
        times = reading.provider
        if times.total is not None:
            series.provider_total.observe(times.total)
        if times.queue is not None:
            series.provider_queue.observe(times.queue)
        if times.load is not None:
            series.provider_load.observe(times.load)
        if times.prompt is not None:
            series.provider_prompt.observe(times.prompt)
        if times.generation is not None:
            series.provider_generation.observe(times.generation)
        if reading.ratelimit_remaining or reading.parse_errors:
            self._limits_and_errors(series, reading)
        if reading.usage is not None:
            series.source_usage.inc()
        elif succeeded(exchange):
            if reading.token_events:
                series.source_events.inc()
            elif facts.operation is not Operation.OTHER:
                series.source_none.inc()

    def _limits_and_errors(self, series: UpstreamSeries, reading: Reading) -> None:
        for kind, left in reading.ratelimit_remaining.items():
            # Other kinds, and the -1 of a limit that the provider does not know, are not shown.
            if kind in series.ratelimit and left >= 0:
                series.ratelimit[kind].set(left)
        for reason, times_seen in reading.parse_errors.items():
            self.parse_error(series.name, reason, times_seen)

    def _objectives(
        self, model: ModelSeries, outcome: Outcome, first_token: float | None, per_token: float | None
    ) -> None:
        if outcome in OUTSIDE_OBJECTIVES:
            return
        good = (
            outcome is Outcome.OK
            and (first_token is None or first_token <= self._slo.ttft)
            and (per_token is None or per_token <= self._slo.tpot)
        )
        (model.good if good else model.bad).inc()


def _observe(histogram: Histogram, seconds: float, exchange: Exchange) -> None:
    """Observe, with the trace as exemplar when there is a sane one: OpenMetrics allows it 128 characters in all."""
    trace = exchange.trace_id
    if trace and len(trace) <= 64 and trace.isascii() and trace.isalnum():
        histogram.observe_traced(seconds, trace, exchange.started_at + (exchange.t_end - exchange.t0))
    else:
        histogram.observe(seconds)


def _tokens(model: ModelSeries, usage: Usage | None) -> None:
    if usage is None:
        return
    if usage.input is not None:
        model.input_tokens.observe(usage.input)
        model.input_total.inc(usage.input)
    if usage.output is not None:
        model.output_tokens.observe(usage.output)
        model.output_total.inc(usage.output)
    if usage.cached_input:
        model.cached_total.inc(usage.cached_input)
    if usage.cache_creation_input:
        model.creation_total.inc(usage.cache_creation_input)
    if usage.reasoning:
        model.reasoning_total.inc(usage.reasoning)


def _first_token(model: ModelSeries, exchange: Exchange, reading: Reading) -> float | None:
    if reading.first_token_at is None:
        return None
    seconds = reading.first_token_at - exchange.t0
    _observe(model.first_token_reused if exchange.connection_reused else model.first_token_new, seconds, exchange)
    if reading.first_output_at is not None:
        model.first_output.observe(reading.first_output_at - exchange.t0)
    model.gaps.observe_all(reading.gaps)
    return seconds


def _generation(
    series: UpstreamSeries, model: ModelSeries, exchange: Exchange, reading: Reading, usage: Usage | None
) -> float | None:
    first, last = reading.first_token_at, reading.last_token_at
    if first is None or last is None or last <= first:
        return None
    if reading.complete:
        # How long a text is, is known only when it is complete.
        known = usage is not None and usage.output is not None
        tokens = usage.output if known and usage is not None else reading.token_events
        series.generation[output_size(tokens or 0)].observe(last - first)
    seconds = seconds_per_token(reading, usage)
    if seconds is not None and seconds > 0.0:
        _observe(model.per_token, seconds, exchange)
        model.speed.observe(1.0 / seconds)
    return seconds
