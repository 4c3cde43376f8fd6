"""Heads as large as LLM gateways see them pass; those above the setting get 431 (RFC 6585 §5)."""

from __future__ import annotations

import pytest

from tests.conftest import UpstreamFactory
from tests.kit import events
from tests.kit.client import get, request_bytes
from tests.kit.h1 import RawRequest
from tests.kit.local import LocalSidecars
from tests.kit.metrics import outcomes
from tests.kit.upstream import answering

OK = events.body_response(b"ok")


def fields_without_host(request: RawRequest) -> list[tuple[bytes, bytes]]:
    return [(name, value) for name, value in request.headers if name.lower() != b"host"]


@pytest.mark.parametrize(
    ("target", "headers"),
    [
        ("/v1/models", [(b"Authorization", b"Bearer " + b"x" * 16_384)]),
        ("/v1/models", [(b"Cookie", b"c%d=" % n + b"y" * 800) for n in range(30)]),
        ("/v1/models?q=" + "z" * 12_288, []),
        ("/v1/models", [(b"X-%d" % n, b"1") for n in range(400)]),
    ],
    ids=["a 16 KB token", "30 cookies of 24 KB", "a query of 12 KB", "400 fields"],
)
async def test_htp_08_large_heads_pass_by_default(
    target: str, headers: list[tuple[bytes, bytes]], upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    server = await upstream(answering(OK))
    sidecar = await sidecars(server)
    async with await sidecar.client() as client:
        response = await client.request("GET", target, headers)
    assert response.status == 200
    assert server.requests[0].target == target.encode()
    assert fields_without_host(server.requests[0]) == headers


async def test_htp_08_a_response_field_of_20_kb_passes(upstream: UpstreamFactory, sidecars: LocalSidecars) -> None:
    server = await upstream(answering(events.body_response(b"ok", ("X-Long", "v" * 20_480))))
    sidecar = await sidecars(server)
    response = await get(sidecar.data, "/v1/models")
    assert response.status == 200
    assert response.value("x-long") == b"v" * 20_480


@pytest.mark.parametrize(
    ("target", "headers"),
    [
        ("/v1/models", [(b"X-Long", b"v" * 1_000_000)]),
        ("/v1/models", [(b"X-%d" % n, b"v" * 1_000) for n in range(100)]),
        ("/v1/models?" + "q" * 200_000, []),
        ("/v1/models", [(b"X-%d" % n, b"1") for n in range(5_000)]),
    ],
    ids=["one field of 1 MB", "fields of 100 KB in all", "a target of 200 KB", "5000 fields"],
)
async def test_htp_08_heads_above_the_limit_get_431(
    target: str, headers: list[tuple[bytes, bytes]], upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    server = await upstream(answering(OK))
    sidecar = await sidecars(server)
    before = await sidecar.metrics()
    async with await sidecar.client() as client:
        response = await client.request("GET", target, headers)
        assert (response.status, response.value("x-sidecar-error")) == (431, b"headers_too_large")
        assert response.clean_end
        await client.wait_closed(timeout=2)
    after = await sidecar.metrics_after(before)
    assert outcomes(before, after) == {"rejected": 1}
    assert not server.accepted


async def test_htp_08_the_limit_holds_for_pipelined_requests(
    upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    server = await upstream(answering(OK))
    sidecar = await sidecars(server)
    large = request_bytes("GET", "/v1/2", [(b"X-%d" % n, b"v" * 1_000) for n in range(100)])
    async with await sidecar.client() as client:
        await client.send(request_bytes("GET", "/v1/1") + large)
        responses = [await client.response("GET") for _ in range(2)]
    assert [response.status for response in responses] == [200, 431]
    assert [request.target for request in server.requests] == [b"/v1/1"]


async def test_htp_08_the_limit_is_a_setting(upstream: UpstreamFactory, sidecars: LocalSidecars) -> None:
    server = await upstream(answering(OK, events.body_response(b"ok", ("X-Long", "v" * 100_000))))
    sidecar = await sidecars(server, limits={"max_header_bytes": "1MiB"})
    async with await sidecar.client() as client:
        first = await client.request("GET", "/v1/models", [(b"X-Long", b"v" * 500_000)])
        second = await client.request("GET", "/v1/models")
    assert (first.status, second.status) == (200, 200)
    assert server.requests[0].value("x-long") == b"v" * 500_000
    assert second.value("x-long") == b"v" * 100_000


async def test_htp_08_a_response_head_of_1_mb_is_a_502(upstream: UpstreamFactory, sidecars: LocalSidecars) -> None:
    server = await upstream(answering(events.body_response(b"ok", ("X-Long", "v" * 1_000_000))))
    sidecar = await sidecars(server)
    before = await sidecar.metrics()
    response = await get(sidecar.data, "/v1/models")
    assert (response.status, response.value("x-sidecar-error")) == (502, b"upstream_protocol")
    assert outcomes(before, await sidecar.metrics_after(before)) == {"network_error": 1}
