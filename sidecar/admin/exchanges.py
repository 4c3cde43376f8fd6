"""The last finished exchanges as JSON: timings and counts, no fields, no bodies, no query strings."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sidecar.proxy.finished import Finished, Marks


def describe(exchange: Finished) -> dict[str, Any]:
    """One exchange. Milliseconds, None for a phase that was not reached."""
    marks = exchange.marks
    sent, head = marks.t_send1, marks.t_hdr
    return {
        "started": datetime.fromtimestamp(marks.started_at, UTC).isoformat(timespec="milliseconds"),
        "upstream": exchange.upstream or None,
        "dialect": exchange.dialect,
        "method": exchange.method,
        "path": exchange.path,
        "operation": exchange.operation,
        "model": exchange.model,
        "stream": exchange.stream,
        "status": exchange.status,
        "outcome": exchange.outcome,
        "error": exchange.error,
        "retried": exchange.retried or None,
        "trace_id": exchange.trace_id or None,
        "connection_reused": exchange.connection_reused,
        "request_bytes": int(marks.request_bytes),
        "response_bytes": int(marks.response_bytes),
        "phases_ms": {
            "blocked": _ms(marks.blocked),
            "dns": _ms(marks.dns),
            "connect": _ms(marks.connect),
            "tls": _ms(marks.tls),
            "send": _ms(sent - marks.t_send0) if sent else None,
            "wait": _ms(head - sent) if head and sent else None,
            "receive": _ms(marks.t_end - head) if head else None,
        },
        "duration_ms": _ms(marks.t_end - marks.t0),
        "rtt_ms": _ms(marks.rtt) if marks.rtt else None,
        "reading": _describe_reading(exchange, marks) if exchange.read else None,
    }


def _describe_reading(exchange: Finished, marks: Marks) -> dict[str, Any]:
    usage = exchange.usage or (None, None, None, None)

    def since(at: float) -> float | None:
        return _ms(at - marks.t0) if at else None

    return {
        "model": exchange.answered_model,
        "events": exchange.events,
        "token_events": exchange.token_events,
        "first_token_ms": since(marks.first_token_at),
        "first_output_ms": since(marks.first_output_at),
        "last_token_ms": since(marks.last_token_at),
        "input_tokens": usage[0],
        "output_tokens": usage[1],
        "cached_input_tokens": usage[2],
        "reasoning_tokens": usage[3],
        "finish_reasons": list(exchange.finish_reasons),
        "complete": exchange.complete,
        "parse_errors": exchange.parse_errors or {},
    }


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 3)
