"""OpenAI Responses: the ladder of events with sequence numbers, and the whole answer."""

from __future__ import annotations

from sidecar.simulator.answer import OPENING, Answer, Call, Event, Kind, Route, Wire
from sidecar.simulator.apis.openai import FAMILY, plan, whole
from sidecar.simulator.apis.outline import Outline, Part, Tool


class _Ladder:
    """Collects events, gives each its name and number, and keeps the finished items for the last one."""

    def __init__(self, call: Call, line: Outline) -> None:
        self.call, self.line = call, line
        self.events: list[Event] = []
        self.items: list[bytes] = []

    def add(self, step: int, name: bytes, members: bytes, tokens: int = 0, kind: Kind = Kind.CONTROL) -> None:
        """One event; `members` are the JSON members between its type and its number."""
        payload = b'{"type":"%b",%b,"sequence_number":%d}' % (name, members, len(self.events))
        self.events.append(Event(step, payload, name, tokens, kind))

    def parts(self, name: bytes, place: bytes, parts: tuple[Part, ...], kind: Kind) -> None:
        """The deltas of one item; the hot path of a long stream."""
        start, end = b'{"type":"%b",%b,"delta":"' % (name, place), b'","sequence_number":%d}'
        events, first = self.events, len(self.events)
        for number, (step, words, tokens) in enumerate(parts, first):
            events.append(Event(step, start + words + end % number, name, tokens, kind))

    def reasoning(self) -> None:
        """A reasoning item whose summary is streamed."""
        line, index = self.line, len(self.items)
        step, last = line.reasoning[0].step, line.reasoning[-1].step
        item = b'{"id":"rs_sim%d","type":"reasoning","summary":[%%b]}' % self.call.id
        place = b'"item_id":"rs_sim%d","output_index":%d,"summary_index":0' % (self.call.id, index)
        part = b'{"type":"summary_text","text":"%b"}'
        self.add(step, b"response.output_item.added", b'"output_index":%d,"item":%b' % (index, item % b""))
        self.add(step, b"response.reasoning_summary_part.added", place + b',"part":' + part % b"")
        self.parts(b"response.reasoning_summary_text.delta", place, line.reasoning, Kind.REASONING)
        self.add(last, b"response.reasoning_summary_text.done", place + b',"text":"%b"' % line.thought)
        self.add(last, b"response.reasoning_summary_part.done", place + b',"part":' + part % line.thought)
        self._finish_item(last, item % (part % line.thought))

    def message(self) -> None:
        """A message item with one text."""
        line, index = self.line, len(self.items)
        step = line.texts[0].step if line.texts else line.last
        place = b'"item_id":"msg_sim%d","output_index":%d,"content_index":0' % (self.call.id, index)
        part = b'{"type":"output_text","annotations":[],"logprobs":[],"text":"%b"}'
        opened = message_item(self.call, b"in_progress", b"")
        self.add(step, b"response.output_item.added", b'"output_index":%d,"item":%b' % (index, opened))
        self.add(step, b"response.content_part.added", place + b',"part":' + part % b"")
        self.parts(b"response.output_text.delta", place + b',"logprobs":[]', line.texts, Kind.OUTPUT)
        self.add(line.last, b"response.output_text.done", place + b',"logprobs":[],"text":"%b"' % line.said)
        self.add(line.last, b"response.content_part.done", place + b',"part":' + part % line.said)
        self._finish_item(line.last, message_item(self.call, b"completed", part % line.said))

    def tool(self, number: int, tool: Tool) -> None:
        """A function call; its item names the function, and so carries the first token."""
        index, last = len(self.items), tool.parts[-1].step
        place = b'"item_id":"fc_sim%d_%d","output_index":%d' % (self.call.id, number, index)
        opened = b'"output_index":%d,"item":%b' % (index, tool_item(self.call, number, b"in_progress", b""))
        self.add(tool.step, b"response.output_item.added", opened, 1, Kind.OUTPUT)
        self.parts(b"response.function_call_arguments.delta", place, tool.parts, Kind.OUTPUT)
        self.add(last, b"response.function_call_arguments.done", place + b',"arguments":"%b"' % tool.arguments)
        self._finish_item(last, tool_item(self.call, number, b"completed", tool.arguments))

    def _finish_item(self, step: int, item: bytes) -> None:
        self.add(step, b"response.output_item.done", b'"output_index":%d,"item":%b' % (len(self.items), item))
        self.items.append(item)


