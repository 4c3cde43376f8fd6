from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sidecar.exchange import Exchange, Headers
from sidecar.failures import Code, Failure
from sidecar.http_fields import Framing
from sidecar.proxy.relay import Relay, server_timing
from sidecar.upstreams.http1_response import ResponseHead, ResponseParser
from tests.kit.fakes import Clock, FakeDownstream, make_exchange

STREAM: Headers = [(b"Content-Type", b"text/event-stream")]
FAILED = Failure(Code.UPSTREAM_CLOSED, "it closed")
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":1}}\n\n'
TOKEN = b'data: {"choices":[{"delta":{"content":"a"}}],"usage":null}\n\n'
TOKEN_SHOWN = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'


class FakeConnection:
    """The upstream's side, as far as a relay knows it."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.written = b""
        self.write_paused = False
        self.on_writable: Callable[[], None] | None = None

    def pause_reading(self) -> None:
        self.calls.append("pause_reading")

    def resume_reading(self) -> None:
        self.calls.append("resume_reading")

    def discard(self) -> None:
        self.calls.append("discard")

    def write(self, data: bytes) -> None:
        self.written += data

    def measure(self) -> tuple[float, int]:
        return 0.025, 3


class NotingMeter:
    """Notes its calls among those of the application's side."""

    def __init__(self, downstream: FakeDownstream) -> None:
        self._downstream = downstream
        self.added: list[tuple[float, bytes]] = []

    def add(self, at: float, data: bytes) -> None:
        self._downstream.calls.append("meter")
        self.added.append((at, data))


class Relayed:
    """A relay between an application and an upstream of the test's."""

    def __init__(self, *, server_timing: bool = False, via: bool = False, **request: Any) -> None:
        self.clock = Clock(101.0)
        self.downstream = FakeDownstream(**request)
        self.exchange: Exchange = make_exchange(t_conn=100.25, t_send0=100.25, t_send1=100.5)
        self.meter = NotingMeter(self.downstream)
        self.connection = FakeConnection()
        self.relay = Relay(
            self.exchange,
            self.downstream,
            self.meter,  # type: ignore[arg-type]
            self.clock,
            server_timing=server_timing,
            via=via,
        )
        self.relay.connection = self.connection  # type: ignore[assignment]

    def receive(self, body: bytes = b"", *, ended: bool = False, head: ResponseHead | None = None) -> None:
        self.relay.received(head, body, ended, [], self.clock())

    @property
    def result(self) -> Failure | None:
        return self.relay.done.result()


@pytest.fixture
async def relayed() -> Callable[..., Relayed]:
    return Relayed


def head(status: int = 200, headers: Headers | None = None, framing: Framing = Framing.CHUNKED) -> ResponseHead:
    return ResponseHead(status, b"OK", list(STREAM if headers is None else headers), framing)


Make = Callable[..., Relayed]


# ---- the way back ----


async def test_bytes_go_to_the_application_before_their_copy_is_kept(relayed: Make) -> None:
    the = relayed()
    the.receive(b"one", head=head())
    the.receive(b"two")
    assert the.downstream.calls == ["send", "meter", "send", "meter"]
    assert the.downstream.data == b"onetwo"
    assert the.meter.added == [(101.0, b"one"), (101.0, b"two")]


async def test_the_head_marks_the_exchange(relayed: Make) -> None:
    the = relayed()
    the.receive(head=head(201))
    exchange = the.exchange
    assert (exchange.t_hdr, exchange.status, exchange.response_headers) == (101.0, 201, STREAM)
    assert (exchange.rtt, exchange.retransmits) == (0.025, 3)
    assert not the.relay.done.done()


async def test_the_end_marks_the_exchange_and_resolves_done(relayed: Make) -> None:
    the = relayed()
    the.receive(b"abc", head=head())
    the.clock.advance(1)
    the.receive(b"de", ended=True)
    assert the.result is None
    assert (the.exchange.t_end, the.exchange.response_bytes) == (102.0, 5)
    assert the.downstream.sent[-1].ended
    assert the.downstream.observer is None, "the next request's flow is not this one's"


