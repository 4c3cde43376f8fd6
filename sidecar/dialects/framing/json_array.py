"""The elements of one JSON array that grows on the wire (Gemini's stream without `alt=sse`)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

from sidecar.dialects.framing import MAX_EVENT
from sidecar.dialects.framing.nesting import BEFORE_TEXT, SCALAR, SPACE, Nesting, end_of_match

_SCALAR_BYTES = re.compile(rb'[^ \t\r\n,\]\["{}]*')
_ANY_VALUE = re.compile(rb"[{\[]")
_SEPARATOR = re.compile(rb"[,\]]")


class JsonArrayFramer:
    """Gives each element as soon as its last byte is there: strings, arrays and objects do not wait for the comma.

    An object instead of an array, as error bodies are, is one element. What is no JSON outside the elements is passed
    over and each stretch of it counted as `json`; inside an element only the brackets and quotes are followed.
    """

    __slots__ = ("_captured", "_dropping", "_nesting", "_single", "_step", "errors")

    def __init__(self) -> None:
        self.errors: Counter[str] = Counter()
        self._nesting = Nesting()
        self._captured = bytearray()
        self._dropping = False
        self._single = False
        self._step: Callable[[JsonArrayFramer, bytes, int, list[bytes]], int] = JsonArrayFramer._before_array

    def feed(self, data: bytes) -> list[bytes]:
        """Take the next bytes; give the JSON text of the elements they completed."""
        elements: list[bytes] = []
        size = len(data)
        pos = 0
        while pos < size:
            pos = self._step(self, data, pos, elements)
        return elements

    def finish(self) -> list[bytes]:
        """No more bytes come; nothing is completed by that, an array that was not closed is counted."""
        if self._step is not JsonArrayFramer._after_array and self._step is not JsonArrayFramer._before_array:
            self.errors["truncated"] += 1
        self._captured.clear()
        self._step = JsonArrayFramer._after_array
        return []

    # Each step reads at `pos` and gives the index where the next step goes on.

    def _before_array(self, data: bytes, pos: int, _elements: list[bytes]) -> int:
        pos = end_of_match(BEFORE_TEXT, data, pos)
        if pos == len(data):
            return pos
        if data[pos] == 0x5B:
            self._step = JsonArrayFramer._before_element
            return pos + 1
        if data[pos] == 0x7B:
            self._single = True
            return self._open(data, pos)
        self.errors["json"] += 1
        self._step = JsonArrayFramer._garbage_before_array
        return pos

    def _garbage_before_array(self, data: bytes, pos: int, _elements: list[bytes]) -> int:
        match = _ANY_VALUE.search(data, pos)
        if match is None:
            return len(data)
        self._step = JsonArrayFramer._before_array
        return match.start()

    def _before_element(self, data: bytes, pos: int, _elements: list[bytes]) -> int:
        pos = end_of_match(SPACE, data, pos)
        if pos == len(data):
            return pos
        if data[pos] in b'{["':
            return self._open(data, pos)
        if data[pos] == 0x5D:
            self._step = JsonArrayFramer._after_array
            return pos + 1
        if data[pos] in b",}":
            self.errors["json"] += 1
            return pos + 1
        self._step = JsonArrayFramer._in_scalar
        return pos

    def _open(self, data: bytes, pos: int) -> int:
        self._nesting.open(data[pos])
        self._capture(data[pos : pos + 1])
        self._step = JsonArrayFramer._in_element
        return pos + 1

    def _in_element(self, data: bytes, pos: int, elements: list[bytes]) -> int:
        end = self._nesting.close(data, pos)
        stop = len(data) if end < 0 else end
        self._capture(data[pos:stop])
        if end >= 0:
            if element := self._take():
                elements.append(element)
            self._step = JsonArrayFramer._after_array if self._single else JsonArrayFramer._after_element
        return stop

    def _in_scalar(self, data: bytes, pos: int, elements: list[bytes]) -> int:
        end = end_of_match(_SCALAR_BYTES, data, pos)
        self._capture(data[pos:end])
        if end < len(data):
            element = self._take()
            if SCALAR.fullmatch(element):
                elements.append(element)
            elif element:
                self.errors["json"] += 1
            self._step = JsonArrayFramer._after_element
        return end

    def _after_element(self, data: bytes, pos: int, _elements: list[bytes]) -> int:
        pos = end_of_match(SPACE, data, pos)
        if pos == len(data):
            return pos
        if data[pos] == 0x2C:
            self._step = JsonArrayFramer._before_element
        elif data[pos] == 0x5D:
            self._step = JsonArrayFramer._after_array
        else:
            self.errors["json"] += 1
            self._step = JsonArrayFramer._garbage_after_element
        return pos + 1

    def _garbage_after_element(self, data: bytes, pos: int, _elements: list[bytes]) -> int:
        match = _SEPARATOR.search(data, pos)
        if match is None:
            return len(data)
        self._step = JsonArrayFramer._after_element
        return match.start()

    def _after_array(self, data: bytes, pos: int, _elements: list[bytes]) -> int:
        if end_of_match(SPACE, data, pos) < len(data):
            self.errors["json"] += 1
            self._step = JsonArrayFramer._nothing_more
        return len(data)

    def _nothing_more(self, data: bytes, _pos: int, _elements: list[bytes]) -> int:
        return len(data)

    def _capture(self, part: bytes) -> None:
        if not self._dropping:
            self._captured += part
            if len(self._captured) > MAX_EVENT:
                self._captured = bytearray()
                self._dropping = True

    def _take(self) -> bytes:
        """The captured element, b"" when it was too long."""
        element = bytes(self._captured)
        self._captured.clear()
        if self._dropping:
            self._dropping = False
            self.errors["oversized"] += 1
        return element
