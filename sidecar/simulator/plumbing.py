"""Endpoints under `/x-sim/` that move bytes or tell about the simulator, with no API behind them."""

from __future__ import annotations

import asyncio
from random import Random
from time import monotonic, time

import msgspec

from sidecar.simulator.head import LAST_CHUNK, chunk, framing_of, head
from sidecar.simulator.request import Request
from sidecar.simulator.responder import Link, Responder, Setting
from sidecar.simulator.truths import Ending, Truth

BLOCK = 65536
MAX_BYTES = 1 << 40

_PATTERN = Random(1).randbytes(BLOCK)


def content(size: int, offset: int = 0) -> bytes:
    """The bytes that `/x-sim/bytes` sends from `offset` on: one pseudo-random block over and over."""
    start = offset % BLOCK
    return (_PATTERN * (-(-(start + size) // BLOCK)))[start : start + size]


class Pump(Responder):
    """The base of answers whose length is free: a head, then pieces in the framing that was asked for."""

    _framing = "length"

    def open(self, content_type: bytes, length: int | None) -> None:
        """Send the head; `length` None: not known beforehand."""
        request = self.request
        wished = request.knobs.framing or ("chunked" if length is None else "length")
        if wished == "length" and length is None:
            wished = "chunked"
        self._framing = framing_of(request, wished)
        first = head(
            200,
            time(),
            content_type,
            b"x-sim-id: %d\r\n" % self.truth.id,
            framing=self._framing,
            length=length,
            close=self._closes(),
        )
        self.truth.status, self.truth.head_at, self.truth.streamed = 200, monotonic(), True
        self.truth.sent_bytes += len(first)
        self.link.write(first)

    def pour(self, data: bytes) -> None:
        """Send a piece of the body."""
        wire = chunk(data) if self._framing == "chunked" else data
        self.truth.sent_bytes += len(wire)
        self.link.write(wire)

    def close_body(self) -> None:
        """The body is complete."""
        last = LAST_CHUNK if self._framing == "chunked" else b""
        self.truth.sent_bytes += len(last)
        self.link.write(last, lambda: self.link.finish(Ending.CLEAN, self._closes() or self._framing == "close"))

    def _closes(self) -> bool:
        return self.request.knobs.close or not self.request.keep_alive


class Echo(Pump):
    """Streams the request's body back while it comes; reads no faster than the client takes it."""

    def begin(self) -> None:
        kind = self.request.headers.get(b"content-type", b"application/octet-stream")
        chunked = b"transfer-encoding" in self.request.headers
        self.open(kind, None if chunked else self.request.content_length or 0)

    def body(self, data: bytes) -> None:
        super().body(data)
        self.pour(data)

    def end(self) -> None:
        super().end()
        self.close_body()

    def pause(self) -> None:
        self.link.pause_reading()

    def resume(self) -> None:
        self.link.resume_reading()


class Bytes(Pump):
    """Sends `n` bytes as fast as the client takes them."""

    def __init__(self, link: Link, request: Request, truth: Truth, setting: Setting, size: int) -> None:
        super().__init__(link, request, truth, setting)
        self._size, self._sent = size, 0
        self._paused = False
        self._handle: asyncio.Handle | None = None

    def end(self) -> None:
        super().end()
        self.open(b"application/octet-stream", self._size)
        if self.request.method == "HEAD":
            self.link.finish(Ending.CLEAN, self._closes())
        else:
            self._turn()

    def gone(self) -> None:
        self.pause()

    def pause(self) -> None:
        self._paused = True
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def resume(self) -> None:
        self._paused = False
        if self._handle is None:
            self._turn()

    def _turn(self) -> None:
        """A few blocks in each turn of the loop, so that the transport can say when it is full."""
        self._handle = None
        for _ in range(4):
            if self._paused:
                return
            size = min(BLOCK, self._size - self._sent)
            if not size:
                self._paused = True
                self.close_body()
                return
            self.pour(content(size, self._sent))
            self._sent += size
        self._handle = self.link.loop.call_soon(self._turn)


class Sink(Responder):
    """Swallows a body of any size and answers what it was."""

    def end(self) -> None:
        super().end()
        facts = {"bytes": self.truth.body_bytes, "sha256": self.truth.body_sha256}
        self.reply(200, b"application/json", msgspec.json.encode(facts))


class Truths(Responder):
    """Tells what the simulator really did; is itself no part of it."""

    def end(self) -> None:
        after = self.request.query.get("after", "0")
        facts = self.setting.ledger.as_dict(monotonic(), int(after) if after.isdigit() else 0)
        self.reply(200, b"application/json", msgspec.json.encode(facts))


class Certificate(Responder):
    """Hands out the certificate of the authority that vouches for the simulator."""

    def end(self) -> None:
        pem = self.setting.ca_pem.encode()
        self.reply(200 if pem else 404, b"application/x-pem-file", pem)