async def test_trailers_and_interim_responses_pass(relayed: Make) -> None:
    the = relayed()
    the.relay.interim(103, b"Early Hints", [(b"Link", b"</a>")])
    the.relay.received(head(), b"x", True, [(b"X-Sum", b"1")], 101.0)
    assert the.downstream.interims == [103]
    assert the.downstream.sent[-1].trailers == [(b"X-Sum", b"1")]


async def test_the_time_between_read_and_written_is_our_own(relayed: Make) -> None:
    the = relayed()
    send = the.downstream.send

    def slow_send(*arguments: Any) -> None:
        the.clock.advance(0.125)
        send(*arguments)

    the.downstream.send = slow_send  # type: ignore[method-assign]
    the.receive(b"a", head=head())
    the.receive(b"b")
    assert the.exchange.response_overheads == [0.125, 0.125]


async def test_what_is_added_to_the_head_is_added_once(relayed: Make) -> None:
    the = relayed(server_timing=True, via=True)
    the.receive(b"a", head=head())
    the.receive(b"b", ended=True)
    first, second = the.downstream.sent
    assert first.extra == [b"Server-Timing: blocked;dur=250.00, send;dur=250.00, wait;dur=500.00", b"Via: 1.1 sidecar"]
    assert second.extra == []


async def test_server_timing_names_the_dialling_that_was_waited_for() -> None:
    exchange = make_exchange(
        t_conn=100.3, dns=0.1, connect=0.125, tls=0.075, t_send0=100.3, t_send1=100.3125, t_hdr=101.0
    )
    assert server_timing(exchange) == (
        b"Server-Timing: blocked;dur=0.00, dns;dur=100.00, connect;dur=125.00, tls;dur=75.00, "
        b"send;dur=12.50, wait;dur=687.50"
    )


@pytest.mark.parametrize("reused", [True, False])
async def test_server_timing_names_no_dialling_when_none_was_waited_for(reused: bool) -> None:
    exchange = make_exchange(t_conn=100.25, t_send0=100.25, t_send1=100.5, t_hdr=101.0, connection_reused=reused)
    assert server_timing(exchange) == b"Server-Timing: blocked;dur=250.00, send;dur=250.00, wait;dur=500.00"


@pytest.mark.parametrize("reused", [True, False])
async def test_an_early_answer_has_no_wait(reused: bool) -> None:
    exchange = make_exchange(t_conn=100.0, t_send0=100.0, t_hdr=100.5, connection_reused=reused)
    assert server_timing(exchange) == b"Server-Timing: blocked;dur=0.00, send;dur=500.00, wait;dur=0.00"


# ---- failures ----


async def test_a_failure_before_the_head_is_for_whoever_waits(relayed: Make) -> None:
    the = relayed()
    the.relay.failed(FAILED, 102.0)
    assert the.result is FAILED
    assert the.downstream.calls == [], "nothing was sent, so that it can be tried again or answered"
    assert the.exchange.failure is None


async def test_a_failure_after_the_head_is_never_a_clean_end(relayed: Make) -> None:
    the = relayed()
    the.receive(b"part", head=head())
    the.relay.failed(FAILED, 102.0)
    assert the.downstream.calls == ["send", "meter", "abort"]
    assert the.exchange.failure is FAILED
    assert the.exchange.t_end == 102.0
    assert the.result is None, "there is nothing to answer any more"


async def test_it_ends_once(relayed: Make) -> None:
    the = relayed()
    the.receive(b"x", head=head(), ended=True)
    the.relay.failed(FAILED, 103.0)
    the.receive(b"late")
    the.relay.interim(103, b"", [])
    the.relay.tunnelled(b"late", 103.0)
    the.relay.client_paused()
    assert the.downstream.data == b"x"
    assert the.exchange.failure is None
    assert the.downstream.interims == []
    assert the.downstream.tunnelled == b""
    assert the.connection.calls == []


