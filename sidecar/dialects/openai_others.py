"""OpenAI's smaller streams: transcriptions and the legacy Assistants."""

from __future__ import annotations

import msgspec

from sidecar.dialects.openai_chat import Error
from sidecar.dialects.openai_usage import OpenAiUsage
from sidecar.dialects.semantics import Semantics
from sidecar.dialects.tally import OTHER, TEXT
from sidecar.dialects.typed import Typed


class TranscriptEvent(msgspec.Struct, gc=False):
    """`transcript.text.delta`, `.segment` and `.done`; usage of the type `duration` holds no tokens."""

    type: str = ""
    delta: str | None = None
    text: str | None = None
    usage: OpenAiUsage | None = None
    error: Error | str | None = None


_TRANSCRIPT = Typed(TranscriptEvent)


class Transcription(Semantics):
    """`POST /v1/audio/transcriptions` with `stream`."""

    __slots__ = ()

    members = frozenset({b"usage", b"error"})

    def on_event(self, name: bytes, data: bytes, at: float) -> None:
        event = _TRANSCRIPT.read(data, self.reading)
        if event is None:
            return
        if event.type == "transcript.text.delta":
            if event.delta:
                self.tally.tokens(TEXT, at)
        elif event.type == "transcript.text.segment":
            if event.text:
                self.tally.tokens(TEXT, at)
        elif event.type == "transcript.text.done":
            self.tally.finish(0, "done")
        if event.usage is not None:
            self.tally.usage(event.usage.counts())
        if isinstance(event.error, Error):
            self.tally.error(event.error.type, event.error.code)
        elif event.error or event.type == "error":
            self.tally.error(None)

    def complete(self, *, clean: bool) -> bool:
        return self.tally.any_finished


class RunText(msgspec.Struct, gc=False):
    """The text of a part."""

    value: str | None = None


class RunPart(msgspec.Struct, gc=False):
    """A part of a message."""

    text: RunText | None = None


class CodeInput(msgspec.Struct, gc=False):
    """A piece of the program that the model writes."""

    input: str | None = None


class CallInput(msgspec.Struct, gc=False):
    """A piece of a function call."""

    name: str | None = None
    arguments: str | None = None


class RunCall(msgspec.Struct, gc=False):
    """A call of a run step."""

    code_interpreter: CodeInput | None = None
    function: CallInput | None = None


class StepDetails(msgspec.Struct, gc=False):
    """What a step does."""

    tool_calls: list[RunCall] | None = None


class RunDelta(msgspec.Struct, gc=False):
    """What an event adds to a message or to a step."""

    content: list[RunPart] | None = None
    step_details: StepDetails | None = None


class RunEvent(msgspec.Struct, gc=False):
    """An event of a run."""

    model: str | None = None
    status: str | None = None
    usage: OpenAiUsage | None = None
    delta: RunDelta | None = None
    last_error: Error | None = None
    error: Error | str | None = None


_RUN = Typed(RunEvent)
_RUN_ENDS = {
    b"thread.run.completed",
    b"thread.run.incomplete",
    b"thread.run.requires_action",
    b"thread.run.failed",
    b"thread.run.cancelled",
    b"thread.run.expired",
}


class Assistants(Semantics):
    """`POST /v1/threads/{thread}/runs` with `stream`: `thread.*` events, then `done`."""

    __slots__ = ()

    members = frozenset({b"model", b"status", b"usage", b"last_error", b"error"})

    def on_event(self, name: bytes, data: bytes, at: float) -> None:
        event = _RUN.read(data, self.reading)
        if event is None:
            return
        self.tally.model(event.model)
        if event.delta is not None and (kinds := _delta(event.delta)):
            self.tally.tokens(kinds, at)
        if event.usage is not None:
            self.tally.usage(event.usage.counts())
        if name in _RUN_ENDS:
            self.tally.finish(0, event.status or name.decode("latin-1").rpartition(".")[2])
        error = event.last_error or event.error
        if isinstance(error, Error):
            self.tally.error(error.type, error.code)
        elif error or name == b"error":
            self.tally.error(None)

    def complete(self, *, clean: bool) -> bool:
        return self.tally.any_finished


def _delta(delta: RunDelta) -> int:
    if delta.content and any(part.text is not None and part.text.value for part in delta.content):
        return TEXT
    if delta.step_details is not None and delta.step_details.tool_calls:
        return OTHER if any(map(_writes, delta.step_details.tool_calls)) else 0
    return 0


def _writes(call: RunCall) -> bool:
    code = call.code_interpreter
    function = call.function
    return bool(code and code.input) or bool(function and (function.name or function.arguments))
