"""Content codings (RFC 9110 section 8.4.1) of the copy, undone step by step. No I/O, no exceptions.

The bytes that go to the application are never touched: an answer that cannot be decoded is only not understood.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Protocol

_STEP = 256 * 1024
"""Bytes that one step of a decompressor gives at most, where the decompressor can be bounded."""
_ZSTD_INPUT = 256
"""Bytes given to zstd at once. It cannot be bounded otherwise: four bytes of input may be a block of 128 KiB."""
_ZSTD_WINDOW = 8 * 1024 * 1024
"""What a sender may use at most (RFC 9659 section 3), and so the memory of one decoder."""
_MAX_CODINGS = 4

BOMB_BYTES = 64 * 1024 * 1024
BOMB_CALL_BYTES = 16 * 1024 * 1024
BOMB_RATIO = 200
"""Decoding stops when a body became more than BOMB_BYTES, or by one call more than BOMB_CALL_BYTES, and that is more
than BOMB_RATIO times what was on the wire."""


class _BrokenError(Exception):
    """The bytes are not of the coding they are said to be of."""


class _Stage(Protocol):
    """Undoes one coding."""

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """What these bytes become, in pieces of bounded size; _BrokenError when they are not of this coding."""

    @property
    def unfinished(self) -> bool:
        """The bytes so far end within the coding."""


class Decoder:
    """Undoes the codings of one body. Keep one for the whole body: its parts cannot be decoded on their own.

    `errors` counts, each at most once: `coding` (unknown, its package not installed, or broken data), `bomb`,
    `truncated` (the body ended within the coding). After the first two nothing more is decoded.
    """

    __slots__ = ("_called_with", "_made", "_made_before_call", "_stages", "_taken", "errors")

    def __init__(self, stages: list[_Stage] | None) -> None:
        """`stages` in the order in which they are undone; None: they cannot be."""
        self.errors: Counter[str] = Counter()
        self._stages = stages
        self._taken = 0
        self._called_with = 0
        self._made = [0] * len(stages or ())
        """Bytes that each stage gave."""
        self._made_before_call = list(self._made)
        if stages is None:
            self.errors["coding"] += 1

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes of the body; give what can be decoded now."""
        return b"".join(self.pieces(data))

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """As `feed`, in pieces of at most 256 KiB (zstd: a few MiB at worst), so that no large copy need be held."""
        if self._stages is None:
            return
        self._taken += len(data)
        self._called_with = len(data)
        self._made_before_call = list(self._made)
        try:
            yield from self._through(0, data)
        except _BrokenError:
            self._give_up("coding")

    def finish(self) -> bytes:
        """No more bytes come. Everything was given before, so that this is b""; see `errors`."""
        if self._taken and any(stage.unfinished for stage in self._stages or ()):
            self.errors["truncated"] += 1
        self._stages = None
        return b""

    def _through(self, index: int, data: bytes) -> Iterator[bytes]:
        """Lead bytes through the stages from `index` on."""
        stages = self._stages
        if stages is None or index == len(stages):
            if data:
                yield data
            return
        for piece in stages[index].pieces(data):
            self._made[index] += len(piece)
            if self._expands_too_much(index):
                self._give_up("bomb")
                return
            yield from self._through(index + 1, piece)
            if self._stages is None:
                return

    def _expands_too_much(self, index: int) -> bool:
        made = self._made[index]
        if made > BOMB_BYTES and made > BOMB_RATIO * self._taken:
            return True
        in_call = made - self._made_before_call[index]
        return in_call > BOMB_CALL_BYTES and in_call > BOMB_RATIO * self._called_with

    def _give_up(self, reason: str) -> None:
        if self._stages is not None:
            self._stages = None
            self.errors[reason] += 1


def open_decoder(content_encoding: bytes | str | None) -> Decoder | None:
    """A decoder for the value of Content-Encoding (several fields joined by commas); None when nothing is to be undone.

    Knows gzip, x-gzip, deflate (in its zlib wrapping and bare), br and zstd, of which the last two need their packages.
    """
    if not content_encoding:
        return None
    if isinstance(content_encoding, bytes):
        content_encoding = content_encoding.decode("latin-1")
    names = [name.strip().lower() for name in content_encoding.split(",")]
    names = [name for name in names if name not in ("", "identity")]
    if not names:
        return None
    if len(names) > _MAX_CODINGS or any(name not in _STAGES for name in names):
        return Decoder(None)
    try:
        return Decoder([_STAGES[name]() for name in reversed(names)])
    except ImportError:
        return Decoder(None)


