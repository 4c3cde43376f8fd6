"""Ollama's own API: a JSON object on each line, the last one with `done`, counts, and durations in nanoseconds."""

from __future__ import annotations

import msgspec

from sidecar.dialects.openai_usage import note
from sidecar.dialects.reading import Usage
from sidecar.dialects.semantics import Semantics
from sidecar.dialects.tally import OTHER, REASONING, TEXT, TOOL
from sidecar.dialects.typed import Typed


class Call(msgspec.Struct, gc=False):
    """A tool call, which comes whole."""


class Message(msgspec.Struct, gc=False):
    """What a line of /api/chat adds."""

    content: str | None = None
    thinking: str | None = None
    tool_calls: list[Call] | None = None


class Line(msgspec.Struct, gc=False):
    """A line of a stream, or the whole answer."""

    model: str | None = None
    message: Message | None = None
    response: str | None = None
    thinking: str | None = None
    image: str | None = None
    done: bool | None = None
    done_reason: str | None = None
    status: str | None = None
    error: str | dict[str, msgspec.Raw] | None = None
    total_duration: float | None = None
    load_duration: float | None = None
    prompt_eval_duration: float | None = None
    eval_duration: float | None = None
    prompt_eval_count: int | None = None
    eval_count: int | None = None


_LINE = Typed(Line)


class Ollama(Semantics):
    """/api/chat and /api/generate; also /api/pull and its like, whose last line has the status `success`."""

    __slots__ = ()

    members = frozenset(
        {
            b"model",
            b"done",
            b"done_reason",
            b"error",
            b"total_duration",
            b"load_duration",
            b"prompt_eval_duration",
            b"eval_duration",
            b"prompt_eval_count",
            b"eval_count",
        }
    )

    def on_event(self, name: bytes, data: bytes, at: float) -> None:
        line = _LINE.read(data, self.reading)
        if line is None:
            return
        self.tally.model(line.model)
        message = line.message
        kinds = (TEXT if line.response else 0) | (REASONING if line.thinking else 0) | (OTHER if line.image else 0)
        if message is not None:
            kinds |= TEXT if message.content else 0
            kinds |= REASONING if message.thinking else 0
            kinds |= TOOL if message.tool_calls else 0
        if kinds:
            self.tally.tokens(kinds, at)
        if line.done:
            self.reading.terminator = "done:true"
            self.tally.finish(0, line.done_reason)
        elif line.status == "success":
            self.reading.terminator = "success"
        if line.total_duration is not None or line.eval_count is not None or line.prompt_eval_count is not None:
            self._end(line)
        if line.error:
            self.tally.error(None)

    def complete(self, *, clean: bool) -> bool:
        return self.reading.terminator is not None

    def _end(self, line: Line) -> None:
        # A cached prompt may leave out its count.
        self.tally.usage(Usage(input=line.prompt_eval_count, output=line.eval_count))
        note(
            self.reading.provider,
            total=_seconds(line.total_duration),
            load=_seconds(line.load_duration),
            prompt=_seconds(line.prompt_eval_duration),
            generation=_seconds(line.eval_duration),
        )


def _seconds(nanoseconds: float | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e9
