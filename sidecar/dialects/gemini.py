"""Gemini and Vertex: generateContent in its three framings, and the Interactions API.

Every event of a stream has the shape of the whole answer. There is no terminal event: a stream ends with its body, and
early servers repeat the finish reason in every event, so that it alone ends nothing.
"""

from __future__ import annotations

import msgspec

from sidecar.dialects.reading import Usage
from sidecar.dialects.semantics import Semantics
from sidecar.dialects.tally import OTHER, SUMMARY, TEXT, TOOL
from sidecar.dialects.typed import Typed


class Presence(msgspec.Struct, gc=False):
    """An object of which only that it is there counts."""


class Part(msgspec.Struct, gc=False, rename="camel"):
    """A piece of content; a thought is a summary of the reasoning, never the reasoning itself."""

    text: str | None = None
    thought: bool | None = None
    function_call: Presence | None = None
    executable_code: Presence | None = None
    inline_data: Presence | None = None


class Content(msgspec.Struct, gc=False):
    """What an event adds to a candidate."""

    parts: list[Part] | None = None


class Candidate(msgspec.Struct, gc=False, rename="camel"):
    """One of the answers; Vertex gives the finish reason as a number when it is asked for such enums."""

    index: int = 0
    content: Content | None = None
    finish_reason: str | int | None = None


class UsageMetadata(msgspec.Struct, gc=False, rename="camel"):
    """total = prompt + candidates + thoughts + tool use; cached content is part of the prompt."""

    prompt_token_count: int | None = None
    candidates_token_count: int | None = None
    cached_content_token_count: int | None = None
    thoughts_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None
    total_token_count: int | None = None

    def counts(self) -> Usage:
        """The token counts, as reported."""
        return Usage(
            input=self.prompt_token_count,
            output=self.candidates_token_count,
            cached_input=self.cached_content_token_count,
            reasoning=self.thoughts_token_count,
            total=self.total_token_count,
            tool_input=self.tool_use_prompt_token_count,
        )


class Feedback(msgspec.Struct, gc=False, rename="camel"):
    """A blocked prompt has a reason and no candidates."""

    block_reason: str | int | None = None


class Error(msgspec.Struct, gc=False):
    """A google.rpc.Status without its message."""

    code: int | str | None = None
    status: str | None = None


class Answer(msgspec.Struct, gc=False, rename="camel"):
    """An event, or the whole answer."""

    candidates: list[Candidate] | None = None
    usage_metadata: UsageMetadata | None = None
    model_version: str | None = None
    prompt_feedback: Feedback | None = None
    error: Error | str | None = None


_ANSWER = Typed(Answer)


class Gemini(Semantics):
    """generateContent and streamGenerateContent."""

    __slots__ = ()

    members = frozenset({b"usageMetadata", b"modelVersion", b"promptFeedback", b"error", b"candidates"})

    def on_event(self, name: bytes, data: bytes, at: float) -> None:
        answer = _ANSWER.read(data, self.reading)
        if answer is None:
            return
        tally = self.tally
        tally.model(answer.model_version)
        kinds = 0
        for candidate in answer.candidates or ():
            tally.see(candidate.index)
            tally.finish(candidate.index, candidate.finish_reason)
            if candidate.content is not None and candidate.content.parts:
                kinds |= _parts(candidate.content.parts)
        if kinds:
            tally.tokens(kinds, at)
        if answer.usage_metadata is not None:
            tally.usage(answer.usage_metadata.counts())
        if answer.prompt_feedback is not None:
            tally.finish(0, answer.prompt_feedback.block_reason)
        if isinstance(answer.error, Error):
            tally.error(answer.error.status, answer.error.code)
        elif answer.error:
            tally.error(None)

    def complete(self, *, clean: bool) -> bool:
        return clean and self.tally.all_finished


def _parts(parts: list[Part]) -> int:
    kinds = 0
    for part in parts:
        if part.text:
            kinds |= SUMMARY if part.thought else TEXT
        elif part.function_call is not None:
            kinds |= TOOL
        elif part.executable_code is not None or part.inline_data is not None:
            kinds |= OTHER
    return kinds


class InteractionUsage(msgspec.Struct, gc=False):
    """Usage of an interaction; thoughts and tool use are reported apart."""

    total_input_tokens: int | None = None
    total_output_tokens: int | None = None
    total_cached_tokens: int | None = None
    total_thought_tokens: int | None = None
    total_tool_use_tokens: int | None = None
    total_tokens: int | None = None


class Interaction(msgspec.Struct, gc=False):
    """The resource, as it is created and as it ends."""

    model: str | None = None
    status: str | None = None
    usage: InteractionUsage | None = None


class StepDelta(msgspec.Struct, gc=False):
    """What an event adds to a step; a signature is no token."""

    type: str = ""
    text: str | None = None
    name: str | None = None
    content: Presence | None = None


class InteractionEvent(msgspec.Struct, gc=False):
    """An event of the Interactions API."""

    event_type: str = ""
    interaction: Interaction | None = None
    delta: StepDelta | None = None
    error: Error | str | None = None


_INTERACTION = Typed(InteractionEvent)
_WHOLE = Typed(Interaction)
_RUNNING = ("in_progress", "queued")


class Interactions(Semantics):
    """`POST /v1beta/interactions`: named events, then `done`."""

    __slots__ = ()

    members = frozenset({b"model", b"status", b"usage"})

    def on_event(self, name: bytes, data: bytes, at: float) -> None:
        event = _INTERACTION.read(data, self.reading)
        if event is None:
            return
        if event.delta is not None:
            self._delta(event.delta, at)
        if event.interaction is not None:
            self._interaction(event.interaction)
        if isinstance(event.error, Error):
            self.tally.error(event.error.status, event.error.code)
        elif event.error or event.event_type == "error":
            self.tally.error(None)

    def on_document(self, data: bytes) -> None:
        whole = _WHOLE.read(data, self.reading)
        if whole is not None:
            self._interaction(whole)

    def complete(self, *, clean: bool) -> bool:
        return self.tally.any_finished

    def _delta(self, delta: StepDelta, at: float) -> None:
        if delta.text:
            self.tally.tokens(SUMMARY if "thought" in delta.type else TEXT, at)
        elif delta.type == "thought_summary":
            self.tally.tokens(SUMMARY, at)
        elif "function_call" in delta.type or delta.name:
            self.tally.tokens(TOOL, at)

    def _interaction(self, interaction: Interaction) -> None:
        self.tally.model(interaction.model)
        if interaction.status not in _RUNNING:
            self.tally.finish(0, interaction.status)
        usage = interaction.usage
        if usage is not None:
            self.tally.usage(
                Usage(
                    input=usage.total_input_tokens,
                    output=usage.total_output_tokens,
                    cached_input=usage.total_cached_tokens,
                    reasoning=usage.total_thought_tokens,
                    total=usage.total_tokens,
                    tool_input=usage.total_tool_use_tokens,
                )
            )
