"""Content codings that flush after every event, so that a compressed stream still comes event by event."""

from __future__ import annotations

import zlib
from typing import Protocol


class Encoder(Protocol):
    """A content coding at work."""

    def add(self, data: bytes) -> bytes:
        """Coded bytes from which all of `data` can be decoded at once."""

    def end(self) -> bytes:
        """What closes the coded body."""


class MissingCoding(ValueError):
    """The library for a coding is not installed."""


class _Zlib:
    def __init__(self, window: int) -> None:
        self._coder = zlib.compressobj(6, zlib.DEFLATED, window)

    def add(self, data: bytes) -> bytes:
        return self._coder.compress(data) + self._coder.flush(zlib.Z_SYNC_FLUSH)

    def end(self) -> bytes:
        return self._coder.flush(zlib.Z_FINISH)


class _Brotli:
    def __init__(self) -> None:
        import brotli  # noqa: PLC0415  (an extra, and only for the one who asks)

        self._coder = brotli.Compressor(quality=4)

    def add(self, data: bytes) -> bytes:
        return bytes(self._coder.process(data) + self._coder.flush())

    def end(self) -> bytes:
        return bytes(self._coder.finish())


class _Zstd:
    def __init__(self) -> None:
        import zstandard  # noqa: PLC0415  (an extra, and only for the one who asks)

        self._coder = zstandard.ZstdCompressor().compressobj()
        self._flush_block = zstandard.COMPRESSOBJ_FLUSH_BLOCK

    def add(self, data: bytes) -> bytes:
        return self._coder.compress(data) + self._coder.flush(self._flush_block)

    def end(self) -> bytes:
        return self._coder.flush()


def encoder(name: str) -> Encoder:
    """The coding `name`: gzip, deflate (RFC 1950 inside, as RFC 9110 §8.4.1.2 says), br or zstd."""
    try:
        match name:
            case "gzip":
                return _Zlib(31)
            case "deflate":
                return _Zlib(15)
            case "br":
                return _Brotli()
            case _:
                return _Zstd()
    except ImportError:
        raise MissingCoding(f"x-sim-encoding {name} needs the extra `codings` to be installed") from None
