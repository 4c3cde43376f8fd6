from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from sidecar.config.model import Address
from sidecar.simulator.server import Simulator
from sidecar.simulator.websocket import CLOSE, PING, PONG, TEXT, frame

KEY = b"dGhlIHNhbXBsZSBub25jZQ=="


class Client:
    """The client's side of a WebSocket, just enough of it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls, address: Address, *wishes: bytes) -> Client:
        reader, writer = await asyncio.open_connection(address.host, address.port)
        lines = [b"GET /v1/realtime?model=rt HTTP/1.1", b"host: s", b"connection: Upgrade", b"upgrade: websocket"]
        lines += [b"sec-websocket-version: 13", b"sec-websocket-key: " + KEY, *wishes]
        writer.write(b"\r\n".join([*lines, b"", b""]))
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 ")
        assert b"sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n" in head
        return cls(reader, writer)

    def send(self, payload: bytes, opcode: int = TEXT) -> None:
        plain = frame(opcode, payload)
        head = bytearray(plain[: len(plain) - len(payload)])
        head[1] |= 0x80
        self.writer.write(bytes(head) + b"\0\0\0\0" + payload)

    async def receive(self) -> tuple[int, bytes]:
        first, size = await asyncio.wait_for(self.reader.readexactly(2), 10)
        if size == 126:
            size = int.from_bytes(await self.reader.readexactly(2), "big")
        return first & 0x0F, await self.reader.readexactly(size)

    async def until(self, kind: str) -> list[Any]:
        events: list[Any] = []
        while not events or events[-1]["type"] != kind:
            events.append(json.loads((await self.receive())[1]))
        return events


async def test_each_message_is_answered_by_a_response(simulator: Simulator, address: Address) -> None:
    client = await Client.open(address)
    assert [event["type"] for event in await client.until("session.created")] == ["session.created"]
    client.send(b'{"type":"session.update","session":{}}')
    assert [event["type"] for event in await client.until("session.updated")] == ["session.updated"]
    client.send(b'{"type":"response.create"}')
    client.send(b'{"type":"response.create"}')
    for _ in range(2):
        events = await client.until("response.done")
        kinds = [event["type"] for event in events]
        deltas = ["response.output_text.delta"] * 5
        assert kinds == ["response.created", *deltas, "response.output_text.done", "response.done"]
        assert "".join(event["delta"] for event in events[1:6]) == events[6]["text"]
        assert events[-1]["response"]["usage"]["output_tokens"] == 5
    first = simulator.truths[1]
    assert (first.api, first.ending, first.output_tokens, first.model) == ("openai.realtime.response", "clean", 5, "rt")
    client.writer.close()


async def test_pings_are_answered_and_a_close_is_returned(simulator: Simulator, address: Address) -> None:
    client = await Client.open(address)
    await client.until("session.created")
    client.send(b"are you there", PING)
    assert await client.receive() == (PONG, b"are you there")
    client.send((1000).to_bytes(2, "big"), CLOSE)
    assert await client.receive() == (CLOSE, (1000).to_bytes(2, "big"))
    assert await client.reader.read() == b""
    assert simulator.truths[0].ending == "clean"
    client.writer.close()


async def test_a_cut_ends_the_session_without_a_close_frame(simulator: Simulator, address: Address) -> None:
    client = await Client.open(address, b"x-sim-cut: 3")
    await client.until("session.created")
    client.send(b"hello")
    kinds = [json.loads((await client.receive())[1])["type"] for _ in range(3)]
    assert kinds == ["response.created", "response.output_text.delta", "response.output_text.delta"]
    assert await client.reader.read() == b""
    assert simulator.truths[1].ending == "cut"
    client.writer.close()


async def test_a_reset_is_felt(simulator: Simulator, address: Address) -> None:
    client = await Client.open(address, b"x-sim-reset: 3")
    await client.until("session.created")
    client.send(b"hello")
    with pytest.raises(ConnectionResetError):
        await client.until("response.done")
    assert (simulator.truths[1].ending, simulator.truths[1].events) == ("reset", 3)
    client.writer.close()