def _inflated(inflater: zlib._Decompress, data: bytes) -> Iterator[bytes]:
    """Expand until all of `data` is used or the stream has ended."""
    while True:
        try:
            piece = inflater.decompress(data, _STEP)
        except zlib.error as error:
            raise _BrokenError from error
        if piece:
            yield piece
        data = inflater.unconsumed_tail
        if inflater.eof or (not data and len(piece) < _STEP):
            return


class _Gzip:
    """One or more members; zero padding and other bytes after them are passed over, as gzip does."""

    def __init__(self) -> None:
        self._inflater = zlib.decompressobj(16 + zlib.MAX_WBITS)
        self._between = b""
        """The first byte of what may be another member."""
        self._ended = False

    def pieces(self, data: bytes) -> Iterator[bytes]:
        while data and not self._ended:
            if self._inflater.eof:
                data = (self._between + data).lstrip(b"\0")
                self._between = b""
                if data == b"\x1f":
                    self._between = data
                    return
                if not data.startswith(b"\x1f\x8b"):
                    self._ended = bool(data)
                    return
                self._inflater = zlib.decompressobj(16 + zlib.MAX_WBITS)
            yield from _inflated(self._inflater, data)
            data = self._inflater.unused_data

    @property
    def unfinished(self) -> bool:
        return not self._inflater.eof


class _Deflate:
    """RFC 9110 means the zlib format (RFC 1950); some servers send bare deflate (RFC 1951). The first bytes tell."""

    def __init__(self) -> None:
        self._inflater: zlib._Decompress | None = None
        self._head = b""

    def pieces(self, data: bytes) -> Iterator[bytes]:
        if self._inflater is None:
            data = self._head = self._head + data
            if len(data) < 2:
                return
            wrapped = data[0] & 0x0F == zlib.DEFLATED and int.from_bytes(data[:2], "big") % 31 == 0
            self._inflater = zlib.decompressobj(zlib.MAX_WBITS if wrapped else -zlib.MAX_WBITS)
            self._head = b""
        if not self._inflater.eof:
            yield from _inflated(self._inflater, data)

    @property
    def unfinished(self) -> bool:
        return self._inflater is None or not self._inflater.eof


class _Brotli:
    """RFC 7932, by the package brotli. Before its version 1.2 the output of a step cannot be bounded."""

    def __init__(self) -> None:
        import brotli  # noqa: PLC0415

        self._error: type[Exception] = brotli.error
        self._decompressor: Any = brotli.Decompressor()
        self._bounded = hasattr(self._decompressor, "can_accept_more_data")

    def pieces(self, data: bytes) -> Iterator[bytes]:
        if self._decompressor.is_finished():
            return
        try:
            if not self._bounded:
                yield self._decompressor.process(data)
                return
            while True:
                piece = self._decompressor.process(data, output_buffer_limit=_STEP)
                yield piece
                data = b""
                if self._decompressor.is_finished() or (
                    len(piece) < _STEP and self._decompressor.can_accept_more_data()
                ):
                    return
        except self._error as error:
            raise _BrokenError from error

    @property
    def unfinished(self) -> bool:
        return not self._decompressor.is_finished()


class _Zstd:
    """One or more frames (RFC 8878), by the package zstandard."""

    def __init__(self) -> None:
        import zstandard  # noqa: PLC0415

        self._error: type[Exception] = zstandard.ZstdError
        self._context = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
        self._frame = self._context.decompressobj()
        self._between_frames = True

    def pieces(self, data: bytes) -> Iterator[bytes]:
        for start in range(0, len(data), _ZSTD_INPUT):
            part = data[start : start + _ZSTD_INPUT]
            while part:
                if self._frame.eof:
                    self._frame = self._context.decompressobj()
                try:
                    piece = self._frame.decompress(part)
                except self._error as error:
                    raise _BrokenError from error
                if piece:
                    yield piece
                part = self._frame.unused_data if self._frame.eof else b""

    @property
    def unfinished(self) -> bool:
        return not self._frame.eof


_STAGES: dict[str, Callable[[], _Stage]] = {
    "gzip": _Gzip,
    "x-gzip": _Gzip,
    "deflate": _Deflate,
    "br": _Brotli,
    "zstd": _Zstd,
}
