from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Iterator

import pytest

from sidecar.exchange import Headers, Phase
from sidecar.failures import Code, ErrorReason, Failure
from sidecar.upstreams import http1
from sidecar.upstreams.http1 import Http1Connection
from sidecar.upstreams.http1_response import ResponseHead
from sidecar.upstreams.tcp_info import TcpInfo
from tests.kit.fakes import Clock, FakeTransport

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"
REQUEST = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


class Received:
    """Takes a response and keeps what came."""

    def __init__(self) -> None:
        self.head: ResponseHead | None = None
        self.body = b""
        self.ends = 0
        self.trailers: Headers = []
        self.interims: list[int] = []
        self.failure: Failure | None = None
        self.tunnel = b""
        self.instants: list[float] = []

    def interim(self, status: int, reason: bytes, headers: Headers) -> None:
        assert self.head is None
        self.interims.append(status)

    def received(self, head: ResponseHead | None, body: bytes, ended: bool, trailers: Headers, now: float) -> None:
        assert self.failure is None
        assert not self.ends
        self.head = head or self.head
        self.body += body
        self.ends += ended
        self.trailers = trailers
        self.instants.append(now)

    def failed(self, failure: Failure, now: float) -> None:
        assert self.failure is None
        assert not self.ends
        self.failure = failure

    def tunnelled(self, data: bytes, now: float) -> None:
        self.tunnel += data


