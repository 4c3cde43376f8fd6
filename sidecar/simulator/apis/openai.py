"""OpenAI: what all its answers share, and its small operations (embeddings, models)."""

from __future__ import annotations

import base64
import struct
from functools import lru_cache

import msgspec

from sidecar.simulator.answer import Answer, Call, Event, Family, Kind, Route
from sidecar.simulator.apis.outline import Outline, outline

_REQUESTS, _TOKENS = 10_000, 2_000_000


def headers(call: Call, until_head: int) -> bytes:
    """Header lines as OpenAI sends them. `openai-processing-ms` ends at the response head, in streams as well."""
    used = call.input_tokens + call.tokens
    return (
        b"openai-organization: org-simulated\r\nopenai-processing-ms: %d\r\nopenai-version: 2020-10-01\r\n"
        b"x-envoy-upstream-service-time: %d\r\n"
        b"x-ratelimit-limit-requests: %d\r\nx-ratelimit-limit-tokens: %d\r\n"
        b"x-ratelimit-remaining-requests: %d\r\nx-ratelimit-remaining-tokens: %d\r\n"
        b"x-ratelimit-reset-requests: 6ms\r\nx-ratelimit-reset-tokens: 1m30s\r\nx-request-id: req_sim%d\r\n"
    ) % (until_head, until_head, _REQUESTS, _TOKENS, _REQUESTS - 1, max(0, _TOKENS - used), call.id)


_TYPES = {
    400: ("invalid_request_error", None),
    401: ("invalid_request_error", "invalid_api_key"),
    403: ("invalid_request_error", "permission_denied"),
    404: ("invalid_request_error", "model_not_found"),
    429: ("requests", "rate_limit_exceeded"),
}


def error(_call: Call, status: int, message: str) -> bytes:
    """The JSON of an error answer."""
    kind, code = _TYPES.get(status, ("server_error" if status >= 500 else "invalid_request_error", None))
    return msgspec.json.encode({"error": {"message": message, "type": kind, "param": None, "code": code}})


FAMILY = Family(headers, error)


def plan(call: Call) -> Outline:
    """The outline of this call's answer."""
    return outline(call.tokens, call.knobs.tokens_per_event, call.knobs.reasoning, call.knobs.tools)


def usage(call: Call, tokens: int, reasoning: int) -> bytes:
    """The value of `usage` in chat answers; reasoning is within completion tokens."""
    return (
        b'{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,'
        b'"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},'
        b'"completion_tokens_details":{"reasoning_tokens":%d,"audio_tokens":0,'
        b'"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}'
    ) % (call.input_tokens, tokens, call.input_tokens + tokens, reasoning)


def stream_error(step: int = 0, name: bytes = b"") -> Event:
    """An error amid a stream."""
    return Event(
        step,
        b'{"error":{"message":"The server had an error while processing your request. Sorry about that!",'
        b'"type":"server_error","param":null,"code":null}}',
        name,
    )


def _embeddings(call: Call) -> Answer:
    asked = call.ask.input
    count = len(asked) if isinstance(asked, list) and asked and not isinstance(asked[0], int) else 1
    vector = _vector(call.ask.dimensions or 1536, call.ask.encoding_format == "base64")
    items = b",".join(b'{"object":"embedding","index":%d,"embedding":%b}' % (index, vector) for index in range(count))
    tokens = call.input_tokens
    spent = b"" if call.knobs.no_usage else b',"usage":{"prompt_tokens":%d,"total_tokens":%d}' % (tokens, tokens)
    body = b'{"object":"list","data":[%b],"model":%b%b}' % (items, call.model_json, spent)
    return Answer([Event(0, body)], model=call.model, input_tokens=tokens)


@lru_cache(maxsize=32)
def _vector(dimensions: int, as_base64: bool) -> bytes:
    """A unit vector as JSON: floats, or the base64 of little-endian floats of 32 bits as the SDK asks for."""
    numbers = [((index * 37) % 101 - 50) / 100 for index in range(min(dimensions, 8192))]
    norm = sum(number * number for number in numbers) ** 0.5 or 1.0
    numbers = [round(number / norm, 8) for number in numbers]
    if as_base64:
        return b'"' + base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)) + b'"'
    return msgspec.json.encode(numbers)


_NAMES = (b"sim-1", b"sim-1-mini", b"sim-embed-1")


def _model(name: bytes) -> bytes:
    return b'{"id":"%b","object":"model","created":1700000000,"owned_by":"simulator"}' % name


def _models(_call: Call) -> Answer:
    body = b'{"object":"list","data":[%b]}' % b",".join(_model(name) for name in _NAMES)
    return Answer([Event(-1, body)])


def _one_model(call: Call) -> Answer:
    name = msgspec.json.encode(call.path.rsplit("/models/", 1)[1])[1:-1]
    return Answer([Event(-1, _model(name))])


def whole(call: Call, body: bytes, tokens: int, reasoning: int, last: int) -> Answer:
    """An answer that comes in one piece when its last token would have come."""
    return Answer(
        [Event(last, body, tokens=tokens, kind=Kind.OUTPUT)],
        model=call.model,
        input_tokens=call.input_tokens,
        output_tokens=tokens,
        reasoning_tokens=reasoning,
    )


ROUTES = (
    Route("openai.embeddings", "/embeddings", ("POST",), FAMILY, _embeddings),
    Route("openai.models", "/models", ("GET", "HEAD"), FAMILY, _models),
)
MODEL = Route("openai.model", "/models/", ("GET", "HEAD"), FAMILY, _one_model)
