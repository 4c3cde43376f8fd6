"""Certificates are verified on every path, and a handshake that hangs is given up in time."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from sidecar.config.load import load
from tests.conftest import UpstreamFactory
from tests.kit import events
from tests.kit.authority import ca_file, server_context
from tests.kit.client import CHAT_REQUEST, get, post
from tests.kit.local import LocalSidecars, name_server
from tests.kit.metrics import delta, outcomes
from tests.kit.on_the_way import FirstHandshakesReset, RecordingProxy
from tests.kit.upstream import Connection, answering, streaming
from tests.kit.wire import Ended

OK = events.body_response(b"ok")
STREAM = (events.ROLE, events.T("a"), events.FIN, events.DONE)
NAME = "api.example.test"


@pytest.mark.parametrize("by", ["setting", "SSL_CERT_FILE"])
async def test_net_09_a_private_authority_is_trusted_on_every_path(
    by: str,
    upstream: UpstreamFactory,
    sidecars: LocalSidecars,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A first request, a streamed one, and one after a reconnect; nothing of it shows in what the upstream gets."""
    certificates = str(ca_file(tmp_path))
    settings: dict[str, Any] = {}
    if by == "setting":
        settings["tls"] = {"ca_file": certificates}
    else:
        monkeypatch.setenv(by, certificates)
    server = await upstream(answering(OK), tls=server_context())
    sidecar = await sidecars(server, settings=settings)
    async with await sidecar.client() as client:
        assert (await client.request(body=events.DEFAULT_BODY)).status == 200
        server.script = streaming(*STREAM)
        await server.connections[0].close()
        response = await client.chat()
    assert response.body == b"".join(STREAM)
    assert server.accepted == 2
    assert [request.body for request in server.requests] == [events.DEFAULT_BODY] * 2


