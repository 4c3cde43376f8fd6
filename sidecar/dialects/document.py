"""Keeps a whole JSON answer for as long as it is small, else only the members that are wanted of it."""

from __future__ import annotations

from collections import Counter

from sidecar.dialects.json_scan import MemberScanner, members

KEEP = 256 * 1024
"""Bytes of a document that are kept and decoded whole."""


_NO_ERRORS: Counter[str] = Counter()


class Document:
    """Takes the body in any split; white space before the document, which keeps connections alive, costs nothing."""

    __slots__ = ("_kept", "_scanner", "_wanted")

    def __init__(self, wanted: frozenset[bytes]) -> None:
        self._wanted = wanted
        self._kept = bytearray()
        self._scanner: MemberScanner | None = None

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        if self._scanner is not None:
            self._scanner.feed(data)
            return
        self._kept += data
        if len(self._kept) > KEEP:
            self._scanner = MemberScanner(self._wanted, max_value=KEEP // 8)
            self._scanner.feed(bytes(self._kept))
            self._kept = bytearray()

    def finish(self) -> bytes:
        """The document, or one of the members that were found in it."""
        return bytes(self._kept) if self._scanner is None else members(self._scanner.found)

    @property
    def whole(self) -> bool:
        """What was scanned reached its end; a document that was kept is judged by who decodes it."""
        return self._scanner is None or self._scanner.done

    @property
    def errors(self) -> Counter[str]:
        """What the scan counted."""
        return _NO_ERRORS if self._scanner is None else self._scanner.errors