async def test_a_relay_that_was_rearmed_takes_another_response(relayed: Make) -> None:
    the = relayed()
    the.relay.failed(FAILED, 101.0)
    the.relay.rearm()
    assert the.relay.connection is None
    the.receive(b"x", head=head(), ended=True)
    assert the.result is None
    assert the.downstream.data == b"x"


async def test_a_client_that_left_takes_the_upstream_exchange_with_it(relayed: Make) -> None:
    the = relayed()
    the.receive(b"x", head=head())
    the.clock.advance(1)
    the.relay.client_gone()
    assert the.exchange.client_gone
    assert the.exchange.t_end == 102.0
    assert the.connection.calls == ["discard"]
    assert the.result is None


async def test_a_client_that_left_after_the_end_did_not_cancel_it(relayed: Make) -> None:
    the = relayed()
    the.receive(b"x", head=head(), ended=True)
    the.relay.client_gone()
    assert not the.exchange.client_gone


# ---- flow ----


async def test_a_slow_client_holds_the_upstream_and_its_time_is_counted(relayed: Make) -> None:
    the = relayed()
    the.receive(b"x", head=head())
    the.relay.client_paused()
    the.relay.client_paused()
    the.clock.advance(2)
    the.relay.client_resumed()
    the.relay.client_resumed()
    the.clock.advance(5)
    the.relay.client_paused()
    the.clock.advance(0.5)
    the.relay.client_resumed()
    assert the.connection.calls == ["pause_reading", "resume_reading"] * 2
    assert the.exchange.client_wait == 2.5


async def test_a_connection_is_not_read_while_what_came_before_is_not_taken(relayed: Make) -> None:
    the = relayed(writing_paused=True)
    the.relay.attach(the.connection)
    assert the.connection.calls == ["pause_reading"]
    the.clock.advance(2)
    the.relay.client_resumed()
    assert the.connection.calls == ["pause_reading", "resume_reading"]
    assert the.exchange.client_wait == 2.0


async def test_a_pause_between_the_request_and_its_connection_holds_the_connection(relayed: Make) -> None:
    the = relayed()
    the.relay.connection = None
    the.relay.client_paused()
    the.relay.attach(the.connection)
    assert the.connection.calls == ["pause_reading"]


async def test_an_exchange_that_ends_while_paused_counts_the_pause(relayed: Make) -> None:
    the = relayed()
    the.receive(b"x", head=head())
    the.relay.client_paused()
    the.clock.advance(3)
    the.receive(b"y", ended=True)
    assert the.exchange.client_wait == 3
    the.clock.advance(3)
    the.relay.client_resumed()
    assert the.exchange.client_wait == 3
    assert "resume_reading" not in the.connection.calls, "the connection is somebody else's by now"


# ---- usage that the application did not ask for ----


async def test_usage_is_read_and_does_not_go_on(relayed: Make) -> None:
    the = relayed()
    the.relay.hide_usage()
    the.receive(TOKEN[:20], head=head())
    the.receive(TOKEN[20:] + USAGE + b"data: [DONE]\n\n", ended=True)
    assert the.downstream.data == TOKEN_SHOWN + b"data: [DONE]\n\n"
    assert b"".join(data for _, data in the.meter.added) == TOKEN + USAGE + b"data: [DONE]\n\n"
    assert the.exchange.response_bytes == len(TOKEN + USAGE + b"data: [DONE]\n\n")


async def test_an_event_that_never_ended_goes_on_with_the_end(relayed: Make) -> None:
    the = relayed()
    the.relay.hide_usage()
    the.receive(b"data: cut", head=head(), ended=True)
    assert the.downstream.data == b"data: cut"


