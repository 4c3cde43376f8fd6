"""Anthropic messages, streamed and whole, and the counting of tokens."""

from __future__ import annotations

from time import gmtime, strftime

import msgspec

from sidecar.simulator.answer import OPENING, Answer, Call, Event, Family, Kind, Route, Wire
from sidecar.simulator.apis.openai import plan, whole
from sidecar.simulator.apis.outline import Outline, Part, plain

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


_THINKING = b'"type":"thinking_delta","thinking"'
_ARGUMENTS = b'"type":"input_json_delta","partial_json"'
_TEXT = b'"type":"text_delta","text"'


def _headers(call: Call, until_head: int) -> bytes:
    reset = strftime("%Y-%m-%dT%H:%M:%SZ", gmtime(call.wall)).encode()
    limits = b"".join(
        b"anthropic-ratelimit-%b-limit: %d\r\nanthropic-ratelimit-%b-remaining: %d\r\n"
        b"anthropic-ratelimit-%b-reset: %b\r\n" % (kind, limit, kind, max(0, limit - used), kind, reset)
        for kind, limit, used in (
            (b"requests", 4000, 1),
            (b"tokens", 4_800_000, call.input_tokens + call.tokens),
            (b"input-tokens", 4_000_000, call.input_tokens),
            (b"output-tokens", 800_000, call.tokens),
        )
    )
    return limits + (
        b"anthropic-organization-id: 00000000-0000-4000-8000-000000000000\r\nrequest-id: req_sim%d\r\n"
        b"server-timing: x-originResponse;dur=%d\r\nx-envoy-upstream-service-time: %d\r\n"
    ) % (call.id, until_head, until_head)


def _error(call: Call, status: int, message: str) -> bytes:
    kind = _TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
    body = {"type": "error", "error": {"type": kind, "message": message}, "request_id": f"req_sim{call.id}"}
    return msgspec.json.encode(body)


FAMILY = Family(_headers, _error)


def _usage(call: Call, output: int) -> bytes:
    """Input tokens are those outside the cache, of which the simulator has none."""
    return (b'{"input_tokens":%d,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":%d}') % (
        call.input_tokens,
        output,
    )


def _stop(call: Call, line: Outline) -> bytes:
    if line.tools:
        return b"tool_use"
    return b"max_tokens" if call.shortened else b"end_turn"


def _messages(call: Call) -> Answer:
    line = plan(call)
    if not call.ask.stream:
        return _whole(call, line)
    spent = b"" if call.knobs.no_usage else b',"usage":' + _usage(call, 1)
    started = (
        b'{"type":"message_start","message":{"model":%b,"id":"msg_sim%d","type":"message","role":"assistant",'
        b'"content":[],"stop_reason":null,"stop_sequence":null%b}}'
    ) % (call.model_json, call.id, spent)
    events = [Event(OPENING, started, b"message_start")]
    _add_blocks(call, line, events)
    # The real API pings once, after the first block has been opened.
    events.insert(2, Event(events[1].step, b'{"type": "ping"}', b"ping"))
    total = b"" if call.knobs.no_usage else b',"usage":' + _usage(call, line.tokens)
    delta = b'{"type":"message_delta","delta":{"stop_reason":"%b","stop_sequence":null}%b}' % (_stop(call, line), total)
    events.append(Event(line.last, delta, b"message_delta"))
    events.append(Event(line.last, b'{"type":"message_stop"}', b"message_stop"))
    overloaded = b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'
    return Answer(
        events,
        Wire.SSE,
        content_type=b"text/event-stream; charset=utf-8",
        error=Event(0, overloaded, b"error"),
        terminal=1,
        model=call.model,
        input_tokens=call.input_tokens,
        output_tokens=line.tokens,
        reasoning_tokens=line.reasoning_tokens,
    )


def _add_blocks(call: Call, line: Outline, events: list[Event]) -> None:
    index = 0
    if line.reasoning:
        opened = b'{"type":"thinking","thinking":"","signature":""}'
        events.append(_opened(OPENING, index, opened))
        _add_parts(events, index, _THINKING, line.reasoning, Kind.REASONING)
        signed = b'{"type":"content_block_delta","index":%d,"delta":{"type":"signature_delta","signature":"c2lt"}}'
        last = line.reasoning[-1].step
        events.append(Event(last, signed % index, b"content_block_delta"))
        events.append(_closed(last, index))
        index += 1
    for number, tool in enumerate(line.tools):
        opened = b'{"type":"tool_use","id":"toolu_sim%d_%d","name":"%b","input":{}}'
        block = _opened(tool.step, index, opened % (call.id, number, call.tool_name.encode()))
        events.append(block._replace(tokens=1, kind=Kind.OUTPUT))
        empty = (Part(tool.step, b"", 0),)
        _add_parts(events, index, _ARGUMENTS, empty, Kind.CONTROL)
        _add_parts(events, index, _ARGUMENTS, tool.parts, Kind.OUTPUT)
        events.append(_closed(tool.parts[-1].step, index))
        index += 1
    if not line.tools:
        step = line.texts[0].step if line.reasoning and line.texts else OPENING
        events.append(_opened(step, index, b'{"type":"text","text":""}'))
        _add_parts(events, index, _TEXT, line.texts, Kind.OUTPUT)
        events.append(_closed(line.last, index))


def _opened(step: int, index: int, block: bytes) -> Event:
    payload = b'{"type":"content_block_start","index":%d,"content_block":%b}' % (index, block)
    return Event(step, payload, b"content_block_start")


def _closed(step: int, index: int) -> Event:
    return Event(step, b'{"type":"content_block_stop","index":%d}' % index, b"content_block_stop")


def _add_parts(events: list[Event], index: int, delta: bytes, parts: tuple[Part, ...], means: Kind) -> None:
    start = b'{"type":"content_block_delta","index":%d,"delta":{%b:"' % (index, delta)
    name = b"content_block_delta"
    events += [Event(step, start + words + b'"}}', name, tokens, means) for step, words, tokens in parts]


def _whole(call: Call, line: Outline) -> Answer:
    blocks = []
    if line.reasoning:
        blocks.append(b'{"type":"thinking","thinking":"%b","signature":"c2lt"}' % line.thought)
    for number, tool in enumerate(line.tools):
        item = b'{"type":"tool_use","id":"toolu_sim%d_%d","name":"%b","input":%b}'
        blocks.append(item % (call.id, number, call.tool_name.encode(), plain(tool.arguments)))
    if not line.tools:
        blocks.append(b'{"type":"text","text":"%b"}' % line.said)
    spent = b"" if call.knobs.no_usage else b',"usage":' + _usage(call, line.tokens)
    body = (
        b'{"model":%b,"id":"msg_sim%d","type":"message","role":"assistant","content":[%b],"stop_reason":"%b",'
        b'"stop_sequence":null%b}'
    ) % (call.model_json, call.id, b",".join(blocks), _stop(call, line), spent)
    return whole(call, body, line.tokens, line.reasoning_tokens, line.last)


def _count(call: Call) -> Answer:
    body = b'{"input_tokens":%d}' % call.input_tokens
    return Answer([Event(0, body)], model=call.model, input_tokens=call.input_tokens)


ROUTES = (
    Route("anthropic.messages", "/messages", ("POST",), FAMILY, _messages),
    Route("anthropic.count_tokens", "/messages/count_tokens", ("POST",), FAMILY, _count),
)
