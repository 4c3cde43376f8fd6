"""Finds out by its shape which format an answer has, where its path does not tell."""

from __future__ import annotations

import msgspec

from sidecar.dialects import (
    anthropic,
    bedrock,
    cohere,
    gemini,
    ollama,
    openai_chat,
    openai_others,
    openai_responses,
    others,
)
from sidecar.dialects.semantics import Semantics
from sidecar.dialects.tally import Tally
from sidecar.dialects.typed import Typed

_ABSENT = msgspec.Raw()
_PATIENCE = 64
"""Events looked at before a stream is taken for one of no known format."""


class Shape(msgspec.Struct, gc=False):
    """The members by which formats differ. None of them is read here."""

    type: str | int | None = None
    object: str | None = None
    event_type: str | None = None
    choices: msgspec.Raw = _ABSENT
    candidates: msgspec.Raw = _ABSENT
    usage_metadata: msgspec.Raw = msgspec.field(name="usageMetadata", default=_ABSENT)
    token: msgspec.Raw = _ABSENT
    generated_text: msgspec.Raw = _ABSENT
    model_id: msgspec.Raw = _ABSENT
    input_text: msgspec.Raw = msgspec.field(name="inputTextTokenCount", default=_ABSENT)
    generation: msgspec.Raw = _ABSENT
    output_text: msgspec.Raw = msgspec.field(name="outputText", default=_ABSENT)
    is_finished: msgspec.Raw = _ABSENT
    outputs: msgspec.Raw = _ABSENT
    completion: msgspec.Raw = _ABSENT
    done: msgspec.Raw = _ABSENT
    value: msgspec.Raw = _ABSENT
    nova_start: msgspec.Raw = msgspec.field(name="messageStart", default=_ABSENT)
    nova_delta: msgspec.Raw = msgspec.field(name="contentBlockDelta", default=_ABSENT)
    converse_stop: msgspec.Raw = msgspec.field(name="stopReason", default=_ABSENT)
    stop_reason: msgspec.Raw = _ABSENT
    usage: msgspec.Raw = _ABSENT
    meta: msgspec.Raw = _ABSENT


_SHAPE = Typed(Shape)


class Recogniser(Semantics):
    """Hands the answer over to the format it recognises; one that it does not know is complete when its body is."""

    __slots__ = ("_inner", "_left")

    members = frozenset(
        {
            b"type",
            b"object",
            b"model",
            b"choices",
            b"candidates",
            b"usage",
            b"usageMetadata",
            b"modelVersion",
            b"meta",
            b"status",
            b"stop_reason",
            b"stopReason",
            b"error",
            b"done",
            b"done_reason",
        }
    )

    def __init__(self, tally: Tally) -> None:
        super().__init__(tally)
        self._inner: Semantics | None = None
        self._left = _PATIENCE

    def on_event(self, name: bytes, data: bytes, at: float) -> None:
        if self._inner is None and not self._recognise(name, data):
            if name == b"error":
                self.tally.error(None)
            return
        if self._inner is not None:
            self._inner.on_event(name, data, at)

    def on_events(self, payloads: list[bytes], instants: list[float]) -> None:
        if self._inner is not None:
            self._inner.on_events(payloads, instants)
        else:
            super().on_events(payloads, instants)

    def on_document(self, data: bytes) -> None:
        # Moderations, rankings and the like have at most a model and usage, named as OpenAI names them.
        kind = recognised(b"", data) or openai_chat.OpenAiChat
        kind(self.tally).on_document(data)

    def complete(self, *, clean: bool) -> bool:
        if self._inner is not None:
            return self._inner.complete(clean=clean)
        return clean and self.reading.events > 0

    def _recognise(self, name: bytes, data: bytes) -> bool:
        if self._left > 0:
            self._left -= 1
            kind = recognised(name, data)
            if kind is not None:
                self._inner = kind(self.tally)
                return True
        return False


def recognised(name: bytes, data: bytes) -> type[Semantics] | None:
    """The format of an event or document by its name and members; None: none that is known."""
    if name in (b"output", b"done"):
        return others.Replicate
    if not data.lstrip().startswith(b"{"):
        return None
    shape = _SHAPE.read(data, None)
    if shape is None:
        return None
    type_ = shape.type if isinstance(shape.type, str) else ""
    return _by_name(type_, shape.object or "", shape.event_type or "") or _by_members(shape, type_)


def _by_name(type_: str, object_: str, event_type: str) -> type[Semantics] | None:
    if type_.startswith("response.") or object_ == "response":
        return openai_responses.OpenAiResponses
    if type_.startswith("transcript."):
        return openai_others.Transcription
    if object_.startswith("thread."):
        return openai_others.Assistants
    if event_type.startswith(("interaction.", "step.")) or object_ == "interaction":
        return gemini.Interactions
    if event_type in _COHERE_V1 or type_ in _COHERE_V2:
        return cohere.Cohere
    return anthropic.Anthropic if type_ in _ANTHROPIC else None


_COHERE_V1 = {"stream-start", "text-generation", "stream-end", "tool-calls-chunk", "tool-calls-generation"}
_COHERE_V2 = {"message-start", "content-start", "content-delta", "tool-plan-delta", "tool-call-start", "message-end"}
_ANTHROPIC = {"message_start", "content_block_start", "content_block_delta", "message_delta", "message", "completion"}


def _by_members(shape: Shape, type_: str) -> type[Semantics] | None:
    tests: tuple[tuple[tuple[msgspec.Raw, ...], type[Semantics]], ...] = (
        ((shape.choices,), openai_chat.OpenAiChat),
        ((shape.candidates, shape.usage_metadata), gemini.Gemini),
        ((shape.nova_start, shape.nova_delta, shape.converse_stop), bedrock.Converse),
        ((shape.token, shape.generated_text), others.Tgi),
        ((shape.model_id,), others.Watsonx),
        ((shape.generation, shape.output_text, shape.outputs, shape.is_finished, shape.input_text), others.Pieces),
        ((shape.completion,), anthropic.Anthropic),
        ((shape.done,), ollama.Ollama),
        ((shape.value,), others.Writer),
        ((shape.meta,), cohere.Cohere),
        ((shape.usage,), openai_chat.OpenAiChat),
    )
    for members, kind in tests:
        if any(map(len, members)):
            return kind
    return None
