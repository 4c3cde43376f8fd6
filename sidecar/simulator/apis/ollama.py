"""Ollama's own API: lines of JSON, streamed unless the request says otherwise, durations in nanoseconds."""

from __future__ import annotations

from time import gmtime, strftime

import msgspec

from sidecar.simulator.answer import Answer, Call, Event, Family, Kind, Route, Wire
from sidecar.simulator.apis.openai import plan, whole
from sidecar.simulator.apis.outline import Outline, plain

_LOAD_NS = 1_000_000
"""The model is in memory: loading takes next to nothing, and is taken from the prompt's time."""


def _no_headers(_call: Call, _until_head: int) -> bytes:
    return b""


def _error(_call: Call, _status: int, message: str) -> bytes:
    return msgspec.json.encode({"error": message})


FAMILY = Family(_no_headers, _error)


def _time(call: Call, step: int) -> bytes:
    """The simulated instant of `step`, as RFC 3339 with nanoseconds."""
    at = call.wall + call.due(step)
    return (strftime("%Y-%m-%dT%H:%M:%S", gmtime(at)) + f".{int(at % 1 * 1e9):09d}Z").encode()


def _tail(call: Call, line: Outline) -> bytes:
    """The members of the last line: why it ended, and where the simulated time went."""
    reason = b"length" if call.shortened else b"stop"
    if call.knobs.no_usage:
        return b'"done_reason":"%b","done":true}' % reason
    prompt = int(call.knobs.ttft * 1e9)
    load = min(_LOAD_NS, prompt)
    generation = int(line.last * call.knobs.itl * 1e9)
    return (
        b'"done_reason":"%b","done":true,"total_duration":%d,"load_duration":%d,"prompt_eval_count":%d,'
        b'"prompt_eval_duration":%d,"eval_count":%d,"eval_duration":%d}'
    ) % (reason, prompt + generation, load, call.input_tokens, prompt - load, line.tokens, generation)


def _chat(call: Call) -> Answer:
    line = plan(call)
    shape = b'"message":{"role":"assistant","content":"%b"%b},'
    tools = b",".join(
        b'{"function":{"name":"%b","arguments":%b}}' % (call.tool_name.encode(), plain(tool.arguments))
        for tool in line.tools
    )
    called = b',"tool_calls":[%b]' % tools if tools else b""
    if call.ask.stream is False:
        thought = b',"thinking":"%b"' % line.thought if line.reasoning else b""
        return _whole(call, line, shape % (line.said, thought + called))
    events = [
        _line(call, step, shape % (b"", b',"thinking":"%b"' % words), tokens, Kind.REASONING)
        for step, words, tokens in line.reasoning
    ]
    events += [_line(call, step, shape % (words, b""), tokens, Kind.OUTPUT) for step, words, tokens in line.texts]
    if tools:
        # Ollama sends tool calls whole: all their tokens come in one line, when the last of them is there.
        events.append(_line(call, line.last, shape % (b"", called), line.tokens - line.reasoning_tokens, Kind.OUTPUT))
    return _stream(call, line, events, shape % (b"", b""))


def _generate(call: Call) -> Answer:
    line = plan(call)
    if call.ask.stream is False:
        thought = b'"thinking":"%b",' % line.thought if line.reasoning else b""
        return _whole(call, line, b'"response":"%b",' % line.said + thought)
    events = [
        _line(call, step, b'"response":"","thinking":"%b",' % words, tokens, Kind.REASONING)
        for step, words, tokens in line.reasoning
    ]
    events += [
        _line(call, step, b'"response":"%b",' % words, tokens, Kind.OUTPUT) for step, words, tokens in line.texts
    ]
    return _stream(call, line, events, b'"response":"",')


def _line(call: Call, step: int, members: bytes, tokens: int, kind: Kind) -> Event:
    start = b'{"model":%b,"created_at":"%b",' % (call.model_json, _time(call, step))
    return Event(step, start + members + b'"done":false}', b"", tokens, kind)


def _stream(call: Call, line: Outline, events: list[Event], empty: bytes) -> Answer:
    start = b'{"model":%b,"created_at":"%b",' % (call.model_json, _time(call, line.last))
    events.append(Event(line.last, start + empty + _tail(call, line)))
    return Answer(
        events,
        Wire.NDJSON,
        content_type=b"application/x-ndjson",
        error=Event(0, b'{"error":"an error was encountered while running the model"}'),
        terminal=1,
        model=call.model,
        input_tokens=call.input_tokens,
        output_tokens=line.tokens,
        reasoning_tokens=line.reasoning_tokens,
    )


def _whole(call: Call, line: Outline, members: bytes) -> Answer:
    start = b'{"model":%b,"created_at":"%b",' % (call.model_json, _time(call, line.last))
    answer = whole(call, start + members + _tail(call, line), line.tokens, line.reasoning_tokens, line.last)
    answer.content_type = b"application/json; charset=utf-8"
    return answer


ROUTES = (
    Route("ollama.chat", "/api/chat", ("POST",), FAMILY, _chat),
    Route("ollama.generate", "/api/generate", ("POST",), FAMILY, _generate),
)
