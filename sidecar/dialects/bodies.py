"""The ways to read the decoded bytes of a body: cut into the units of its framing, and handed to the dialect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Protocol

from sidecar.dialects.document import Document
from sidecar.dialects.framing import MAX_EVENT
from sidecar.dialects.framing.event_stream import EventStreamFramer
from sidecar.dialects.framing.sse import SseFramer
from sidecar.dialects.reading import Reading
from sidecar.dialects.refusal import MEMBERS, read_error
from sidecar.dialects.semantics import Semantics

_DONE = b"[DONE]"


@cache
def _with_error(members: frozenset[bytes]) -> frozenset[bytes]:
    """Errors are looked for in the answers of every dialect."""
    return members | {b"error"}


class Body(Protocol):
    """One way to read the decoded bytes of a body."""

    def feed(self, data: bytes, at: float) -> None:
        """Take the next bytes, read at instant `at`."""

    def finish(self, at: float, *, clean: bool) -> bool:
        """No more bytes come; whether the answer is complete."""


class Unread:
    """A body that is of no format to be read: audio, images, text, pages of a proxy."""

    __slots__ = ()

    def feed(self, data: bytes, at: float) -> None:
        """Nothing is kept."""

    def finish(self, at: float, *, clean: bool) -> bool:
        """It is complete when HTTP says so."""
        return clean


class JsonBody:
    """One JSON document: the whole answer, or an error instead of it."""

    __slots__ = ("_aws_type", "_document", "_error", "_semantics")

    def __init__(self, semantics: Semantics, *, error: bool, aws_type: bytes = b"") -> None:
        self._semantics = semantics
        self._error = error
        self._aws_type = aws_type
        self._document = Document(MEMBERS if error else _with_error(semantics.members))

    def feed(self, data: bytes, at: float) -> None:
        """Keep what is needed."""
        self._document.feed(data)

    def finish(self, at: float, *, clean: bool) -> bool:
        """Decode it, once."""
        reading = self._semantics.reading
        data = self._document.finish()
        if self._error:
            read_error(reading, data, self._aws_type)
        else:
            self._semantics.on_document(data)
        count(reading, self._document.errors)
        if not clean:
            reading.parse_errors.pop("json", None)  # a document that was cut off is not one that is malformed
        return clean and self._document.whole and "json" not in reading.parse_errors


class SseBody:
    """Server-sent events."""

    __slots__ = ("_framer", "_on_event", "_reading", "_semantics")

    def __init__(self, semantics: Semantics, *, flush_last: bool) -> None:
        self._semantics = semantics
        self._reading = semantics.reading
        self._reading.streamed = True
        self._on_event = semantics.on_event
        self._framer = SseFramer(flush_last=flush_last)

    def feed(self, data: bytes, at: float) -> None:
        """Read the events that are whole."""
        self._read(self._framer.feed(data), at)

    def feed_all(self, chunks: list[tuple[float, bytes]]) -> None:
        """Read many at once. Nearly always a read is one event of one line, which needs no framer to be told."""
        framer = self._framer
        idle = framer.idle
        payloads: list[bytes] = []
        instants: list[float] = []
        for at, data in chunks:
            end = len(data) - 2
            if (
                idle
                and data.find(b"\n") == end
                and data.startswith(b"data: {")
                and data.endswith(b"}\n\n")
                and b"\r" not in data
                and end < MAX_EVENT
            ):
                payloads.append(data[6:end])
                instants.append(at)
                continue
            if payloads:
                self._semantics.on_events(payloads, instants)
                payloads, instants = [], []
            self._read(framer.feed(data), at)
            idle = framer.idle
        if payloads:
            self._semantics.on_events(payloads, instants)

    def finish(self, at: float, *, clean: bool) -> bool:
        """The dialect knows whether the stream ended as it should."""
        rest = self._framer.finish()
        if clean:
            self._read(rest, at)
        count(self._reading, self._framer.errors)
        return self._semantics.complete(clean=clean)

    def _read(self, events: list[tuple[bytes, bytes]], at: float) -> None:
        reading = self._reading
        on_event = self._on_event
        for name, data in events:
            if data.startswith(_DONE):
                reading.terminator = "[DONE]"
            else:
                reading.events += 1
                on_event(name, data, at)


class Framer(Protocol):
    """Cuts a body into messages without names."""

    errors: Counter[str]

    def feed(self, data: bytes) -> list[bytes]:
        """The messages these bytes complete."""

    def finish(self) -> list[bytes]:
        """The messages the end completes."""


class MessagesBody:
    """Messages without names: JSON lines, the elements of an array, WebSocket messages."""

    __slots__ = ("_closing", "_framer", "_semantics")

    def __init__(self, semantics: Semantics, framer: Framer, closing: str | None = None) -> None:
        """`closing`: what the reading names as its terminator when the framing came to its own end."""
        self._semantics = semantics
        semantics.reading.streamed = True
        self._framer = framer
        self._closing = closing

    def feed(self, data: bytes, at: float) -> None:
        """Read the messages that are whole."""
        self._read(self._framer.feed(data), at)

    def finish(self, at: float, *, clean: bool) -> bool:
        """The dialect knows whether the stream ended as it should, but an array must be closed as well."""
        reading = self._semantics.reading
        self._read(self._framer.finish(), at)
        count(reading, self._framer.errors)
        if self._closing is not None:
            clean = clean and not self._framer.errors.get("truncated")
            if clean:
                reading.terminator = self._closing
        return self._semantics.complete(clean=clean)

    def _read(self, messages: Iterable[bytes], at: float) -> None:
        reading = self._semantics.reading
        on_event = self._semantics.on_event
        for data in messages:
            reading.events += 1
            on_event(b"", data, at)


class EventStreamBody:
    """AWS event stream frames, named by their event type; exceptions are frames of their own kind."""

    __slots__ = ("_framer", "_semantics")

    def __init__(self, semantics: Semantics) -> None:
        self._semantics = semantics
        semantics.reading.streamed = True
        self._framer = EventStreamFramer()

    def feed(self, data: bytes, at: float) -> None:
        """Read the frames that are whole."""
        reading = self._semantics.reading
        for headers, payload in self._framer.feed(data):
            reading.events += 1
            kind = headers.get(":message-type", "event")
            if kind == "event":
                self._semantics.on_event(headers.get(":event-type", "").encode(), payload, at)
            else:
                self._semantics.tally.error(headers.get(":exception-type") or None, headers.get(":error-code"))

    def finish(self, at: float, *, clean: bool) -> bool:
        """The dialect knows whether the stream ended as it should."""
        self._framer.finish()
        errors = self._framer.errors
        count(self._semantics.reading, errors)
        return self._semantics.complete(clean=clean and not errors)


def count(reading: Reading, errors: Mapping[str, int]) -> None:
    """Add what a framer or decoder counted to the reading."""
    for reason, times in errors.items():
        reading.parse_errors[reason] = reading.parse_errors.get(reason, 0) + times
