"""Formats of single vendors: TGI, watsonx, Replicate, Writer, and those that Bedrock passes on for Llama and Titan."""

from __future__ import annotations

import msgspec

from sidecar.dialects.reading import Usage
from sidecar.dialects.semantics import Semantics
from sidecar.dialects.tally import TEXT, Tally
from sidecar.dialects.typed import Typed


class Token(msgspec.Struct, gc=False):
    """One token; special ones (end of text) are no output."""

    text: str | None = None
    special: bool = False


class Details(msgspec.Struct, gc=False):
    """Only when the request asked for it."""

    finish_reason: str | None = None
    generated_tokens: int | None = None
    input_length: int | None = None


class TgiEvent(msgspec.Struct, gc=False):
    """An event of /generate_stream, or the answer of /generate."""

    token: Token | None = None
    generated_text: str | None = None
    details: Details | None = None
    error: str | None = None
    error_type: str | None = None


_TGI = Typed(TgiEvent)


class Tgi(Semantics):
    """Text Generation Inference: the last event repeats the whole text; there is no terminator."""

    __slots__ = ("_whole",)

    members = frozenset({b"details", b"error", b"error_type"})

    def __init__(self, tally: Tally) -> None:
        super().__init__(tally)
        self._whole = False

    def on_event(self, name: bytes, data: bytes, at: float) -> None:
        event = _TGI.read(data, self.reading)
        if event is None:
            return
        if event.token is not None and event.token.text and not event.token.special:
            self.tally.tokens(TEXT, at)
        if event.generated_text is not None:
            self._whole = True
        if event.details is not None:
            self.tally.finish(0, event.details.finish_reason)
            self.tally.usage(Usage(input=event.details.input_length, output=event.details.generated_tokens))
        if event.error:
            self.tally.error(event.error_type)

    def complete(self, *, clean: bool) -> bool:
        return clean and self._whole


class WatsonxResult(msgspec.Struct, gc=False):
    """The counts grow; the input's is given in the first event only and is 0 after that."""

    generated_text: str | None = None
    generated_token_count: int | None = None
    input_token_count: int | None = None
    stop_reason: str | None = None


class WatsonxEvent(msgspec.Struct, gc=False):
    """An event of text_stream, or the whole answer."""

    model_id: str | None = None
    results: list[WatsonxResult] | None = None
    errors: list[msgspec.Raw] | None = None


_WATSONX = Typed(WatsonxEvent)


class Watsonx(Semantics):
    """IBM watsonx text generation."""

    __slots__ = ()

    members = frozenset({b"model_id", b"errors"})

    def on_event(self, name: bytes, data: bytes, at: float) -> None:
        event = _WATSONX.read(data, self.reading)
        if event is None:
            return
        self.tally.model(event.model_id)
        results = event.results or []
        if any(result.generated_text for result in results):
            self.tally.tokens(TEXT, at)
        for result in results:
            self.tally.merge_usage(Usage(input=result.input_token_count or None, output=result.generated_token_count))
            if result.stop_reason != "not_finished":
                self.tally.finish(0, result.stop_reason)
        if event.errors:
            self.tally.error(None)

    def complete(self, *, clean: bool) -> bool:
        return clean and self.tally.any_finished


class Replicate(Semantics):
    """Replicate: plain text as data, told apart by the event's name."""

    __slots__ = ()

    def on_event(self, name: bytes, data: bytes, at: float) -> None:
        if name == b"output":
            if data:
                self.tally.tokens(TEXT, at)
        elif name == b"done":
            self.reading.terminator = "event: done"
            if b"cancel" in data:
                self.tally.finish(0, "canceled")
            elif b"error" in data:
                self.tally.error(None)
        elif name == b"error":
            self.tally.error(None)

    def on_document(self, data: bytes) -> None:
        """Predictions are read by nobody here."""

    def complete(self, *, clean: bool) -> bool:
        return self.reading.terminator is not None


class ValueEvent(msgspec.Struct, gc=False):
    """A piece of text and nothing else."""

    value: str | None = None


_VALUE = Typed(ValueEvent)


class Writer(Semantics):
    """Writer's completions: pieces of text; the end of the body is their only end."""

    __slots__ = ()

    def on_event(self, name: bytes, data: bytes, at: float) -> None:
        event = _VALUE.read(data, self.reading)
        if event is not None and event.value:
            self.tally.tokens(TEXT, at)

    def complete(self, *, clean: bool) -> bool:
        return clean


class TitanResult(msgspec.Struct, gc=False, rename="camel"):
    """One of the answers of Titan without a stream."""

    token_count: int | None = None
    completion_reason: str | None = None


class Piece(msgspec.Struct, gc=False):
    """A piece of text of Llama, of Titan, of Cohere's first models, or of Mistral's on Bedrock."""

    generation: str | None = None
    prompt_token_count: int | None = None
    generation_token_count: int | None = None
    stop_reason: str | None = None
    output_text: str | None = msgspec.field(name="outputText", default=None)
    total_output: int | None = msgspec.field(name="totalOutputTextTokenCount", default=None)
    input_text: int | None = msgspec.field(name="inputTextTokenCount", default=None)
    completion_reason: str | None = msgspec.field(name="completionReason", default=None)
    results: list[TitanResult] | None = None
    text: str | None = None
    finish_reason: str | None = None
    outputs: list[Piece] | None = None


_PIECE = Typed(Piece)


class Pieces(Semantics):
    """The formats that older models on Bedrock have of their own. Counts grow, and not every event has them all."""

    __slots__ = ()

    members = frozenset(
        {
            b"prompt_token_count",
            b"generation_token_count",
            b"stop_reason",
            b"inputTextTokenCount",
            b"results",
            b"finish_reason",
        }
    )

    def on_event(self, name: bytes, data: bytes, at: float) -> None:
        piece = _PIECE.read(data, self.reading)
        if piece is None:
            return
        outputs = piece.outputs or []
        if piece.generation or piece.output_text or piece.text or any(output.text for output in outputs):
            self.tally.tokens(TEXT, at)
        self.tally.merge_usage(_usage(piece))
        for result in piece.results or []:
            self.tally.finish(0, result.completion_reason)
        for output in outputs:
            self.tally.finish(0, output.stop_reason)
        self.tally.finish(0, piece.stop_reason or piece.completion_reason or piece.finish_reason)

    def complete(self, *, clean: bool) -> bool:
        return clean and self.tally.any_finished


def _usage(piece: Piece) -> Usage:
    results = [result.token_count for result in piece.results or [] if result.token_count is not None]
    output = piece.generation_token_count if piece.total_output is None else piece.total_output
    return Usage(
        input=piece.prompt_token_count if piece.input_text is None else piece.input_text,
        output=sum(results) if results else output,
    )
