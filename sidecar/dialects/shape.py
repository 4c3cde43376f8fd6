"""Recognises events that differ from one that was decoded only in the text they carry.

Of a stream's events nine in ten repeat each other but for a few letters in one string. When everything before and
behind that string is the same, byte for byte, and the string ends where it should, the event means what the decoded one
meant: comparing costs a tenth of decoding.
"""

from __future__ import annotations

TRIES = 8
"""Shapes that are learnt in a row without one event that fits."""


class TextShape:
    """The bytes around the one string that changes."""

    __slots__ = ("_least", "_prefix", "_suffix", "_tries")

    def __init__(self) -> None:
        self._prefix = self._suffix = b""
        self._least = 0
        self._tries = 0

    @property
    def wanted(self) -> bool:
        """A shape is still worth learning: some streams pad every event differently, and none will ever fit."""
        return self._tries < TRIES

    def learn(self, event: bytes, key: bytes) -> None:
        """Take the shape of `event`, a JSON object whose only news is the string behind `key` (as in `"content":"`)."""
        self._tries += 1
        if event.count(key) != 1:
            return
        start = event.index(key) + len(key)
        end = event.find(b'"', start)
        if end < 0 or b"\\" in event[start:end]:
            return
        self._prefix, self._suffix = event[:start], event[end:]
        self._least = start + len(self._suffix)

    def fits(self, event: bytes) -> bool:
        """The event is of this shape, and its string is not empty."""
        prefix, suffix = self._prefix, self._suffix
        if len(event) <= self._least or not self._least:
            return False
        if not (event.startswith(prefix) and event.endswith(suffix)):
            return False
        start, end = len(prefix), len(event) - len(suffix)
        # A quote would end the string early; a backslash before the end would take its quote into it.
        if event.find(b'"', start, end) >= 0 or event[end - 1] == 0x5C:
            return False
        self._tries = 0
        return True
