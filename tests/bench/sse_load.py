"""Streams of 232-byte events at a steady pace; each event carries the instant it was written."""

from __future__ import annotations

import asyncio
import ssl
import time
from typing import cast

from tests.bench.load import TAIL, Ending, Figures, Sink, Target, measure, request_bytes
from tests.kit.events import DONE, FIN, LAST_CHUNK, USE, chunk, sse_head

EVENT_SIZE = 232
STAMP_SIZE = 19
STAMP_MARK = b'"content":"'
TICK = 0.001
"""Seconds between two looks at what is due: what uvloop's timers resolve."""

REQUEST = request_bytes(b'{"model":"gpt-4o-mini","stream":true,"messages":[{"role":"user","content":"hello"}]' + TAIL)


def _frame() -> tuple[bytes, bytes]:
    """A chunk with one event, as what stands before and after the stamp."""
    before = (
        b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"gpt-4o-mini",'
        b'"system_fingerprint":"fp_%b","choices":[{"index":0,"delta":{"content":"'
    )
    after = b'"},"finish_reason":null}]}\n\n'
    padding = EVENT_SIZE - STAMP_SIZE - len(before) + 2 - len(after)
    before = before.replace(b"%b", b"0" * padding)
    assert len(before) + STAMP_SIZE + len(after) == EVENT_SIZE
    return b"%x\r\n" % EVENT_SIZE + before, after + b"\r\n"


BEFORE, AFTER = _frame()
ENDING = chunk(FIN) + chunk(USE(10, 100)) + chunk(DONE) + LAST_CHUNK


class SseUpstream:
    """Writes events to all open streams in turn, `rate` per second to each, evenly spread over time."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._streams: list[asyncio.Transport] = []
        self._next = 0
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._last = 0.0

    async def serve(self, tls: ssl.SSLContext | None) -> asyncio.Server:
        """Listen on a free port and begin to tick."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _SseConnection(self), "127.0.0.1", 0, ssl=tls, backlog=1024)
        self._last = time.perf_counter()
        self._tick()
        return server

    def add(self, stream: asyncio.Transport) -> None:
        """Begin a stream."""
        stream.write(sse_head())
        self._streams.append(stream)

    def discard(self, stream: asyncio.Transport) -> None:
        """Forget a stream whose connection is gone."""
        if stream in self._streams:
            self._streams.remove(stream)

    def _tick(self) -> None:
        now = time.perf_counter()
        # After a pause of this process no flood follows: that would measure the flood.
        self._due += min(now - self._last, 0.02) * self._rate * len(self._streams)
        self._last = now
        while self._due >= 1.0 and self._streams:
            self._due -= 1.0
            self._next = (self._next + 1) % len(self._streams)
            self._streams[self._next].write(BEFORE + b"%019d" % time.perf_counter_ns() + AFTER)
        self._timer = asyncio.get_running_loop().call_later(TICK, self._tick)

    def end_streams(self) -> None:
        """End all streams as an API does."""
        for stream in self._streams:
            stream.write(ENDING)
        self._streams.clear()

    def stop(self) -> None:
        """Stop ticking."""
        if self._timer is not None:
            self._timer.cancel()


class _SseConnection(asyncio.Protocol):
    def __init__(self, upstream: SseUpstream) -> None:
        self._upstream = upstream
        self._ending = Ending(TAIL)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._ending.seen(data):
            self._upstream.add(self._transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._upstream.discard(self._transport)


class SseClient(asyncio.Protocol):
    """Reads one stream and takes the age of each event."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._note = sink.latencies.append
        self._kept = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(REQUEST)

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter_ns()
        data = self._kept + data
        position = 0
        while (mark := data.find(STAMP_MARK, position)) >= 0:
            start = mark + len(STAMP_MARK)
            stamp = data[start : start + STAMP_SIZE]
            if len(stamp) < STAMP_SIZE:
                position = mark
                break
            self._note((now - int(stamp)) / 1e9)
            position = start + STAMP_SIZE
        # A read may end inside a mark or a stamp.
        self._kept = data[max(position, len(data) - len(STAMP_MARK) - STAMP_SIZE) :]

    def connection_lost(self, exc: Exception | None) -> None:
        self._sink.errors += self._sink.running


async def run(upstream: SseUpstream, target: Target, *, streams: int, duration: float) -> Figures:
    """Open `streams` streams through `target` and measure for `duration` seconds."""
    sink = Sink()
    clients = [await target.connect(lambda: SseClient(sink)) for _ in range(streams)]
    figures = await measure(sink, target.pid, duration)
    sink.running = False
    upstream.end_streams()
    await asyncio.sleep(0.2)
    for client in clients:
        client.transport.abort()
    return figures
