"""What the simulator really did, request by request: the other column beside what a sidecar measured."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum

from sidecar.simulator.answer import Kind


class Ending(StrEnum):
    """How an answer ended."""

    RUNNING = "running"
    CLEAN = "clean"
    CUT = "cut"
    RESET = "reset"
    CANCELLED = "cancelled"
    """The client left."""


@dataclass(slots=True)
class ConnectionFacts:
    """One accepted connection; `tls_resumed` is None while there is no TLS."""

    id: int
    accepted_at: float
    requests: int = 0
    tls_version: str | None = None
    tls_resumed: bool | None = None
    alpn: str | None = None


@dataclass(slots=True)
class Truth:
    """One request. Instants are seconds of `time.monotonic()`; None: not reached.

    `event_times`, `event_tokens` and `event_kinds` run side by side over the events that went out, in which comments do
    not count. An event goes out when its bytes are handed to the socket.
    """

    id: int
    api: str
    method: str
    target: str
    connection: ConnectionFacts
    number_on_connection: int
    head_received_at: float
    status: int = 0
    streamed: bool = False
    model: str = ""
    received_at: float | None = None
    """The request was complete: the zero of the simulated time."""
    body_bytes: int = 0
    body_sha256: str = ""
    head_at: float | None = None
    event_times: list[float] = field(default_factory=list)
    event_tokens: list[int] = field(default_factory=list)
    event_kinds: list[Kind] = field(default_factory=list)
    input_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    sent_bytes: int = 0
    """Bytes of the answer that went out, head and framing included."""
    ended_at: float | None = None
    ending: Ending = Ending.RUNNING

    @property
    def events(self) -> int:
        """Events that went out."""
        return len(self.event_times)

    def token_times(self) -> list[float]:
        """The instants of the events that carried tokens."""
        return [at for at, tokens in zip(self.event_times, self.event_tokens, strict=False) if tokens]

    @property
    def ttft(self) -> float | None:
        """Seconds from the complete request to the first event with tokens."""
        times = self.token_times()
        return times[0] - self.received_at if times and self.received_at is not None else None

    @property
    def first_output_at(self) -> float | None:
        """The first event with tokens that are not reasoning."""
        pairs = zip(self.event_times, self.event_kinds, strict=False)
        return next((at for at, kind in pairs if kind is Kind.OUTPUT), None)

    def as_dict(self) -> dict[str, object]:
        """The same for JSON."""
        connection = self.connection
        return {
            "id": self.id,
            "api": self.api,
            "method": self.method,
            "target": self.target,
            "connection": connection.id,
            "number_on_connection": self.number_on_connection,
            "accepted_at": connection.accepted_at,
            "tls_version": connection.tls_version,
            "tls_resumed": connection.tls_resumed,
            "head_received_at": self.head_received_at,
            "received_at": self.received_at,
            "body_bytes": self.body_bytes,
            "body_sha256": self.body_sha256,
            "status": self.status,
            "streamed": self.streamed,
            "model": self.model,
            "head_at": self.head_at,
            "ttft": self.ttft,
            "events": self.events,
            "event_times": self.event_times,
            "event_tokens": self.event_tokens[: self.events],
            "event_kinds": [kind.value for kind in self.event_kinds[: self.events]],
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "reasoning_tokens": self.reasoning_tokens,
            "sent_bytes": self.sent_bytes,
            "ended_at": self.ended_at,
            "ending": self.ending.value,
        }


class Ledger:
    """The truths of the last `keep` requests, and counts since the start."""

    def __init__(self, keep: int = 1000) -> None:
        self.truths: deque[Truth] = deque(maxlen=keep)
        self.requests = 0
        self.connections_opened = 0
        self.connections_open = 0
        self.tls_resumed = 0

    def open_connection(self, at: float) -> ConnectionFacts:
        """Enter a connection that was accepted at instant `at`."""
        self.connections_opened += 1
        self.connections_open += 1
        return ConnectionFacts(self.connections_opened, at)

    def open_request(self, connection: ConnectionFacts, api: str, method: str, target: str, at: float) -> Truth:
        """Enter a request whose head is complete."""
        self.requests += 1
        connection.requests += 1
        truth = Truth(self.requests, api, method, target, connection, connection.requests, at)
        self.truths.append(truth)
        return truth

    def as_dict(self, now: float, after: int = 0) -> dict[str, object]:
        """Counts, and the truths with an id above `after`; `now` lets another process relate the clock to its own."""
        return {
            "now": now,
            "requests": self.requests,
            "connections_opened": self.connections_opened,
            "connections_open": self.connections_open,
            "tls_resumed": self.tls_resumed,
            "truths": [truth.as_dict() for truth in self.truths if truth.id > after],
        }
