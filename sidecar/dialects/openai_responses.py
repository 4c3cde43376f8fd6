"""OpenAI Responses: over SSE, as one JSON object, and the same events as WebSocket messages of the realtime API."""

from __future__ import annotations

from typing import Any

import msgspec

from sidecar.dialects.openai_chat import Error
from sidecar.dialects.openai_usage import OpenAiUsage
from sidecar.dialects.reading import Usage
from sidecar.dialects.semantics import Semantics
from sidecar.dialects.tally import OTHER, REASONING, SUMMARY, TEXT, TOOL, Tally
from sidecar.dialects.typed import Typed


class IncompleteDetails(msgspec.Struct, gc=False):
    """Why an answer is incomplete."""

    reason: str | None = None


class Response(msgspec.Struct, gc=False):
    """The response object; the first events repeat it with all of the request's settings."""

    object: str | None = None
    status: str | None = None
    model: str | None = None
    usage: OpenAiUsage | None = None
    error: Error | str | None = None
    incomplete_details: IncompleteDetails | None = None


class Item(msgspec.Struct, gc=False):
    """An item of the output: a message, a reasoning or a call, whose name comes with its opening."""

    type: str | None = None
    name: str | None = None


class Event(msgspec.Struct, gc=False):
    """Any event; `code` and `error` are those of an error event, in its old and its new shape."""

    type: str = ""
    delta: Any = None
    response: Response | None = None
    item: Item | None = None
    code: str | int | None = None
    error: Error | str | None = None


_EVENT = Typed(Event)
_RESPONSE = Typed(Response)

_DELTAS = {
    "response.output_text.delta": TEXT,
    "response.text.delta": TEXT,
    "response.refusal.delta": TEXT,
    "response.output_audio_transcript.delta": TEXT,
    "response.audio_transcript.delta": TEXT,
    "response.audio.transcript.delta": TEXT,
    "response.output_audio.delta": OTHER,
    "response.audio.delta": OTHER,
    "response.reasoning_text.delta": REASONING,
    "response.reasoning.delta": REASONING,
    "response.reasoning_summary_text.delta": SUMMARY,
    "response.reasoning_summary.delta": SUMMARY,
    "response.function_call_arguments.delta": TOOL,
    "response.custom_tool_call_input.delta": TOOL,
    "response.mcp_call_arguments.delta": TOOL,
    "response.mcp_call.arguments.delta": TOOL,
    "response.code_interpreter_call_code.delta": TOOL,
    "response.code_interpreter_call.code.delta": TOOL,
}
_TERMINAL = {"response.completed", "response.incomplete", "response.failed", "response.cancelled", "response.done"}
_ENDED = {"completed", "incomplete", "failed", "cancelled"}


class OpenAiResponses(Semantics):
    """Usage and status come with the terminal event only; OpenAI sends no `[DONE]`, OpenRouter does."""

    __slots__ = ("_whole",)

    members = frozenset({b"object", b"status", b"model", b"usage", b"error", b"incomplete_details"})

    def __init__(self, tally: Tally) -> None:
        super().__init__(tally)
        self._whole = False

    def on_event(self, name: bytes, data: bytes, at: float) -> None:
        event = _EVENT.read(data, self.reading)
        if event is None:
            if name == b"error":
                self.tally.error(None)
            return
        type_ = event.type or name.decode("latin-1")
        kind = _DELTAS.get(type_)
        if kind is not None:
            if event.delta:
                self.tally.tokens(kind, at)
        elif event.response is not None:
            self._response(type_, event.response)
        elif type_ == "response.output_item.added":
            if event.item is not None and event.item.name:
                self.tally.tokens(OTHER, at)
        elif type_ == "error" or name == b"error":
            self._error(event)

    def on_document(self, data: bytes) -> None:
        response = _RESPONSE.read(data, self.reading)
        if response is not None:
            self._read(response)

    def complete(self, *, clean: bool) -> bool:
        return self._whole

    def usage(self, usage: Usage) -> None:
        """One answer's usage."""
        self.tally.usage(usage)

    def _response(self, type_: str, response: Response) -> None:
        self._read(response)
        if type_ in _TERMINAL:
            self.reading.terminator = type_
            self._whole = type_ not in ("response.failed", "response.cancelled")
            if not response.status:
                self.tally.finish(0, type_.removeprefix("response."))
            if type_ == "response.failed":
                self.tally.error("response.failed")

    def _read(self, response: Response) -> None:
        self.tally.model(response.model)
        if response.usage is not None:
            self.usage(response.usage.counts())
        if response.status in _ENDED:
            reason = response.incomplete_details and response.incomplete_details.reason
            self.tally.finish(0, f"{response.status}:{reason}" if reason else response.status)
        if isinstance(response.error, Error):
            self.tally.error(response.error.type, response.error.code)
        elif response.error:
            self.tally.error(None)

    def _error(self, event: Event) -> None:
        error = event.error
        if isinstance(error, Error):
            self.tally.error(error.type or "error", error.code)
        else:
            self.tally.error("error", event.code)


class Realtime(OpenAiResponses):
    """The realtime API, and Responses over a WebSocket: many answers, one after the other, on one connection."""

    __slots__ = ("_open",)

    def __init__(self, tally: Tally) -> None:
        super().__init__(tally)
        self._open = False

    def usage(self, usage: Usage) -> None:
        """Each answer reports its own tokens, and those of the connection are their sum."""
        before = self.reading.usage
        if before is not None:
            for field in ("input", "output", "cached_input", "cache_creation_input", "reasoning", "total"):
                count = getattr(usage, field)
                known = getattr(before, field)
                setattr(usage, field, known if count is None else count + (known or 0))
        self.tally.usage(usage)

    def complete(self, *, clean: bool) -> bool:
        return not self._open and (self._whole or clean)

    def _response(self, type_: str, response: Response) -> None:
        if type_ == "response.created":
            self._open = True
            self.tally.turn()
        elif type_ in _TERMINAL:
            self._open = False
        super()._response(type_, response)
