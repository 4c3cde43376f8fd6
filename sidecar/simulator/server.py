"""The simulator as a whole: in a process of its own (`sidecar simulate`) or inside tests and the demo."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import ssl
import sys
from collections import deque

from sidecar.config.model import Address
from sidecar.simulator.certificate import MissingCryptography, make_certificate
from sidecar.simulator.connection import Connection
from sidecar.simulator.knobs import Knobs
from sidecar.simulator.listening import DelayedServer, listen, serve
from sidecar.simulator.responder import Setting
from sidecar.simulator.truths import Ledger, Truth


class Simulator:
    """A simulated LLM API on one socket of the running event loop.

    `ttft` and `itl` are seconds, `tokens` the visible output tokens of an answer; requests may ask otherwise by header.
    `accept_delay` holds back every new connection, `tls_delay` those with TLS, both before the first byte is read.
    `keep` is how many truths are remembered; `ca_pem` is what `/x-sim/ca.pem` hands out.
    """

    def __init__(
        self,
        *,
        ttft: float = 0.2,
        itl: float = 0.02,
        tokens: int = 64,
        accept_delay: float = 0.0,
        tls_delay: float = 0.0,
        keep: int = 1000,
        ca_pem: str = "",
    ) -> None:
        self._ledger = Ledger(keep)
        self._setting = Setting(Knobs(ttft=ttft, itl=itl, tokens=tokens), self._ledger, ca_pem)
        self._accept_delay, self._tls_delay = accept_delay, tls_delay
        self._live: set[Connection] = set()
        self._server: asyncio.Server | DelayedServer | None = None

    async def start(self, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None) -> Address:
        """Listen; gives the address that was bound. Raises OSError when it cannot be."""
        loop = asyncio.get_running_loop()
        sock, address = listen(host, port)
        delay = self._accept_delay + (self._tls_delay if tls else 0.0)
        self._server = await serve(sock, lambda: Connection(loop, self._setting, self._live), tls, delay)
        return address

    async def stop(self) -> None:
        """Stop listening and drop all connections."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        for connection in list(self._live):
            connection.close()
        # Connections amid their handshake are not ours to drop yet.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(server.wait_closed(), 1.0)

    @property
    def truths(self) -> deque[Truth]:
        """What was really done for the last requests, oldest first."""
        return self._ledger.truths

    @property
    def requests(self) -> int:
        """Requests since the start; questions about the simulator itself do not count."""
        return self._ledger.requests

    @property
    def connections_opened(self) -> int:
        """Connections accepted since the start (after their TLS handshake)."""
        return self._ledger.connections_opened

    @property
    def connections_open(self) -> int:
        """Connections that are open now."""
        return self._ledger.connections_open

    @property
    def tls_resumed(self) -> int:
        """TLS handshakes that resumed a session."""
        return self._ledger.tls_resumed

    def truth(self, number: int) -> Truth:
        """The truth of the request with this id, as in the response header `x-sim-id`. Raises KeyError."""
        for truth in reversed(self.truths):
            if truth.id == number:
                return truth
        raise KeyError(number)


def run(*, listen: Address, ttft: float, itl: float, tokens: int, tls: bool, grpc: Address | None) -> int:
    """Serve until SIGINT or SIGTERM; gives the exit code: 0 stopped, 1 could not listen, 2 cannot do what was asked."""
    import uvloop  # noqa: PLC0415  (whoever only builds a Simulator brings a loop)

    if grpc is not None:
        return _fail(2, "the simulator has no gRPC yet: leave out --grpc")
    try:
        certificate = make_certificate((listen.host,)) if tls else None
    except MissingCryptography as problem:
        return _fail(2, str(problem))
    simulator = Simulator(ttft=ttft, itl=itl, tokens=tokens, ca_pem=certificate.ca_pem if certificate else "")

    async def main() -> int:
        stopping = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stopping.set)
        try:
            address = await simulator.start(listen.host, listen.port, certificate.context if certificate else None)
        except OSError as problem:
            return _fail(1, f"cannot listen on {listen}: {problem.strerror or problem}")
        url = f"{'https' if certificate else 'http'}://{address}"
        trust = f" (CA at {url}/x-sim/ca.pem, SHA-256 {certificate.fingerprint})" if certificate else ""
        sys.stdout.write(f"simulated LLM API at {url}{trust}\n")
        sys.stdout.flush()
        _quiet_collector()
        await stopping.wait()
        await simulator.stop()
        return 0

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


def _quiet_collector() -> None:
    """Keep the garbage collector away from what lives for ever: its pauses would show as late events."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def _fail(code: int, message: str) -> int:
    sys.stderr.write(f"sidecar simulate: {message}\n")
    return code
