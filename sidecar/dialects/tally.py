"""What every dialect's events come to: the numbering of events, the marks of tokens, finish reasons and usage."""

from __future__ import annotations

from sidecar.dialects.reading import Reading, ReasoningShown, RequestFacts, Usage

# What one event carries, as bits: an event may carry several.
TEXT = 1
"""Visible text, refusals included."""
REASONING = 2
TOOL = 4
"""A piece of a tool call: its name or arguments."""
SUMMARY = 8
"""A piece of a summary of the reasoning, not the reasoning itself."""
OTHER = 16
"""Output that moves the clocks and is in no count: audio, images, a tool's name in the opening of a block."""
HIDDEN = 32
"""Reasoning that is there and cannot be read: redacted or encrypted blocks."""

_SHOWN_REASONING = REASONING | SUMMARY
_COUNTED = TEXT | TOOL | _SHOWN_REASONING
_OUTPUT = TEXT | TOOL | OTHER

_MAX_CHOICES = 128
"""OpenAI's own limit of `n`; what lies beyond is not kept apart."""

MAX_GAPS = 16_384
"""Gaps kept for one response, so that a stream that runs for hours stays within its memory (512 KiB)."""


class Tally:
    """Adds up one response into its reading. The dialects say what an event carried; this says what it means.

    `reading.events` is raised by whoever cuts the body into events, before the event is looked at.
    """

    __slots__ = ("_finish", "_first_kinds", "_token_event", "_usage_event", "facts", "reading", "seen")

    def __init__(self, reading: Reading, facts: RequestFacts) -> None:
        self.reading = reading
        self.facts = facts
        self.seen: set[int] = set()
        """Indices of the choices or candidates that have come up."""
        self._finish: dict[int, str] = {}
        self._first_kinds = 0
        self._token_event = 0
        self._usage_event = 0

    def tokens(self, kinds: int, at: float) -> None:
        """The current event carried output of these kinds; call once for an event, and before `usage`."""
        reading = self.reading
        if not reading.streamed:
            return
        if kinds == TEXT and reading.first_text_event is not None:
            reading.n_text += 1
        elif kinds & _COUNTED:
            self._count(kinds)
        reading.token_events += 1
        self._token_event = reading.events
        last = reading.last_token_at
        if last is None:
            if reading.first_token_at is None:
                reading.first_token_at = at
                self._first_kinds = kinds
        elif len(reading.gaps) < MAX_GAPS:
            reading.gaps.append(at - last)
        reading.last_token_at = at
        if reading.first_output_at is None and kinds & _OUTPUT:
            reading.first_output_at = at

    def _count(self, kinds: int) -> None:
        reading = self.reading
        index = reading.events - 1
        if reading.first_content_event is None:
            reading.first_content_event = index
        if kinds & TEXT:
            reading.n_text += 1
            if reading.first_text_event is None:
                reading.first_text_event = index
        if kinds & TOOL:
            reading.n_tool += 1
        if kinds & _SHOWN_REASONING:
            reading.n_reasoning += 1
            if kinds & REASONING:
                reading.reasoning_shown = ReasoningShown.TEXT
            elif reading.reasoning_shown is ReasoningShown.NONE:
                reading.reasoning_shown = ReasoningShown.SUMMARY

    def see(self, index: int) -> None:
        """A choice or candidate has come up."""
        if len(self.seen) < _MAX_CHOICES:
            self.seen.add(index)

    def model(self, name: str | None) -> None:
        """The answer names its model here."""
        if name:
            self.reading.model = name

    def finish(self, index: int, reason: str | int | None) -> None:
        """A choice or candidate has said why it ended; the last word counts."""
        if reason is not None and reason != "" and (index in self._finish or len(self._finish) < _MAX_CHOICES):
            self._finish[index] = str(reason)

    def error(self, type_: str | None, code: str | int | None = None) -> None:
        """The body holds an error; the first one counts."""
        if not self.reading.failed:
            self.reading.error_type = type_ or ("error" if code is None or code == "" else None)
            self.reading.error_code = None if code is None or code == "" else str(code)

    def usage(self, usage: Usage) -> None:
        """Replace the usage. One without any number, or with nothing but zeros after a better one, is not usage."""
        reading = self.reading
        if not _says_something(usage, reading.usage):
            return
        reading.usage = usage
        self._usage_event = reading.events
        if reading.token_events == 1 and self._token_event == reading.events:
            reading.first_token_tokens = self._tokens_so_far(usage)

    def merge_usage(self, usage: Usage) -> None:
        """Replace only the numbers that are given, for upstreams that report some once and others as they grow."""
        before = self.reading.usage
        if before is not None:
            for name in ("input", "output", "cached_input", "cache_creation_input", "reasoning", "total"):
                if getattr(usage, name) is None:
                    setattr(usage, name, getattr(before, name))
        self.usage(usage)

    def _tokens_so_far(self, usage: Usage) -> int | None:
        """Output tokens in the first token event. Reasoning counts only where that event shows it."""
        output = usage.output or 0
        reasoning = usage.reasoning or 0
        rest = (usage.total or 0) - (usage.input or 0) - (usage.tool_input or 0) - output
        shown = bool(self._first_kinds & _SHOWN_REASONING)
        apart = rest == reasoning
        if apart and shown:
            output += reasoning
        elif not apart and not shown:
            output -= reasoning
        return output if output > 0 else None

    @property
    def all_finished(self) -> bool:
        """Every choice that was asked for or has come up gave its finish reason."""
        return bool(self._finish) and self._finish.keys() >= self.seen | set(
            range(min(self.facts.choices, _MAX_CHOICES))
        )

    @property
    def any_finished(self) -> bool:
        """Some choice gave a finish reason."""
        return bool(self._finish)

    @property
    def usage_came_last(self) -> bool:
        """Usage was reported after the last token, as an upstream does that has come to its end."""
        return self._usage_event > self._token_event

    def turn(self) -> None:
        """Another answer begins on the same connection: the time until its first token is no gap."""
        self.reading.last_token_at = None

    def close(self) -> None:
        """Write down what is only known at the end."""
        self.reading.finish_reasons = [self._finish[index] for index in sorted(self._finish)]


def _says_something(usage: Usage, before: Usage | None) -> bool:
    counts = (
        usage.input,
        usage.output,
        usage.total,
        usage.cached_input,
        usage.cache_creation_input,
        usage.reasoning,
        usage.tool_input,
    )
    return any(counts) or (before is None and any(count is not None for count in counts))
