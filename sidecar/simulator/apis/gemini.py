"""Gemini: whole answers, server-sent events with CRLF (`alt=sse`), and one JSON array that grows."""

from __future__ import annotations

import msgspec

from sidecar.simulator.answer import Answer, Call, Event, Family, Kind, Route, Wire
from sidecar.simulator.apis.openai import plan, whole
from sidecar.simulator.apis.outline import Outline, plain

_NAMES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


def _headers(_call: Call, until_head: int) -> bytes:
    return b"server-timing: gfet4t7; dur=%d\r\nvary: Origin\r\nvary: X-Origin\r\nvary: Referer\r\n" % until_head


def _error(_call: Call, status: int, message: str) -> bytes:
    name = _NAMES.get(status, "INTERNAL" if status >= 500 else "INVALID_ARGUMENT")
    failure: dict[str, object] = {"code": status, "message": message, "status": name}
    if status == 429:
        failure["details"] = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "1s"}]
    return msgspec.json.encode({"error": failure})


FAMILY = Family(_headers, _error)


def _model(call: Call) -> str:
    """Only the path names it: `…/models/NAME:method`."""
    return call.knobs.model or call.path.rsplit("/", 1)[-1].rsplit(":", 1)[0]


def _usage(call: Call, visible: int, thoughts: int) -> bytes:
    """Thoughts are counted beside the candidates, not within them."""
    if call.knobs.no_usage:
        return b""
    total = call.input_tokens + visible + thoughts
    more = b',"thoughtsTokenCount":%d' % thoughts if thoughts else b""
    counts = b',"usageMetadata":{"promptTokenCount":%d,"candidatesTokenCount":%d,"totalTokenCount":%d%b}'
    return counts % (call.input_tokens, visible, total, more)


def _content(call: Call, parts: bytes, usage: bytes, finish: bytes = b"") -> bytes:
    reason = b',"finishReason":"%b"' % finish if finish else b""
    return (
        b'{"candidates":[{"content":{"parts":[%b],"role":"model"}%b,"index":0}]%b,"modelVersion":%b,"responseId":"sim%d"}'
    ) % (parts, reason, usage, msgspec.json.encode(_model(call)), call.id)


def _parts(call: Call, line: Outline) -> list[tuple[int, bytes, int, Kind]]:
    """(step, JSON part, tokens, kind) of each event. A function call comes whole, at the step of its last token."""
    found = [
        (step, b'{"text":"%b","thought":true}' % words, tokens, Kind.REASONING)
        for step, words, tokens in line.reasoning
    ]
    found += [(step, b'{"text":"%b"}' % words, tokens, Kind.OUTPUT) for step, words, tokens in line.texts]
    for tool in line.tools:
        part = b'{"functionCall":{"name":"%b","args":%b}}' % (call.tool_name.encode(), plain(tool.arguments))
        found.append((tool.parts[-1].step, part, 1 + sum(piece.tokens for piece in tool.parts), Kind.OUTPUT))
    return found


def _finish(call: Call) -> bytes:
    return b"MAX_TOKENS" if call.shortened else b"STOP"


def _generate(call: Call) -> Answer:
    line = plan(call)
    visible = line.tokens - line.reasoning_tokens
    if line.tools:
        parts = b",".join(part for _, part, _, _ in _parts(call, line))
    else:
        parts = (
            b'{"text":"%b","thought":true},' % line.thought if line.reasoning else b""
        ) + b'{"text":"%b"}' % line.said
    body = _content(call, parts, _usage(call, visible, line.reasoning_tokens), _finish(call))
    answer = whole(call, body, line.tokens, line.reasoning_tokens, line.last)
    answer.model, answer.content_type = _model(call), b"application/json; charset=UTF-8"
    return answer


def _stream(call: Call) -> Answer:
    """Usage so far rides on every event, the finish reason on the last."""
    line, as_sse = plan(call), call.query.get("alt") == "sse"
    events: list[Event] = []
    visible = thoughts = 0
    parts = _parts(call, line) or [(0, b'{"text":""}', 0, Kind.CONTROL)]
    for place, (step, part, tokens, kind) in enumerate(parts, 1):
        thoughts += tokens if kind is Kind.REASONING else 0
        visible += tokens if kind is Kind.OUTPUT else 0
        finish = _finish(call) if place == len(parts) else b""
        events.append(Event(step, _content(call, part, _usage(call, visible, thoughts), finish), b"", tokens, kind))
    return Answer(
        events,
        Wire.SSE if as_sse else Wire.ARRAY,
        content_type=b"text/event-stream" if as_sse else b"application/json; charset=UTF-8",
        error=Event(0, _error(call, 503, "The model is overloaded. Please try again later.")),
        line_end=b"\r\n",
        model=_model(call),
        input_tokens=call.input_tokens,
        output_tokens=line.tokens,
        reasoning_tokens=line.reasoning_tokens,
    )


def _count(call: Call) -> Answer:
    body = b'{"totalTokens":%d}' % call.input_tokens
    return Answer([Event(0, body)], model=_model(call), input_tokens=call.input_tokens)


ROUTES = (
    Route("gemini.generate_content", ":generateContent", ("POST",), FAMILY, _generate),
    Route("gemini.stream_generate_content", ":streamGenerateContent", ("POST",), FAMILY, _stream),
    Route("gemini.count_tokens", ":countTokens", ("POST",), FAMILY, _count),
)