class Wired:
    """A connection with a transport of the test's, and what it tells its pool."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.idle = 0
        self.closed = 0
        self.connection = Http1Connection(self.clock, 8192, self._idle, self._closed)
        self.transport = FakeTransport()
        self.connection.connection_made(self.transport)
        self.received = Received()

    def _idle(self, connection: Http1Connection) -> None:
        assert connection is self.connection
        self.idle += 1

    def _closed(self, connection: Http1Connection) -> None:
        assert connection is self.connection
        self.closed += 1

    def ask(self, *, sent: bool = True, method: bytes = b"GET") -> Received:
        """Start a request; `sent`: all of it was."""
        self.received = Received()
        self.connection.start(self.received, method, REQUEST)
        if sent:
            self.connection.request_sent(self.clock())
        return self.received

    def check(self, *, headers: float = 10.0, idle: float = 5.0) -> Failure | None:
        """Look for silence now."""
        self.connection.check_silence(self.clock(), headers, idle)
        return self.received.failure


@pytest.fixture
def wired() -> Wired:
    return Wired()


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


# ---- a response ----


def test_each_read_is_handed_on_in_the_callback_it_came_in(wired: Wired) -> None:
    received = wired.ask()
    assert bytes(wired.transport.written) == REQUEST
    wired.clock.advance(1)
    wired.connection.data_received(HEAD + b"he")
    assert (received.head is not None, received.body, received.ends) == (True, b"he", 0)
    wired.clock.advance(1)
    wired.connection.data_received(b"llo")
    assert (received.body, received.ends) == (b"hello", 1)
    assert received.instants == [101.0, 102.0]
    assert (wired.idle, wired.closed) == (1, 0)


def test_a_read_without_body_bytes_is_no_event(wired: Wired) -> None:
    received = wired.ask()
    wired.connection.data_received(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    wired.connection.data_received(b"5")
    wired.connection.data_received(b"\r\n")
    assert len(received.instants) == 1


def test_interim_responses_are_passed_before_the_final_one(wired: Wired) -> None:
    received = wired.ask()
    wired.connection.data_received(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n" + HEAD)
    assert received.interims == [100, 103]
    assert received.head is not None


def test_trailers_come_with_the_end(wired: Wired) -> None:
    received = wired.ask()
    wired.connection.data_received(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nT: 1\r\n\r\n")
    assert received.trailers == [(b"T", b"1")]


def test_one_request_follows_the_other(wired: Wired) -> None:
    for number in range(1, 4):
        received = wired.ask()
        wired.connection.data_received(HEAD + b"hello")
        assert received.ends == 1
        assert (wired.idle, wired.connection.requests) == (number, number)


@pytest.mark.parametrize(
    "wire",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
    ],
)
def test_a_connection_that_was_announced_to_close_is_not_kept(wire: bytes, wired: Wired) -> None:
    received = wired.ask()
    wired.connection.data_received(wire)
    assert received.ends == 1
    assert (wired.idle, wired.closed, wired.transport.aborted) == (0, 1, True)


def test_an_answer_before_the_request_was_sent_ends_the_connection(wired: Wired) -> None:
    received = wired.ask(sent=False)
    wired.connection.data_received(HEAD + b"hello")
    assert received.ends == 1
    assert (wired.idle, wired.closed) == (0, 1), "what is left of the request would be taken for another one"


def test_a_second_answer_is_never_given_to_the_next_request(wired: Wired) -> None:
    first = wired.ask()
    wired.connection.data_received(HEAD + b"hello" + HEAD + b"forge")
    assert first.body == b"hello"
    assert wired.connection.closed
    assert wired.idle == 0


def test_a_first_answer_that_is_whole_is_delivered_though_more_follows(wired: Wired) -> None:
    received = wired.ask()
    wired.connection.data_received(HEAD + b"hello" + b"stray")
    assert (received.body, received.ends, received.failure) == (b"hello", 1, None)


def test_bytes_that_nobody_asked_for_close_the_connection(wired: Wired) -> None:
    wired.ask()
    wired.connection.data_received(HEAD + b"hello")
    wired.connection.data_received(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
    assert (wired.connection.closed, wired.transport.aborted, wired.closed) == (True, True, 1)


def test_what_breaks_the_protocol_is_a_failure(wired: Wired) -> None:
    received = wired.ask()
    wired.connection.data_received(b"SSH-2.0-x\r\n")
    assert received.failure is not None
    assert (received.failure.code, received.failure.reason) == (Code.UPSTREAM_PROTOCOL, ErrorReason.PROTOCOL)
    assert not received.failure.request_untouched
    assert wired.closed == 1


def test_good_bytes_before_bad_ones_are_delivered(wired: Wired) -> None:
    received = wired.ask()
    wired.connection.data_received(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\nzzz\r\n")
    assert received.body == b"x"
    assert received.failure is not None


# ---- the end of the connection ----


def test_a_body_without_length_ends_with_the_connection(wired: Wired) -> None:
    received = wired.ask()
    wired.connection.data_received(b"HTTP/1.1 200 OK\r\n\r\nall of it")
    wired.connection.connection_lost(None)
    assert (received.body, received.ends, received.failure) == (b"all of it", 1, None)
    assert wired.idle == 0


def test_but_not_with_a_reset(wired: Wired) -> None:
    received = wired.ask()
    wired.connection.data_received(b"HTTP/1.1 200 OK\r\n\r\npart")
    wired.connection.connection_lost(ConnectionResetError(errno.ECONNRESET, "reset"))
    assert received.ends == 0
    assert received.failure is not None
    assert (received.failure.phase, received.failure.reason) == (Phase.RECEIVE, ErrorReason.RESET)


@pytest.mark.parametrize(
    ("sent", "wire", "phase"),
    [
        (False, b"", Phase.SEND),
        (True, b"", Phase.WAIT),
        (True, b"HTTP/1.1 20", Phase.WAIT),
        (True, HEAD + b"he", Phase.RECEIVE),
    ],
)
def test_a_connection_that_breaks_off_says_in_which_phase(sent: bool, wire: bytes, phase: Phase, wired: Wired) -> None:
    received = wired.ask(sent=sent)
    if wire:
        wired.connection.data_received(wire)
    wired.connection.connection_lost(None)
    assert received.failure is not None
    assert (received.failure.code, received.failure.phase, received.failure.reason) == (
        Code.UPSTREAM_CLOSED,
        phase,
        ErrorReason.CLOSED,
    )
    assert not received.failure.request_untouched, "a first request may have been read"


@pytest.mark.parametrize(
    ("acked", "wire", "error", "untouched"),
    [
        (5000, b"", None, True),
        (5001, b"", None, False),
        (-1, b"", None, False),
        (5000, b"HTTP/1.1 2", None, False),
        (5000, b"", ConnectionResetError(), False),
    ],
)
def test_the_request_is_untouched_when_no_byte_of_it_was_acknowledged(
    acked: int, wire: bytes, error: Exception | None, untouched: bool, wired: Wired
) -> None:
    with socket.socket() as sock, pytest.MonkeyPatch.context() as patch:
        wired.connection.sock = sock
        patch.setattr(http1.tcp_info, "read", lambda sock: TcpInfo(0.01, 0, 5000))
        wired.ask()
        wired.connection.data_received(HEAD)
        assert wired.connection.measure() == (0.01, 0)
        wired.connection.data_received(b"hello")
        received = wired.ask()
        if wire:
            wired.connection.data_received(wire)
        patch.setattr(http1.tcp_info, "read", lambda sock: TcpInfo(0.01, 0, acked))
        wired.connection.connection_lost(error)
    assert received.failure is not None
    assert received.failure.request_untouched is untouched


def test_retransmissions_are_counted_from_the_last_measure(wired: Wired, monkeypatch: pytest.MonkeyPatch) -> None:
    info = TcpInfo(0.01, 2, 5000)
    monkeypatch.setattr(http1.tcp_info, "read", lambda sock: info)
    assert wired.connection.measure() == (0.0, 0), "without a socket nothing is known"
    with socket.socket() as wired.connection.sock:
        assert wired.connection.measure() == (0.01, 2)
        assert wired.connection.measure() == (0.01, 0)
        info = TcpInfo(0.02, 5, 6000)
        assert wired.connection.measure() == (0.02, 3)


def test_discard_is_idempotent_and_tells_the_pool_once(wired: Wired) -> None:
    received = wired.ask()
    for _ in range(3):
        wired.connection.discard()
    wired.connection.connection_lost(None)
    wired.connection.timed_out(Code.STOPPING, Phase.RECEIVE, "x")
    assert wired.closed == 1
    assert wired.transport.aborted
    assert received.failure is None, "whoever discards knows already"


def test_the_receiver_may_discard_from_within(wired: Wired) -> None:
    received = wired.ask()
    took = received.received

    def leave(*arguments: object) -> None:
        took(*arguments)  # type: ignore[arg-type]
        wired.connection.discard()

    received.received = leave  # type: ignore[method-assign]
    wired.connection.data_received(HEAD + b"hello")
    assert (wired.closed, wired.idle) == (1, 0)


# ---- usable ----


def test_an_idle_connection_is_usable_until_something_comes(
    wired: Wired, sockets: tuple[socket.socket, socket.socket]
) -> None:
    wired.connection.sock, peer = sockets
    assert wired.connection.is_usable()
    peer.send(b"x")
    assert not wired.connection.is_usable()


def test_a_connection_that_the_peer_closed_is_not_usable(
    wired: Wired, sockets: tuple[socket.socket, socket.socket]
) -> None:
    wired.connection.sock, peer = sockets
    peer.close()
    assert not wired.connection.is_usable()


@pytest.mark.parametrize("state", ["discarded", "closing", "no socket"])
def test_a_connection_that_we_closed_is_not_usable(
    state: str, wired: Wired, sockets: tuple[socket.socket, socket.socket]
) -> None:
    wired.connection.sock = sockets[0] if state != "no socket" else None
    if state == "discarded":
        wired.connection.discard()
    elif state == "closing":
        wired.transport.close()
    assert not wired.connection.is_usable()


# ---- silence ----


def test_nothing_is_given_up_while_idle(wired: Wired) -> None:
    wired.clock.advance(1e6)
    assert wired.check() is None
    assert not wired.connection.closed


def test_while_sending_only_an_upstream_that_takes_nothing_is_given_up(wired: Wired) -> None:
    wired.ask(sent=False)
    wired.clock.advance(1000)
    assert wired.check() is None, "the application is slow to send"
    wired.connection.pause_writing()
    failure = wired.check()
    assert failure is not None
    assert (failure.code, failure.phase, failure.reason) == (Code.SEND_TIMEOUT, Phase.SEND, ErrorReason.TIMEOUT)
    assert wired.closed == 1


def test_an_upstream_that_takes_a_little_now_and_then_is_not_given_up(wired: Wired) -> None:
    wired.ask(sent=False)
    for _ in range(5):
        wired.connection.pause_writing()
        wired.clock.advance(4.9)
        assert wired.check() is None
        wired.connection.resume_writing()


def test_waiting_is_bounded_by_headers(wired: Wired) -> None:
    wired.ask()
    wired.clock.advance(9.9)
    assert wired.check() is None, "idle is shorter, but does not count before the head"
    wired.clock.advance(0.1)
    failure = wired.check()
    assert failure is not None
    assert (failure.code, failure.phase) == (Code.HEADERS_TIMEOUT, Phase.WAIT)
    assert failure.message == "no response head in 10 s (timeouts.headers)"


def test_interim_responses_do_not_prolong_the_wait(wired: Wired) -> None:
    wired.ask()
    for _ in range(4):
        wired.clock.advance(2.5)
        wired.connection.data_received(b"HTTP/1.1 102 Processing\r\n\r\n")
    assert wired.check() is not None


def test_receiving_is_bounded_by_idle_from_the_last_byte(wired: Wired) -> None:
    wired.ask()
    wired.connection.data_received(HEAD)
    wired.clock.advance(4.9)
    wired.connection.data_received(b"h")
    wired.clock.advance(4.9)
    assert wired.check() is None
    wired.clock.advance(0.1)
    failure = wired.check()
    assert failure is not None
    assert (failure.code, failure.phase) == (Code.IDLE_TIMEOUT, Phase.RECEIVE)


def test_a_client_that_holds_the_stream_up_is_not_the_upstreams_silence(wired: Wired) -> None:
    wired.ask()
    wired.connection.data_received(HEAD)
    wired.connection.pause_reading()
    wired.clock.advance(1000)
    assert wired.check() is None
    wired.connection.resume_reading()
    wired.clock.advance(4.9)
    assert wired.check() is None, "the time starts anew"
    wired.clock.advance(0.1)
    assert wired.check() is not None


def test_a_tunnel_is_silent_when_both_ends_are(wired: Wired) -> None:
    received = wired.ask()
    wired.connection.data_received(
        b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n\x81\x00"
    )
    assert received.tunnel == b"\x81\x00"
    wired.clock.advance(4.9)
    wired.connection.write(b"\x89\x00")
    wired.clock.advance(4.9)
    assert wired.check() is None
    wired.connection.data_received(b"\x8a\x00")
    assert received.tunnel == b"\x81\x00\x8a\x00"
    wired.clock.advance(5)
    assert wired.check() is not None


def test_a_tunnel_ends_with_the_connection(wired: Wired) -> None:
    received = wired.ask()
    wired.connection.data_received(b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
    wired.connection.connection_lost(ConnectionResetError())
    assert (received.ends, received.failure) == (1, None)


# ---- flow control ----


def test_reading_is_paused_and_resumed_once_each(wired: Wired) -> None:
    wired.connection.pause_reading()
    wired.connection.pause_reading()
    assert wired.transport.paused
    wired.connection.resume_reading()
    assert not wired.transport.paused


def test_an_exchange_that_ends_paused_leaves_the_connection_reading(wired: Wired) -> None:
    wired.ask()
    wired.connection.data_received(HEAD)
    wired.connection.pause_reading()
    wired.connection.data_received(b"hello")
    assert wired.idle == 1
    assert not wired.transport.paused, "it must hear when the upstream closes"


def test_nothing_is_written_to_a_closed_connection(wired: Wired) -> None:
    wired.ask()
    wired.connection.discard()
    wired.connection.write(b"more")
    wired.connection.pause_reading()
    assert bytes(wired.transport.written) == REQUEST
    assert not wired.transport.paused


async def test_drain_waits_until_the_upstream_takes_more(wired: Wired) -> None:
    wired.ask(sent=False)
    await wired.connection.drain()
    wired.connection.pause_writing()
    waiting = asyncio.ensure_future(wired.connection.drain())
    await asyncio.sleep(0)
    assert not waiting.done()
    wired.connection.resume_writing()
    await waiting


async def test_drain_ends_with_the_connection(wired: Wired) -> None:
    wired.ask(sent=False)
    wired.connection.pause_writing()
    waiting = asyncio.ensure_future(wired.connection.drain())
    await asyncio.sleep(0)
    wired.connection.discard()
    await waiting
    await wired.connection.drain()


async def test_a_drain_that_was_cancelled_does_not_hurt_the_one_who_wakes(wired: Wired) -> None:
    wired.connection.pause_writing()
    waiting = asyncio.ensure_future(wired.connection.drain())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    wired.connection.resume_writing()
    await wired.connection.drain()


def test_whoever_asked_is_told_once_that_it_can_write(wired: Wired) -> None:
    told: list[int] = []
    wired.connection.pause_writing()
    wired.connection.on_writable = lambda: told.append(1)
    wired.connection.resume_writing()
    wired.connection.resume_writing()
    assert told == [1]


# ---- what it shows ----


def test_repr_shows_the_state(wired: Wired) -> None:
    assert repr(wired.connection) == "<Http1Connection idle, 0 requests>"
    wired.ask(sent=False)
    assert repr(wired.connection) == "<Http1Connection sending, 1 requests>"
    wired.connection.request_sent(wired.clock())
    assert repr(wired.connection) == "<Http1Connection waiting, 1 requests>"
    wired.connection.data_received(HEAD)
    assert repr(wired.connection) == "<Http1Connection receiving, 1 requests>"
    wired.connection.data_received(b"hello")
    assert repr(wired.connection) == "<Http1Connection idle, 1 requests>"
    wired.ask()
    wired.connection.data_received(b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
    assert repr(wired.connection) == "<Http1Connection tunnel, 2 requests>"
    wired.connection.discard()
    assert repr(wired.connection) == "<Http1Connection closed, 2 requests>"
