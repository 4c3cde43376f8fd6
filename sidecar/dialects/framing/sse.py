"""Server-sent events: the parser of the WHATWG HTML standard (section 9.2.6) and a splitter that keeps every byte."""

from __future__ import annotations

import re
from collections import Counter

from sidecar.dialects.framing import MAX_EVENT

Event = tuple[bytes, bytes]
"""Name (b"" when the event has none) and data, its lines joined by LF."""

_BOM = b"\xef\xbb\xbf"
_BLANK_LINE = re.compile(rb"\n(?:\r\n?|\n)|\r(?:\n(?:\r\n?|\n)|\r\n?)")
"""A line end and the next one: CR LF is one, never two. Branches that begin with literals are searched for fast."""
_OVERLAP = 3
"""The longest part of a line end and a blank line that is not yet the whole: CR LF CR."""


class SseFramer:
    """Reads events that have a data field; comments are counted, `id` and `retry` ignored.

    An event is longer than MAX_EVENT when one of its lines is, or its data and event lines together are. An event whose
    blank line never came is dropped and counted as `truncated`, as the standard says; `flush_last` gives it all the
    same, as some SDKs do.
    """

    __slots__ = (
        "_after_cr",
        "_at_start",
        "_data",
        "_dropping",
        "_flush_last",
        "_held",
        "_line_too_long",
        "_name",
        "_partial",
        "_pending",
        "comments",
        "errors",
    )

    def __init__(self, *, flush_last: bool = False) -> None:
        self.comments = 0
        self.errors: Counter[str] = Counter()
        self._flush_last = flush_last
        self._at_start = True
        self._after_cr = False
        self._pending = True
        """Something of an event, or of the first bytes, is held: the next read is not a run of whole events."""
        self._partial = bytearray()
        self._line_too_long = False
        self._name = b""
        self._data: list[bytes] = []
        self._held = 0
        self._dropping = False

    def feed(self, data: bytes) -> list[Event]:
        """Take the next bytes; give the events that they ended."""
        if self._after_cr or b"\r" in data:
            data = self._with_lf(data)
        if self._pending or len(data) > MAX_EVENT:
            return self._feed_lines(data)
        first, last = data.find(b"\n"), len(data) - 2
        if first == last:
            if data.startswith(b"data: ") and data.endswith(b"\n"):
                return [(b"", data[6:first])]
        elif (
            data.find(b"\n", first + 1) == last
            and data.startswith(b"event: ")
            and data.startswith(b"data: ", first + 1)
            and data.endswith(b"\n")
        ):
            return [(data[7:first], data[first + 7 : last])]
        return self._feed_events(data)

    @property
    def idle(self) -> bool:
        """Nothing of an event is held: the next read stands for itself."""
        return not self._pending and not self._after_cr

    def _feed_events(self, data: bytes) -> list[Event]:
        """Read some events of which nothing came before, and perhaps the beginning of another."""
        whole, blank, rest = data.rpartition(b"\n\n")
        events: list[Event] = []
        if blank:
            for block in whole.split(b"\n\n"):
                first = block.find(b"\n")
                if first < 0:
                    if block.startswith(b"data: "):
                        events.append((b"", block[6:]))
                        continue
                elif (
                    block.startswith(b"event: ")
                    and block.startswith(b"data: ", first + 1)
                    and block.find(b"\n", first + 1) < 0
                ):
                    events.append((block[7:first], block[first + 7 :]))
                    continue
                self._block(block, events)
        if rest:
            self._lines(rest, events)
        return events

    def finish(self) -> list[Event]:
        """No more bytes come."""
        events: list[Event] = []
        if self._partial or self._line_too_long:
            self._end_line(b"", events)
        if self._flush_last:
            self._end_event(events)
        elif self._data or self._dropping:
            self.errors["truncated"] += 1
        self._forget()
        return events

    def _with_lf(self, data: bytes) -> bytes:
        """The same lines, each ended by LF. A CR ends its line at once; the LF that may follow it is then void."""
        if not data:
            return data
        if self._after_cr and data.startswith(b"\n"):
            self._after_cr = False
            return self._with_lf(data[1:])
        self._after_cr = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _feed_lines(self, data: bytes) -> list[Event]:
        events: list[Event] = []
        if self._at_start:
            data = bytes(self._partial) + data
            self._partial.clear()
            if len(data) < len(_BOM) and _BOM.startswith(data):
                self._partial += data
                return events
            self._at_start = False
            data = data.removeprefix(_BOM)
        self._lines(data, events)
        return events

    def _lines(self, data: bytes, events: list[Event]) -> None:
        first, *others = data.split(b"\n")
        if others:
            last = others.pop()
            self._end_line(first, events)
            for line in others:
                self._line(line, events)
        else:
            last = first
        if not self._line_too_long:
            self._partial += last
            if len(self._partial) > MAX_EVENT:
                self._partial = bytearray()
                self._line_too_long = True
        self._pending = bool(self._partial or self._data or self._name or self._dropping or self._line_too_long)

    def _block(self, block: bytes, events: list[Event]) -> None:
        for line in block.split(b"\n"):
            self._line(line, events)
        self._end_event(events)

    def _end_line(self, last_part: bytes, events: list[Event]) -> None:
        if self._line_too_long:
            self._line_too_long = False
            self._drop()
        elif self._partial:
            self._partial += last_part
            line = bytes(self._partial)
            self._partial.clear()
            self._line(line, events)
        else:
            self._line(last_part, events)

    def _line(self, line: bytes, events: list[Event]) -> None:
        if not line:
            self._end_event(events)
            return
        if len(line) > MAX_EVENT:
            self._drop()
            return
        if line.startswith(b":"):
            self.comments += 1
            return
        name, _, value = line.partition(b":")
        if name == b"data":
            self._hold(len(line))
            if not self._dropping:
                self._data.append(value.removeprefix(b" "))
        elif name == b"event":
            self._hold(len(line))
            self._name = b"" if self._dropping else value.removeprefix(b" ")

    def _hold(self, size: int) -> None:
        self._held += size
        if self._held > MAX_EVENT:
            self._drop()

    def _drop(self) -> None:
        if not self._dropping:
            self._dropping = True
            self.errors["oversized"] += 1
        self._data = []
        self._name = b""

    def _end_event(self, events: list[Event]) -> None:
        if self._data:
            events.append((self._name, b"\n".join(self._data)))
        self._forget()

    def _forget(self) -> None:
        self._name = b""
        self._held = 0
        self._dropping = False
        if self._data:
            self._data = []


