"""Targets pass byte for byte to the upstream whose prefix is the longest, and to nobody else (RFC 9110 §7.7)."""

from __future__ import annotations

import pytest

from tests.conftest import UpstreamFactory
from tests.kit import events
from tests.kit.client import get, request_bytes
from tests.kit.local import LocalSidecars
from tests.kit.metrics import outcomes
from tests.kit.upstream import answering

OK = events.body_response(b"ok")


@pytest.mark.parametrize(
    "target",
    [
        b"/v1/models/org%2Fm%3Alatest%28x%29%27",
        b"/openai/deployments/a%20b/chat/completions",
        b"/v1//chat/completions/",
        b"//v1/models",
        b"/v1/a/./b/%2e%2e/c",
        b"/v1/../../etc/x/..",
        b"/v1/%E4%BD%A0",
        b"/v1/%e4%bd%a0",
        b"/v1/a;b=1,c@d!$&'()*+",
        b"/v1/a?b#c",
        b"/",
    ],
)
async def test_htp_01_the_path_arrives_byte_for_byte(
    target: bytes, upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    """Dot segments pass too: what they mean is for the API to say, and signatures are made over them."""
    server = await upstream(answering(OK))
    sidecar = await sidecars(server)
    async with await sidecar.client() as client:
        response = await client.request("GET", target)
    assert response.status == 200
    assert server.requests[0].target == target


async def test_bytes_beyond_ascii_in_a_target_are_no_target(upstream: UpstreamFactory, sidecars: LocalSidecars) -> None:
    """RFC 3986 §2 has no such characters; no HTTP library sends them."""
    server = await upstream(answering(OK))
    sidecar = await sidecars(server)
    async with await sidecar.client() as client:
        response = await client.request("GET", b"/v1/\xe4\xbd\xa0")
    assert (response.status, response.value("x-sidecar-error")) == (400, b"bad_request")
    assert not server.accepted


@pytest.mark.parametrize(
    "query",
    [b"?b=2&a=1&b=3&flag&empty=&sig=%E9%FF&s=1;2&q=a%20b+c%2Bd&x=%zz", b"?", b"??a", b"?a=/../b&c=http://x/"],
)
async def test_htp_02_the_query_arrives_byte_for_byte(
    query: bytes, upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    """A malformed escape (`%zz`) passes unchanged: the API is the one to refuse it."""
    server = await upstream(answering(OK))
    sidecar = await sidecars(server)
    async with await sidecar.client() as client:
        await client.request("GET", b"/v1/models" + query)
    assert server.requests[0].target == b"/v1/models" + query


PREFIXES = [
    ("/", "", "/v1/models?x=1", "root /v1/models?x=1"),
    ("/", "/base", "/v1/models", "root /base/v1/models"),
    ("/openai", "", "/openai/v1/models", "long /v1/models"),
    ("/openai", "/base/", "/openai/v1/models", "long /base/v1/models"),
    ("/openai/", "/base", "/openai/v1/models", "long /base/v1/models"),
    ("/openai", "/base", "/openai", "long /base"),
    ("/openai", "/base", "/openai?x", "long /base?x"),
    ("/openai", "/base", "/openai/", "long /base/"),
    ("/openai", "", "/openai", "long /"),
    ("/openai", "", "/openai?x", "long /?x"),
    ("/openai", "", "/openaix/v1", "root /openaix/v1"),
    ("/openai", "", "/OpenAI/v1", "root /OpenAI/v1"),
    ("/openai", "", "/open%61i/v1", "root /open%61i/v1"),
    ("/openai", "/a%2Fb", "/openai//x/../y", "long /a%2Fb//x/../y"),
]


@pytest.mark.parametrize(("prefix", "base", "asked", "arrives"), PREFIXES)
async def test_the_longest_prefix_wins_and_gives_way_to_the_base_path(
    prefix: str,
    base: str,
    asked: str,
    arrives: str,
    *,
    upstream: UpstreamFactory,
    sidecars: LocalSidecars,
) -> None:
    root, long, longest = [await upstream(answering(OK)) for _ in range(3)]
    shallow = {"name": "root", "url": root.url + (base if prefix == "/" else "")}
    deep = {"name": "long", "url": long.url + base, "prefix": prefix}
    deeper = {"name": "longest", "url": longest.url, "prefix": "/openai/eu"}
    sidecar = await sidecars(upstreams=[shallow, *([deep] if prefix != "/" else []), deeper])
    assert (await get(sidecar.data, asked)).status == 200
    assert (await get(sidecar.data, "/openai/eu/v1")).status == 200
    seen = [f"{n} {r.target.decode()}" for n, server in (("root", root), ("long", long)) for r in server.requests]
    assert seen == [arrives]
    assert [request.target for request in longest.requests] == [b"/v1"]


async def test_a_path_that_no_prefix_begins_gets_404(upstream: UpstreamFactory, sidecars: LocalSidecars) -> None:
    server = await upstream(answering(OK))
    sidecar = await sidecars(server, settings={"prefix": "/openai"})
    before = await sidecar.metrics()
    response = await get(sidecar.data, "/v1/models")
    assert (response.status, response.value("x-sidecar-error")) == (404, b"no_upstream")
    assert outcomes(before, await sidecar.metrics_after(before)) == {"rejected": 1}
    assert not server.accepted


@pytest.mark.parametrize(
    "request_line",
    [
        b"GET http://example.test/v1/models HTTP/1.1",
        b"POST https://example.test/v1/models HTTP/1.1",
        b"CONNECT example.test:443 HTTP/1.1",
        b"CONNECT /v1/models HTTP/1.1",
        b"OPTIONS * HTTP/1.1",
        b"GET v1/models HTTP/1.1",
        b"GET ?x HTTP/1.1",
    ],
)
async def test_it_is_no_open_proxy(request_line: bytes, upstream: UpstreamFactory, sidecars: LocalSidecars) -> None:
    server = await upstream(answering(OK))
    sidecar = await sidecars(server)
    before = await sidecar.metrics()
    async with await sidecar.client() as client:
        await client.send(request_line + b"\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        response = await client.response()
        await client.wait_closed(timeout=2)
    assert (response.status, response.value("x-sidecar-error")) == (400, b"bad_request")
    assert outcomes(before, await sidecar.metrics_after(before)) == {"rejected": 1}
    assert not server.accepted


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "PATCH", "OPTIONS", "PROPFIND"])
async def test_methods_pass(method: str, upstream: UpstreamFactory, sidecars: LocalSidecars) -> None:
    server = await upstream(answering(OK))
    sidecar = await sidecars(server)
    async with await sidecar.client() as client:
        await client.send(request_bytes(method, "/v1/files/1"))
        assert (await client.response(method)).status == 200
    assert server.requests[0].method == method


async def test_an_upstream_and_a_listener_may_be_ipv6(upstream: UpstreamFactory, sidecars: LocalSidecars) -> None:
    server = await upstream(answering(OK), host="::1")
    sidecar = await sidecars(server, listen="[::1]:0", admin="[::1]:0")
    response = await get(sidecar.data, "/v1/models")
    assert response.status == 200
    assert sidecar.data[0] == "::1"
    assert server.requests[0].value("host") == f"[::1]:{server.port}".encode()
