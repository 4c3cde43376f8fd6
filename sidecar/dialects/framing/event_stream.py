"""The AWS event stream encoding, `application/vnd.amazon.eventstream` (Bedrock's streams).

A message is, big-endian: total length (4), headers length (4), CRC-32 of those eight bytes (4), headers, payload,
CRC-32 of all before it (4). A header is: length of its name (1), name, type (1), value.
"""

from __future__ import annotations

import struct
import zlib
from collections import Counter

from sidecar.dialects.framing import MAX_EVENT

Message = tuple[dict[str, str], bytes]
"""The headers that are text, by name, and the payload."""

_PRELUDE = struct.Struct(">III")
_OVERHEAD = _PRELUDE.size + 4
_STRING = 7
_FIXED_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""Header type → bytes of its value: true, false, byte, short, integer, long, timestamp, UUID."""
_SIZED_TYPES = (6, _STRING)
"""Bytes and string: a length of two bytes comes first."""


class EventStreamFramer:
    """Reads messages and checks both of their checksums.

    After a wrong checksum (`crc`) or impossible lengths (`frame`) nothing more is read: there is nothing in the bytes
    to find the next message by. Headers that break off (`frame`) cost only themselves.
    """

    __slots__ = ("_dead", "_need", "_partial", "_skip", "errors")

    def __init__(self) -> None:
        self.errors: Counter[str] = Counter()
        self._partial = bytearray()
        self._need = _PRELUDE.size
        """Bytes that must be there before anything can be decided about the message that is pending."""
        self._skip = 0
        self._dead = False

    def feed(self, data: bytes) -> list[Message]:
        """Take the next bytes; give the messages they completed."""
        if self._skip:
            skipped = min(self._skip, len(data))
            self._skip -= skipped
            data = data[skipped:]
        if self._dead or not data:
            return []
        if self._partial:
            self._partial += data
            if len(self._partial) < self._need:
                return []
            data = bytes(self._partial)
            self._partial.clear()
        messages: list[Message] = []
        used = self._read(data, messages)
        if not self._dead:
            self._partial += data[used:]
        return messages

    def finish(self) -> list[Message]:
        """No more bytes come; nothing is completed by that."""
        if self._partial or self._skip:
            self.errors["truncated"] += 1
            self._partial.clear()
        return []

    def _read(self, data: bytes, messages: list[Message]) -> int:
        """Append the whole messages in `data`; give the index after the last of them."""
        pos, size = 0, len(data)
        view = memoryview(data)
        while pos < size:
            self._need = _PRELUDE.size
            if size - pos < self._need:
                break
            total, headers_size, prelude_crc = _PRELUDE.unpack_from(data, pos)
            if zlib.crc32(view[pos : pos + 8]) != prelude_crc:
                return self._stop("crc")
            if total < _OVERHEAD + headers_size:
                return self._stop("frame")
            end = pos + total
            if total > MAX_EVENT:
                self.errors["oversized"] += 1
                self._skip = max(0, end - size)
                pos = min(end, size)
                continue
            if end > size:
                self._need = total
                break
            if zlib.crc32(view[pos : end - 4]) != int.from_bytes(view[end - 4 : end], "big"):
                return self._stop("crc")
            payload_at = pos + _PRELUDE.size + headers_size
            headers = self._headers(data[pos + _PRELUDE.size : payload_at])
            messages.append((headers, data[payload_at : end - 4]))
            pos = end
        return pos

    def _stop(self, reason: str) -> int:
        self.errors[reason] += 1
        self._dead = True
        return 0

    def _headers(self, raw: bytes) -> dict[str, str]:
        headers: dict[str, str] = {}
        pos, size = 0, len(raw)
        while pos < size:
            value_at = pos + 2 + raw[pos]
            if value_at > size:
                break
            kind = raw[value_at - 1]
            if kind in _SIZED_TYPES:
                end = value_at + 2 + int.from_bytes(raw[value_at : value_at + 2], "big")
                if kind == _STRING and end <= size:
                    name = raw[pos + 1 : value_at - 1].decode("utf-8", "replace")
                    headers[name] = raw[value_at + 2 : end].decode("utf-8", "replace")
            elif kind in _FIXED_SIZES:
                end = value_at + _FIXED_SIZES[kind]
            else:
                break
            pos = end
        if pos != size:
            self.errors["frame"] += 1
        return headers
