"""Bodies pass whole, unchanged, in both directions and no faster than the other side takes them."""

from __future__ import annotations

import asyncio
import hashlib

import pytest

from tests.conftest import SidecarFactory, UpstreamFactory
from tests.kit import events
from tests.kit.client import RawClient, request_bytes
from tests.kit.h1 import split_head
from tests.kit.local import LocalSidecars
from tests.kit.upstream import Connection, answering

MIB = 1024 * 1024
OK = events.body_response(b"ok")
BLOCK = bytes(range(256)) * 1024
"""256 KiB that show a byte out of place."""


def image_question(size: int) -> bytes:
    return b'{"model":"m1","messages":[{"role":"user","content":"' + b"iVBORw0KGgo" * (size // 11) + b'"}],"user":"u"}'


def audio_form(size: int) -> bytes:
    parts = [
        b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nwhisper-1\r\n',
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\nContent-Type: audio/wav\r\n\r\n',
        BLOCK * (size // len(BLOCK)),
        b"\r\n--b--\r\n",
    ]
    return b"".join(parts)


def chunked(body: bytes, size: int = 60_000) -> bytes:
    return b"".join(events.chunk(body[at : at + size]) for at in range(0, len(body), size)) + events.LAST_CHUNK


@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize(
    ("target", "content_type", "body"),
    [
        ("/v1/chat/completions", b"application/json", image_question(20 * MIB)),
        ("/v1/audio/transcriptions", b"multipart/form-data; boundary=b", audio_form(20 * MIB)),
        ("/v1/files", b"multipart/form-data; boundary=b", audio_form(20 * MIB)),
    ],
    ids=["json", "audio", "file"],
)
async def test_htp_09_bodies_of_20_mib_arrive_unchanged(
    target: str,
    content_type: bytes,
    body: bytes,
    framing: str,
    *,
    upstream: UpstreamFactory,
    sidecars: LocalSidecars,
) -> None:
    server = await upstream(answering(OK))
    sidecar = await sidecars(server)
    fields = [(b"Content-Type", content_type)]
    sent = body
    if framing == "chunked":
        fields, sent = [*fields, (b"Transfer-Encoding", b"chunked")], chunked(body)
    async with await sidecar.client() as client:
        await client.send(request_bytes("POST", target, fields, sent))
        response = await client.response()
    assert response.status == 200
    (request,) = server.requests
    assert hashlib.sha256(request.body).digest() == hashlib.sha256(body).digest()
    assert request.value("content-length") == (str(len(body)).encode() if framing == "length" else None)


async def test_the_model_of_a_long_upload_is_known(upstream: UpstreamFactory, sidecars: LocalSidecars) -> None:
    server = await upstream(answering(OK))
    sidecar = await sidecars(server, models={"limit": 10})
    async with await sidecar.client() as client:
        for target, content_type, body in (
            ("/v1/chat/completions", b"application/json", image_question(2 * MIB)),
            ("/v1/audio/transcriptions", b"multipart/form-data; boundary=b", audio_form(2 * MIB)),
        ):
            await client.request("POST", target, [(b"Content-Type", content_type)], body)
    metrics = await sidecar.metrics_when(lambda now: now.value("requests") >= 2)
    assert {"m1", "whisper-1"} <= metrics.label_values("requests", "model")


async def test_an_upload_streams(upstream: UpstreamFactory, sidecars: LocalSidecars) -> None:
    server = await upstream(answering(OK))
    sidecar = await sidecars(server)
    async with await sidecar.client() as client:
        await client.send(b"POST /v1/files HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nfirst")
        await server.wait_for_connections(1)
        await server.connections[0].arrival(b"first")
        await client.send(b"again")
        assert (await client.response()).status == 200
    assert server.requests[0].body == b"firstagain"


async def test_an_answer_may_come_before_the_upload_has_ended(
    upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    async def refuse(connection: Connection) -> None:
        await connection.until(lambda: split_head(connection.buffer) is not None)
        await connection.send(events.json_response(b'{"error":"key"}', status="401 Unauthorized"))
        await connection.wait_closed(timeout=2)

    server = await upstream(refuse)
    sidecar = await sidecars(server)
    async with await sidecar.client() as client:
        await client.send(b"POST /v1/files HTTP/1.1\r\nHost: a\r\nContent-Length: 50000000\r\n\r\n" + BLOCK)
        response = await client.response()
        await server.connections[0].wait_closed(timeout=1)
    assert (response.status, response.body) == (401, b'{"error":"key"}')
    assert response.value("connection") == b"close"


async def test_an_upload_waits_for_an_upstream_that_does_not_take_it(
    upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    async def slow(connection: Connection) -> None:
        connection.pause_reading()
        await asyncio.sleep(0.4)
        connection.resume_reading()
        await connection.read_request()
        await connection.send(OK)

    server = await upstream(slow)
    sidecar = await sidecars(server)
    body = BLOCK * 128
    async with await sidecar.client() as client:
        sending = asyncio.ensure_future(client.send(request_bytes(body=body)))
        await asyncio.sleep(0.3)
        assert not sending.done()
        assert client.accepted < len(body) * 3 // 4, "the client was held up"
        await sending
        assert (await client.response()).status == 200
    assert server.requests[0].body == body


class Download:
    """A script that answers with `blocks` times BLOCK."""

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks

    async def __call__(self, connection: Connection) -> None:
        await connection.read_request()
        await connection.send(events.head("200 OK", ("Content-Length", str(self.blocks * len(BLOCK)))))
        for _ in range(self.blocks):
            await connection.send(BLOCK)
        await connection.wait_closed()


async def hash_download(client: RawClient) -> tuple[int, str]:
    """Size and SHA-256 of what follows the head, taking it off the client's hands as it comes."""
    await client.recv_head()
    head = split_head(client.buffer)
    assert head is not None
    size = int(dict(head[1])[b"Content-Length"])
    del client.buffer[: head[2]]
    digest, seen = hashlib.sha256(), 0
    while seen < size:
        await client.until(lambda: bool(client.buffer))
        digest.update(client.buffer)
        seen += len(client.buffer)
        client.buffer.clear()
        client.log.clear()
    return seen, digest.hexdigest()


@pytest.mark.slow
async def test_64_mib_up_and_200_mb_down_pass_unchanged_in_little_memory(
    upstream: UpstreamFactory, sidecar_factory: SidecarFactory
) -> None:
    up, down = 64 * MIB // len(BLOCK), 200_000_000 // len(BLOCK)
    uploads = await upstream(answering(OK))
    downloads = await upstream(Download(down))
    urls = [("up", uploads.url, "/up"), ("down", downloads.url, "/down")]
    sidecar = await sidecar_factory(
        upstreams=[{"name": name, "url": url, "prefix": prefix} for name, url, prefix in urls]
    )
    async with await sidecar.client() as client:
        await client.request("POST", "/up/warm", body=BLOCK)
        uploads.requests.clear()
        before = sidecar.rss()
        await client.send(request_bytes("POST", "/up/file", [(b"Content-Length", b"%d" % (up * len(BLOCK)))]))
        for _ in range(up):
            await client.send(BLOCK)
        assert (await client.response()).status == 200
        await client.send(request_bytes("GET", "/down/file"))
        size, digest = await hash_download(client)
        growth = sidecar.peak_rss() - before
    (request,) = uploads.requests
    assert request.body == BLOCK * up
    assert size == down * len(BLOCK)
    assert digest == hashlib.sha256(BLOCK * down).hexdigest()
    assert growth < 32 * MIB
