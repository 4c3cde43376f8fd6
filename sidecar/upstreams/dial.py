"""From a name to a connection that is ready: DNS, TCP, the proxy's CONNECT, TLS, each timed and each bounded."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import aiohappyeyeballs

from sidecar.config.model import ProxyUrl, Upstream
from sidecar.exchange import Phase
from sidecar.failures import Code, ErrorReason, Failure
from sidecar.upstreams import tcp_info
from sidecar.upstreams.resolver import Resolver
from sidecar.upstreams.tls import handshake_seconds

ATTEMPT_DELAY_SECONDS = 0.25
"""RFC 8305 §5: how long an address may take before the next one is tried beside it."""

KEEPALIVE_IDLE_SECONDS = 60
KEEPALIVE_INTERVAL_SECONDS = 15
KEEPALIVE_PROBES = 4
"""A reasoning model is silent for minutes; NATs and load balancers forget a silent connection after about 350 s."""

_REASONS = {
    errno.ECONNREFUSED: ErrorReason.REFUSED,
    errno.ECONNRESET: ErrorReason.RESET,
    errno.EPIPE: ErrorReason.RESET,
    errno.EHOSTUNREACH: ErrorReason.UNREACHABLE,
    errno.ENETUNREACH: ErrorReason.UNREACHABLE,
    errno.ETIMEDOUT: ErrorReason.TIMEOUT,
}

_CONNECT_HEAD_LIMIT = 16 * 1024


@dataclass(slots=True)
class Dialled:
    """A connected transport with the seconds its phases took; `dns` None: the name was not asked for."""

    transport: asyncio.Transport
    protocol: asyncio.BaseProtocol
    sock: socket.socket
    dns: float | None
    connect: float
    tls: float | None


class Dialler:
    """Opens connections to one upstream."""

    def __init__(
        self, upstream: Upstream, resolver: Resolver, context: ssl.SSLContext | None, clock: Callable[[], float]
    ) -> None:
        self._upstream = upstream
        self._resolver = resolver
        self._context = context
        self._clock = clock

    async def dial(self, factory: Callable[[], asyncio.BaseProtocol]) -> Dialled:
        """Connect and hand the transport to a protocol of `factory`. Raises Failure, always before any request byte."""
        upstream = self._upstream
        clock = self._clock
        target = upstream.proxy or upstream.url
        began = clock()
        addresses, asked = await self._resolver.resolve(target.host, target.port, upstream.timeouts.dns)
        resolved = clock()
        sock = await self._connect(addresses)
        connect = clock() - resolved
        try:
            info = tcp_info.read(sock)
            if info.rtt:
                # The kernel's figure of the handshake has no wake-up of this loop in it.
                connect = min(connect, info.rtt)
            if upstream.proxy is not None and upstream.url.secure:
                before = clock()
                await self._tunnel(sock, upstream.proxy)
                connect += clock() - before
            transport, protocol, tls = await self._attach(sock, factory)
        except BaseException:
            sock.close()
            raise
        return Dialled(transport, protocol, sock, resolved - began if asked else None, connect, tls)

    async def _connect(self, addresses: list[tuple[int, int, int, str, tuple[object, ...]]]) -> socket.socket:
        upstream = self._upstream
        with _explained(f"cannot connect to {upstream.proxy or upstream.url}", Code.CONNECT_FAILED, Phase.CONNECT):
            try:
                async with asyncio.timeout(upstream.timeouts.connect):
                    sock = await aiohappyeyeballs.start_connection(
                        addresses,
                        happy_eyeballs_delay=ATTEMPT_DELAY_SECONDS,
                        interleave=1,
                    )
            except TimeoutError as error:
                raise Failure(
                    Code.CONNECT_TIMEOUT,
                    f"no TCP connection to {upstream.proxy or upstream.url} in {upstream.timeouts.connect:g} s",
                    Phase.CONNECT,
                    ErrorReason.TIMEOUT,
                    request_untouched=True,
                ) from error
        _tune(sock)
        return sock

    async def _tunnel(self, sock: socket.socket, proxy: ProxyUrl) -> None:
        """CONNECT through an HTTP proxy (RFC 9110 §9.3.6), on the bare socket: no byte beyond the answer follows it."""
        loop = asyncio.get_running_loop()
        url = self._upstream.url
        host = f"[{url.host}]" if ":" in url.host else url.host
        lines = [f"CONNECT {host}:{url.port} HTTP/1.1", f"Host: {host}:{url.port}"]
        if proxy.username:
            lines.append(f"Proxy-Authorization: {basic_credentials(proxy)}")
        request = ("\r\n".join(lines) + "\r\n\r\n").encode()
        head = b""
        with _explained(f"the proxy {proxy} failed", Code.PROXY_FAILED, Phase.CONNECT):
            try:
                async with asyncio.timeout(self._upstream.timeouts.connect):
                    await loop.sock_sendall(sock, request)
                    while b"\r\n\r\n" not in head and len(head) < _CONNECT_HEAD_LIMIT:
                        part = await loop.sock_recv(sock, 4096)
                        if not part:
                            raise ConnectionResetError(errno.ECONNRESET, "closed before its answer")
                        head += part
            except TimeoutError as error:
                raise Failure(
                    Code.CONNECT_TIMEOUT,
                    f"the proxy {proxy} did not answer CONNECT in {self._upstream.timeouts.connect:g} s",
                    Phase.CONNECT,
                    ErrorReason.TIMEOUT,
                    request_untouched=True,
                ) from error
        status = head.split(b"\r\n", 1)[0].split(b" ")
        if len(status) < 2 or status[1] != b"200" or not head.endswith(b"\r\n\r\n"):
            shown = b" ".join(status[1:])[:80].decode("latin-1") or "no HTTP answer"
            raise Failure(
                Code.PROXY_FAILED,
                f"the proxy {proxy} refused the tunnel to {url.host}:{url.port}: {shown}",
                Phase.CONNECT,
                ErrorReason.PROXY,
                request_untouched=True,
            )

    async def _attach(
        self, sock: socket.socket, factory: Callable[[], asyncio.BaseProtocol]
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol, float | None]:
        loop = asyncio.get_running_loop()
        if self._context is None:
            transport, protocol = await loop.create_connection(factory, sock=sock)
            return transport, protocol, None
        upstream = self._upstream
        name = upstream.tls.server_name or upstream.url.host
        began = self._clock()
        with _explained(f"TLS with {upstream.url} failed", Code.TLS_FAILED, Phase.TLS):
            try:
                async with asyncio.timeout(upstream.timeouts.tls):
                    transport, protocol = await loop.create_connection(
                        factory, sock=sock, ssl=self._context, server_hostname=name
                    )
            except TimeoutError as error:
                raise Failure(
                    Code.TLS_TIMEOUT,
                    f"{upstream.url} did not finish the TLS handshake in {upstream.timeouts.tls:g} s",
                    Phase.TLS,
                    ErrorReason.TIMEOUT,
                    request_untouched=True,
                ) from error
        took = handshake_seconds(transport.get_extra_info("ssl_object"))
        return transport, protocol, self._clock() - began if took is None else took


def basic_credentials(proxy: ProxyUrl) -> str:
    """The value of Proxy-Authorization for a proxy's user and password (RFC 7617)."""
    pair = f"{proxy.username}:{proxy.password.reveal()}"
    return "Basic " + base64.b64encode(pair.encode()).decode()


def reason_of(error: BaseException) -> ErrorReason:
    """The closed reason for an error of the socket layer."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return ErrorReason.CERTIFICATE
    if isinstance(error, ssl.SSLError):
        return ErrorReason.PROTOCOL
    if isinstance(error, OSError) and error.errno in _REASONS:
        return _REASONS[error.errno]
    if isinstance(error, ConnectionResetError | BrokenPipeError | ConnectionAbortedError):
        return ErrorReason.RESET
    return ErrorReason.OTHER


@contextlib.contextmanager
def _explained(what: str, code: Code, phase: Phase) -> Iterator[None]:
    """Turn errors of the socket and TLS layers into a Failure that says what was tried."""
    try:
        yield
    except (OSError, ssl.CertificateError) as error:
        detail = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        if isinstance(error, ssl.SSLCertVerificationError):
            detail = f"certificate not accepted: {error.verify_message}"
        raise Failure(code, f"{what}: {detail}", phase, reason_of(error), request_untouched=True) from error


def _tune(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", KEEPALIVE_IDLE_SECONDS),
        ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL_SECONDS),
        ("TCP_KEEPCNT", KEEPALIVE_PROBES),
    ):
        if hasattr(socket, option):  # Linux; elsewhere the system's own figures stand
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
