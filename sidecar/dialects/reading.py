"""What a dialect learns from a response: the result type shared by all readers. No I/O, no clock."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol


class Operation(StrEnum):
    """What was asked for; the closed set of the label `operation`."""

    CHAT = "chat"
    RESPONSES = "responses"
    COMPLETIONS = "completions"
    EMBEDDINGS = "embeddings"
    MESSAGES = "messages"
    GENERATE_CONTENT = "generate_content"
    REALTIME = "realtime"
    GRPC = "grpc"
    OTHER = "other"


class ReasoningShown(StrEnum):
    """How much of the model's reasoning was streamed; decides whether reasoning tokens count in time per token."""

    NONE = "none"
    TEXT = "text"
    SUMMARY = "summary"


def _natural(count: int) -> int:
    return count if count > 0 else 0


@dataclass(slots=True)
class Usage:
    """Token counts as the upstream reported them, None where it reported none; `normalised` makes them comparable."""

    input: int | None = None
    output: int | None = None
    cached_input: int | None = None
    cache_creation_input: int | None = None
    reasoning: int | None = None
    total: int | None = None
    input_excludes_cache: bool = False
    """Anthropic and Bedrock: `input` does not contain the cache reads and writes."""
    tool_input: int | None = None
    """Gemini: input that tools brought in, reported apart from `input` and part of `total`."""

    def normalised(self) -> Usage:
        """Input with cached and tool input in it, output with reasoning, cached clamped to input, nothing negative."""
        if self._is_normal():
            return self
        cached = _natural(self.cached_input) if self.cached_input else 0
        creation = _natural(self.cache_creation_input) if self.cache_creation_input else 0
        prompt = self.input if self.input is None else _natural(self.input)
        if prompt is not None and self.tool_input:
            prompt += _natural(self.tool_input)
        output = self.output if self.output is None else _natural(self.output)
        reasoning = _natural(self.reasoning) if self.reasoning else 0
        if reasoning and self.total is not None and self.total - (prompt or 0) - (output or 0) == reasoning:
            output = (output or 0) + reasoning
        if prompt is not None:
            if self.input_excludes_cache:
                prompt += cached + creation
            cached = cached if cached < prompt else prompt
            creation = creation if creation < prompt else prompt
        return Usage(prompt, output, cached, creation, reasoning, self.total)

    def _is_normal(self) -> bool:
        """Input and output and nothing beside them, as most answers report."""
        return not (
            self.cached_input or self.cache_creation_input or self.reasoning or self.tool_input or self.input is None
        ) and (self.input >= 0 and self.output is not None and self.output >= 0)


@dataclass(slots=True)
class ProviderTimes:
    """Seconds the provider reports of itself (METRICS `provider_phase_seconds`); None where it reports none."""

    total: float | None = None
    queue: float | None = None
    load: float | None = None
    prompt: float | None = None
    generation: float | None = None
    until_headers: float | None = None
    """From a response header: in a stream the time until the headers, else the whole processing."""


@dataclass(slots=True)
class Reading:
    """All that was learnt from one response. Instants are the caller's (`at` of `Reader.feed`), None: never."""

    dialect: str = "generic"
    operation: Operation = Operation.OTHER
    streamed: bool = False
    """The answer came as a stream of events (SSE, NDJSON, JSON array of a stream method, event stream, WebSocket)."""
    model: str | None = None
    """As the answer names it: the last non-empty one."""
    usage: Usage | None = None
    """The last non-empty one."""

    events: int = 0
    n_text: int = 0
    n_reasoning: int = 0
    n_tool: int = 0
    first_content_event: int | None = None
    first_text_event: int | None = None

    token_events: int = 0
    first_token_at: float | None = None
    first_output_at: float | None = None
    last_token_at: float | None = None
    first_token_tokens: int | None = None
    """Output tokens in the first token event, when the upstream says so (usage on every chunk); None: unknown."""
    gaps: list[float] = field(default_factory=list)
    """Seconds between consecutive token events: `token_events - 1` samples."""
    reasoning_shown: ReasoningShown = ReasoningShown.NONE

    finish_reasons: list[str] = field(default_factory=list)
    """Distinct places (choice index, candidate) each with its last reason, in the order of the index."""
    terminator: str | None = None
    complete: bool = False
    """The answer ended as its dialect ends: terminal event or, where there is none, a finish reason and a clean end."""
    error_type: str | None = None
    error_code: str | None = None
    """Of an error inside the body. Never the message: it may quote the prompt."""

    provider: ProviderTimes = field(default_factory=ProviderTimes)
    ratelimit_remaining: dict[str, float] = field(default_factory=dict)
    """kind (`requests`, `tokens`) → what is left, from the response headers."""
    parse_errors: dict[str, int] = field(default_factory=dict)
    """Reason → how often the copy could not be read. The bytes went through all the same."""

    @property
    def failed(self) -> bool:
        """The body carried an error."""
        return self.error_type is not None or self.error_code is not None

    def degrade(self, reason: str) -> None:
        """Count one thing that could not be read."""
        self.parse_errors[reason] = self.parse_errors.get(reason, 0) + 1


class RequestFacts(NamedTuple):
    """What the request says of itself. `model` None: it names none (or not within the bound that is read)."""

    operation: Operation = Operation.OTHER
    model: str | None = None
    stream: bool = False
    choices: int = 1
    """How many answers were asked for at once (`n`)."""


class Reader(Protocol):
    """Reads the copy of one response body, in any split, and never raises for what the body holds."""

    def feed(self, data: bytes, at: float) -> None:
        """Take the next bytes of the body as they were on the wire, read from the upstream at instant `at`."""

    def feed_all(self, chunks: list[tuple[float, bytes]]) -> None:
        """Take several reads at once, each with its instant: the same as `feed` for each, and cheaper."""

    def finish(self, *, clean: bool) -> Reading:
        """No more bytes come; `clean` when the body ended as HTTP says it must. Call once."""
