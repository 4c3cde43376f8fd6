"""From the bytes of a response to its reading: content coding, framing by what the bytes are, then the dialect.

Content types lie: Google calls a JSON error an event stream, DeepSeek calls one octets. The first byte that is not
white space decides, and the content type only where that byte leaves a choice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sidecar.dialects.bodies import Body, EventStreamBody, JsonBody, MessagesBody, SseBody, Unread, count
from sidecar.dialects.codings import Decoder
from sidecar.dialects.framing.json_array import JsonArrayFramer
from sidecar.dialects.framing.ndjson import NdjsonFramer
from sidecar.dialects.framing.websocket import WebSocketFramer
from sidecar.dialects.headers import Fields, read_headers
from sidecar.dialects.reading import Reading
from sidecar.dialects.semantics import Semantics

_SPACE = b" \t\r\n"
_BOM = b"\xef\xbb\xbf"
_JSON_LINES = (b"application/x-ndjson", b"application/ndjson", b"application/stream+json", b"application/jsonl")
_UNSURE = (b"", b"text/plain", b"application/octet-stream")
_SSE_STARTS = (b"data:", b"event:", b"id:", b"retry:", b":")


class ResponseReader:
    """The reader of one response. What it cannot read is counted in the reading, and never raised."""

    __slots__ = ("_at", "_body", "_choose", "_decoder", "_failed", "_fields", "_held", "_reading", "_semantics")

    def __init__(
        self,
        semantics: Semantics,
        fields: Fields,
        choose: Callable[[bytes, bool], Body | None],
        decoder: Decoder | None = None,
        body: Body | None = None,
    ) -> None:
        """`choose` makes the body from its first bytes, None while they do not tell; its flag: no more come."""
        self._semantics = semantics
        self._reading = semantics.reading
        self._fields = fields
        self._choose = choose
        self._decoder = decoder
        self._body = body
        self._held = b""
        self._at = 0.0
        self._failed = False

    def feed(self, data: bytes, at: float) -> None:
        """Take the next bytes as they were on the wire."""
        self._at = at
        if self._failed:
            return
        try:
            if self._decoder is None:
                if self._body is not None:
                    self._body.feed(data, at)
                else:
                    self._feed(data, at)
            else:
                for piece in self._decoder.pieces(data):
                    self._feed(piece, at)
        except Exception:
            # The copy must never hurt the exchange; the counter tells of our mistake.
            self._fail()

    def feed_all(self, chunks: list[tuple[float, bytes]]) -> None:
        """Take several reads at once."""
        body = self._body
        if not isinstance(body, SseBody) or self._decoder is not None or self._failed:
            for at, data in chunks:
                self.feed(data, at)
            return
        self._at = chunks[-1][0] if chunks else self._at
        try:
            body.feed_all(chunks)
        except Exception:
            self._fail()

    def finish(self, *, clean: bool) -> Reading:
        """No more bytes come."""
        reading = self._reading
        try:
            complete = self._finish(clean=clean)
            self._semantics.tally.close()
            read_headers(reading, self._fields)
        except Exception:
            complete = False
            self._fail()
        # A document may say that it failed and be whole; a stream that failed did not come to its end.
        reading.complete = complete and not (reading.streamed and reading.failed)
        return reading

    def _feed(self, data: bytes, at: float) -> None:
        if self._body is None:
            data = (self._held + data).lstrip(_SPACE)
            if _BOM.startswith(data):
                self._held = data
                return
            data = data.removeprefix(_BOM)
            self._body = self._choose(data, False)
            self._held = data if self._body is None else b""
            if self._body is None:
                return
        self._body.feed(data, at)

    def _finish(self, *, clean: bool) -> bool:
        unread = self._failed
        if self._decoder is not None:
            self._decoder.finish()
            count(self._reading, self._decoder.errors)
            unread |= bool(self._decoder.errors.keys() & {"coding", "bomb"})
        if self._body is None:
            self._body = self._choose(self._held, True) or Unread()
        complete = self._body.finish(self._at, clean=clean)
        # Of what could not be read it is only known that HTTP ended it well.
        return clean if unread else complete

    def _fail(self) -> None:
        self._failed = True
        self._reading.degrade("reader")


class Hints(NamedTuple):
    """What is known of a body before its first byte."""

    content_type: bytes
    status: int
    gemini: bool = False
    json_lines: bool = False
    """The request asked for lines of JSON."""
    bodiless: bool = False
    """An answer to HEAD, or a status without a body."""
    aws_type: bytes = b""


def choose_body(semantics: Semantics, hints: Hints, first: bytes, ended: bool) -> Body | None:
    """How to read a body that begins with `first`; None: more bytes are needed to tell."""
    kind = hints.content_type
    byte = first[:1]
    if kind == b"application/vnd.amazon.eventstream" and byte != b"{":
        return Unread() if hints.bodiless else EventStreamBody(semantics)
    if byte in (b"{", b"["):
        return _choose_json(semantics, hints, byte)
    if kind == b"text/event-stream":
        return Unread() if hints.bodiless else SseBody(semantics, flush_last=hints.gemini)
    if kind in _UNSURE and not ended:
        if first.startswith(_SSE_STARTS):
            return SseBody(semantics, flush_last=hints.gemini)
        if any(start.startswith(first) for start in _SSE_STARTS):
            return None
    if kind in _JSON_LINES and not hints.bodiless:
        return MessagesBody(semantics, NdjsonFramer())
    if kind.endswith(b"json") and byte not in b'"-0123456789tfn':
        semantics.reading.degrade("json")
    return Unread()


def _choose_json(semantics: Semantics, hints: Hints, byte: bytes) -> Body:
    if hints.status >= 400:
        return JsonBody(semantics, error=True, aws_type=hints.aws_type)
    if byte == b"[":
        # Other arrays are embeddings or the answers of TGI, which hold neither usage nor model.
        return MessagesBody(semantics, JsonArrayFramer(), closing="]") if hints.gemini else Unread()
    if hints.content_type in _JSON_LINES or (hints.json_lines and hints.content_type in _UNSURE):
        return MessagesBody(semantics, NdjsonFramer())
    return JsonBody(semantics, error=False)


def open_tunnel(semantics: Semantics, *, deflate: bool) -> Body:
    """The messages that a WebSocket server sends."""
    return MessagesBody(semantics, WebSocketFramer(masked=False, deflate=deflate))
