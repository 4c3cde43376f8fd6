"""WebSocket messages (RFC 6455), compressed ones too (permessage-deflate, RFC 7692), out of one direction's bytes."""

from __future__ import annotations

import zlib
from collections import Counter

from sidecar.dialects.framing import MAX_EVENT

_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PONG = 0x0, 0x1, 0x2, 0x8, 0xA
_FIN, _RSV1, _RSV2_RSV3, _OPCODE = 0x80, 0x40, 0x30, 0x0F
_MASKED, _LENGTH = 0x80, 0x7F
_SIZE_OF_LENGTH = {126: 2, 127: 8}
_TAIL = b"\x00\x00\xff\xff"
"""The end of a flushed deflate block, which the sender leaves off (RFC 7692 section 7.2.1)."""
_STEP = 64 * 1024
_MAX_EXPANSION = 64 * 1024 * 1024
"""Bytes that one message may become before decompression stops for good (`bomb`)."""


class WebSocketFramer:
    """Reads whole text and binary messages; control frames are passed over, nothing is read after a Close.

    `masked` says what the direction must be (client to server: True); None takes either. Frames are read by their own
    mask bit in any case; a wrong one is counted as `protocol`, once. `deflate`: permessage-deflate was agreed. The
    window is kept from message to message, which also reads senders that start anew each time. A message that is
    compressed though it must not be, or cannot be decompressed, is left out and counted as `coding`.
    """

    __slots__ = (
        "_compressed",
        "_dead",
        "_dropping",
        "_expanded",
        "_fin",
        "_head",
        "_inflater",
        "_key",
        "_left",
        "_masked",
        "_message",
        "_open",
        "_taking",
        "errors",
    )

    def __init__(self, masked: bool | None = None, deflate: bool = False) -> None:
        self.errors: Counter[str] = Counter()
        self._masked = masked
        self._inflater = zlib.decompressobj(-zlib.MAX_WBITS) if deflate else None
        self._dead = False
        self._head = bytearray()
        # The frame whose payload is read.
        self._fin = False
        self._left = 0
        self._key = b""
        """Turned so that its first byte belongs to the next byte of payload."""
        self._taking = False
        """The payload belongs to the open message."""
        # The message that is open.
        self._open = False
        self._compressed = False
        self._dropping = False
        self._expanded = 0
        self._message = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Take the next bytes; give the messages they completed, text as its UTF-8."""
        messages: list[bytes] = []
        pos, size = 0, len(data)
        while pos < size and not self._dead:
            if not self._left:
                pos = self._take_head(data, pos)
                if self._head:
                    continue
            else:
                end = min(size, pos + self._left)
                self._left -= end - pos
                if self._taking:
                    self._take_payload(data[pos:end])
                pos = end
            if not self._left and self._taking and self._fin:
                self._end_message(messages)
        return messages

    def finish(self) -> list[bytes]:
        """No more bytes come; nothing is completed by that."""
        if not self._dead and (self._head or self._left or self._open):
            self.errors["truncated"] += 1
        self._dead = True
        self._message.clear()
        return []

    def _take_head(self, data: bytes, pos: int) -> int:
        """Gather a frame's head; when it is whole, `_head` is empty again. Gives the index after it."""
        head = self._head
        while True:
            need = 2
            if len(head) >= need:
                need += _SIZE_OF_LENGTH.get(head[1] & _LENGTH, 0) + (4 if head[1] & _MASKED else 0)
                if len(head) == need:
                    self._start_frame(bytes(head))
                    head.clear()
                    return pos
            if pos == len(data):
                return pos
            part = data[pos : pos + need - len(head)]
            head += part
            pos += len(part)

    def _start_frame(self, head: bytes) -> None:
        opcode = head[0] & _OPCODE
        self._fin = bool(head[0] & _FIN)
        masked = bool(head[1] & _MASKED)
        self._key = head[-4:] if masked else b""
        short = head[1] & _LENGTH
        self._left = int.from_bytes(head[2 : 2 + _SIZE_OF_LENGTH[short]], "big") if short in _SIZE_OF_LENGTH else short
        if self._masked is not None and masked != self._masked:
            self._masked = None
            self.errors["protocol"] += 1
        self._taking = False
        if opcode == _CLOSE:
            self._dead = True
        elif self._left >> 63:
            self._dead = True
            self.errors["protocol"] += 1
        elif opcode in (_TEXT, _BINARY):
            self._start_message(head[0])
        elif opcode == _CONTINUATION and self._open:
            self._taking = True
        elif not _CLOSE <= opcode <= _PONG:
            self.errors["protocol"] += 1

    def _start_message(self, first_byte: int) -> None:
        if self._open:
            self.errors["protocol"] += 1
        self._message = bytearray()
        self._expanded = 0
        self._open = self._taking = True
        self._compressed = bool(first_byte & _RSV1)
        self._dropping = False
        if first_byte & _RSV2_RSV3:
            self._drop("protocol")
        elif self._compressed and self._inflater is None:
            self._drop("coding")

    def _take_payload(self, part: bytes) -> None:
        if self._key:
            part = _unmasked(part, self._key)
            turn = len(part) % 4
            self._key = self._key[turn:] + self._key[:turn]
        if self._compressed:
            self._inflate(part)
        else:
            self._keep(part)

    def _keep(self, part: bytes) -> None:
        if not self._dropping:
            self._message += part
            if len(self._message) > MAX_EVENT:
                self._drop("oversized")

    def _inflate(self, part: bytes) -> None:
        """Expand step by step. A message that is dropped is expanded too: those after it refer to its bytes."""
        while self._inflater is not None:
            try:
                plain = self._inflater.decompress(part, _STEP)
            except zlib.error:
                self._stop_inflating("coding")
                return
            self._keep(plain)
            self._expanded += len(plain)
            if self._expanded > _MAX_EXPANSION:
                self._stop_inflating("bomb")
                return
            part = self._inflater.unconsumed_tail
            if self._inflater.eof:
                part = self._inflater.unused_data
                self._inflater = zlib.decompressobj(-zlib.MAX_WBITS)
            if not part and len(plain) < _STEP:
                return

    def _stop_inflating(self, reason: str) -> None:
        self._inflater = None
        self._drop(reason)

    def _drop(self, reason: str) -> None:
        if not self._dropping:
            self.errors[reason] += 1
        self._dropping = True
        self._message = bytearray()

    def _end_message(self, messages: list[bytes]) -> None:
        if self._compressed:
            self._inflate(_TAIL)
        if not self._dropping:
            messages.append(bytes(self._message))
        self._message = bytearray()
        self._open = self._taking = False


def _unmasked(part: bytes, key: bytes) -> bytes:
    """XOR with the repeated key, as one large number: no loop over the bytes."""
    size = len(part)
    mask = (key * (size // 4 + 1))[:size]
    return (int.from_bytes(part, "little") ^ int.from_bytes(mask, "little")).to_bytes(size, "little")
