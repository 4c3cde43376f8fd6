"""Cohere v2 (SSE) and v1 (a JSON object on each line). Billed units are not tokens; tokens are what was processed."""

from __future__ import annotations

from typing import Any

import msgspec

from sidecar.dialects.reading import Usage
from sidecar.dialects.semantics import Semantics
from sidecar.dialects.tally import OTHER, REASONING, TEXT, TOOL, Tally
from sidecar.dialects.typed import Typed


class Counts(msgspec.Struct, gc=False):
    """Tokens, or billed units. Cohere writes whole numbers, in older answers as 7.0."""

    input_tokens: float | None = None
    output_tokens: float | None = None


class CohereUsage(msgspec.Struct, gc=False):
    """`usage` of v2, `meta` of v1 and of embeddings, which give billed units only."""

    tokens: Counts | None = None
    billed_units: Counts | None = None
    cached_tokens: float | None = None


class Function(msgspec.Struct, gc=False):
    """A call: its name at the start, its arguments in pieces."""

    name: str | None = None
    arguments: str | None = None


class ToolCall(msgspec.Struct, gc=False):
    """A tool call of the message."""

    function: Function | None = None


class Content(msgspec.Struct, gc=False):
    """A piece of content."""

    text: str | None = None
    thinking: str | None = None


class Message(msgspec.Struct, gc=False):
    """What an event adds; in the first one the lists are empty."""

    content: Content | list[Any] | None = None
    tool_calls: ToolCall | list[Any] | None = None
    tool_plan: str | None = None


class Delta(msgspec.Struct, gc=False):
    """Of an event of v2."""

    message: Message | None = None
    finish_reason: str | None = None
    usage: CohereUsage | None = None


class FinalResponse(msgspec.Struct, gc=False):
    """The last line of v1 repeats the whole answer."""

    meta: CohereUsage | None = None


class Event(msgspec.Struct, gc=False):
    """An event of v2, a line of v1, or the whole answer of either."""

    type: str = ""
    delta: Delta | None = None
    event_type: str = ""
    text: str | None = None
    tool_call_delta: Any = None
    is_finished: bool | None = None
    finish_reason: str | None = None
    response: FinalResponse | None = None
    usage: CohereUsage | None = None
    meta: CohereUsage | None = None


_EVENT = Typed(Event)


class Cohere(Semantics):
    """The answers name no model."""

    __slots__ = ("_ended",)

    members = frozenset({b"finish_reason", b"usage", b"meta"})

    def __init__(self, tally: Tally) -> None:
        super().__init__(tally)
        self._ended = False

    def on_event(self, name: bytes, data: bytes, at: float) -> None:
        event = _EVENT.read(data, self.reading)
        if event is None:
            return
        if event.delta is not None:
            self._delta(event.type, event.delta, at)
        elif event.event_type == "text-generation":
            if event.text:
                self.tally.tokens(TEXT, at)
        elif event.event_type == "tool-calls-chunk" and event.tool_call_delta:
            self.tally.tokens(TOOL, at)
        if event.event_type == "stream-end":
            self.reading.terminator = "stream-end"
            self._ended = True
        if event.finish_reason is not None:
            self._finish(event.finish_reason)
        usage = event.usage or event.meta or (event.response and event.response.meta)
        if usage:
            self._usage(usage)

    def complete(self, *, clean: bool) -> bool:
        return self._ended and self.tally.any_finished

    def _delta(self, type_: str, delta: Delta, at: float) -> None:
        if delta.message is not None and (kinds := _message(type_, delta.message)):
            self.tally.tokens(kinds, at)
        if type_ == "message-end":
            self._ended = True
            self._finish(delta.finish_reason)
            if delta.usage is not None:
                self._usage(delta.usage)

    def _finish(self, reason: str | None) -> None:
        self.tally.finish(0, reason)
        if reason in ("ERROR", "ERROR_TOXIC", "ERROR_LIMIT", "TIMEOUT"):
            self.tally.error("finish_reason", reason)

    def _usage(self, usage: CohereUsage) -> None:
        counts = usage.tokens or usage.billed_units
        if counts is not None:
            self.tally.usage(
                Usage(
                    input=_whole(counts.input_tokens),
                    output=_whole(counts.output_tokens),
                    cached_input=_whole(usage.cached_tokens),
                )
            )


def _message(type_: str, message: Message) -> int:
    content = message.content
    kinds = 0
    if isinstance(content, Content):
        kinds = (TEXT if content.text else 0) | (REASONING if content.thinking else 0)
    if message.tool_plan:
        kinds |= REASONING
    if isinstance(message.tool_calls, ToolCall):
        function = message.tool_calls.function
        if function is not None and function.arguments:
            kinds |= TOOL
        elif function is not None and function.name:
            kinds |= OTHER if type_ == "tool-call-start" else TOOL
    return kinds


def _whole(count: float | None) -> int | None:
    return None if count is None or not 0 <= count < 2**53 else int(count)
