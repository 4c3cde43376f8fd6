"""The usual answer of a request that was not streamed: one small JSON object, said to be JSON, in no coding.

It takes half of what the general pipeline takes, which stands behind it for everything that turns out to be otherwise.
"""

from __future__ import annotations

from collections.abc import Callable

from sidecar.dialects.document import KEEP
from sidecar.dialects.headers import Fields, read_headers
from sidecar.dialects.pipeline import ResponseReader
from sidecar.dialects.reading import Reading
from sidecar.dialects.semantics import Semantics


class WholeJson:
    """Keeps the body and decodes it at its end. `general` makes the reader for what is no small JSON object."""

    __slots__ = ("_fields", "_general", "_make_general", "_parts", "_semantics", "_size")

    def __init__(self, semantics: Semantics, fields: Fields, general: Callable[[], ResponseReader]) -> None:
        self._semantics = semantics
        self._fields = fields
        self._make_general = general
        self._general: ResponseReader | None = None
        self._parts: list[tuple[bytes, float]] = []
        self._size = 0

    def feed(self, data: bytes, at: float) -> None:
        """Keep the next bytes."""
        if self._general is not None:
            self._general.feed(data, at)
            return
        self._parts.append((data, at))
        self._size += len(data)
        if self._size > KEEP:
            self._hand_over()

    def feed_all(self, chunks: list[tuple[float, bytes]]) -> None:
        """Keep several reads."""
        for at, data in chunks:
            self.feed(data, at)

    def finish(self, *, clean: bool) -> Reading:
        """Decode it, once."""
        parts = self._parts
        if self._general is None:
            body = parts[0][0] if len(parts) == 1 else b"".join([data for data, _ in parts])
            if clean and body.startswith(b"{"):
                return self._read(body)
        return self._hand_over().finish(clean=clean)

    def _read(self, body: bytes) -> Reading:
        semantics = self._semantics
        reading = semantics.reading
        try:
            semantics.on_document(body)
            semantics.tally.close()
            read_headers(reading, self._fields)
            reading.complete = "json" not in reading.parse_errors
        except Exception:
            # The copy must never hurt the exchange; the counter tells of our mistake.
            reading.degrade("reader")
        return reading

    def _hand_over(self) -> ResponseReader:
        general = self._general
        if general is None:
            general = self._general = self._make_general()
            for data, at in self._parts:
                general.feed(data, at)
            self._parts = []
        return general
