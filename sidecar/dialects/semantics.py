"""The shape shared by the dialects: one object reads the events of one response and knows when it is complete."""

from __future__ import annotations

from sidecar.dialects.tally import Tally


class Semantics:
    """What the events and documents of one dialect mean. Everything learnt lands in `tally.reading`."""

    __slots__ = ("reading", "tally")

    members: frozenset[bytes] = frozenset()
    """The members of a whole JSON answer that `on_document` uses, for answers too large to be kept."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self.reading = tally.reading

    def on_event(self, name: bytes, data: bytes, at: float) -> None:
        """One event of a stream: its SSE name or event type, b"" for none, and its payload; `at` in seconds."""
        raise NotImplementedError

    def on_events(self, payloads: list[bytes], instants: list[float]) -> None:
        """Several events without a name; counts them in `reading.events`, which for one event its caller does."""
        reading = self.reading
        on_event = self.on_event
        for data, at in zip(payloads, instants, strict=True):
            reading.events += 1
            on_event(b"", data, at)

    def on_document(self, data: bytes) -> None:
        """The whole answer of a request that was not streamed, or the wanted members of it."""
        self.on_event(b"", data, 0.0)

    def complete(self, *, clean: bool) -> bool:
        """Whether the stream ended as its dialect ends; `clean`: the body ended as HTTP says it must."""
        raise NotImplementedError
