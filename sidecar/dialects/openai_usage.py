"""Usage and server times as OpenAI and the many servers that speak its formats report them."""

from __future__ import annotations

import msgspec

from sidecar.dialects.reading import ProviderTimes, Usage

Seconds = float | None
Count = int | None


class InputDetails(msgspec.Struct, gc=False):
    """`cached_tokens` is part of the input; `cache_write_tokens` too."""

    cached_tokens: Count = None
    cache_write_tokens: Count = None


class OutputDetails(msgspec.Struct, gc=False):
    """`reasoning_tokens` is part of the output, but for xAI chat."""

    reasoning_tokens: Count = None


_NO_INPUT_DETAILS = InputDetails()
_NO_OUTPUT_DETAILS = OutputDetails()


class OpenAiUsage(msgspec.Struct, gc=False):
    """Chat and Responses name the same things differently; Groq and SambaNova put their times here, in seconds."""

    prompt_tokens: Count = None
    completion_tokens: Count = None
    input_tokens: Count = None
    output_tokens: Count = None
    total_tokens: Count = None
    prompt_tokens_details: InputDetails | None = None
    input_tokens_details: InputDetails | None = None
    completion_tokens_details: OutputDetails | None = None
    output_tokens_details: OutputDetails | None = None
    prompt_cache_hit_tokens: Count = None
    cached_tokens: Count = None
    queue_time: Seconds = None
    prompt_time: Seconds = None
    completion_time: Seconds = None
    total_time: Seconds = None
    time_to_first_token: Seconds = None
    total_latency: Seconds = None

    def counts(self) -> Usage:
        """The token counts, as reported."""
        into = self.prompt_tokens_details or self.input_tokens_details or _NO_INPUT_DETAILS
        out_of = self.completion_tokens_details or self.output_tokens_details or _NO_OUTPUT_DETAILS
        return Usage(
            input=_first(self.prompt_tokens, self.input_tokens),
            output=_first(self.completion_tokens, self.output_tokens),
            cached_input=_first(into.cached_tokens, self.prompt_cache_hit_tokens, self.cached_tokens),
            cache_creation_input=into.cache_write_tokens,
            reasoning=out_of.reasoning_tokens,
            total=self.total_tokens,
        )

    def note_times(self, times: ProviderTimes) -> None:
        """Groq: queue apart from total = prompt + completion. SambaNova: the time to the first token as `prompt`."""
        if self.total_time is not None or self.completion_time is not None:
            _note_groq(self, times)
        elif self.total_latency is not None:
            first = self.time_to_first_token
            rest = None if first is None else max(0.0, self.total_latency - first)
            note(times, total=self.total_latency, prompt=first, generation=rest)


class TimeInfo(msgspec.Struct, gc=False):
    """Cerebras, in seconds; its total includes the queue and more."""

    queue_time: Seconds = None
    prompt_time: Seconds = None
    completion_time: Seconds = None
    total_time: Seconds = None

    def note_times(self, times: ProviderTimes) -> None:
        """Into the reading's times."""
        _note_groq(self, times)


class Timings(msgspec.Struct, gc=False):
    """llama.cpp, in milliseconds."""

    prompt_ms: Seconds = None
    predicted_ms: Seconds = None

    def note_times(self, times: ProviderTimes) -> None:
        """Into the reading's times; the total is their sum."""
        prompt = _seconds(self.prompt_ms)
        generation = _seconds(self.predicted_ms)
        total = None if prompt is None or generation is None else prompt + generation
        note(times, total=total, prompt=prompt, generation=generation)


class SlaMetrics(msgspec.Struct, gc=False):
    """Novita, on every chunk; in milliseconds."""

    ttft_ms: Seconds = None

    def note_times(self, times: ProviderTimes) -> None:
        """The time to the first token is the time of the prompt for a server that does not split it."""
        note(times, prompt=_seconds(self.ttft_ms))


def note(times: ProviderTimes, **phases: Seconds) -> None:
    """Set the phases that are given, in seconds, and possible; what was known of others stays."""
    for phase, seconds in phases.items():
        if seconds is not None and seconds >= 0.0:
            setattr(times, phase, seconds)


def _note_groq(source: OpenAiUsage | TimeInfo, times: ProviderTimes) -> None:
    note(
        times,
        total=source.total_time,
        queue=source.queue_time,
        prompt=source.prompt_time,
        generation=source.completion_time,
    )


def _seconds(milliseconds: Seconds) -> Seconds:
    return None if milliseconds is None else milliseconds / 1000.0


def _first(*counts: Count) -> Count:
    for count in counts:
        if count is not None:
            return count
    return None
