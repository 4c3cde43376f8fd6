"""The last finished exchanges as JSON: timings and counts, no fields, no bodies, no query strings."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sidecar.dialects.reading import Reading, RequestFacts
from sidecar.exchange import Exchange, Outcome


def describe(exchange: Exchange, facts: RequestFacts, outcome: Outcome) -> dict[str, Any]:
    """One exchange. Milliseconds, None for a phase that was not reached."""
    sent, head = exchange.t_send1, exchange.t_hdr
    reading = exchange.reading
    return {
        "started": datetime.fromtimestamp(exchange.started_at, UTC).isoformat(timespec="milliseconds"),
        "upstream": exchange.upstream or None,
        "dialect": exchange.dialect,
        "method": exchange.method,
        # Queries hold keys at some providers.
        "path": exchange.target.split("?", 1)[0],
        "operation": facts.operation,
        "model": facts.model,
        "stream": facts.stream if reading is None else reading.streamed,
        "status": exchange.status,
        "outcome": outcome,
        "error": None if exchange.failure is None else str(exchange.failure.code),
        "retried": exchange.retried or None,
        "trace_id": exchange.trace_id or None,
        "connection_reused": exchange.connection_reused,
        "request_bytes": exchange.request_bytes,
        "response_bytes": exchange.response_bytes,
        "phases_ms": {
            "blocked": _ms(exchange.blocked),
            "dns": _ms(exchange.dns),
            "connect": _ms(exchange.connect),
            "tls": _ms(exchange.tls),
            "send": _ms(sent - exchange.t_send0) if sent else None,
            "wait": _ms(head - sent) if head and sent else None,
            "receive": _ms(exchange.t_end - head) if head else None,
        },
        "duration_ms": _ms(exchange.t_end - exchange.t0),
        "rtt_ms": _ms(exchange.rtt) if exchange.rtt else None,
        "reading": None if reading is None else _describe_reading(reading, exchange.t0),
    }


def _describe_reading(reading: Reading, t0: float) -> dict[str, Any]:
    usage = reading.usage.normalised() if reading.usage is not None else None
    return {
        "model": reading.model,
        "events": reading.events,
        "token_events": reading.token_events,
        "first_token_ms": None if reading.first_token_at is None else _ms(reading.first_token_at - t0),
        "first_output_ms": None if reading.first_output_at is None else _ms(reading.first_output_at - t0),
        "last_token_ms": None if reading.last_token_at is None else _ms(reading.last_token_at - t0),
        "input_tokens": None if usage is None else usage.input,
        "output_tokens": None if usage is None else usage.output,
        "cached_input_tokens": None if usage is None else usage.cached_input,
        "reasoning_tokens": None if usage is None else usage.reasoning,
        "finish_reasons": reading.finish_reasons,
        "complete": reading.complete,
        "parse_errors": reading.parse_errors,
    }


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 3)
