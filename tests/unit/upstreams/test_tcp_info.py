from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from sidecar.upstreams import tcp_info
from sidecar.upstreams.tcp_info import NOTHING


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = socket.create_connection(listening.getsockname())
        server, _ = listening.accept()
    with client, server:
        yield client, server


def test_a_connection_over_the_loopback_has_a_short_round_trip(pair: tuple[socket.socket, socket.socket]) -> None:
    info = tcp_info.read(pair[0])
    assert 0.0 < info.rtt < 0.5
    assert info.retransmits == 0


def test_bytes_count_as_acked_when_the_peer_has_them(pair: tuple[socket.socket, socket.socket]) -> None:
    client, server = pair
    before = tcp_info.read(client).bytes_acked
    client.sendall(b"x" * 1000)
    assert server.recv(1000, socket.MSG_WAITALL) == b"x" * 1000
    server.sendall(b"y")  # carries the acknowledgement
    assert client.recv(1) == b"y"
    assert tcp_info.read(client).bytes_acked - before == 1000


def test_what_is_no_tcp_connection_tells_nothing() -> None:
    with socket.socket(socket.AF_UNIX) as other:
        assert tcp_info.read(other) == NOTHING


def test_a_closed_socket_tells_nothing() -> None:
    closed = socket.socket()
    closed.close()
    assert tcp_info.read(closed) == NOTHING


def test_the_structure_of_an_older_kernel_tells_nothing() -> None:
    class Old:
        def getsockopt(self, level: int, option: int, size: int) -> bytes:
            return bytes(104)

    assert tcp_info.read(Old()) == NOTHING  # type: ignore[arg-type]


def test_fields_are_read_where_linux_puts_them() -> None:
    class Known:
        def getsockopt(self, level: int, option: int, size: int) -> bytes:
            raw = bytearray(size)
            raw[68:72] = (12_345).to_bytes(4, "little")  # tcpi_rtt, in microseconds
            raw[100:104] = (7).to_bytes(4, "little")  # tcpi_total_retrans
            raw[120:128] = (1 << 40).to_bytes(8, "little")  # tcpi_bytes_acked
            return bytes(raw)

    info = tcp_info.read(Known())  # type: ignore[arg-type]
    assert info.rtt == pytest.approx(0.012345)
    assert (info.retransmits, info.bytes_acked) == (7, 1 << 40)
