"""What is kept of a request body that streams up: enough to learn the model, never the whole of a large upload."""

from __future__ import annotations

from sidecar import dialects
from sidecar.dialects.json_scan import MemberScanner, members

WHOLE_BYTES = 128 * 1024
"""Bodies up to here are kept as they are."""

SCAN_BYTES = 4 * 1024 * 1024
"""How far a longer JSON body is scanned for `model` and the like, which may stand after long `messages`."""

PREFIX_BYTES = 16 * 1024
"""What is kept of a longer body that is not JSON: a multipart form names its model in one of its first parts."""


class RequestCopy:
    """Takes the parts of one body."""

    __slots__ = ("_parts", "_prefix", "_scanner", "_size")

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._scanner: MemberScanner | None = None
        self._prefix = b""

    def add(self, data: bytes) -> None:
        """Take the next part."""
        self._size += len(data)
        if self._scanner is not None:
            if self._size <= SCAN_BYTES:
                self._scanner.feed(data)
        elif not self._prefix:
            self._parts.append(data)
            if self._size > WHOLE_BYTES:
                self._shorten()

    def _shorten(self) -> None:
        kept, self._parts = b"".join(self._parts), []
        if kept.lstrip()[:1] == b"{":
            self._scanner = MemberScanner(dialects.REQUEST_MEMBERS)
            self._scanner.feed(kept)
        else:
            self._prefix = kept[:PREFIX_BYTES]

    def result(self) -> bytes:
        """The body, or a small JSON document of the members found in it, or its beginning."""
        if self._scanner is not None:
            return members(self._scanner.found)
        return self._prefix or b"".join(self._parts)