def message_item(call: Call, status: bytes, part: bytes) -> bytes:
    """A message of the output."""
    item = b'{"id":"msg_sim%d","type":"message","status":"%b","content":[%b],"role":"assistant"}'
    return item % (call.id, status, part)


def tool_item(call: Call, number: int, status: bytes, arguments: bytes) -> bytes:
    """A function call of the output; `arguments` are escaped."""
    return (
        b'{"id":"fc_sim%d_%d","type":"function_call","status":"%b","arguments":"%b",'
        b'"call_id":"call_sim%d_%d","name":"%b"}'
    ) % (call.id, number, status, arguments, call.id, number, call.tool_name.encode())


def _response(call: Call, status: bytes, items: bytes, usage: bytes, failure: bytes = b"null") -> bytes:
    cut = b'{"reason":"max_output_tokens"}' if status == b"incomplete" else b"null"
    return (
        b'{"id":"resp_sim%d","object":"response","created_at":%d,"status":"%b","background":false,"error":%b,'
        b'"incomplete_details":%b,"instructions":null,"max_output_tokens":null,"model":%b,"output":[%b],'
        b'"parallel_tool_calls":true,"previous_response_id":null,"reasoning":{"effort":null,"summary":null},'
        b'"store":false,"temperature":1.0,"text":{"format":{"type":"text"}},"tool_choice":"auto","tools":[],'
        b'"top_p":1.0,"truncation":"disabled","usage":%b,"user":null,"metadata":{}}'
    ) % (call.id, call.wall, status, failure, cut, call.model_json, items, usage)


def usage(call: Call, line: Outline) -> bytes:
    """The value of `usage` in a finished response."""
    if call.knobs.no_usage:
        return b"null"
    spent = call.input_tokens
    return (
        b'{"input_tokens":%d,"input_tokens_details":{"cached_tokens":0},"output_tokens":%d,'
        b'"output_tokens_details":{"reasoning_tokens":%d},"total_tokens":%d}'
    ) % (spent, line.tokens, line.reasoning_tokens, spent + line.tokens)


def climb(call: Call, line: Outline) -> list[Event]:
    """All events of a streamed response in their order."""
    ladder = _Ladder(call, line)
    started = b'"response":' + _response(call, b"in_progress", b"", b"null")
    ladder.add(OPENING, b"response.created", started)
    ladder.add(OPENING, b"response.in_progress", started)
    if line.reasoning:
        ladder.reasoning()
    for number, tool in enumerate(line.tools):
        ladder.tool(number, tool)
    if not line.tools:
        ladder.message()
    status = b"incomplete" if call.shortened else b"completed"
    done = _response(call, status, b",".join(ladder.items), usage(call, line))
    ladder.add(line.last, b"response." + status, b'"response":' + done)
    return ladder.events


def _responses(call: Call) -> Answer:
    line = plan(call)
    events = climb(call, line)
    if not call.ask.stream:
        body = events[-1].payload
        start = body.index(b'"response":') + len(b'"response":')
        return whole(
            call, body[start : body.rindex(b',"sequence_number"')], line.tokens, line.reasoning_tokens, line.last
        )
    failure = b'{"type":"error","code":"server_error","message":"An error occurred while processing your request.",' \
        b'"param":null,"sequence_number":0}'  # fmt: skip
    return Answer(
        events,
        Wire.SSE,
        content_type=b"text/event-stream; charset=utf-8",
        error=Event(0, failure, b"error"),
        terminal=1,
        model=call.model,
        input_tokens=call.input_tokens,
        output_tokens=line.tokens,
        reasoning_tokens=line.reasoning_tokens,
    )


ROUTES = (Route("openai.responses", "/responses", ("POST",), FAMILY, _responses),)
