"""What an API answers, before it meets a wire: events with their step in time, and the facts about them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

import msgspec

from sidecar.simulator.knobs import Knobs

OPENING = -1
"""Step of events that go out together with the response head."""


class Kind(Enum):
    """What an event is to someone who waits for tokens."""

    CONTROL = "control"
    REASONING = "reasoning"
    OUTPUT = "output"


class Wire(Enum):
    """How the events of an answer are told apart in its body."""

    SSE = "sse"
    NDJSON = "ndjson"
    ARRAY = "array"
    WHOLE = "whole"


class Event(NamedTuple):
    """One event: due `ttft + step * itl` after the request, with `payload` in JSON (or a bare word as `[DONE]`)."""

    step: int
    payload: bytes
    name: bytes = b""
    tokens: int = 0
    kind: Kind = Kind.CONTROL


@dataclass(slots=True)
class Answer:
    """One answer; `terminal` says how many of its last events are the dialect's way to end."""

    events: list[Event]
    wire: Wire = Wire.WHOLE
    status: int = 200
    content_type: bytes = b"application/json"
    error: Event | None = None
    terminal: int = 0
    line_end: bytes = b"\n"
    model: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    """With the reasoning in it."""
    reasoning_tokens: int = 0


class StreamOptions(msgspec.Struct):
    """The member `stream_options` of an OpenAI request."""

    include_usage: bool | None = None


class Ask(msgspec.Struct):
    """The members of a JSON request that shape an answer, of all APIs together."""

    model: str = ""
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    max_output_tokens: int | None = None
    input: Any = None
    tools: list[dict[str, Any]] | None = None
    dimensions: int | None = None
    encoding_format: str | None = None


@dataclass(slots=True)
class Call:
    """One request as the APIs see it. `wall` is Unix seconds at its end; `path` has no query."""

    id: int
    method: str
    path: str
    query: dict[str, str]
    content_type: str
    body: bytes
    knobs: Knobs
    wall: float
    ask: Ask = field(default_factory=Ask)

    @property
    def model(self) -> str:
        """The model that answers."""
        return self.knobs.model or self.ask.model or "sim-1"

    @property
    def model_json(self) -> bytes:
        """The same as a JSON string."""
        return msgspec.json.encode(self.model)

    @property
    def input_tokens(self) -> int:
        """A plausible count that depends on the request alone."""
        return max(1, len(self.body) // 4)

    @property
    def limit(self) -> int | None:
        """The most output tokens that the request allows."""
        return self.ask.max_completion_tokens or self.ask.max_tokens or self.ask.max_output_tokens

    @property
    def tokens(self) -> int:
        """Visible output tokens of each choice."""
        if self.knobs.tokens_fixed or self.limit is None:
            return self.knobs.tokens
        return min(self.knobs.tokens, self.limit)

    @property
    def shortened(self) -> bool:
        """The request's maximum cut the answer."""
        return self.tokens < self.knobs.tokens

    @property
    def reasoning_tokens(self) -> int:
        """Tokens in the reasoning events."""
        return self.knobs.reasoning * self.knobs.tokens_per_event

    @property
    def tool_name(self) -> str:
        """The first tool that the request offers, in OpenAI's, Anthropic's or Gemini's spelling."""
        for tool in self.ask.tools or ():
            inner = tool.get("function") if isinstance(tool.get("function"), dict) else tool
            if isinstance(inner, dict) and isinstance(inner.get("name"), str):
                return str(inner["name"])
        return "lookup"

    def due(self, step: int) -> float:
        """Seconds after the request when `step` comes."""
        return self.knobs.ttft + max(0, step) * self.knobs.itl


class Family(NamedTuple):
    """What the answers of one provider have in common.

    `headers` gives whole header lines with their ends from the call and the milliseconds until the response head;
    `error` gives the JSON of an error answer from the call, its status and a message.
    """

    headers: Callable[[Call, int], bytes]
    error: Callable[[Call, int, str], bytes]


class Route(NamedTuple):
    """One operation of one API."""

    api: str
    suffix: str
    methods: tuple[str, ...]
    family: Family
    answer: Callable[[Call], Answer]
