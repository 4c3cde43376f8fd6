"""OpenAI chat completions and legacy completions, and all that speak them.

Chunks are SSE events without a name, the last one `[DONE]`; some servers leave that out (Perplexity, Writer), others
never give a finish reason (Snowflake, SambaNova).
"""

from __future__ import annotations

from typing import Any

import msgspec

from sidecar.dialects.openai_usage import OpenAiUsage, SlaMetrics, TimeInfo, Timings
from sidecar.dialects.semantics import Semantics
from sidecar.dialects.shape import TextShape
from sidecar.dialects.tally import HIDDEN, OTHER, REASONING, SUMMARY, TEXT, TOOL, Tally
from sidecar.dialects.typed import Typed


class Part(msgspec.Struct, gc=False):
    """Content as a list: Mistral puts its thinking there."""

    type: str | None = None
    text: str | None = None
    thinking: Any = None


class Detail(msgspec.Struct, gc=False):
    """OpenRouter's `reasoning_details`: text, a summary, or encrypted data."""

    text: str | None = None
    summary: str | None = None
    data: str | None = None


class Function(msgspec.Struct, gc=False):
    """A call, whole or in pieces; `arguments` is text, an object with some servers."""

    name: str | None = None
    arguments: Any = None


class ToolCall(msgspec.Struct, gc=False):
    """One of the calls of a choice; custom tools carry their `input` apart."""

    function: Function | None = None
    custom: Any = None


class Audio(msgspec.Struct, gc=False):
    """Audio output comes with its transcript."""

    data: str | None = None
    transcript: str | None = None


class Delta(msgspec.Struct, gc=False):
    """What a chunk adds to a choice."""

    content: str | list[Part] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[ToolCall] | None = None
    refusal: str | None = None
    reasoning_details: list[Detail] | None = None
    function_call: Function | None = None
    audio: Audio | None = None
    images: list[Any] | None = None


class Choice(msgspec.Struct, gc=False):
    """One of the answers. Azure's content filter sends choices without a delta."""

    index: int = 0
    delta: Delta | None = None
    text: str | None = None
    finish_reason: str | None = None


class Error(msgspec.Struct, gc=False):
    """Never the message: it may quote the prompt."""

    type: str | None = None
    code: str | int | None = None


class GroqExtension(msgspec.Struct, gc=False):
    """Groq's usage, where the application did not ask for it."""

    usage: OpenAiUsage | None = None
    error: Any = None


class Chunk(msgspec.Struct, gc=False):
    """One event of a stream, or the whole answer."""

    model: str | None = None
    choices: list[Choice] | None = None
    usage: OpenAiUsage | None = None
    error: Error | str | None = None
    x_groq: GroqExtension | None = None
    time_info: TimeInfo | None = None
    timings: Timings | None = None
    sla_metrics: SlaMetrics | None = None


_CHUNK = Typed(Chunk)


