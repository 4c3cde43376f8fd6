"""A simulator on a real socket, and a client that shows every byte and when it came."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import httptools
import pytest

from sidecar.config.model import Address
from sidecar.simulator.server import Simulator


@dataclass
class Answer:
    """A response as it came: raw bytes with their instants, and what a parser makes of them."""

    sent_at: float
    reads: list[tuple[float, bytes]] = field(default_factory=list)
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    body_reads: list[tuple[float, bytes]] = field(default_factory=list)
    complete: bool = False
    error: Exception | None = None
    in_body: bool = False

    @property
    def raw(self) -> bytes:
        return b"".join(data for _, data in self.reads)

    @property
    def id(self) -> int:
        return int(self.headers["x-sim-id"])

    def json(self) -> Any:
        return json.loads(self.body)

    def events(self) -> list[Any]:
        """The data of the SSE events, [DONE] as it is."""
        blocks = self.body.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n\n")
        lines = [line[5:].strip() for block in blocks for line in block.split(b"\n") if line.startswith(b"data:")]
        return [line.decode() if line == b"[DONE]" else json.loads(line) for line in lines]

    # httptools calls these.
    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode().lower()] = value.decode()

    def on_headers_complete(self) -> None:
        self.in_body = True

    def on_body(self, data: bytes) -> None:
        self.body += data
        self.body_reads.append((monotonic(), data))

    def on_message_complete(self) -> None:
        self.complete = True


Ask = Callable[..., Awaitable[Answer]]


@pytest.fixture
async def simulator() -> AsyncIterator[Simulator]:
    simulator = Simulator(ttft=0.02, itl=0.002, tokens=5)
    simulator.address = await simulator.start()  # type: ignore[attr-defined]
    yield simulator
    await simulator.stop()


@pytest.fixture
def address(simulator: Simulator) -> Address:
    return simulator.address  # type: ignore[attr-defined,no-any-return]


def request_bytes(method: str, target: str, body: bytes, headers: dict[str, str]) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", "host: sim", f"content-length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


class Reader(asyncio.Protocol):
    """Parses an answer as it comes. A StreamReader would throw away what came just before a reset."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.ended = asyncio.get_running_loop().create_future()
        self._parser = httptools.HttpResponseParser(answer)

    def data_received(self, data: bytes) -> None:
        answer = self.answer
        answer.reads.append((monotonic(), data))
        self._parser.feed_data(data)
        answer.status = self._parser.get_status_code()
        if answer.complete and not self.ended.done():
            self.ended.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.answer.error = exc
        if not self.ended.done():
            self.ended.set_result(None)


@pytest.fixture
def ask(address: Address) -> Ask:
    async def ask(
        target: str = "/v1/chat/completions", body: Any = None, *, method: str = "POST", **headers: object
    ) -> Answer:
        data = body if isinstance(body, bytes) else json.dumps(body or {}).encode() if method == "POST" else b""
        named = {name.replace("_", "-"): str(value) for name, value in headers.items()}
        answer = Answer(monotonic())
        loop = asyncio.get_running_loop()
        transport, reader = await loop.create_connection(lambda: Reader(answer), address.host, address.port)
        transport.write(request_bytes(method, target, data, named))
        await asyncio.wait_for(reader.ended, 10)
        transport.close()
        return answer

    return ask
