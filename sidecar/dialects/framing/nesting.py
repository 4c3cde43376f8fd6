"""Where a JSON string, array or object ends, when it comes in pieces. It counts brackets and checks nothing else.

A byte at a time would hold the event loop for milliseconds, so most bytes are passed in blocks: the strings are taken
out with bytes.split, the rest is reduced to its brackets, and if the depth cannot reach zero in the block, only its sum
is kept. Where it does reach zero the block is halved, and the last of it read from bracket to bracket. Blocks start
small and double, which keeps the cost of a value proportional to its own length, whatever follows it.
"""

from __future__ import annotations

import re
from itertools import accumulate

QUOTE = 0x22
SPACE = re.compile(rb"[ \t\r\n]*")
BEFORE_TEXT = re.compile(rb"[ \t\r\n\xef\xbb\xbf]*")
"""White space, and the byte order mark that some servers write."""
SCALAR = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null")
"""A number or a literal, to be matched as a whole."""

_OPENING, _CLOSING = b"{[", b"}]"
_TO_NEXT = re.compile(
    rb'[^"\\{}\[\]]*(?:(?:"[^"\\]*(?:\\.[^"\\]*)*"|\\.)[^"\\{}\[\]]*)*([{}\[\]"\\])?',
    re.DOTALL,
)
"""Passes over text, whole strings and voided bytes. The group is what comes then: a bracket, or the quote or backslash
with which a string or pair begins that does not end here. It is optional so that the pattern never searches ahead."""
_STRING_BODY = re.compile(rb'[^"\\]*(?:\\.[^"\\]*){0,1000}', re.DOTALL)
"""The repetition is bounded because the engine keeps a stack entry for each; the caller goes on where it stopped."""
_STEP_OF = bytes({0x7B: 1, 0x5B: 1, 0x7D: 0xFF, 0x5D: 0xFF}.get(byte, 0) for byte in range(256))
"""Translates brackets to the signed bytes +1 and -1."""
_NO_BRACKETS = bytes(byte for byte in range(256) if not _STEP_OF[byte])

_VOID_PAIRS = (b"\\\\", b'\\"', b"\\{", b"\\}", b"\\[", b"\\]")
"""Backslash pairs that would be misread when their second byte stood alone; that of backslashes must go first."""

_SHORT = 512
"""Bytes under which going from bracket to bracket is cheaper than a block."""
_BLOCK = 16 * 1024


def end_of_match(pattern: re.Pattern[bytes], data: bytes, pos: int) -> int:
    """Where a pattern that also matches nothing stops matching."""
    match = pattern.match(data, pos)
    return pos if match is None else match.end()


class Nesting:
    """Follows one value from its first byte to its last. A backslash voids the byte after it, in strings or not."""

    __slots__ = ("_depth", "_escaped", "_in_string")

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def open(self, first: int) -> None:
        """Start a value whose first byte was `first`: a quote or an opening bracket."""
        self._in_string = first == QUOTE
        self._depth = 0 if self._in_string else 1
        self._escaped = False

    def close(self, data: bytes, pos: int) -> int:
        """Go on at `pos`; give the index after the value's last byte, or -1 when it goes on beyond `data`."""
        if self._depth == 0:
            return self._string(data, pos, len(data))
        size = len(data)
        end = self._brackets(data, pos, min(pos + _SHORT, size))
        pos += _SHORT
        block = 2 * _SHORT
        halving = False
        while end < 0 and pos < size:
            stop = min(pos + block, size)
            if stop - pos <= _SHORT:
                end = self._brackets(data, pos, stop)
                pos = stop
            elif self._pass_over(data[pos:stop]):
                pos = stop
                if not halving:
                    block = min(2 * block, _BLOCK)
            else:
                halving = True
                block = (stop - pos) // 2
        return end

    def _string(self, data: bytes, pos: int, stop: int) -> int:
        """Pass over the rest of a string in data[pos:stop]; give the index after its closing quote, or -1."""
        if self._escaped and pos < stop:
            self._escaped = False
            pos += 1
        while pos < stop:
            pos = _STRING_BODY.match(data, pos, stop).end()  # type: ignore[union-attr]  # it also matches nothing
            if pos == stop:
                break
            if data[pos] == QUOTE:
                self._in_string = False
                return pos + 1
            if pos + 1 == stop:
                self._escaped = True
                break
        return -1

    def _brackets(self, data: bytes, pos: int, stop: int) -> int:
        """Read data[pos:stop], of at most _SHORT bytes; give the index after the end of the value, or -1."""
        if self._in_string:
            pos = self._string(data, pos, stop)
            if pos < 0:
                return -1
        elif self._escaped and pos < stop:
            self._escaped = False
            pos += 1
        for match in _TO_NEXT.finditer(data, pos, stop):
            if not match.lastindex:
                break
            pos = match.end()
            token = data[pos - 1]
            if token in _OPENING:
                self._depth += 1
            elif token in _CLOSING:
                self._depth -= 1
                if self._depth == 0:
                    return pos
            else:
                self._in_string = token == QUOTE
                self._escaped = not self._in_string
                return self._brackets(data, pos, stop)
        return -1

    def _pass_over(self, block: bytes) -> bool:
        """Take the block as a whole; False, and nothing is changed, when the value ends in it."""
        escaped = False
        if self._escaped:
            block = block[1:]
        if b"\\" in block:
            for pair in _VOID_PAIRS:
                block = block.replace(pair, b"")
            escaped = block.endswith(b"\\")
        parts = block.split(b'"')
        brackets = b"".join(parts[self._in_string :: 2]).translate(_STEP_OF, _NO_BRACKETS)
        if brackets:
            depths = memoryview(brackets).cast("b")
            if brackets.count(0xFF) >= self._depth and self._depth + min(accumulate(depths)) <= 0:
                return False
            self._depth += len(brackets) - 2 * brackets.count(0xFF)
        self._in_string ^= not len(parts) % 2
        self._escaped = escaped
        return True
