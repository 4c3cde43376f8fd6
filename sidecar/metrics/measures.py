"""The arithmetic of docs/metrics.md: from the marks of an ended exchange to seconds. Pure, no clock, no metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sidecar.dialects.reading import ReasoningShown
from sidecar.exchange import Phase

if TYPE_CHECKING:
    from sidecar.dialects.reading import ProviderTimes, Reading, Usage
    from sidecar.exchange import Exchange

_DIALLING = frozenset({Phase.DNS, Phase.CONNECT, Phase.TLS})


class Spans(NamedTuple):
    """Seconds of the phases an exchange reached, None for the others.

    blocked + dns + connect + tls + send + wait + receive is the duration. `overhead` lies within them: the time until
    the request was ready for a connection, and that from a connection in hand to the first byte on it.
    """

    blocked: float | None
    send: float | None
    wait: float | None
    receive: float | None
    overhead: float


def spans_of(exchange: Exchange) -> Spans:
    """Subtract the marks, once.

    A phase that a failure or a departure cut short lasts until the end. Where the head comes before the request is
    sent (an early refusal), sending ends with the head, so that no time is counted twice.
    """
    taken, first = exchange.t_conn, exchange.t_send0
    if not taken:
        # Without a connection, waiting for a place cannot be told from a dialling that failed, except by the failure.
        failure = exchange.failure
        waited = failure is not None and failure.phase is Phase.BLOCKED
        return Spans(exchange.blocked if waited else None, None, None, None, 0.0)
    if not first:
        return Spans(exchange.blocked, None, None, None, 0.0)
    answered, all_sent, end = exchange.t_hdr, exchange.t_send1, exchange.t_end
    head = answered or end
    sent = all_sent if 0.0 < all_sent < head else head
    return Spans(
        exchange.blocked,
        sent - taken,
        head - sent if all_sent or answered else None,
        end - answered if answered else None,
        _lead(exchange) + (exchange.t_ready - exchange.t0 if exchange.t_ready > exchange.t0 else 0.0),
    )


def _lead(exchange: Exchange) -> float:
    """The part of `send` that was ours: a connection is in hand, and nothing is sent yet."""
    lead = exchange.t_send0 - exchange.t_conn
    return lead if lead > 0.0 else 0.0


def network_of(exchange: Exchange, spans: Spans, streamed: bool) -> tuple[float, str | None]:
    """Seconds the network held, and their basis (None: dialling and sending only, so no ratio is to be made of them).

    They are the dialling, the sending, and the part of the wait that was not the provider's.
    That part is the wait less what the provider reports for it, else one round trip. The total a provider reports in
    a stream is never used: it would have to be set against the whole stream, in which network and generation overlap.
    """
    seconds = exchange.dns + exchange.connect + exchange.tls
    if not exchange.t_conn:
        failure = exchange.failure
        if failure is not None and failure.phase in _DIALLING:
            seconds = exchange.t_end - exchange.t0
        return seconds, None
    if spans.send is not None:
        sending = spans.send - _lead(exchange)
        seconds += sending if sending > 0.0 else 0.0
    if not exchange.t_hdr:
        return seconds, None
    reported = None if exchange.reading is None else reported_wait(exchange.reading.provider, streamed)
    if reported is not None:
        waited = (spans.wait or 0.0) - reported
        return (seconds + waited if waited > 0.0 else seconds), "reported"
    # Without a round-trip time from the kernel there is nothing to estimate from: a ratio near 0 would be invented.
    return seconds + exchange.rtt, "estimated" if exchange.rtt > 0.0 else None


def reported_wait(times: ProviderTimes, streamed: bool) -> float | None:
    """Seconds the provider says it worked before the response head; None when it does not say."""
    if times.until_headers is not None:
        return times.until_headers
    if streamed or times.total is None:
        return None
    if times.queue and times.prompt is not None and times.generation is not None:
        # Groq's total is prompt + generation and leaves the queue out, Cerebras' has it in: the sum tells them apart.
        work = times.prompt + times.generation
        if abs(times.total - work) < abs(times.total - work - times.queue):
            return times.total + times.queue
    return times.total


def split_of(exchange: Exchange, spans: Spans, network: float) -> tuple[float, float, float, float]:
    """Seconds of network, provider, sidecar and client, which add up to the duration.

    The provider has what the others leave; a network estimate is cut to what sidecar and client leave.
    """
    overheads = exchange.response_overheads
    held = overheads[0] if len(overheads) == 1 else sum(overheads)
    sidecar = (spans.blocked or 0.0) + held
    if spans.send is not None:
        sidecar += _lead(exchange)
    client = exchange.client_wait
    left = exchange.t_end - exchange.t0 - sidecar - client
    if left < 0.0:
        left = 0.0
    if network > left:
        network = left
    return network, left - network, sidecar, client


def visible_tokens(reading: Reading, usage: Usage | None) -> int | None:
    """N: the output tokens whose arrival could be seen. None: only a summary of the reasoning was shown.

    Reasoning tokens are taken out when no reasoning was streamed. Without usage the token events stand for tokens.
    """
    if reading.reasoning_shown is ReasoningShown.SUMMARY:
        return None
    if usage is None or usage.output is None:
        return reading.token_events
    if reading.reasoning_shown is ReasoningShown.NONE:
        return usage.output - (usage.reasoning or 0)
    return usage.output


def seconds_per_token(reading: Reading, usage: Usage | None) -> float | None:
    """Time per output token, (last token event - first) / (N - n1), None where that has no meaning."""
    first, last = reading.first_token_at, reading.last_token_at
    if first is None or last is None or last <= first or reading.token_events < 2:
        return None
    tokens = visible_tokens(reading, usage)
    if tokens is None or tokens < 2:
        return None
    later = tokens - _first_event_tokens(reading, usage)
    return (last - first) / later if later > 0 else None


def _first_event_tokens(reading: Reading, usage: Usage | None) -> int:
    """n1. Hidden reasoning comes before the first token event, so a running count at that event includes it."""
    first = reading.first_token_tokens
    if first is None or usage is None or usage.output is None:
        return 1
    hidden = (usage.reasoning or 0) if reading.reasoning_shown is ReasoningShown.NONE else 0
    return max(1, first - hidden if first > hidden else first)


def output_size(tokens: int) -> str:
    """The label `output_size`."""
    if tokens <= 128:
        return "le128"
    if tokens <= 512:
        return "le512"
    return "le2048" if tokens <= 2048 else "gt2048"
