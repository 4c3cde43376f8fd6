"""Responses of one HTTP/1.1 connection, parsed as they arrive; no I/O, no clock.

The grammar is llhttp's, by httptools. Decided here is what it leaves open: HEAD, limits, responses that could be split
(both framings at once, a second response to one request), transfer codings nobody asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import httptools

from sidecar.exchange import Headers
from sidecar.http_fields import (
    HOP_BY_HOP,
    NEVER_CONNECTION_OPTIONS,
    USUAL_OPTIONS,
    FieldKinds,
    Framing,
    all_options,
)

SILENT_LIMIT_BYTES = 256 * 1024
"""Most bytes in a row that bring no body byte: chunk extensions and trailers have no other bound."""


@dataclass(slots=True)
class ResponseHead:
    """Status line and fields of a response, as received; `reason` may be empty."""

    status: int
    reason: bytes
    headers: Headers
    framing: Framing
    options: frozenset[bytes] = frozenset()
    """What `Connection` says, in lower case."""
    lines: list[bytes] | None = None
    """The fields that go on, as HTTP/1.1 writes them; None: not made yet."""


_NO_TRAILERS: Headers = []
"""Shared by all responses without trailers, which are nearly all."""

_LENGTH, _CODING, _OPTIONS, _ENDS = 1, 2, 3, 4
_KINDS = FieldKinds(
    dict.fromkeys(HOP_BY_HOP, _ENDS)
    | {b"content-length": _LENGTH, b"transfer-encoding": _CODING, b"connection": _OPTIONS}
)


class BadResponse(Exception):
    """The upstream breaks the protocol, or a limit."""


class _Refused(Exception):
    """Raised inside a callback of the parser, which wraps it."""


class ResponseParser:
    """Takes bytes by `feed`; what they brought is fetched by `take` after each."""

    def __init__(self, max_header_bytes: int) -> None:
        self._max_header_bytes = max_header_bytes
        self._parts: list[bytes] = []
        self.on_body: Callable[[bytes], None] = self._parts.append
        """llhttp's callback, once per chunk: straight into the list, without a frame of Python."""
        self._llhttp = httptools.HttpResponseParser(self)
        self._method = b""
        self.interims: list[tuple[int, bytes, Headers]] = []
        """1xx responses that came before the head and were not fetched yet."""
        self._reset()

    def _reset(self) -> None:
        self._reason = b""
        self._headers: Headers = []
        self._fed = 0
        self._head_limit = self._max_header_bytes
        self._silent_bytes = 0
        self._trailer_bytes = 0
        self._parts.clear()
        self._head_pending = False
        self._keep_alive = False
        self.head: ResponseHead | None = None
        self.trailers: Headers = _NO_TRAILERS
        self.complete = False
        self.persistent = False
        """The connection may carry another request after this response."""

    def expect(self, method: bytes) -> None:
        """The next bytes answer a request of this method."""
        self._method = method
        self._reset()

    @property
    def nothing_seen(self) -> bool:
        """No byte of the response has come."""
        return not self._fed

    def feed(self, data: bytes) -> bytes | None:
        """Parse on. Gives the bytes after a 101, which are no HTTP any more; None else.

        Raises BadResponse; what was good before the bad bytes can be fetched all the same.
        """
        self._fed += len(data)
        try:
            self._llhttp.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            return data[upgrade.args[0] :]
        except httptools.HttpParserError as error:
            self._keep_alive = self.persistent = False
            if self._method == b"HEAD":
                self._parts.clear()
            raise BadResponse(_explain(error)) from error
        if self._parts and self._method == b"HEAD":
            self._keep_alive = self.persistent = False
            self._parts.clear()
            raise BadResponse("a body after HEAD")
        if self.head is None:
            if self._fed > self._head_limit:
                raise BadResponse(_HEADER_LIMIT)
        elif not self._parts and not self.complete:
            self._silent_bytes += len(data)
            if self._silent_bytes > SILENT_LIMIT_BYTES:
                raise BadResponse("256 KiB of chunk extensions or trailers")
        return None

    def take(self) -> tuple[ResponseHead | None, bytes]:
        """The head, the first time after it came, and the body bytes since the last call."""
        head = None
        if self._head_pending:
            self._head_pending = False
            head = self.head
        parts = self._parts
        body = b""
        if parts:
            body = parts[0] if len(parts) == 1 else b"".join(parts)
            parts.clear()
            self._silent_bytes = 0
        if head is not None and self._method == b"HEAD":
            self._end_after_head()
        return head, body

    def _end_after_head(self) -> None:
        self.complete = True
        self.persistent = self._keep_alive
        # llhttp does not know of HEAD and would wait for the body; this parser is of no more use.
        self._llhttp = httptools.HttpResponseParser(self)

    # ---- callbacks of llhttp ----

    def on_message_begin(self) -> None:
        if self.complete:
            raise _Refused("more than one response")

    def on_status(self, reason: bytes) -> None:
        self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.head is None:
            self._headers.append((name, value))
        else:
            self._add_trailer(name, value)

    def _add_trailer(self, name: bytes, value: bytes) -> None:
        self._trailer_bytes += len(name) + len(value)
        if self._trailer_bytes > self._max_header_bytes:
            raise _Refused(_HEADER_LIMIT)
        if not self.trailers:
            self.trailers = []
        self.trailers.append((name, value))

    def on_headers_complete(self) -> None:
        status = self._llhttp.get_status_code()
        if status < 200 and status != 101:
            return
        if self._fed > self._max_header_bytes and (
            sum(len(name) + len(value) + 4 for name, value in self._headers) > self._max_header_bytes
        ):
            raise _Refused(_HEADER_LIMIT)
        self.head = self._make_head(status)
        self._head_pending = True
        self._keep_alive = self._llhttp.should_keep_alive() and b"close" not in self.head.options

    def on_message_complete(self) -> None:
        if self.head is None:
            self.interims.append((self._llhttp.get_status_code(), self._reason, self._headers))
            self._reason, self._headers = b"", []
            self._head_limit = self._fed + self._max_header_bytes
        else:
            self.complete = True
            self.persistent = self._keep_alive

    def _make_head(self, status: int) -> ResponseHead:
        chunked = length = False
        options: frozenset[bytes] = frozenset()
        lines = []
        for field in self._headers:
            kind = _KINDS[field[0]]
            if not kind:
                lines.append(b": ".join(field))
            elif kind == _LENGTH:
                length = True
                lines.append(b": ".join(field))
            elif kind == _CODING:
                if chunked or field[1].strip().lower() != b"chunked":
                    # Not asked for (TE ends here), and unreadable for the client once the field is gone.
                    raise _Refused("a transfer coding other than chunked")
                chunked = True
            elif kind == _OPTIONS:
                options |= all_options(field[1])
        if not options <= USUAL_OPTIONS:
            ended = options - NEVER_CONNECTION_OPTIONS
            lines = [line for line in lines if line.partition(b":")[0].lower() not in ended]
        if chunked and length:
            # RFC 9112 §6.3: whoever lets this through lets responses be split.
            raise _Refused("Content-Length together with Transfer-Encoding")
        if self._method == b"HEAD" or status in (101, 204, 304):
            framing = Framing.NONE
        elif chunked:
            framing = Framing.CHUNKED
        else:
            framing = Framing.LENGTH if length else Framing.CLOSE
        return ResponseHead(status, self._reason, self._headers, framing, options, lines)


_HEADER_LIMIT = "header or trailer fields larger than limits.max_header_bytes"


def _explain(error: Exception) -> str:
    cause = error.__context__
    return str(cause if isinstance(cause, _Refused) else error)
