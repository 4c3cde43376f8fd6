"""A WebSocket handshake as SDKs make it, and clients whose upgrade was accepted."""

from __future__ import annotations

from tests.kit import events
from tests.kit.client import RawClient, request_bytes
from tests.kit.h1 import split_head
from tests.kit.local import StubbedSidecar
from tests.kit.upstream import Connection

MIB = 1024 * 1024
BLOCK = bytes(range(256)) * 256
UPGRADE = [
    (b"Connection", b"keep-alive, Upgrade"),
    (b"Upgrade", b"WebSocket"),
    (b"Sec-WebSocket-Version", b"13"),
    (b"Sec-WebSocket-Key", b"dGhlIHNhbXBsZSBub25jZQ=="),
    (b"Sec-WebSocket-Protocol", b"realtime, openai-insecure-api-key.K1"),
    (b"Sec-WebSocket-Extensions", b"permessage-deflate; client_max_window_bits"),
    (b"Authorization", b"Bearer K1"),
    (b"OpenAI-Beta", b"realtime=v1"),
]
REQUEST = request_bytes("GET", "/v1/realtime?model=m1", UPGRADE)
ACCEPTED = events.head(
    "101 Switching Protocols",
    ("Upgrade", "websocket"),
    ("Connection", "Upgrade"),
    ("Sec-WebSocket-Accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
    ("Sec-WebSocket-Protocol", "realtime"),
)


async def accept(connection: Connection) -> None:
    await connection.read_request()
    await connection.send(ACCEPTED)


async def opened(sidecar: StubbedSidecar, *, receive_buffer: int | None = None) -> RawClient:
    """A client whose upgrade was accepted; its buffer holds what came after the head."""
    client = await sidecar.client(receive_buffer=receive_buffer)
    await client.send(REQUEST)
    status, _ = await client.recv_head()
    assert status == 101
    head = split_head(client.buffer)
    assert head is not None
    del client.buffer[: head[2]]
    return client