async def test_a_stream_of_known_length_gets_another_framing_when_it_is_changed(relayed: Make) -> None:
    the = relayed()
    the.relay.hide_usage()
    known = head(headers=[*STREAM, (b"CONTENT-length", b"999"), (b"X-A", b"1")], framing=Framing.LENGTH)
    the.receive(USAGE[:20], head=known)
    sent = the.downstream.sent[0].head
    assert sent is not None
    assert sent.framing is Framing.CHUNKED
    assert (sent.headers, sent.lines) == ([*STREAM, (b"X-A", b"1")], None)
    the.receive(USAGE[20:] + TOKEN, ended=True)
    assert the.downstream.data == TOKEN_SHOWN


async def test_fields_that_end_here_do_not_come_back_with_another_framing(relayed: Make) -> None:
    parser = ResponseParser(8192)
    parser.expect(b"POST")
    parser.feed(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: X-Hop, content-TYPE\r\nX-Hop: 1\r\n"
        b"Keep-Alive: timeout=5\r\nX-A: 1\r\nContent-Length: 999\r\n\r\n"
    )
    the = relayed()
    the.relay.hide_usage()
    the.receive(head=parser.take()[0])
    sent = the.downstream.sent[0].head
    assert sent is not None
    assert (sent.headers, sent.lines) == ([*STREAM, (b"X-A", b"1")], None)


@pytest.mark.parametrize(
    "other",
    [
        head(429),
        head(headers=[(b"Content-Type", b"application/json")]),
        head(headers=[]),
        head(headers=[*STREAM, (b"Content-Encoding", b"gzip")]),
    ],
)
async def test_what_is_no_plain_event_stream_goes_on_whole(other: ResponseHead, relayed: Make) -> None:
    the = relayed()
    the.relay.hide_usage()
    the.receive(b"no blank line", head=other)
    the.receive(USAGE)
    assert the.downstream.data == b"no blank line" + USAGE


# ---- tunnels ----


async def test_after_a_101_bytes_pass_both_ways(relayed: Make) -> None:
    the = relayed(upgrade=True)
    the.receive(head=head(101, framing=Framing.NONE))
    assert the.downstream.calls == ["send", "start_tunnel"]
    assert the.exchange.tunnel
    the.relay.tunnelled(b"from the server", 101.5)
    the.relay.from_client(b"from the client")
    assert (the.downstream.tunnelled, the.connection.written) == (b"from the server", b"from the client")
    assert (the.exchange.response_bytes, the.exchange.request_bytes) == (15, 15)
    assert the.meter.added == [(101.5, b"from the server")]


async def test_a_client_is_held_when_the_upstream_takes_no_more(relayed: Make) -> None:
    the = relayed(upgrade=True)
    the.receive(head=head(101, framing=Framing.NONE))
    the.connection.write_paused = True
    the.relay.from_client(b"x")
    assert the.downstream.calls[-1] == "pause_reading"
    assert the.connection.on_writable is not None
    the.connection.on_writable()
    assert the.downstream.calls[-1] == "resume_reading"


@pytest.mark.parametrize("who", ["upstream", "client"])
async def test_a_tunnel_ends_at_both_ends(who: str, relayed: Make) -> None:
    the = relayed(upgrade=True)
    the.receive(head=head(101, framing=Framing.NONE))
    if who == "upstream":
        the.receive(ended=True)
    else:
        the.relay.client_closed()
        assert the.connection.calls == ["discard"]
    assert the.downstream.calls[-1] == "close"
    assert the.result is None
    the.relay.from_client(b"late")
    assert the.connection.written == b""


async def test_a_switch_that_nobody_asked_for_is_refused(relayed: Make) -> None:
    the = relayed()
    the.receive(head=head(101, framing=Framing.NONE))
    assert the.result is not None
    assert the.result.code is Code.UPSTREAM_PROTOCOL
    assert the.connection.calls == ["discard"]
    assert the.downstream.calls == []