@pytest.mark.parametrize("by", ["setting", "SSL_CERT_FILE"])
async def test_net_09_a_handshake_that_was_reset_is_tried_once_more_with_the_same_trust(
    by: str,
    upstream: UpstreamFactory,
    sidecars: LocalSidecars,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    certificates = str(ca_file(tmp_path))
    settings: dict[str, Any] = {}
    if by == "setting":
        settings["tls"] = {"ca_file": certificates}
    else:
        monkeypatch.setenv(by, certificates)
    server = await upstream(answering(OK), tls=server_context())
    async with FirstHandshakesReset(("127.0.0.1", server.port), 1) as door:
        sidecar = await sidecars(f"https://127.0.0.1:{door.port}", settings=settings)
        before = await sidecar.metrics()
        response = await post(sidecar.data, "/v1/chat/completions", events.DEFAULT_BODY)
        after = await sidecar.metrics_after(before)
    assert response.status == 200
    assert [request.body for request in server.requests] == [events.DEFAULT_BODY]
    assert delta(before, after, "retries_total", reason="reset").value == 1
    assert delta(before, after, "connection_errors_total", phase="tls", reason="reset").value == 1
    assert delta(before, after, "tls").count == 1


async def test_net_09_handshakes_that_are_reset_again_are_a_502(
    upstream: UpstreamFactory, sidecars: LocalSidecars, tmp_path: Path
) -> None:
    server = await upstream(answering(OK), tls=server_context())
    async with FirstHandshakesReset(("127.0.0.1", server.port), 9) as door:
        tls = {"ca_file": str(ca_file(tmp_path))}
        sidecar = await sidecars(f"https://127.0.0.1:{door.port}", settings={"tls": tls})
        response = await get(sidecar.data, "/v1/models")
        assert door.accepted == 2
    assert (response.status, response.value("x-sidecar-error")) == (502, b"tls_failed")


async def test_net_09_without_the_authority_nothing_is_sent(upstream: UpstreamFactory, sidecars: LocalSidecars) -> None:
    server = await upstream(answering(OK), tls=server_context())
    sidecar = await sidecars(server)
    before = await sidecar.metrics()
    response = await post(sidecar.data, "/v1/chat/completions", events.DEFAULT_BODY)
    after = await sidecar.metrics_after(before)
    assert (response.status, response.value("x-sidecar-error")) == (502, b"tls_failed")
    assert b"certificate" in response.body
    assert delta(before, after, "connection_errors_total", phase="tls", reason="certificate").value == 1
    assert delta(before, after, "tls").count == 0
    assert outcomes(before, after) == {"network_error": 1}
    assert not server.requests


async def test_net_09_verification_is_switched_off_only_aloud(
    upstream: UpstreamFactory, sidecars: LocalSidecars, caplog: pytest.LogCaptureFixture
) -> None:
    server = await upstream(answering(OK), tls=server_context("elsewhere.test"))
    sidecar = await sidecars(server, settings={"tls": {"verify": False}})
    assert (await get(sidecar.data, "/v1/models")).status == 200
    assert [record.levelname for record in caplog.records if record.getMessage() == "tls_unverified"] == ["WARNING"]


async def test_net_09_a_client_certificate_is_shown(
    upstream: UpstreamFactory, sidecars: LocalSidecars, tmp_path: Path
) -> None:
    import ssl

    from tests.kit.authority import authority

    context = server_context()
    context.verify_mode = ssl.CERT_REQUIRED
    authority().configure_trust(context)
    mine = authority().issue_cert("sidecar.test")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    cert.write_bytes(b"".join(pem.bytes() for pem in mine.cert_chain_pems))
    key.write_bytes(mine.private_key_pem.bytes())
    server = await upstream(answering(OK), tls=context)
    tls = {"ca_file": str(ca_file(tmp_path)), "cert_file": str(cert), "key_file": str(key)}
    sidecar = await sidecars(server, settings={"tls": tls})
    assert (await get(sidecar.data, "/v1/models")).status == 200


async def test_net_11_a_silent_tls_peer_is_given_up_in_time(upstream: UpstreamFactory, sidecars: LocalSidecars) -> None:
    async def silent(connection: Connection) -> None:
        await connection.wait_closed()

    server = await upstream(silent)
    sidecar = await sidecars(f"https://127.0.0.1:{server.port}", settings={"timeouts": {"tls": "500ms"}})
    before = await sidecar.metrics()
    began = time.monotonic()
    response = await get(sidecar.data, "/v1/models")
    took = time.monotonic() - began
    after = await sidecar.metrics_after(before)
    assert (response.status, response.value("x-sidecar-error")) == (504, b"tls_timeout")
    assert 0.45 < took < 1.5
    assert (await server.connections[0].wait_closed(timeout=1)).how in (Ended.EOF, Ended.RST)
    assert server.accepted == 1
    assert delta(before, after, "connection_errors_total", phase="tls", reason="timeout").value == 1
    assert delta(before, after, "tls").count == 0
    assert outcomes(before, after) == {"timeout": 1}


@pytest.mark.parametrize("way", ["directly", "through a tunnel"])
async def test_net_11_there_is_no_total_timeout_to_get_wrong(
    way: str, upstream: UpstreamFactory, sidecars: LocalSidecars, tmp_path: Path
) -> None:
    server = await upstream(streaming(*STREAM[:2], 0.6, *STREAM[2:]), tls=server_context(NAME))
    place = ("127.0.0.1", server.port)
    async with RecordingProxy({f"{NAME}:{server.port}": place}) as proxy:
        timeouts = dict.fromkeys(("dns", "connect", "tls", "headers"), "500ms")
        sidecar = await sidecars(
            f"https://{NAME}:{server.port}",
            settings={
                "tls": {"ca_file": str(ca_file(tmp_path))},
                "timeouts": timeouts,
                "proxy": "none" if way == "directly" else proxy.url(),
            },
            lookup=name_server({NAME: [place]}),
        )
        async with await sidecar.client() as client:
            await client.send(CHAT_REQUEST)
            response = await client.response()
    assert (response.status, response.clean_end) == (200, True)


def test_net_11_a_total_timeout_is_no_setting(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("upstreams: [{name: a, url: 'https://a.test', timeouts: {total: 0}}]")
    with pytest.raises(Exception, match="total"):
        load(path, environ={})


async def test_a_server_that_speaks_plain_http_where_tls_is_expected_is_a_502(
    upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    async def plain(connection: Connection) -> None:
        await connection.until(lambda: bool(connection.buffer))
        await connection.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    server = await upstream(plain)
    sidecar = await sidecars(f"https://127.0.0.1:{server.port}")
    before = await sidecar.metrics()
    response = await get(sidecar.data, "/v1/models")
    after = await sidecar.metrics_after(before)
    assert (response.status, response.value("x-sidecar-error")) == (502, b"tls_failed")
    assert delta(before, after, "connection_errors_total", phase="tls", reason="protocol").value == 1
