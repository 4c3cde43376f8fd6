"""Newline-delimited JSON: one document per line (Ollama, Cohere v1)."""

from __future__ import annotations

from collections import Counter

from sidecar.dialects.framing import MAX_EVENT


class NdjsonFramer:
    """Cuts at LF or CRLF and skips lines that hold only white space. The lines are not checked to be JSON."""

    __slots__ = ("_partial", "_skipping", "errors")

    def __init__(self) -> None:
        self.errors: Counter[str] = Counter()
        self._partial = bytearray()
        self._skipping = False

    def feed(self, data: bytes) -> list[bytes]:
        """Take the next bytes; give the lines they ended, without their line ends."""
        *ended, last = data.split(b"\n")
        if ended and (self._partial or self._skipping):
            self._partial += ended[0]
            ended[0] = b"" if self._skipping else bytes(self._partial)
            self._partial.clear()
            self._skipping = False
        if not self._skipping:
            self._partial += last
            if len(self._partial) > MAX_EVENT:
                self._skip()
        return self._lines(ended)

    def finish(self) -> list[bytes]:
        """No more bytes come; give the last line when no line end followed it."""
        last = bytes(self._partial)
        self._partial.clear()
        return self._lines([last])

    def _lines(self, ended: list[bytes]) -> list[bytes]:
        lines = []
        for line in ended:
            if len(line) > MAX_EVENT:
                self.errors["oversized"] += 1
            elif line and not line.isspace():
                lines.append(line.removesuffix(b"\r"))
        return lines

    def _skip(self) -> None:
        self.errors["oversized"] += 1
        self._partial = bytearray()
        self._skipping = True
