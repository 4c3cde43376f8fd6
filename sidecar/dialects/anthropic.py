"""Anthropic Messages, wherever they are served, and the legacy text completions.

Usage comes twice: input and a provisional output with `message_start`, the cumulative output with `message_delta`,
which may repeat or raise the input. The latest value of each field counts.
"""

from __future__ import annotations

import msgspec

from sidecar.dialects.openai_usage import note
from sidecar.dialects.reading import ProviderTimes, Usage
from sidecar.dialects.semantics import Semantics
from sidecar.dialects.tally import HIDDEN, OTHER, REASONING, TEXT, TOOL, Tally
from sidecar.dialects.typed import Typed


class OutputDetails(msgspec.Struct, gc=False):
    """`thinking_tokens` is part of the output."""

    thinking_tokens: int | None = None


class AnthropicUsage(msgspec.Struct, gc=False):
    """`input_tokens` holds neither cache reads nor cache writes."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    output_tokens_details: OutputDetails | None = None

    def counts(self) -> Usage:
        """The token counts, as reported."""
        return Usage(
            input=self.input_tokens,
            output=self.output_tokens,
            cached_input=self.cache_read_input_tokens,
            cache_creation_input=self.cache_creation_input_tokens,
            reasoning=None if self.output_tokens_details is None else self.output_tokens_details.thinking_tokens,
            input_excludes_cache=True,
        )


class InvocationMetrics(msgspec.Struct, gc=False, rename="camel"):
    """What Bedrock adds to the last event, in milliseconds."""

    input_token_count: int | None = None
    output_token_count: int | None = None
    invocation_latency: float | None = None
    first_byte_latency: float | None = None

    def note_times(self, times: ProviderTimes) -> None:
        """The time to the first byte stands for the prompt's."""
        if self.invocation_latency is not None:
            note(times, total=self.invocation_latency / 1000.0)
        if self.first_byte_latency is not None:
            note(times, prompt=self.first_byte_latency / 1000.0)


class Delta(msgspec.Struct, gc=False):
    """Of a content block, or of the message. Signatures and citations are no tokens."""

    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None


class Block(msgspec.Struct, gc=False):
    """A content block as it opens; redacted thinking, tool results and the names of tools come whole."""

    type: str = ""
    text: str | None = None
    thinking: str | None = None
    data: str | None = None
    name: str | None = None


class Message(msgspec.Struct, gc=False):
    """The message as it opens."""

    model: str | None = None
    usage: AnthropicUsage | None = None
    stop_reason: str | None = None


class Error(msgspec.Struct, gc=False):
    """Never the message: it may quote the prompt."""

    type: str | None = None


class Event(msgspec.Struct, gc=False):
    """Any event; a whole message, too, whose members lie at the top."""

    type: str = ""
    delta: Delta | None = None
    content_block: Block | None = None
    message: Message | str | None = None
    usage: AnthropicUsage | None = None
    error: Error | str | None = None
    model: str | None = None
    stop_reason: str | None = None
    completion: str | None = None
    metrics: InvocationMetrics | None = msgspec.field(name="amazon-bedrock-invocationMetrics", default=None)


_EVENT = Typed(Event)


class Anthropic(Semantics):
    """The event's type stands in its name and in its data; gateways may leave out the name."""

    __slots__ = ("_legacy", "_stopped")

    members = frozenset({b"type", b"usage", b"error", b"model", b"stop_reason"})

    def __init__(self, tally: Tally) -> None:
        super().__init__(tally)
        self._stopped = False
        self._legacy = False

    def on_event(self, name: bytes, data: bytes, at: float) -> None:
        event = _EVENT.read(data, self.reading)
        if event is None:
            if name == b"error":
                self.tally.error(None)
            return
        type_ = event.type
        if type_ == "content_block_delta":
            if event.delta is not None and (kinds := _delta(event.delta)):
                self.tally.tokens(kinds, at)
        elif type_ == "content_block_start":
            if event.content_block is not None and (kinds := _opening(event.content_block)):
                self.tally.tokens(kinds, at)
        elif type_ != "ping":
            self._frame(event, at)

    def complete(self, *, clean: bool) -> bool:
        # A text completion has no terminal event of its own; gateways may end with [DONE] instead of message_stop.
        ended = clean if self._legacy else self.reading.terminator is not None
        return self._stopped or (ended and self.tally.any_finished)

    def _frame(self, event: Event, at: float) -> None:
        tally = self.tally
        if isinstance(event.message, Message):
            tally.model(event.message.model)
            if event.message.usage is not None:
                tally.merge_usage(event.message.usage.counts())
        tally.model(event.model)
        if event.completion is not None:
            self._legacy = True
        if event.completion:
            tally.tokens(TEXT, at)
        if event.usage is not None:
            tally.merge_usage(event.usage.counts())
        tally.finish(0, event.stop_reason)
        if event.delta is not None:
            tally.finish(0, event.delta.stop_reason)
        if event.type == "message_stop":
            self.reading.terminator = "message_stop"
            self._stopped = True
        if event.metrics is not None:
            event.metrics.note_times(self.reading.provider)
        if event.error or event.type == "error":
            tally.error(event.error.type if isinstance(event.error, Error) else None)


def _delta(delta: Delta) -> int:
    if delta.text:
        return TEXT
    if delta.thinking:
        return REASONING
    return TOOL if delta.partial_json else 0


def _opening(block: Block) -> int:
    if block.text:
        return TEXT
    if block.thinking:
        return REASONING
    if block.type == "redacted_thinking":
        return HIDDEN if block.data else 0
    return OTHER if block.name or block.type.endswith("_tool_result") else 0
