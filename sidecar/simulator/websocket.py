"""The server's side of RFC 6455, as far as the realtime API needs it: text in, text out, ping and close."""

from __future__ import annotations

import base64
import hashlib
import struct
from dataclasses import dataclass, field

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

TEXT, BINARY, CLOSE, PING, PONG = 0x1, 0x2, 0x8, 0x9, 0xA

MAX_MESSAGE = 16 * 1024 * 1024


class ProtocolError(Exception):
    """The client broke the protocol; `code` is the close code that says how (RFC 6455 §7.4.1)."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def accept_key(key: bytes) -> bytes:
    """The value of Sec-WebSocket-Accept for a client's key (RFC 6455 §4.2.2)."""
    return base64.b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest())


def frame(opcode: int, payload: bytes) -> bytes:
    """One unmasked frame, as servers send them."""
    size = len(payload)
    if size < 126:
        return bytes((0x80 | opcode, size)) + payload
    if size < 65536:
        return struct.pack("!BBH", 0x80 | opcode, 126, size) + payload
    return struct.pack("!BBQ", 0x80 | opcode, 127, size) + payload


@dataclass(slots=True)
class Frames:
    """Takes a client's bytes in any split and gives whole messages, fragments put together (RFC 6455 §5.4)."""

    _buffer: bytearray = field(default_factory=bytearray)
    _message: bytearray = field(default_factory=bytearray)
    _opcode: int = 0

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """(opcode, payload) of the messages and control frames that are complete now. Raises ProtocolError."""
        self._buffer += data
        out = []
        while (taken := self._take()) is not None:
            final, opcode, payload = taken
            if opcode >= CLOSE:
                out.append((opcode, payload))
                continue
            if opcode:
                self._opcode = opcode
            self._message += payload
            if len(self._message) > MAX_MESSAGE:
                raise ProtocolError(1009, "the message is too big")
            if final:
                out.append((self._opcode, bytes(self._message)))
                self._message.clear()
        return out

    def _take(self) -> tuple[bool, int, bytes] | None:
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        if not buffer[1] & 0x80:
            raise ProtocolError(1002, "a client's frames must be masked")
        size, at = buffer[1] & 0x7F, 2
        if size >= 126:
            width = 2 if size == 126 else 8
            if len(buffer) < at + width:
                return None
            size, at = int.from_bytes(buffer[at : at + width], "big"), at + width
        if size > MAX_MESSAGE:
            raise ProtocolError(1009, "the frame is too big")
        if len(buffer) < at + 4 + size:
            return None
        mask, masked = buffer[at : at + 4], buffer[at + 4 : at + 4 + size]
        first = buffer[0]
        del buffer[: at + 4 + size]
        return bool(first & 0x80), first & 0x0F, _unmask(masked, mask)


def _unmask(data: bytearray, mask: bytearray) -> bytes:
    """RFC 6455 §5.3, all bytes at once as one big number."""
    size = len(data)
    key = bytes(mask) * (size // 4 + 1)
    return (int.from_bytes(data, "big") ^ int.from_bytes(key[:size], "big")).to_bytes(size, "big")
