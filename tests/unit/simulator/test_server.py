from __future__ import annotations

import asyncio
import signal
import ssl
import sys
from time import monotonic

import pytest

from sidecar.config.model import Address
from sidecar.simulator.certificate import make_certificate
from sidecar.simulator.server import Simulator, run


async def get(address: Address, path: str, tls: ssl.SSLContext | None = None) -> bytes:
    reader, writer = await asyncio.open_connection(
        address.host, address.port, ssl=tls, server_hostname="localhost" if tls else None
    )
    writer.write(f"GET {path} HTTP/1.1\r\nhost: sim\r\nconnection: close\r\n\r\n".encode())
    data = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    return data


async def test_the_authority_is_handed_out_over_tls_and_facts_are_noted() -> None:
    certificate = make_certificate()
    simulator = Simulator(ca_pem=certificate.ca_pem)
    address = await simulator.start(tls=certificate.context)
    client = certificate.client_context()
    pem = await get(address, "/x-sim/ca.pem", client)
    assert pem.endswith(certificate.ca_pem.encode())
    await get(address, "/v1/models", client)
    assert simulator.requests == 1, "questions about the simulator are none of its requests"
    facts = simulator.truths[0].connection
    assert (facts.tls_version, facts.tls_resumed, facts.id) == ("TLSv1.3", False, 2)
    await simulator.stop()


async def test_a_tls_delay_holds_back_the_handshake_and_not_the_connection() -> None:
    certificate = make_certificate()
    simulator = Simulator(tls_delay=0.2)
    address = await simulator.start(tls=certificate.context)
    start = monotonic()
    _, writer = await asyncio.open_connection(address.host, address.port)
    connected = monotonic() - start
    await writer.start_tls(certificate.client_context(), server_hostname="localhost")
    shaken = monotonic() - start
    assert connected < 0.15
    assert shaken >= 0.2
    writer.close()
    await simulator.stop()


async def test_an_accept_delay_holds_back_the_first_answer_of_a_connection_only() -> None:
    simulator = Simulator(accept_delay=0.2)
    address = await simulator.start()
    reader, writer = await asyncio.open_connection(address.host, address.port)
    waits = []
    for _ in range(2):
        start = monotonic()
        writer.write(b"GET /v1/models HTTP/1.1\r\nhost: sim\r\n\r\n")
        await reader.readuntil(b"]}")
        waits.append(monotonic() - start)
    assert waits[0] >= 0.2
    assert waits[1] < 0.15
    writer.close()
    await simulator.stop()


async def test_stopping_drops_connections_that_are_being_served() -> None:
    simulator = Simulator(ttft=60)
    address = await simulator.start()
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(b'POST /v1/messages HTTP/1.1\r\nhost: sim\r\ncontent-length: 15\r\n\r\n{"stream":true}')
    assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")
    await simulator.stop()
    with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
        await reader.readexactly(1 << 20)
    assert simulator.truths[0].ending == "cancelled"
    writer.close()


CODE = """
from sidecar.config.model import Address
from sidecar.simulator.server import run
raise SystemExit(run(listen=Address("127.0.0.1", 0), ttft=0.0, itl=0.0, tokens=3, tls=%s, grpc=None))
"""


@pytest.mark.parametrize(("number", "tls"), [(signal.SIGTERM, False), (signal.SIGINT, True)])
async def test_the_program_tells_its_url_and_ends_cleanly_on_a_signal(number: signal.Signals, tls: bool) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CODE % tls, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    line = (await asyncio.wait_for(process.stdout.readline(), 30)).decode()
    scheme = "https" if tls else "http"
    assert line.startswith(f"simulated LLM API at {scheme}://127.0.0.1:")
    assert ("/x-sim/ca.pem, SHA-256 " in line) == tls
    process.send_signal(number)
    out, err = await asyncio.wait_for(process.communicate(), 10)
    assert (process.returncode, out, err) == (0, b"", b"")


async def test_a_taken_port_is_one_line_and_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    simulator = Simulator()
    address = await simulator.start()
    code = await asyncio.to_thread(_run_quietly, address)
    assert code == 1
    assert capsys.readouterr().err == f"sidecar simulate: cannot listen on {address}: Address already in use\n"
    await simulator.stop()


def _run_quietly(address: Address) -> int:
    # Signal handlers belong to the main thread; this run ends before it would need them.
    from unittest.mock import patch

    import uvloop

    with patch.object(uvloop.Loop, "add_signal_handler"):
        return run(listen=address, ttft=0, itl=0, tokens=1, tls=False, grpc=None)


def test_grpc_is_refused_as_long_as_there_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    code = run(listen=Address("127.0.0.1", 0), ttft=0, itl=0, tokens=1, tls=False, grpc=Address("127.0.0.1", 0))
    assert code == 2
    assert "no gRPC" in capsys.readouterr().err
