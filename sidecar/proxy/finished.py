"""What is kept of an exchange that was recorded: timings and counts in as little memory as they take.

Two hundred whole exchanges would be most of a processor's second-level cache, which the next request then finds cold:
keeping them cost 20 µs per request, keeping this costs one.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from sidecar.dialects.reading import RequestFacts
from sidecar.exchange import Exchange, Outcome

_NUMBERS = struct.Struct("17d")


class Marks(NamedTuple):
    """Instants are monotonic seconds, 0.0 for never; dns, connect, tls and rtt are durations in seconds."""

    started_at: float
    t0: float
    t_conn: float
    t_send0: float
    t_send1: float
    t_hdr: float
    t_end: float
    dns: float
    connect: float
    tls: float
    blocked: float
    rtt: float
    request_bytes: float
    response_bytes: float
    first_token_at: float
    first_output_at: float
    last_token_at: float


class Finished(NamedTuple):
    """One exchange. `numbers` unpacks to Marks."""

    upstream: str
    dialect: str
    method: str
    path: str
    """Without the query, which holds keys at some providers."""
    operation: str
    model: str | None
    answered_model: str | None
    stream: bool
    status: int
    outcome: Outcome
    error: str | None
    retried: str
    trace_id: str
    connection_reused: bool
    events: int
    token_events: int
    read: bool
    """There was an answer to read; without one the counts mean nothing."""
    usage: tuple[int | None, int | None, int | None, int | None] | None
    """Input, output, cached input and reasoning tokens, normalised."""
    finish_reasons: tuple[str, ...]
    complete: bool
    parse_errors: dict[str, int] | None
    numbers: bytes

    @property
    def marks(self) -> Marks:
        """The numbers by name."""
        return Marks._make(_NUMBERS.unpack(self.numbers))


def finished(exchange: Exchange, facts: RequestFacts, outcome: Outcome) -> Finished:
    """What is worth keeping of an exchange that has been recorded."""
    reading = exchange.reading
    numbers = _NUMBERS.pack(
        exchange.started_at,
        exchange.t0,
        exchange.t_conn,
        exchange.t_send0,
        exchange.t_send1,
        exchange.t_hdr,
        exchange.t_end,
        exchange.dns,
        exchange.connect,
        exchange.tls,
        exchange.blocked,
        exchange.rtt,
        exchange.request_bytes,
        exchange.response_bytes,
        reading.first_token_at or 0.0 if reading is not None else 0.0,
        reading.first_output_at or 0.0 if reading is not None else 0.0,
        reading.last_token_at or 0.0 if reading is not None else 0.0,
    )
    usage = None
    if reading is not None and reading.usage is not None:
        counts = reading.usage.normalised()
        usage = (counts.input, counts.output, counts.cached_input or 0, counts.reasoning or 0)
    return Finished(
        exchange.upstream,
        exchange.dialect,
        exchange.method,
        exchange.target.partition("?")[0],
        facts.operation,
        facts.model,
        None if reading is None else reading.model,
        facts.stream if reading is None else reading.streamed,
        exchange.status,
        outcome,
        None if exchange.failure is None else exchange.failure.code,
        exchange.retried,
        exchange.trace_id,
        exchange.connection_reused,
        0 if reading is None else reading.events,
        0 if reading is None else reading.token_events,
        reading is not None,
        usage,
        () if reading is None else tuple(reading.finish_reasons),
        reading is not None and reading.complete,
        reading.parse_errors or None if reading is not None else None,
        numbers,
    )
