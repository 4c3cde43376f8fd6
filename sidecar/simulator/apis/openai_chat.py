"""OpenAI chat completions and the legacy completions, streamed and whole."""

from __future__ import annotations

from sidecar.simulator.answer import OPENING, Answer, Call, Event, Kind, Route, Wire
from sidecar.simulator.apis.openai import FAMILY, plan, stream_error, usage, whole
from sidecar.simulator.apis.outline import Outline, Tool

DONE = b"[DONE]"
CONTENT_TYPE = b"text/event-stream; charset=utf-8"


def _wants_usage(call: Call) -> bool:
    options = call.ask.stream_options
    return bool(options and options.include_usage) and not call.knobs.no_usage


def _choices(call: Call) -> range:
    return range(min(call.ask.n or 1, 128))


def _finish(call: Call, line: Outline) -> bytes:
    if line.tools:
        return b"tool_calls"
    return b"length" if call.shortened else b"stop"


def _chat(call: Call) -> Answer:
    return _chat_stream(call) if call.ask.stream else _chat_whole(call)


def _chat_stream(call: Call) -> Answer:
    """Role, content, finish; then usage without a choice, but only when it was asked for."""
    line, choices, asked = plan(call), _choices(call), _wants_usage(call)
    head = b'{"id":"chatcmpl-sim%d","object":"chat.completion.chunk","created":%d,"model":%b,' % (
        call.id,
        call.wall,
        call.model_json,
    ) + (b'"service_tier":"default","system_fingerprint":"fp_sim","choices":[')
    null = b',"usage":null}' if asked else b"}"
    tail = b'},"finish_reason":null}]' + null
    deltas = [head + b'{"index":%d,"delta":{' % index for index in choices]
    events = [Event(OPENING, delta + b'"role":"assistant","content":"","refusal":null' + tail) for delta in deltas]
    for key, kind, parts in (
        (b'"reasoning_content":"', Kind.REASONING, line.reasoning),
        (b'"content":"', Kind.OUTPUT, line.texts),
    ):
        starts, end = [delta + key for delta in deltas], b'"' + tail
        events += [
            Event(step, start + words + end, b"", tokens, kind) for step, words, tokens in parts for start in starts
        ]
    for place, tool in enumerate(line.tools):
        for delta in deltas:
            events += _tool_events(call, place, tool, delta, tail)
    reason = _finish(call, line)
    events += [
        Event(line.last, head + b'{"index":%d,"delta":{},"finish_reason":"%b"}]' % (index, reason) + null)
        for index in choices
    ]
    tokens, reasoning = line.tokens * len(choices), line.reasoning_tokens * len(choices)
    if asked:
        events.append(Event(line.last, head + b'],"usage":' + usage(call, tokens, reasoning) + b"}"))
    events.append(Event(line.last, DONE))
    return _stream(call, events, tokens, reasoning)


def _tool_events(call: Call, place: int, tool: Tool, delta: bytes, tail: bytes) -> list[Event]:
    first = (
        b'"tool_calls":[{"index":%d,"id":"call_sim%d_%d","type":"function","function":{"name":"%b","arguments":""}}]'
    )
    part = b'"tool_calls":[{"index":%d,"function":{"arguments":"%b"}}]'
    name = call.tool_name.encode()
    return [
        Event(tool.step, delta + first % (place, call.id, place, name) + tail, b"", 1, Kind.OUTPUT),
        *(
            Event(step, delta + part % (place, words) + tail, b"", tokens, Kind.OUTPUT)
            for step, words, tokens in tool.parts
        ),
    ]


def _stream(call: Call, events: list[Event], tokens: int, reasoning: int) -> Answer:
    return Answer(
        events,
        Wire.SSE,
        content_type=CONTENT_TYPE,
        error=stream_error(),
        terminal=1,
        model=call.model,
        input_tokens=call.input_tokens,
        output_tokens=tokens,
        reasoning_tokens=reasoning,
    )


def _chat_whole(call: Call) -> Answer:
    line, choices = plan(call), _choices(call)
    content = b"null" if line.tools else b'"' + line.said + b'"'
    thought = b',"reasoning_content":"' + line.thought + b'"' if line.reasoning else b""
    tools = b""
    if line.tools:
        item = b'{"id":"call_sim%d_%d","type":"function","function":{"name":"%b","arguments":"%b"}}'
        name = call.tool_name.encode()
        tools = b',"tool_calls":[%b]' % b",".join(
            item % (call.id, place, name, tool.arguments) for place, tool in enumerate(line.tools)
        )
    one = b'{"index":%d,"message":{"role":"assistant","content":%b,"refusal":null,"annotations":[]%b%b},' \
        b'"logprobs":null,"finish_reason":"%b"}'  # fmt: skip
    answers = b",".join(one % (index, content, thought, tools, _finish(call, line)) for index in choices)
    tokens, reasoning = line.tokens * len(choices), line.reasoning_tokens * len(choices)
    spent = b"" if call.knobs.no_usage else b',"usage":' + usage(call, tokens, reasoning)
    body = (
        b'{"id":"chatcmpl-sim%d","object":"chat.completion","created":%d,"model":%b,"choices":[%b]%b,'
        b'"service_tier":"default","system_fingerprint":"fp_sim"}'
    ) % (call.id, call.wall, call.model_json, answers, spent)
    return whole(call, body, tokens, reasoning, line.last)


def _completions(call: Call) -> Answer:
    """The legacy operation: no role, so that the first chunk is a token, and the finish rides on an empty text."""
    line, asked = plan(call), _wants_usage(call)
    reason = b"length" if call.shortened else b"stop"
    opening = b'{"id":"cmpl-sim%d","object":"text_completion","created":%d,"model":%b,"choices":[' % (
        call.id,
        call.wall,
        call.model_json,
    )
    first, end = opening + b'{"text":"', b'","index":0,"logprobs":null,"finish_reason":%b}]'
    if not call.ask.stream:
        spent = b"" if call.knobs.no_usage else b',"usage":' + usage(call, line.tokens, line.reasoning_tokens)
        body = first + line.said + end % (b'"' + reason + b'"') + spent + b"}"
        return whole(call, body, line.tokens, line.reasoning_tokens, line.last)
    null = b',"usage":null}' if asked else b"}"
    tail = end % b"null" + null
    events = [Event(step, first + words + tail, b"", tokens, Kind.OUTPUT) for step, words, tokens in line.texts]
    events.append(Event(line.last, first + end % (b'"' + reason + b'"') + null))
    if asked:
        spent = usage(call, line.tokens, line.reasoning_tokens)
        events.append(Event(line.last, opening + b'],"usage":' + spent + b"}"))
    events.append(Event(line.last, DONE))
    return _stream(call, events, line.tokens, line.reasoning_tokens)


ROUTES = (
    Route("openai.chat", "/chat/completions", ("POST",), FAMILY, _chat),
    Route("openai.completions", "/completions", ("POST",), FAMILY, _completions),
)
