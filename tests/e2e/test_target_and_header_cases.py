"""Request targets and fields pass as they are; only what belongs to one hop ends there (RFC 9110 §7.6.1)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.conftest import UpstreamFactory
from tests.kit import events
from tests.kit.authority import ca_file, server_context
from tests.kit.client import get, request_bytes
from tests.kit.h1 import RawRequest
from tests.kit.local import LocalSidecars, name_server
from tests.kit.metrics import outcomes
from tests.kit.upstream import answering

OK = events.body_response(b"ok")

HOPS_OF_A_REQUEST = [
    (b"Connection", b"keep-alive, X-Internal"),
    (b"X-Internal", b"1"),
    (b"Keep-Alive", b"timeout=5"),
    (b"Proxy-Authorization", b"Basic Zm9vOmJhcg=="),
    (b"Proxy-Connection", b"keep-alive"),
    (b"TE", b"gzip"),
    (b"Trailer", b"X"),
    (b"Upgrade", b"foo"),
]
HOPS_OF_A_RESPONSE = [
    ("Connection", "X-Secret"),
    ("X-Secret", "1"),
    ("Keep-Alive", "timeout=5"),
    ("Proxy-Authenticate", "Basic"),
    ("Proxy-Connection", "keep-alive"),
]


@pytest.fixture
async def sidecars(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> AsyncIterator[LocalSidecars]:
    async with LocalSidecars(tmp_path, caplog) as start:
        yield start


def fields_without_host(request: RawRequest) -> list[tuple[bytes, bytes]]:
    return [(name, value) for name, value in request.headers if name.lower() != b"host"]


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


async def test_bytes_beyond_ascii_in_a_target_are_no_target(
    upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
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


async def test_fields_keep_their_order_spelling_and_repetition(
    upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    server = await upstream(answering(OK))
    sidecar = await sidecars(server)
    sent = [
        (b"x-LOWER-upper", b"1"),
        (b"User-Agent", b"app/1 (x; y)"),
        (b"X-Empty", b""),
        (b"x-b", b"2"),
        (b"X-B", b"1"),
        (b"X-Latin", b"caf\xe9"),
        (b"X-Utf8", "café".encode()),
        (b"Accept-Encoding", b"gzip, br"),
        (b"Cookie", b"a=1; b=2"),
        (b"Forwarded", b"for=10.0.0.1"),
    ]
    async with await sidecar.client() as client:
        await client.request("GET", "/v1/models", sent)
    (request,) = server.requests
    assert fields_without_host(request) == sent


async def test_nothing_is_added_to_a_request(upstream: UpstreamFactory, sidecars: LocalSidecars) -> None:
    server = await upstream(answering(OK))
    sidecar = await sidecars(server)
    async with await sidecar.client() as client:
        await client.request("GET", "/v1/models")
    assert server.requests[0].head == f"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode()


async def test_htp_04_fields_of_one_hop_do_not_pass(upstream: UpstreamFactory, sidecars: LocalSidecars) -> None:
    server = await upstream(answering(events.body_response(b"ok", *HOPS_OF_A_RESPONSE, ("X-Kept", "1"))))
    sidecar = await sidecars(server, server_timing=False)
    async with await sidecar.client() as client:
        response = await client.request("GET", "/v1/models", [*HOPS_OF_A_REQUEST, (b"X-Kept", b"1")])
    assert fields_without_host(server.requests[0]) == [(b"X-Kept", b"1")]
    assert response.headers == [(b"X-Kept", b"1"), (b"Content-Length", b"2")]


async def test_htp_04_a_connection_field_cannot_take_away_what_the_request_is_judged_by(
    upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    """RFC 9110 §7.6.1 forbids to name fields for all recipients; such options are ignored, the others obeyed."""
    server = await upstream(answering(OK))
    sidecar = await sidecars(server)
    essentials = [
        (b"Authorization", b"Bearer K1"),
        (b"x-api-key", b"K2"),
        (b"Content-Type", b"application/json"),
        (b"Cookie", b"a=1"),
    ]
    options = b"close, Authorization, X-Api-Key,content-type , Host, content-length, cookie, X-Mine"
    async with await sidecar.client() as client:
        response = await client.request(
            "POST", "/v1/x", [(b"Connection", options), *essentials, (b"X-Mine", b"1")], b"{}"
        )
    assert response.status == 200
    assert fields_without_host(server.requests[0]) == [*essentials, (b"Content-Length", b"2")]
    assert server.requests[0].body == b"{}"


async def test_htp_04_te_trailers_is_said_anew_for_the_next_hop(
    upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    server = await upstream(answering(OK))
    sidecar = await sidecars(server)
    async with await sidecar.client() as client:
        await client.request("GET", "/v1/models", [(b"Connection", b"TE"), (b"TE", b"trailers, deflate")])
    (request,) = server.requests
    assert request.value("te") == b"trailers"
    assert request.value("connection") == b"TE"


@pytest.mark.parametrize("default_port", [True, False])
async def test_htp_05_host_and_server_name_are_the_upstreams(
    default_port: bool, upstream: UpstreamFactory, sidecars: LocalSidecars, tmp_path: Path
) -> None:
    server = await upstream(answering(OK), tls=server_context("api.example.test"))
    port = "" if default_port else f":{server.port}"
    sidecar = await sidecars(
        f"https://api.example.test{port}",
        settings={"tls": {"ca_file": str(ca_file(tmp_path))}},
        lookup=name_server({"api.example.test": [("127.0.0.1", server.port)]}),
    )
    async with await sidecar.client() as client:
        host = f"localhost:{sidecar.data[1]}".encode()
        response = await client.request("GET", "/v1/models", [(b"Host", host)])
    assert response.status == 200
    assert server.requests[0].values("host") == [f"api.example.test{port}".encode()]
    assert server.server_names == ["api.example.test"]


async def test_htp_05_server_name_changes_what_tls_asks_for_and_not_host(
    upstream: UpstreamFactory, sidecars: LocalSidecars, tmp_path: Path
) -> None:
    server = await upstream(answering(OK), tls=server_context("inner.example.test"))
    tls = {"ca_file": str(ca_file(tmp_path)), "server_name": "inner.example.test"}
    sidecar = await sidecars(
        f"https://api.example.test:{server.port}",
        settings={"tls": tls},
        lookup=name_server({"api.example.test": [("127.0.0.1", server.port)]}),
    )
    response = await get(sidecar.data, "/v1/models")
    assert response.status == 200
    assert server.server_names == ["inner.example.test"]
    assert server.requests[0].value("host") == f"api.example.test:{server.port}".encode()


async def test_htp_05_a_certificate_for_another_name_is_refused(
    upstream: UpstreamFactory, sidecars: LocalSidecars, tmp_path: Path
) -> None:
    server = await upstream(answering(OK), tls=server_context("other.example.test"))
    sidecar = await sidecars(
        f"https://api.example.test:{server.port}",
        settings={"tls": {"ca_file": str(ca_file(tmp_path))}},
        lookup=name_server({"api.example.test": [("127.0.0.1", server.port)]}),
    )
    response = await get(sidecar.data, "/v1/models")
    assert (response.status, response.value("x-sidecar-error")) == (502, b"tls_failed")
    assert not server.requests


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


async def test_htp_10_repeated_fields_stay_apart(upstream: UpstreamFactory, sidecars: LocalSidecars) -> None:
    fields = [
        ("Set-Cookie", "a=1; Path=/"),
        ("Set-Cookie", "b=2; Expires=Wed, 21 Oct 2026 07:28:00 GMT"),
        ("Link", "</a>; rel=next"),
        ("Set-Cookie", "c=3"),
        ("Link", "</b>; rel=prev"),
        ("WWW-Authenticate", "Basic"),
        ("WWW-Authenticate", 'Bearer realm="x, y"'),
        ("X-A", "1"),
        ("x-a", "2"),
    ]
    server = await upstream(answering(events.body_response(b"no", *fields, status="401 Unauthorized")))
    sidecar = await sidecars(server, server_timing=False)
    async with await sidecar.client() as client:
        response = await client.request("GET", "/v1/models", [(b"X-Multi", b"1"), (b"X-Other", b"0"), (b"X-Multi", b"2")])
    assert response.headers == [(n.encode(), v.encode()) for n, v in fields] + [(b"Content-Length", b"2")]
    assert server.requests[0].values("x-multi") == [b"1", b"2"]


async def test_the_status_line_passes_as_it_is(upstream: UpstreamFactory, sidecars: LocalSidecars) -> None:
    server = await upstream(
        answering(events.body_response(b"", status="299 Fine By Me"), events.body_response(b"", status="529 "))
    )
    sidecar = await sidecars(server)
    async with await sidecar.client() as client:
        first, second = await client.request("GET", "/a"), await client.request("GET", "/b")
    assert (first.status, first.reason) == (299, b"Fine By Me")
    assert (second.status, second.reason) == (529, b"")


@pytest.mark.parametrize("enabled", [True, False])
async def test_server_timing_is_added_only_when_it_is_switched_on(
    enabled: bool, upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    server = await upstream(answering(events.body_response(b"ok", ("Server-Timing", "db;dur=53"))))
    sidecar = await sidecars(server, server_timing=enabled)
    response = await get(sidecar.data, "/v1/models")
    own = response.values("server-timing")[1:]
    assert response.values("server-timing")[0] == b"db;dur=53"
    assert len(own) == enabled
    assert all(b"wait;dur=" in line and b"connect;dur=" in line for line in own)


async def test_via_is_left_out_by_default(upstream: UpstreamFactory, sidecars: LocalSidecars) -> None:
    server = await upstream(answering(events.body_response(b"ok", ("Via", "1.1 edge"))))
    sidecar = await sidecars(server)
    async with await sidecar.client() as client:
        response = await client.request("GET", "/v1/models", [(b"Via", b"1.0 app")])
    assert response.values("via") == [b"1.1 edge"]
    assert server.requests[0].values("via") == [b"1.0 app"]


async def test_via_true_adds_it_to_responses(upstream: UpstreamFactory, sidecars: LocalSidecars) -> None:
    server = await upstream(answering(events.body_response(b"ok", ("Via", "1.1 edge"))))
    sidecar = await sidecars(server, via=True)
    response = await get(sidecar.data, "/v1/models")
    assert response.values("via") == [b"1.1 edge", b"1.1 sidecar"]


@pytest.mark.xfail(strict=True, reason="only responses get Via: the request head is made without the setting")
async def test_via_true_adds_it_to_requests(upstream: UpstreamFactory, sidecars: LocalSidecars) -> None:
    """RFC 9110 §7.6.3: a proxy that says so at all says it to both sides."""
    server = await upstream(answering(OK))
    sidecar = await sidecars(server, via=True)
    async with await sidecar.client() as client:
        await client.request("GET", "/v1/models", [(b"Via", b"1.0 app")])
    assert server.requests[0].values("via") == [b"1.0 app", b"1.1 sidecar"]


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
    prefix: str, base: str, asked: str, arrives: str, upstream: UpstreamFactory, sidecars: LocalSidecars
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


