"""Finds a few members of one large JSON object without keeping or decoding the rest.

Answers with images or embeddings are tens of megabytes, of which the model's name and the usage are wanted.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from functools import lru_cache

from sidecar.dialects.framing.nesting import BEFORE_TEXT, QUOTE, SCALAR, SPACE, Nesting, end_of_match

MAX_VALUE = 64 * 1024
"""Bytes of one wanted value that are kept at most."""

_KEY = re.compile(rb'"([^"\\]*)"[ \t\r\n]*:[ \t\r\n]*')
_SCALAR_BYTES = re.compile(rb"[^ \t\r\n,}\]]*")
_ESCAPED_LENGTH = 6
"""Bytes of an escape such as \\u0041, which may stand for one byte of a key."""


class MemberScanner:
    """Takes the bytes of one object in any split and keeps the raw text of the wanted members of its top level.

    `found` holds key → JSON text of whole values only; of equal keys the last one counts, as with json.loads. Keys are
    compared unescaped, as UTF-8. A value longer than `max_value` is left out and its key put in `too_long`. White space
    before the object is allowed. `done` is true once the object has ended. Text that is no JSON object is counted as
    `json` in `errors`, once, and nothing is read after it; nested values are not checked.
    """

    __slots__ = (
        "_captured",
        "_key",
        "_key_limit",
        "_limit",
        "_max_value",
        "_nesting",
        "_step",
        "_unwanted",
        "_wanted",
        "bytes_seen",
        "done",
        "errors",
        "found",
        "too_long",
    )

    def __init__(self, wanted: frozenset[bytes], max_value: int = MAX_VALUE) -> None:
        self.found: dict[bytes, bytes] = {}
        self.too_long: set[bytes] = set()
        self.errors: Counter[str] = Counter()
        self.done = False
        self.bytes_seen = 0
        self._wanted = wanted
        self._max_value = max_value
        self._key_limit = 2 + _ESCAPED_LENGTH * max(map(len, wanted), default=0)
        self._unwanted = _unwanted_members(wanted)
        self._nesting = Nesting()
        self._key: bytes | None = None
        """The wanted key whose value is read; None: the value is not kept."""
        self._captured = bytearray()
        self._limit = 0
        self._step: Callable[[MemberScanner, bytes, int], int] = MemberScanner._before_object

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        size = len(data)
        self.bytes_seen += size
        pos = 0
        while pos < size:
            pos = self._step(self, data, pos)

    # Each step reads at `pos` and gives the index where the next step goes on.

    def _before_object(self, data: bytes, pos: int) -> int:
        pos = end_of_match(BEFORE_TEXT, data, pos)
        if pos < len(data):
            if data[pos] != 0x7B:
                return self._give_up(data)
            self._step = MemberScanner._before_key
            pos += 1
        return pos

    def _before_key(self, data: bytes, pos: int) -> int:
        pos = end_of_match(self._unwanted, data, pos)
        pos = end_of_match(SPACE, data, pos)
        if pos == len(data):
            return pos
        if match := _KEY.match(data, pos):
            self._read_value_of(match[1])
            return match.end()
        if data[pos] == QUOTE:
            self._nesting.open(QUOTE)
            self._captured.clear()
            self._captured.append(QUOTE)
            self._limit = self._key_limit
            self._step = MemberScanner._in_key
            return pos + 1
        return self._end_object(data, pos)

    def _in_key(self, data: bytes, pos: int) -> int:
        end = self._nesting.close(data, pos)
        self._capture(data[pos:end] if end >= 0 else data[pos:])
        if end < 0:
            return len(data)
        self._read_value_of(_unescaped(bytes(self._captured)) if len(self._captured) <= self._limit else None)
        self._step = MemberScanner._before_colon
        return end

    def _before_colon(self, data: bytes, pos: int) -> int:
        pos = end_of_match(SPACE, data, pos)
        if pos < len(data):
            if data[pos] != 0x3A:
                return self._give_up(data)
            self._step = MemberScanner._before_value
            pos += 1
        return pos

    def _before_value(self, data: bytes, pos: int) -> int:
        pos = end_of_match(SPACE, data, pos)
        if pos == len(data):
            return pos
        if data[pos] in b'"{[':
            self._nesting.open(data[pos])
            self._capture(data[pos : pos + 1])
            self._step = MemberScanner._in_value
            return pos + 1
        if data[pos] in b",}]:":
            return self._give_up(data)
        self._step = MemberScanner._in_scalar
        return pos

    def _in_value(self, data: bytes, pos: int) -> int:
        end = self._nesting.close(data, pos)
        stop = len(data) if end < 0 else end
        if self._key is not None:
            self._capture(data[pos:stop])
        if end >= 0:
            self._end_value()
        return stop

    def _in_scalar(self, data: bytes, pos: int) -> int:
        end = end_of_match(_SCALAR_BYTES, data, pos)
        self._capture(data[pos:end])
        if end < len(data):
            if self._key is not None and not SCALAR.fullmatch(self._captured) and len(self._captured) <= self._limit:
                return self._give_up(data)
            self._end_value()
        return end

    def _after_value(self, data: bytes, pos: int) -> int:
        pos = end_of_match(SPACE, data, pos)
        if pos == len(data):
            return pos
        if data[pos] == 0x2C:
            self._step = MemberScanner._before_key
            return pos + 1
        return self._end_object(data, pos)

    def _after_object(self, data: bytes, pos: int) -> int:
        pos = end_of_match(SPACE, data, pos)
        return pos if pos == len(data) else self._give_up(data)

    def _nothing_more(self, data: bytes, _pos: int) -> int:
        return len(data)

    def _read_value_of(self, key: bytes | None) -> None:
        self._key = key if key in self._wanted else None
        self._captured.clear()
        self._limit = -1 if self._key is None else self._max_value
        self._step = MemberScanner._before_value

    def _capture(self, part: bytes) -> None:
        room = self._limit + 1 - len(self._captured)
        if room > 0:
            self._captured += part[:room]

    def _end_value(self) -> None:
        key, self._key = self._key, None
        if key is not None:
            self.found.pop(key, None)
            self.too_long.discard(key)
            if len(self._captured) > self._limit:
                self.too_long.add(key)
            else:
                self.found[key] = bytes(self._captured)
        self._step = MemberScanner._after_value

    def _end_object(self, data: bytes, pos: int) -> int:
        if data[pos] != 0x7D:
            return self._give_up(data)
        self.done = True
        self._step = MemberScanner._after_object
        return pos + 1

    def _give_up(self, data: bytes) -> int:
        self.errors["json"] += 1
        self._step = MemberScanner._nothing_more
        return len(data)


def members(found: dict[bytes, bytes]) -> bytes:
    """A JSON object of what a scanner found, for the decoder that reads the small documents too."""
    pairs = (json.dumps(key.decode("utf-8", "replace")).encode() + b":" + value for key, value in found.items())
    return b"{" + b",".join(pairs) + b"}"


@lru_cache(maxsize=32)
def _unwanted_members(wanted: frozenset[bytes]) -> re.Pattern[bytes]:
    """Passes over whole members that are not wanted and hold a plain string, a scalar or a small flat container.

    Dense objects of such members would else cost four steps each. The repetition is bounded for the engine's stack.
    """
    names = b"|".join(map(re.escape, sorted(wanted)))
    not_wanted = rb'(?!(?:%b)")' % names if names else b""
    space = rb"[ \t\r\n]*"
    flat = rb'[\[{](?:[^\[\]{}"\\]|"[^"\\]*"){0,50}[\]}]'
    value = rb'(?:"[^"\\]*"|[^ \t\r\n",:{}\[\]]+|%b)' % flat
    return re.compile(rb'(?:%b"%b[^"\\]*"%b:%b%b%b,){0,1000}' % (space, not_wanted, space, space, value, space))


def _unescaped(key: bytes) -> bytes | None:
    """The UTF-8 of a quoted key; None for what is no JSON string."""
    try:
        text: str = json.loads(key)
        return text.encode()
    except ValueError:
        return None