class OpenAiChat(Semantics):
    """Choices are told apart by their index; each must end with its own finish reason."""

    __slots__ = ("_text",)

    members = frozenset({b"model", b"choices", b"usage", b"error", b"x_groq", b"time_info", b"timings"})

    def __init__(self, tally: Tally) -> None:
        super().__init__(tally)
        self._text = TextShape()

    def on_events(self, payloads: list[bytes], instants: list[float]) -> None:
        reading, tally, text = self.reading, self.tally, self._text
        for data, at in zip(payloads, instants, strict=True):
            reading.events += 1
            if text.fits(data):
                tally.tokens(TEXT, at)
                continue
            chunk = _CHUNK.read(data, reading)
            if chunk is not None:
                self._on_chunk(b"", chunk, at)
                if text.wanted and _is_plain_text(chunk):
                    text.learn(data, b'"content":"')

    def on_event(self, name: bytes, data: bytes, at: float) -> None:
        chunk = _CHUNK.read(data, self.reading)
        if chunk is None:
            if name == b"error":
                self.tally.error(None)
        else:
            self._on_chunk(name, chunk, at)

    def _on_chunk(self, name: bytes, chunk: Chunk, at: float) -> None:
        if chunk.model:
            self.reading.model = chunk.model
        if chunk.choices:
            kinds = 0
            for choice in chunk.choices:
                kinds |= self._choice(choice)
            if kinds:
                self.tally.tokens(kinds, at)
        if chunk.usage is not None or chunk.x_groq is not None:
            self._usage(chunk)
        if chunk.sla_metrics is not None or chunk.timings is not None or chunk.time_info is not None:
            self._times(chunk)
        if chunk.error or name == b"error":
            self._error(chunk.error)

    def complete(self, *, clean: bool) -> bool:
        ended = self.reading.terminator is not None
        if self.tally.any_finished:
            return self.tally.all_finished and (ended or clean)
        # Without any finish reason, usage after the last token is the sign that the server came to its own end.
        return ended and self.tally.usage_came_last

    def _choice(self, choice: Choice) -> int:
        if choice.index not in self.tally.seen:
            self.tally.see(choice.index)
        if choice.finish_reason:
            self.tally.finish(choice.index, choice.finish_reason)
            if choice.finish_reason == "error":
                self.tally.error(None)
        delta = choice.delta
        if delta is None:
            return TEXT if choice.text else 0
        kinds = 0
        if delta.content:
            kinds = TEXT if isinstance(delta.content, str) else _parts(delta.content)
        if delta.reasoning_content or delta.reasoning:
            kinds |= REASONING
        elif delta.reasoning_details:
            kinds |= _details(delta.reasoning_details)
        if delta.tool_calls and any(map(_called, delta.tool_calls)):
            kinds |= TOOL
        if delta.refusal:
            kinds |= TEXT
        if kinds == 0:
            kinds = _rare(delta)
        return kinds

    def _usage(self, chunk: Chunk) -> None:
        usage = chunk.usage or (chunk.x_groq and chunk.x_groq.usage)
        if usage:
            self.tally.usage(usage.counts())
            usage.note_times(self.reading.provider)

    def _times(self, chunk: Chunk) -> None:
        for source in (chunk.sla_metrics, chunk.timings, chunk.time_info):
            if source is not None:
                source.note_times(self.reading.provider)

    def _error(self, error: Error | str | None) -> None:
        if isinstance(error, Error):
            self.tally.error(error.type, error.code)
        else:
            self.tally.error(None)


def _is_plain_text(chunk: Chunk) -> bool:
    """One choice with text and nothing else, and nothing beside it that a later event of the shape could change."""
    if chunk.choices is None or len(chunk.choices) != 1:
        return False
    choice = chunk.choices[0]
    if chunk != Chunk(model=chunk.model, choices=chunk.choices) or choice.finish_reason or choice.text:
        return False
    delta = choice.delta
    return delta is not None and isinstance(delta.content, str) and delta == Delta(content=delta.content)


def _parts(parts: list[Part]) -> int:
    kinds = 0
    for part in parts:
        if part.text:
            kinds |= TEXT
        elif part.thinking:
            kinds |= REASONING
        elif part.type and part.type not in ("text", "thinking", "reference"):
            kinds |= OTHER
    return kinds


def _details(details: list[Detail]) -> int:
    kinds = 0
    for detail in details:
        if detail.text:
            kinds |= REASONING
        elif detail.summary:
            kinds |= SUMMARY
        elif detail.data:
            kinds |= HIDDEN
    return kinds


def _called(call: ToolCall) -> bool:
    return bool(call.custom) or (call.function is not None and bool(call.function.name or call.function.arguments))


def _rare(delta: Delta) -> int:
    if delta.function_call is not None and (delta.function_call.name or delta.function_call.arguments):
        return TOOL
    if delta.audio is not None:
        return TEXT if delta.audio.transcript else OTHER if delta.audio.data else 0
    return OTHER if delta.images else 0
