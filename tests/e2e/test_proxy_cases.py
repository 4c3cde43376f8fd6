"""Proxies on the way: who goes through them, what they learn, and what becomes of their refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import UpstreamFactory
from tests.kit import events
from tests.kit.authority import ca_file, server_context
from tests.kit.client import get, post
from tests.kit.local import LocalSidecars, name_server
from tests.kit.metrics import delta
from tests.kit.on_the_way import RecordingProxy
from tests.kit.upstream import answering

OK = events.body_response(b"ok")
NAME = "api.example.test"


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
async def test_net_07_http_goes_through_the_proxy_in_absolute_form(
    variable: str, upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    server = await upstream(answering(OK))
    authority = f"{NAME}:{server.port}"
    async with RecordingProxy({authority: ("127.0.0.1", server.port)}) as proxy:
        sidecar = await sidecars(
            f"http://{authority}/base", environ={variable: proxy.url("user:p%40ss")}, lookup=name_server({})
        )
        response = await post(sidecar.data, "/v1/x%2Fy?z=%zz", b"{}", [(b"Proxy-Authorization", b"Basic app")])
    assert response.status == 200
    (head,) = proxy.heads
    lines = head.split(b"\r\n")
    assert lines[0] == f"POST http://{authority}/base/v1/x%2Fy?z=%zz HTTP/1.1".encode()
    assert f"Host: {authority}".encode() in lines
    assert [line for line in lines if line.lower().startswith(b"proxy-")] == [
        b"Proxy-Authorization: Basic dXNlcjpwQHNz"
    ]


@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "https_proxy", "all_proxy"])
async def test_net_07_https_goes_through_a_tunnel_that_sees_no_key(
    variable: str, upstream: UpstreamFactory, sidecars: LocalSidecars, tmp_path: Path
) -> None:
    server = await upstream(answering(OK), tls=server_context(NAME))
    async with RecordingProxy({f"{NAME}:443": ("127.0.0.1", server.port)}) as proxy:
        sidecar = await sidecars(
            f"https://{NAME}",
            settings={"tls": {"ca_file": str(ca_file(tmp_path))}},
            environ={variable: proxy.url("user:p%40ss")},
            lookup=name_server({}),
        )
        before = await sidecar.metrics()
        responses = [await post(sidecar.data, "/v1/x", b"{}") for _ in range(2)]
        after = await sidecar.metrics_after(before, 2)
    assert [response.status for response in responses] == [200, 200]
    assert proxy.heads == [
        f"CONNECT {NAME}:443 HTTP/1.1\r\nHost: {NAME}:443\r\n"
        "Proxy-Authorization: Basic dXNlcjpwQHNz\r\n\r\n".encode()
    ]  # fmt: skip
    assert server.server_names == [NAME]
    request = server.requests[0]
    assert request.target == b"/v1/x"
    assert request.value("host") == NAME.encode()
    assert request.value("proxy-authorization") is None
    assert delta(before, after, "connect").count == delta(before, after, "tls").count == 1


EXCLUDED = [NAME, ".example.test", "other, example.test", f"{NAME}:{{port}}", "*", "10.0.0.0/8 api.example.test"]
INCLUDED = ["", "other.test", f"{NAME}:1", "pi.example.test", "10.0.0.0/8"]


@pytest.mark.parametrize("variable", ["NO_PROXY", "no_proxy"])
@pytest.mark.parametrize("no_proxy", EXCLUDED + INCLUDED)
async def test_net_07_no_proxy_decides_who_is_asked_directly(
    no_proxy: str, variable: str, upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    """A network excludes hosts written as addresses only: no name is looked up to decide."""
    server = await upstream(answering(OK))
    place = ("127.0.0.1", server.port)
    async with RecordingProxy({f"{NAME}:{server.port}": place}) as proxy:
        sidecar = await sidecars(
            f"http://{NAME}:{server.port}",
            environ={"HTTP_PROXY": proxy.url(), variable: no_proxy.format(port=server.port)},
            lookup=name_server({NAME: [place]}),
        )
        assert (await get(sidecar.data, "/v1/models")).status == 200
    assert proxy.accepted == (no_proxy in INCLUDED)
    assert len(server.requests) == 1


async def test_net_07_loopback_is_never_asked_through_a_proxy_of_the_environment(
    upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    server = await upstream(answering(OK))
    async with RecordingProxy({}) as proxy:
        environ = {"HTTP_PROXY": proxy.url(), "HTTPS_PROXY": proxy.url(), "ALL_PROXY": proxy.url()}
        sidecar = await sidecars(server, environ=environ)
        assert (await get(sidecar.data, "/v1/models")).status == 200
    assert not proxy.accepted


@pytest.mark.parametrize("setting", ["none", "url"])
async def test_net_07_a_setting_beats_the_environment(
    setting: str, upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    server = await upstream(answering(OK))
    place = ("127.0.0.1", server.port)
    routes = {f"{NAME}:{server.port}": place}
    async with RecordingProxy(routes) as of_environment, RecordingProxy(routes) as of_setting:
        sidecar = await sidecars(
            f"http://{NAME}:{server.port}",
            settings={"proxy": "none" if setting == "none" else of_setting.url()},
            environ={"HTTP_PROXY": of_environment.url()},
            lookup=name_server({NAME: [place]}),
        )
        assert (await get(sidecar.data, "/v1/models")).status == 200
    assert not of_environment.accepted
    assert of_setting.accepted == (setting == "url")


REFUSALS = [
    (b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n", 502, b"proxy_failed", "proxy"),
    (b"HTTP/1.1 502 Bad Gateway\r\n\r\n", 502, b"proxy_failed", "proxy"),
    (b"HTTP/1.1 200 OK\r\n\r\nbytes of its own", 502, b"proxy_failed", "proxy"),
    (b"SSH-2.0-x\r\n\r\n", 502, b"proxy_failed", "proxy"),
    (b"", 504, b"connect_timeout", "timeout"),
]


@pytest.mark.parametrize(("answer", "status", "code", "reason"), REFUSALS)
async def test_net_07_a_proxy_that_refuses_is_a_failure_of_connecting(
    answer: bytes, status: int, code: bytes, reason: str, sidecars: LocalSidecars
) -> None:
    async with RecordingProxy({}, answer=answer) as proxy:
        settings = {"proxy": proxy.url("user:secret"), "timeouts": {"connect": "300ms"}}
        sidecar = await sidecars(f"https://{NAME}", settings=settings)
        before = await sidecar.metrics()
        response = await get(sidecar.data, "/v1/models")
        after = await sidecar.metrics_after(before)
    assert (response.status, response.value("x-sidecar-error")) == (status, code)
    assert delta(before, after, "connection_errors_total", phase="connect", reason=reason).value == 1
    assert b"secret" not in response.body
    assert proxy.accepted == 1
