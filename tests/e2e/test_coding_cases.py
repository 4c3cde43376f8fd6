"""Content codings pass as they are, whether the copy can be read or not (RFC 9110 §8.4)."""

from __future__ import annotations

import gzip
import json
import zlib

import brotli
import pytest
import zstandard

from tests.conftest import UpstreamFactory
from tests.kit import events
from tests.kit.local import LocalSidecars
from tests.kit.metrics import delta
from tests.kit.upstream import answering

CHAT = events.chat_completion("hello", prompt=9, completion=2).partition(b"\r\n\r\n")[2]
JSON = ("Content-Type", "application/json")


@pytest.mark.parametrize("status", ["200 OK", "429 Too Many Requests"])
async def test_htp_12_a_coded_body_passes_coded(
    status: str, upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    answer = json.loads(CHAT)
    answer["choices"][0]["message"]["content"] = "".join(chr(33 + n * 7919 % 90) for n in range(200_000))
    body = gzip.compress(json.dumps(answer).encode())
    sent = events.body_response(body, JSON, ("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding"), status=status)
    server = await upstream(answering(sent))
    sidecar = await sidecars(server, server_timing=False)
    before = await sidecar.metrics()
    async with await sidecar.client() as client:
        response = await client.request(headers=[(b"Accept-Encoding", b"gzip")], body=events.DEFAULT_BODY)
    after = await sidecar.metrics_after(before)
    assert response.raw == sent
    assert json.loads(gzip.decompress(response.body)) == answer
    if status.startswith("200"):
        assert delta(before, after, "tokens_out").value == 2
        assert delta(before, after, "tokens_in").value == 9


async def test_htp_12_accept_encoding_is_the_clients_own_affair(
    upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    server = await upstream(answering(events.chat_completion()))
    sidecar = await sidecars(server)
    async with await sidecar.client() as client:
        await client.request(body=events.DEFAULT_BODY)
        await client.request(headers=[(b"Accept-Encoding", b"zstd;q=1, *;q=0")], body=events.DEFAULT_BODY)
    assert [request.value("accept-encoding") for request in server.requests] == [None, b"zstd;q=1, *;q=0"]


HALF = len(CHAT) // 2
CODED = [
    ("a: zstd in two frames", "zstd", zstandard.compress(CHAT[:HALF]) + zstandard.compress(CHAT[HALF:]), True),
    ("b: gzip in two members", "gzip", gzip.compress(CHAT[:HALF]) + gzip.compress(CHAT[HALF:]), True),
    ("c: an unknown coding", "x-foo", CHAT[::-1], False),
    ("d: gzip, then br", "gzip, br", brotli.compress(gzip.compress(CHAT)), None),
    ("e: gzip that is none", "gzip", CHAT, False),
    ("f: gzip cut short", "gzip", gzip.compress(CHAT)[:40], False),
    ("g: deflate without its header", "deflate", zlib.compress(CHAT)[2:-4], None),
    ("h: br", "br", brotli.compress(CHAT), True),
]


@pytest.mark.parametrize(("coding", "body", "understood"), [row[1:] for row in CODED], ids=[row[0] for row in CODED])
async def test_htp_13_any_coding_passes_whether_it_is_understood_or_not(
    coding: str, body: bytes, understood: bool | None, upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    """What cannot be read is counted: the copy suffers, never the answer."""
    sent = events.body_response(body, JSON, ("Content-Encoding", coding))
    server = await upstream(answering(sent))
    sidecar = await sidecars(server, server_timing=False)
    before = await sidecar.metrics()
    async with await sidecar.client() as client:
        response = await client.request(body=events.DEFAULT_BODY)
    after = await sidecar.metrics_after(before)
    assert response.raw == sent
    errors = delta(before, after, "parse_errors_total").value
    tokens = delta(before, after, "tokens_out").value
    if understood is not None:
        assert (errors, tokens) == ((0, 2) if understood else (1, 0))
    else:
        assert (errors, tokens) in ((0, 2), (1, 0))
