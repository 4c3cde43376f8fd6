"""One TCP or TLS connection under a test's control: what both the client and the scripted upstream are made of."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import cast

PATIENCE = 10.0
"""Seconds after which a wait of the kit fails its test: far beyond what anything here takes."""


class Ended(StrEnum):
    """How a connection ended."""

    EOF = "eof"
    RST = "rst"
    LOCAL = "local"
    """Not the peer: this side closed it."""


class ConnectionEnded(Exception):
    """The peer ended the connection while the test waited for bytes."""


@dataclass(frozen=True, slots=True)
class End:
    """When (monotonic seconds) and how a connection ended."""

    at: float
    how: Ended


class Wire(asyncio.Protocol):
    """Sends exact bytes, and logs (monotonic seconds, bytes) of every read.

    `buffer` holds what was received and not yet taken by a parser on top; `log` keeps everything.
    """

    def __init__(self) -> None:
        self.log: list[tuple[float, bytes]] = []
        self.buffer = bytearray()
        self.end: End | None = None
        self.written = 0
        """Bytes given to `send`; `accepted` tells how many of them the kernel has taken."""
        self._transport: asyncio.Transport | None = None
        self._changed = asyncio.Event()
        self._lost = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()

    @property
    def transport(self) -> asyncio.Transport:
        """The transport; the connection must have been made."""
        assert self._transport is not None
        return self._transport

    @transport.setter
    def transport(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        # Anything above 0 would let `send` return before the peer's kernel took the bytes. Over TLS an empty buffer
        # reaches a mark of 0 as well: every other write would wait for ever.
        transport.set_write_buffer_limits(high=0 if transport.get_extra_info("ssl_object") is None else 1, low=0)

    @property
    def received(self) -> bytes:
        """Everything that came so far."""
        return b"".join(data for _, data in self.log)

    @property
    def accepted(self) -> int:
        """Bytes that have left this process."""
        return self.written - (0 if self._lost.is_set() else self.transport.get_write_buffer_size())

    @property
    def closed(self) -> bool:
        """The connection is gone on this side too."""
        return self._lost.is_set()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.log.append((time.monotonic(), data))
        self.buffer += data
        self._changed.set()

    def eof_received(self) -> bool:
        self._note_end(Ended.EOF)
        # A half-closed peer may still read. TLS has no half-close here.
        return self.transport.get_extra_info("ssl_object") is None

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None or self.end is None:
            self._note_end(Ended.RST if isinstance(exc, OSError) else Ended.LOCAL)
        self._lost.set()
        self._writable.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _note_end(self, how: Ended) -> None:
        if self.end is None or how is Ended.RST:
            self.end = End(time.monotonic(), how)
        self._changed.set()

    # What tests call.

    async def send(self, data: bytes) -> None:
        """Write exactly these bytes, and wait until the kernel has taken them."""
        if self.closed:
            raise ConnectionEnded("the connection is closed")
        self.written += len(data)
        self.transport.write(data)
        await self._writable.wait()

    async def until(self, condition: Callable[[], bool], timeout: float = PATIENCE) -> None:
        """Wait until `condition` holds, looking again at every read. Raises ConnectionEnded when it never will."""
        async with asyncio.timeout(timeout):
            while not condition():
                if self.end is not None:
                    raise ConnectionEnded(f"{self.end.how} after {len(self.received)} bytes")
                self._changed.clear()
                await self._changed.wait()

    async def arrival(self, needle: bytes, timeout: float = PATIENCE) -> float:
        """The instant of the read that completed the first `needle` ever received, waiting for it."""
        await self.until(lambda: needle in self.received, timeout)
        end = self.received.index(needle) + len(needle)
        for at, data in self.log:
            end -= len(data)
            if end <= 0:
                return at
        raise AssertionError("unreachable: the needle was found")

    async def wait_closed(self, timeout: float = PATIENCE) -> End:
        """Wait until the peer has ended the connection. When it sent EOF and then RST, the RST is told if it came."""
        async with asyncio.timeout(timeout):
            while self.end is None:
                self._changed.clear()
                await self._changed.wait()
        return self.end

    def pause_reading(self) -> None:
        """Stop reading: the kernel's buffers fill and the peer stalls."""
        self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Read on."""
        self.transport.resume_reading()

    def fin(self) -> None:
        """Close after what was sent; over TLS with close_notify."""
        if not self.closed:
            self.transport.close()

    def half_close(self) -> None:
        """Send FIN, and go on reading (plain TCP only)."""
        self.transport.write_eof()

    def rst(self) -> None:
        """Reset the connection: SO_LINGER with a time of 0, then close."""
        if not self.closed:
            raw = self.transport.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.transport.abort()

    async def close(self) -> None:
        """Close at once and wait until the transport is gone."""
        if self._transport is not None and not self.closed:
            self.transport.abort()
            await asyncio.wait_for(self._lost.wait(), PATIENCE)
