from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import time
from pathlib import Path
from typing import Any

import pytest

from sidecar.config.model import ProxyUrl, Secret, Timeouts, Tls, Upstream, Url
from sidecar.exchange import Phase
from sidecar.failures import Code, ErrorReason, Failure
from sidecar.upstreams import dial
from sidecar.upstreams.dial import Dialled, Dialler, basic_credentials, reason_of
from sidecar.upstreams.resolver import AddrInfo, Resolver, literal_address
from sidecar.upstreams.tls import client_context
from tests.conftest import UpstreamFactory
from tests.kit.authority import ca_file, server_context
from tests.kit.fakes import make_upstream
from tests.kit.upstream import Connection, ScriptedUpstream
from tests.kit.wire import ConnectionEnded


class Quiet(asyncio.Protocol):
    """A protocol that only listens."""


async def silent(connection: Connection) -> None:
    """Say nothing until the peer leaves."""
    await connection.until(lambda: False, 60)


def url_of(listening: ScriptedUpstream, host: str | None = None) -> Url:
    return Url("https" if listening.url.startswith("https") else "http", host or listening.host, listening.port)


async def names(host: str, port: int) -> tuple[list[AddrInfo], float]:
    """Knows localhost and `nobody`, where nobody listens."""
    if host not in ("localhost", "nobody"):
        raise OSError("Domain name not found")
    found = literal_address("127.0.0.1", port)
    assert found is not None
    return [found], 60.0


def dialler(upstream: Upstream) -> Dialler:
    clock = time.monotonic
    context = client_context(upstream.tls, clock, upstream.name) if upstream.url.secure else None
    return Dialler(upstream, Resolver(names, clock), context, clock)


