"""How an exchange ended, as labels: pure decisions from its failure, its status and what was read of its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecar.exchange import CacheState, Outcome

if TYPE_CHECKING:
    from sidecar.dialects.reading import RequestFacts
    from sidecar.exchange import Exchange

SERVED_BY_CACHE = frozenset({CacheState.HIT, CacheState.STALE, CacheState.COALESCED})
"""The upstream did no work of its own for these: they enter no metric of the upstream's speed, tokens or network."""

OUTSIDE_OBJECTIVES = frozenset({Outcome.CLIENT_CANCELLED, Outcome.CLIENT_ERROR, Outcome.REJECTED})
"""Neither good nor bad: the application's own doing, and no fault of provider, network or sidecar."""

_NO_TOKEN_REASON = {
    Outcome.OK: "no_output",
    Outcome.CLIENT_CANCELLED: "client_cancelled",
    Outcome.TIMEOUT: "timeout",
    Outcome.NETWORK_ERROR: "error",
    Outcome.STREAM_ERROR: "error",
    Outcome.STREAM_TRUNCATED: "error",
    Outcome.SIDECAR_ERROR: "error",
}


def outcome_of(exchange: Exchange) -> Outcome:
    """The outcome, by the first rule that fits.

    A failure of ours names its own. A client that left is `client_cancelled`, unless it had the whole answer: SDKs
    hang up after the terminal event. Then the status decides, then what the body of a success says of itself.
    """
    if exchange.failure is not None:
        return exchange.failure.outcome
    reading = exchange.reading
    if exchange.client_gone and not (reading is not None and reading.streamed and reading.complete):
        return Outcome.CLIENT_CANCELLED
    status = exchange.status
    if status >= 400:
        if status == 429:
            return Outcome.RATE_LIMITED
        return Outcome.CLIENT_ERROR if status < 500 else Outcome.UPSTREAM_ERROR
    if status == 0:
        # Neither an answer nor a failure nor a departed client: somebody forgot to say why.
        return Outcome.SIDECAR_ERROR
    if reading is None:
        return Outcome.OK
    if reading.failed:
        return Outcome.STREAM_ERROR if reading.streamed else Outcome.UPSTREAM_ERROR
    if reading.streamed and not reading.complete and not exchange.tunnel:
        return Outcome.STREAM_TRUNCATED
    return Outcome.OK


def code_of(exchange: Exchange) -> int:
    """The status the application received: the upstream's, else that of our own answer, 0 when it left before one."""
    status = exchange.status
    if status == 0 and exchange.failure is not None and not exchange.client_gone:
        status = exchange.failure.status
    return status if 100 <= status < 600 else 0


def succeeded(exchange: Exchange) -> bool:
    """The upstream took the request: a 2xx, or an upgrade it accepted."""
    return 200 <= exchange.status < 300 or exchange.tunnel


def is_stream(exchange: Exchange, facts: RequestFacts) -> bool:
    """The label `stream`: what a success was; where there was none, what the application asked for."""
    if exchange.tunnel:
        return True
    if exchange.reading is not None and 200 <= exchange.status < 300:
        return exchange.reading.streamed
    return facts.stream


def no_token_reason(outcome: Outcome) -> str | None:
    """Why a stream brought no token; None when the upstream or we refused it, so that there never was a stream."""
    return _NO_TOKEN_REASON.get(outcome)
