"""Fields pass in their order and spelling; only what belongs to one hop ends there (RFC 9110 §7.6.1)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import UpstreamFactory
from tests.kit import events
from tests.kit.authority import ca_file, server_context
from tests.kit.client import get
from tests.kit.h1 import RawRequest
from tests.kit.local import LocalSidecars, name_server
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


def fields_without_host(request: RawRequest) -> list[tuple[bytes, bytes]]:
    return [(name, value) for name, value in request.headers if name.lower() != b"host"]


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
        response = await client.request(
            "GET", "/v1/models", [(b"X-Multi", b"1"), (b"X-Other", b"0"), (b"X-Multi", b"2")]
        )
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


async def test_via_true_adds_it_to_requests(upstream: UpstreamFactory, sidecars: LocalSidecars) -> None:
    """RFC 9110 §7.6.3: a proxy that says so at all says it to both sides."""
    server = await upstream(answering(OK))
    sidecar = await sidecars(server, via=True)
    async with await sidecar.client() as client:
        await client.request("GET", "/v1/models", [(b"Via", b"1.0 app")])
    assert server.requests[0].values("via") == [b"1.0 app", b"1.1 sidecar"]
