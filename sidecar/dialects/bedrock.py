"""AWS Bedrock's own API: Converse, and ConverseStream with its frames named by their event type."""

from __future__ import annotations

import msgspec

from sidecar.dialects.openai_usage import note
from sidecar.dialects.reading import Usage
from sidecar.dialects.semantics import Semantics
from sidecar.dialects.tally import HIDDEN, OTHER, REASONING, TEXT, TOOL, Tally
from sidecar.dialects.typed import Typed


class ToolUse(msgspec.Struct, gc=False):
    """Its name when the block opens, its input in pieces."""

    name: str | None = None
    input: str | None = None


class Reasoning(msgspec.Struct, gc=False, rename="camel"):
    """Reasoning as text, or redacted; a signature is no token."""

    text: str | None = None
    redacted_content: str | None = None


class Delta(msgspec.Struct, gc=False, rename="camel"):
    """What an event adds to a content block."""

    text: str | None = None
    reasoning_content: Reasoning | None = None
    tool_use: ToolUse | None = None


class ConverseUsage(msgspec.Struct, gc=False, rename="camel"):
    """`inputTokens` holds neither cache reads nor cache writes. Nova's own format ends the cache fields in Count."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_write_input_tokens: int | None = None
    cache_read_input_token_count: int | None = None
    cache_write_input_token_count: int | None = None

    def counts(self) -> Usage:
        """The token counts, as reported."""
        read, write = self.cache_read_input_tokens, self.cache_write_input_tokens
        return Usage(
            input=self.input_tokens,
            output=self.output_tokens,
            cached_input=self.cache_read_input_token_count if read is None else read,
            cache_creation_input=self.cache_write_input_token_count if write is None else write,
            total=self.total_tokens,
            input_excludes_cache=True,
        )


class Metrics(msgspec.Struct, gc=False, rename="camel"):
    """Milliseconds."""

    latency_ms: float | None = None


class Payload(msgspec.Struct, gc=False, rename="camel"):
    """The payload of any Converse event; the whole answer, too."""

    delta: Delta | None = None
    start: Delta | None = None
    stop_reason: str | None = None
    usage: ConverseUsage | None = None
    metrics: Metrics | None = None


class Nova(msgspec.Struct, gc=False, rename="camel"):
    """Nova's own events: those of Converse, each as a member named by its type."""

    content_block_delta: Payload | None = None
    content_block_start: Payload | None = None
    message_stop: Payload | None = None
    metadata: Payload | None = None


_PAYLOAD = Typed(Payload)
_NOVA = Typed(Nova)


class Converse(Semantics):
    """Converse and ConverseStream, and Nova's events when they come without names."""

    __slots__ = ("_metadata", "_stopped")

    members = frozenset({b"stopReason", b"usage", b"metrics"})

    def __init__(self, tally: Tally) -> None:
        super().__init__(tally)
        self._stopped = False
        self._metadata = False

    def on_event(self, name: bytes, data: bytes, at: float) -> None:
        if name:
            payload = _PAYLOAD.read(data, self.reading)
            if payload is not None:
                self._event(name, payload, at)
                if name in (b"messageStop", b"metadata"):
                    self.reading.terminator = name.decode()
            return
        event = _NOVA.read(data, self.reading)
        if event is not None:
            for inner, payload in (
                (b"contentBlockDelta", event.content_block_delta),
                (b"contentBlockStart", event.content_block_start),
                (b"messageStop", event.message_stop),
                (b"metadata", event.metadata),
            ):
                if payload is not None:
                    self._event(inner, payload, at)

    def on_document(self, data: bytes) -> None:
        payload = _PAYLOAD.read(data, self.reading)
        if payload is not None:
            self._event(b"messageStop", payload, 0.0)

    def complete(self, *, clean: bool) -> bool:
        return self._stopped and (clean or self._metadata)

    def _event(self, name: bytes, payload: Payload, at: float) -> None:
        if payload.delta is not None:
            if kinds := _delta(payload.delta):
                self.tally.tokens(kinds, at)
        elif payload.start is not None:
            if payload.start.tool_use is not None and payload.start.tool_use.name:
                self.tally.tokens(OTHER, at)
        elif name == b"messageStop":
            self._stopped = True
            self.tally.finish(0, payload.stop_reason)
        elif name == b"metadata":
            self._metadata = True
        if payload.usage is not None:
            self.tally.usage(payload.usage.counts())
        if payload.metrics is not None and payload.metrics.latency_ms is not None:
            note(self.reading.provider, total=payload.metrics.latency_ms / 1000.0)


def _delta(delta: Delta) -> int:
    if delta.text:
        return TEXT
    if delta.reasoning_content is not None:
        reasoning = delta.reasoning_content
        return REASONING if reasoning.text else HIDDEN if reasoning.redacted_content else 0
    return TOOL if delta.tool_use is not None and delta.tool_use.input else 0
