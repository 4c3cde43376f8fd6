"""What response headers tell of the provider's time and of the rate limits that are left."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sidecar.dialects.openai_usage import note
from sidecar.http_fields import lower

if TYPE_CHECKING:
    from sidecar.dialects.reading import Reading
    from sidecar.exchange import Headers

_MS = 1000.0

_UNTIL_HEADERS: tuple[tuple[bytes, float], ...] = (
    (b"openai-processing-ms", _MS),
    (b"x-metrics-e2e-ms", _MS),
    (b"fireworks-server-processing-time", 1.0),
    (b"x-amzn-bedrock-invocation-latency", _MS),
    (b"ms-azureml-model-time", _MS),
    (b"x-total-time", _MS),
    (b"cmp-upstream-response-duration", _MS),
    (b"x-kong-upstream-latency", _MS),
    (b"x-pinecone-request-latency-ms", _MS),
    (b"x-envoy-upstream-service-time", _MS),
    (b"x-proxy-upstream-service-time", _MS),
    (b"server-timing", _MS),
    (b"llm_provider-openai-processing-ms", _MS),
    (b"x-litellm-response-duration-ms", _MS),
)
"""Time until the response's headers and how many of its units make a second; nearest to the model first."""

_PHASES: tuple[tuple[bytes, float, str], ...] = (
    (b"x-metrics-e2e-ms", _MS, "total"),
    (b"x-metrics-ttft-ms", _MS, "prompt"),
    (b"fireworks-server-time-to-first-token", 1.0, "prompt"),
    (b"fireworks-prefill-duration", 1.0, "prompt"),
    (b"fireworks-prefill-queue-duration", 1.0, "queue"),
    (b"x-amzn-bedrock-invocation-latency", _MS, "total"),
    (b"x-total-time", _MS, "total"),
    (b"x-queue-time", _MS, "queue"),
    (b"x-inference-time", _MS, "generation"),
)
"""Phases that are named; the later of two for the same phase is the more exact one."""

_RANKS: dict[bytes, tuple[int, float]] = {name: (rank, unit) for rank, (name, unit) in enumerate(_UNTIL_HEADERS)}
_TIMED = frozenset(entry[0] for entry in _UNTIL_HEADERS + _PHASES)
_PHASED = frozenset(entry[0] for entry in _PHASES)

_TIMING_ENTRY = re.compile(rb'(?:^|,)\s*(gfet4t7|x-originResponse|proxy|total)\s*;\s*dur="?([0-9.]+)', re.IGNORECASE)
"""Server-Timing (W3C): only the entries that are known to be the provider's whole time; CDNs add their own."""

_PREFIXES = (b"", b"llm_provider-")
"""LiteLLM repeats the provider's headers under a prefix of its own."""
_WINDOWS = (b"", b"-minute", b"-hour", b"-day", b"-month")

_LEFT: dict[bytes, str] = {
    **{
        prefix + b"x-ratelimit-remaining-" + name + window: kind
        for prefix in _PREFIXES
        for name, kind in ((b"req", "requests"), (b"requests", "requests"), (b"tokens", "tokens"))
        for window in _WINDOWS
    },
    **{
        prefix + b"anthropic-ratelimit-" + kind.encode() + b"-remaining": kind
        for prefix in _PREFIXES
        for kind in ("requests", "tokens", "input-tokens", "output-tokens")
    },
    b"x-ratelimit-remaining": "requests",
    b"x-tokenlimit-remaining": "tokens",
    b"x-trial-endpoint-call-remaining": "requests",
    b"ratelimit": "requests",
}
"""Fields that say how much is left, and of what."""
_LIMITED = frozenset(_LEFT)
_NO_RANK = (len(_UNTIL_HEADERS), 1.0)
_READ = (
    frozenset({b"content-type", b"content-encoding", b"x-amzn-errortype", b"sec-websocket-extensions"})
    | _TIMED
    | _LEFT.keys()
)
"""All the fields that anything here looks at."""
_HUGGING_FACE = re.compile(rb";\s*r=([0-9]+)")
_APART = ("input-tokens", "output-tokens")
_MAX_SECONDS = 86_400.0


Fields = dict[bytes, bytes]
"""Header fields by their names in lower case."""


def fields_of(headers: Headers) -> Fields:
    """The fields that are read of a response, by name; repeated ones are joined by a comma (RFC 9110 section 5.3)."""
    fields: Fields = {}
    for name, value in headers:
        low = lower(name)
        if low in _READ:
            fields[low] = fields[low] + b"," + value if low in fields else value
    return fields


def read_headers(reading: Reading, fields: Fields) -> None:
    """Note in the reading what the headers of its response tell."""
    if not _TIMED.isdisjoint(fields):
        _times(reading, fields)
    if not _LIMITED.isdisjoint(fields):  # the other way round it would walk through all the names it knows
        _limits(reading, fields)


def _times(reading: Reading, fields: Fields) -> None:
    times = reading.provider
    best = len(_UNTIL_HEADERS)
    for name, text in fields.items():
        rank, unit = _RANKS.get(name, _NO_RANK)
        if rank < best:
            seconds = _server_timing(text) if name == b"server-timing" else _number(text, unit)
            if seconds is not None:
                times.until_headers = seconds
                best = rank
    if _PHASED.isdisjoint(fields):
        return
    for name, unit, phase in _PHASES:
        value = fields.get(name)
        if value is not None:
            setattr(times, phase, _number(value, unit))
    if b"x-metrics-e2e-ms" in fields and times.total is not None and times.prompt is not None:
        note(times, generation=times.total - times.prompt)


def _server_timing(value: bytes) -> float | None:
    match = _TIMING_ENTRY.search(value)
    return None if match is None else _number(match[2], _MS)


def _limits(reading: Reading, fields: Fields) -> None:
    """The least that is left of each kind. Anthropic's limit of all tokens stands for those of input and output."""
    apart: list[float] = []
    left = reading.ratelimit_remaining
    for name in fields.keys() & _LEFT.keys():
        text = fields[name]
        if name == b"ratelimit":
            match = _HUGGING_FACE.search(text)
            text = match[1] if match else b""
        count = _number(text, 1.0, limit=1e15)
        if count is None:
            continue
        kind = _LEFT[name]
        if kind in _APART:
            apart.append(count)
        else:
            left[kind] = min(count, left.get(kind, count))
    if apart and "tokens" not in left:
        left["tokens"] = min(apart)


def _number(value: bytes, unit: float, *, limit: float = _MAX_SECONDS) -> float | None:
    """The number, of which `unit` make a second; None when it is none, or impossible."""
    try:
        number = float(value) / unit
    except ValueError:
        return None
    return number if 0.0 <= number <= limit else None
