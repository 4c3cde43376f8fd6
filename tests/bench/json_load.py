"""JSON requests of 1 KB answered with 1.6 KB, as fast as they go on a number of kept connections."""

from __future__ import annotations

import asyncio
import ssl
import time
from typing import cast

from tests.bench.load import TAIL, Ending, Figures, Sink, Target, measure, request_bytes
from tests.kit.events import json_response


def _request() -> bytes:
    start = b'{"model":"gpt-4o-mini","temperature":0.7,"messages":[{"role":"user","content":"'
    end = b'"}]' + TAIL
    return request_bytes(start + b"x" * (1024 - len(start) - len(end)) + end)


def _response() -> bytes:
    start = (
        b'{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"gpt-4o-mini",'
        b'"choices":[{"index":0,"message":{"role":"assistant","content":"'
    )
    end = (
        b'"},"logprobs":null,"finish_reason":"stop"}],'
        b'"usage":{"prompt_tokens":120,"completion_tokens":250,"total_tokens":370}' + TAIL
    )
    return json_response(start + b"y" * (1638 - len(start) - len(end)) + end)


REQUEST = _request()
RESPONSE = _response()
RESPONSE_BODY = RESPONSE.partition(b"\r\n\r\n")[2]


class JsonUpstream(asyncio.Protocol):
    """Answers each request at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._write = cast(asyncio.Transport, transport).write
        self._ending = Ending(TAIL)

    def data_received(self, data: bytes) -> None:
        if self._ending.seen(data):
            self._write(RESPONSE)


class JsonClient(asyncio.Protocol):
    """Sends the next request when the answer to the last is complete."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._note = sink.latencies.append
        self._ending = Ending(TAIL)
        self._first = bytearray()
        self._checked = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._send()

    def _send(self) -> None:
        self._sent = time.perf_counter()
        self.transport.write(REQUEST)

    def data_received(self, data: bytes) -> None:
        if not self._checked:
            self._first += data
        if self._ending.seen(data):
            self._note(time.perf_counter() - self._sent)
            if not self._checked:
                self._check(bytes(self._first))
            if self._sink.running:
                self._send()

    def _check(self, answer: bytes) -> None:
        self._checked = True
        if not answer.startswith(b"HTTP/1.1 200 ") or not answer.endswith(b"\r\n\r\n" + RESPONSE_BODY):
            self._sink.errors += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self._sink.errors += self._sink.running


async def serve(tls: ssl.SSLContext | None) -> asyncio.Server:
    """The upstream, on a free port."""
    return await asyncio.get_running_loop().create_server(JsonUpstream, "127.0.0.1", 0, ssl=tls, backlog=1024)


async def run(target: Target, *, connections: int, duration: float) -> Figures:
    """Load `target` on `connections` connections and measure for `duration` seconds."""
    sink = Sink()
    clients = [await target.connect(lambda: JsonClient(sink)) for _ in range(connections)]
    figures = await measure(sink, target.pid, duration)
    sink.running = False
    await asyncio.sleep(0.1)
    for client in clients:
        client.transport.abort()
    return figures
