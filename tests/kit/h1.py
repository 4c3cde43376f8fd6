"""A small, strict reading of HTTP/1.1 messages for tests, independent of every parser the sidecar uses.

It keeps what a lenient parser would lose: spelling and order of fields, chunk sizes, and whether a body ended as
RFC 9112 §7.1 and §8 say it must.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

Headers = list[tuple[bytes, bytes]]


class Malformed(Exception):
    """The bytes are not HTTP/1.1."""


class Framing(StrEnum):
    """How the end of a body is found (RFC 9112 §6.3)."""

    NONE = "none"
    LENGTH = "length"
    CHUNKED = "chunked"
    CLOSE = "close"


def split_head(data: bytes | bytearray) -> tuple[bytes, Headers, int] | None:
    """Start line, fields and length of the head at the front of `data`; None while the empty line has not come."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return None
    start_line, *lines = bytes(data[:end]).split(b"\r\n")
    return start_line, [_field(line) for line in lines], end + 4


def _field(line: bytes) -> tuple[bytes, bytes]:
    name, colon, value = line.partition(b":")
    if not colon or not name or name != name.strip():
        raise Malformed(f"field line {line!r}")
    return name, value.strip(b" \t")


def values(headers: Headers, name: str) -> list[bytes]:
    """All values of the field `name`, in order, whatever its spelling on the wire."""
    wanted = name.lower().encode()
    return [value for key, value in headers if key.lower() == wanted]


def value(headers: Headers, name: str) -> bytes | None:
    """The only value of the field `name`, None where there is none; several fail the test that asks."""
    found = values(headers, name)
    assert len(found) <= 1, f"{name} came {len(found)} times: {found}"
    return found[0] if found else None


def request_framing(headers: Headers) -> tuple[Framing, int]:
    """How the body of a request with these fields ends, and its length where that is known."""
    if values(headers, "transfer-encoding"):
        return Framing.CHUNKED, 0
    lengths = values(headers, "content-length")
    return (Framing.LENGTH, int(lengths[0])) if lengths else (Framing.NONE, 0)


def response_framing(status: int, headers: Headers, method: str) -> tuple[Framing, int]:
    """How the body of a response to `method` ends, and its length where that is known."""
    if method == "HEAD" or status < 200 or status in (204, 304):
        return Framing.NONE, 0
    framing, length = request_framing(headers)
    return (framing, length) if framing is not Framing.NONE else (Framing.CLOSE, 0)


@dataclass(slots=True)
class Body:
    """Takes the bytes of one body piece by piece; what follows the body stays in `rest`."""

    framing: Framing
    length: int = 0
    data: bytearray = field(default_factory=bytearray)
    trailers: Headers = field(default_factory=list)
    chunk_sizes: list[int] = field(default_factory=list)
    complete: bool = False
    rest: bytearray = field(default_factory=bytearray)
    _pending: int = 0
    """Bytes still missing of the current chunk and the CRLF after it."""
    _in_trailers: bool = False

    def __post_init__(self) -> None:
        self.complete = self.framing is Framing.NONE or (self.framing is Framing.LENGTH and not self.length)

    def feed(self, piece: bytes | bytearray) -> None:
        """Take the next bytes of the connection."""
        if self.complete:
            self.rest += piece
        elif self.framing is Framing.CLOSE:
            self.data += piece
        elif self.framing is Framing.LENGTH:
            wanted = self.length - len(self.data)
            self.data += piece[:wanted]
            self.rest += piece[wanted:]
            self.complete = len(self.data) == self.length
        else:
            self.rest += piece
            while not self.complete and self._step():
                pass

    def eof(self) -> None:
        """The connection ended: the end of a body that has no other."""
        self.complete = self.complete or self.framing is Framing.CLOSE

    def _step(self) -> bool:
        if self._pending:
            return self._chunk_data()
        end = self.rest.find(b"\r\n")
        if end < 0:
            return False
        line = bytes(self.rest[:end])
        del self.rest[: end + 2]
        if self._in_trailers:
            if line:
                self.trailers.append(_field(line))
            self.complete = not line
            return True
        size = int(line.partition(b";")[0], 16)
        self.chunk_sizes.append(size)
        self._in_trailers = size == 0
        self._pending = size + 2 if size else 0
        return True

    def _chunk_data(self) -> bool:
        content = self._pending - 2
        if content > 0:
            piece = self.rest[:content]
            self.data += piece
            self._pending -= len(piece)
            del self.rest[: len(piece)]
            return bool(piece)
        if len(self.rest) < 2:
            return False
        if self.rest[:2] != b"\r\n":
            raise Malformed(f"after a chunk: {bytes(self.rest[:16])!r}")
        del self.rest[:2]
        self._pending = 0
        return True


@dataclass(frozen=True, slots=True)
class RawRequest:
    """One request as it arrived. `head` holds the exact bytes through the empty line; `at` is when all had come."""

    method: str
    target: bytes
    version: bytes
    head: bytes
    headers: Headers
    body: bytes
    trailers: Headers
    at: float

    def value(self, name: str) -> bytes | None:
        """The only value of the field `name`."""
        return value(self.headers, name)

    def values(self, name: str) -> list[bytes]:
        """All values of the field `name`."""
        return values(self.headers, name)


@dataclass(frozen=True, slots=True)
class RawResponse:
    """One response as it arrived. `clean_end` is False when the connection ended inside it."""

    status: int
    reason: bytes
    head: bytes
    headers: Headers
    body: bytes
    trailers: Headers
    chunk_sizes: list[int]
    framing: Framing
    informational: list[tuple[int, Headers]]
    """The 1xx responses before it."""
    raw: bytes
    """All bytes of the message, the 1xx responses included."""
    clean_end: bool

    def value(self, name: str) -> bytes | None:
        """The only value of the field `name`."""
        return value(self.headers, name)

    def values(self, name: str) -> list[bytes]:
        """All values of the field `name`."""
        return values(self.headers, name)


def status_line(line: bytes) -> tuple[int, bytes]:
    """Status and reason phrase."""
    version, _, rest = line.partition(b" ")
    code, _, reason = rest.partition(b" ")
    if version not in (b"HTTP/1.1", b"HTTP/1.0") or len(code) != 3:
        raise Malformed(f"status line {line!r}")
    return int(code), reason


def parse_response(data: bytes, method: str = "POST", *, ended: bool = True) -> tuple[RawResponse, bytes]:
    """The first final response in `data`, which may be cut short, and the bytes after it.

    `ended`: the connection has ended after `data`, which is the end of a body without another.
    Raises Malformed when not even a head is there.
    """
    informational: list[tuple[int, Headers]] = []
    start = 0
    while True:
        head = split_head(data[start:])
        if head is None:
            raise Malformed(f"no complete head in {data[start:][:200]!r}")
        line, headers, size = head
        status, reason = status_line(line)
        head_bytes = data[start : start + size]
        start += size
        if status >= 200 or status == 101:
            break
        informational.append((status, headers))
    framing, length = response_framing(status, headers, method)
    body = Body(framing, length)
    body.feed(data[start:])
    if ended:
        body.eof()
    rest = bytes(body.rest) if body.complete else b""
    raw = data[: len(data) - len(rest)]
    response = RawResponse(
        status, reason, head_bytes, headers, bytes(body.data), body.trailers, body.chunk_sizes, framing,
        informational, raw, body.complete,
    )  # fmt: skip
    return response, rest