class SseSplitter:
    """Cuts a stream into the raw bytes of its events, each with the blank line that ends it, and loses no byte.

    Comments and further blank lines stay in front of the event that follows. An event is given as soon as it can have
    ended: when a read ends with the CR of its blank line, an LF that comes later is a piece of its own. An event that
    grows longer than MAX_EVENT is given in several pieces and counted as `oversized`.
    """

    __slots__ = ("_after_cr", "_partial", "_releasing", "errors")

    def __init__(self) -> None:
        self.errors: Counter[str] = Counter()
        self._partial = bytearray()
        self._after_cr = False
        self._releasing = False

    def feed(self, data: bytes) -> list[bytes]:
        """Take the next bytes; give the pieces they completed, in order."""
        pieces: list[bytes] = []
        if self._after_cr and data:
            self._after_cr = False
            if data.startswith(b"\n"):
                pieces.append(b"\n")
                data = data[1:]
        if self._partial:
            scan_from = max(0, len(self._partial) - _OVERLAP)
            self._partial += data
            start = self._cut(self._partial, scan_from, pieces)
            del self._partial[:start]
        else:
            start = self._cut(data, 0, pieces)
            self._partial += data[start:]
        if start:
            self._releasing = False
        if len(self._partial) > MAX_EVENT or (self._releasing and len(self._partial) > _OVERLAP):
            self._release(pieces)
        return pieces

    def finish(self) -> bytes:
        """What no blank line ended."""
        rest = bytes(self._partial)
        self._partial.clear()
        return rest

    def _cut(self, data: bytes | bytearray, scan_from: int, pieces: list[bytes]) -> int:
        """Append the whole events in `data`; give the index after the last of them."""
        start = 0
        if data.find(b"\r", scan_from) < 0:
            while (found := data.find(b"\n\n", scan_from)) >= 0:
                scan_from = found + 2
                pieces.append(bytes(data[start:scan_from]))
                start = scan_from
            return start
        while match := _BLANK_LINE.search(data, scan_from):
            scan_from = match.end()
            pieces.append(bytes(data[start:scan_from]))
            start = scan_from
        self._after_cr = start == len(data) and data.endswith(b"\r")
        return start

    def _release(self, pieces: list[bytes]) -> None:
        if not self._releasing:
            self._releasing = True
            self.errors["oversized"] += 1
        pieces.append(bytes(self._partial[:-_OVERLAP]))
        del self._partial[:-_OVERLAP]