async def refused_port() -> int:
    """A port of the loopback on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


async def failure_of(upstream: Upstream) -> Failure:
    with pytest.raises(Failure) as caught:
        await dialler(upstream).dial(Quiet)
    assert caught.value.request_untouched, "no dial can have sent a byte of a request"
    return caught.value


def close(dialled: Dialled) -> None:
    dialled.transport.abort()


async def test_a_connection_comes_with_the_seconds_of_its_phases(upstream: UpstreamFactory) -> None:
    listening = await upstream(silent)
    dialled = await dialler(make_upstream(url_of(listening, "localhost"))).dial(Quiet)
    assert isinstance(dialled.protocol, Quiet)
    assert dialled.dns is not None
    assert dialled.dns >= 0.0
    assert 0.0 < dialled.connect < 0.5
    assert dialled.tls is None
    assert dialled.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert dialled.sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert dialled.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == dial.KEEPALIVE_IDLE_SECONDS
    close(dialled)


async def test_an_address_needs_no_dns(upstream: UpstreamFactory) -> None:
    listening = await upstream(silent)
    dialled = await dialler(make_upstream(url_of(listening))).dial(Quiet)
    assert dialled.dns is None
    close(dialled)


async def test_tls_is_a_phase_of_its_own(upstream: UpstreamFactory, tmp_path: Path) -> None:
    listening = await upstream(silent, tls=server_context("localhost"), handshake_delay=0.05)
    tls = Tls(ca_file=str(ca_file(tmp_path)))
    dialled = await dialler(make_upstream(url_of(listening, "localhost"), tls=tls)).dial(Quiet)
    assert dialled.tls is not None
    assert dialled.tls >= 0.045
    assert dialled.connect < 0.045, "the server's delay is no part of TCP"
    assert listening.server_names == ["localhost"]
    close(dialled)


async def test_server_name_is_what_the_certificate_is_held_against(upstream: UpstreamFactory, tmp_path: Path) -> None:
    listening = await upstream(silent, tls=server_context("api.internal"))
    tls = Tls(ca_file=str(ca_file(tmp_path)), server_name="api.internal")
    close(await dialler(make_upstream(url_of(listening), tls=tls)).dial(Quiet))
    assert listening.server_names == ["api.internal"]


async def test_a_certificate_of_a_stranger_is_named_as_the_reason(upstream: UpstreamFactory) -> None:
    listening = await upstream(silent, tls=server_context("localhost"))
    failure = await failure_of(make_upstream(url_of(listening, "localhost")))
    assert (failure.code, failure.phase, failure.reason) == (Code.TLS_FAILED, Phase.TLS, ErrorReason.CERTIFICATE)
    assert "certificate not accepted: unable to get local issuer certificate" in failure.message


async def test_a_server_that_speaks_no_tls_breaks_the_protocol(upstream: UpstreamFactory) -> None:
    async def plain(connection: Connection) -> None:
        await connection.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    listening = await upstream(plain)
    failure = await failure_of(make_upstream(Url("https", "localhost", listening.port)))
    assert (failure.code, failure.reason) == (Code.TLS_FAILED, ErrorReason.PROTOCOL)


async def test_a_handshake_that_does_not_end_is_given_up(upstream: UpstreamFactory) -> None:
    listening = await upstream(silent)
    settings = Timeouts(tls=0.05)
    failure = await failure_of(make_upstream(Url("https", "127.0.0.1", listening.port), timeouts=settings))
    assert (failure.code, failure.phase, failure.reason) == (Code.TLS_TIMEOUT, Phase.TLS, ErrorReason.TIMEOUT)
    await listening.connections[0].wait_closed()


async def test_nobody_listening_is_a_refusal() -> None:
    failure = await failure_of(make_upstream(Url("http", "127.0.0.1", await refused_port())))
    assert (failure.code, failure.phase, failure.reason) == (Code.CONNECT_FAILED, Phase.CONNECT, ErrorReason.REFUSED)


async def test_an_unknown_name_is_a_failure_of_dns() -> None:
    failure = await failure_of(make_upstream(Url("http", "unknown.example", 80)))
    assert (failure.code, failure.phase) == (Code.DNS_FAILED, Phase.DNS)


async def test_a_connection_that_does_not_come_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*args: Any, **options: Any) -> socket.socket:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr("aiohappyeyeballs.start_connection", never)
    failure = await failure_of(make_upstream(Url("http", "127.0.0.1", 9), timeouts=Timeouts(connect=0.02)))
    assert (failure.code, failure.phase, failure.reason) == (
        Code.CONNECT_TIMEOUT,
        Phase.CONNECT,
        ErrorReason.TIMEOUT,
    )
    assert failure.message == "no TCP connection to http://127.0.0.1:9 in 0.02 s"


async def test_a_dial_that_is_cancelled_leaves_no_connection(upstream: UpstreamFactory) -> None:
    listening = await upstream(silent)
    dialling = asyncio.ensure_future(dialler(make_upstream(Url("https", "127.0.0.1", listening.port))).dial(Quiet))
    await listening.wait_for_connections(1)
    dialling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await dialling
    await listening.connections[0].wait_closed()


# ---- through a proxy ----


def behind(listening: ScriptedUpstream, **settings: Any) -> Upstream:
    """`https://api.example` behind the proxy at `listening`."""
    proxy = ProxyUrl("127.0.0.1", listening.port, **settings)
    return make_upstream(Url("https", "api.example", 443), proxy=proxy, timeouts=Timeouts(connect=0.2, tls=0.05))


async def test_tls_to_the_api_goes_through_the_tunnel(upstream: UpstreamFactory) -> None:
    hello: list[bytes] = []

    async def proxy(connection: Connection) -> None:
        await connection.read_request()
        await connection.send(b"HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\n")
        await connection.until(lambda: len(connection.buffer) > 5)
        hello.append(bytes(connection.buffer[:2]))

    listening = await upstream(proxy)
    await failure_of(behind(listening, username="me", password=Secret("pass:word")))
    (request,) = listening.requests
    assert request.head == (
        b"CONNECT api.example:443 HTTP/1.1\r\nHost: api.example:443\r\n"
        b"Proxy-Authorization: Basic bWU6cGFzczp3b3Jk\r\n\r\n"
    )
    assert hello == [b"\x16\x03"], "a TLS handshake record"


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "407 Proxy Authentication Required"),
        (b"SSH-2.0-x\r\n\r\n", "no HTTP answer"),
        (b"HTTP/1.1 200 OK\r\n\r\nmore", "200 OK"),
        (b"x" * 20_000, "no HTTP answer"),
    ],
)
async def test_a_proxy_that_refuses_is_quoted(answer: bytes, shown: str, upstream: UpstreamFactory) -> None:
    async def proxy(connection: Connection) -> None:
        await connection.read_request()
        await connection.send(answer)

    failure = await failure_of(behind(await upstream(proxy), username="me", password=Secret("hunter2")))
    assert (failure.code, failure.reason) == (Code.PROXY_FAILED, ErrorReason.PROXY)
    assert failure.message.endswith(f"refused the tunnel to api.example:443: {shown}")
    assert "hunter2" not in failure.message


async def test_a_proxy_that_closes_is_a_reset(upstream: UpstreamFactory) -> None:
    async def proxy(connection: Connection) -> None:
        await connection.read_request()
        raise ConnectionEnded

    failure = await failure_of(behind(await upstream(proxy)))
    assert (failure.code, failure.phase, failure.reason) == (Code.PROXY_FAILED, Phase.CONNECT, ErrorReason.RESET)


async def test_a_proxy_that_is_silent_is_given_up(upstream: UpstreamFactory) -> None:
    failure = await failure_of(behind(await upstream(silent)))
    assert (failure.code, failure.phase) == (Code.CONNECT_TIMEOUT, Phase.CONNECT)
    assert "did not answer CONNECT in 0.2 s" in failure.message


# ---- errors ----


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.ECONNREFUSED, "x"), ErrorReason.REFUSED),
        (OSError(errno.EHOSTUNREACH, "x"), ErrorReason.UNREACHABLE),
        (OSError(errno.ETIMEDOUT, "x"), ErrorReason.TIMEOUT),
        (ConnectionResetError(), ErrorReason.RESET),
        (BrokenPipeError(errno.EPIPE, "x"), ErrorReason.RESET),
        (ssl.SSLCertVerificationError(), ErrorReason.CERTIFICATE),
        (ssl.SSLError(), ErrorReason.PROTOCOL),
        (OSError("who knows"), ErrorReason.OTHER),
        (ValueError(), ErrorReason.OTHER),
    ],
)
def test_errors_of_the_socket_layer_have_a_closed_set_of_reasons(error: Exception, reason: ErrorReason) -> None:
    assert reason_of(error) is reason


def test_credentials_may_be_any_text() -> None:
    assert basic_credentials(ProxyUrl("p", 1, "ü", Secret("p:w"))) == "Basic w7w6cDp3"
