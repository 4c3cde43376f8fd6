from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sidecar.config.model import Config, Limits
from sidecar.exchange import Exchange, Headers, Phase
from sidecar.failures import Code, ErrorReason, Failure
from sidecar.http_fields import Framing
from sidecar.proxy.forward import IDEMPOTENT, Proxy
from sidecar.proxy.ledger import Ledger
from sidecar.proxy.route import Origin, Router
from sidecar.upstreams.http1_response import ResponseHead
from tests.kit.fakes import Clock, FakeDownstream, Observed, make_upstream

CHAT = b'{"model":"gpt","stream":true}'
ASKED = b'{"model":"gpt","stream":true,"stream_options":{"include_usage":true}}'
DEAD = Failure(Code.UPSTREAM_CLOSED, "closed", Phase.WAIT, ErrorReason.CLOSED, request_untouched=True)
CUT = Failure(Code.UPSTREAM_CLOSED, "closed", Phase.WAIT, ErrorReason.RESET)

Script = Callable[["ScriptedConnection"], Awaitable[None]]


def response(status: int = 200, headers: Headers | None = None) -> ResponseHead:
    return ResponseHead(status, b"OK", headers or [], Framing.LENGTH)


async def answers(connection: ScriptedConnection) -> None:
    await connection.whole_request()
    connection.receiver.received(response(), b"ok", True, [], connection.clock())


def fails(failure: Failure) -> Script:
    async def script(connection: ScriptedConnection) -> None:
        connection.receiver.failed(failure, connection.clock())

    return script


async def waits(connection: ScriptedConnection) -> None:
    """Never answers."""


class ScriptedConnection:
    """An upstream's connection that keeps what it is sent and does what a script says once a request has begun."""

    def __init__(self, script: Script, clock: Clock) -> None:
        self.clock = clock
        self.receiver: Any = None
        self.written = b""
        self.discarded = False
        self.write_paused = False
        self.drained = 0
        self.reading_paused = False
        self._script = script
        self._sent = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    def start(self, receiver: Any, method: bytes, data: bytes) -> None:
        self.receiver = receiver
        self.written = data
        self.task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        await self._script(self)

    def request_sent(self, now: float) -> None:
        self._sent.set()

    async def whole_request(self) -> None:
        await self._sent.wait()

    def write(self, data: bytes) -> None:
        self.written += data

    async def drain(self) -> None:
        self.drained += 1

    def discard(self) -> None:
        self.discarded = True

    def measure(self) -> tuple[float, int]:
        return 0.01, 0

    def pause_reading(self) -> None:
        self.reading_paused = True

    def resume_reading(self) -> None:
        self.reading_paused = False


class ScriptedPool:
    """Gives kept connections, then new ones; a Failure among the new ones is raised."""

    def __init__(self) -> None:
        self.kept: list[ScriptedConnection] = []
        self.new: list[ScriptedConnection | Failure] = []

    def take(self) -> ScriptedConnection | None:
        return self.kept.pop(0) if self.kept else None

    async def acquire(self, exchange: Exchange) -> ScriptedConnection:
        await asyncio.sleep(0)
        made = self.new.pop(0)
        if isinstance(made, Failure):
            raise made
        return made


class Proxied:
    """A proxy before one scripted upstream."""

    def __init__(self, *, injects: bool = False, **limits: int) -> None:
        self.clock = Clock()
        self.pool = ScriptedPool()
        self.observed = Observed()
        self.ledger = Ledger(self.observed)
        upstream = make_upstream(prefix="/api")
        origin = Origin(upstream, self.pool, b"Host: api.example", b"", b"", injects)  # type: ignore[arg-type]
        config = Config((upstream,), limits=Limits(**limits), server_timing=False)
        self.proxy = Proxy(config, Router([origin]), self.ledger, self.observed, self.clock)

    def upstream(self, script: Script, *, kept: bool = False) -> ScriptedConnection:
        """Put a connection in place."""
        connection = ScriptedConnection(script, self.clock)
        (self.pool.kept if kept else self.pool.new).append(connection)
        return connection

    async def handle(self, **request: Any) -> FakeDownstream:
        """Serve one request to its end."""
        downstream = FakeDownstream(**{"target": b"/api/v1/chat/completions", **request})
        await asyncio.wait_for(self.proxy.handle(downstream), 5)
        assert self.proxy.in_flight == 0
        assert self.observed.running == 0
        return downstream

    def recorded(self) -> Exchange:
        """The one exchange that was recorded."""
        self.ledger.flush()
        (exchange,) = self.observed.recorded
        return exchange


Make = Callable[..., Proxied]


@pytest.fixture
async def proxied() -> Make:
    return Proxied


def error(downstream: FakeDownstream) -> tuple[int, str]:
    """Status and code of an answer of our own."""
    (sent,) = downstream.sent
    assert sent.head is not None
    assert sent.ended
    code = dict(sent.head.headers)[b"x-sidecar-error"].decode()
    assert json.loads(sent.body)["error"]["code"] == code
    return sent.head.status, code


# ---- one request ----


async def test_a_request_is_carried_and_recorded(proxied: Make) -> None:
    the = proxied()
    connection = the.upstream(answers)
    downstream = await the.handle(parts=[CHAT], headers=[(b"Host", b"me"), (b"Content-Length", b"29")])
    assert connection.written == (
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: api.example\r\nContent-Length: 29\r\n\r\n" + CHAT
    )
    assert downstream.data == b"ok"
    exchange = the.recorded()
    assert (exchange.upstream, exchange.status, exchange.connection_reused) == ("api", 200, False)
    assert (exchange.request_bytes, exchange.response_bytes) == (len(CHAT), 2)
    assert exchange.target == "/api/v1/chat/completions"
    assert the.proxy.last_ended == 100.0


async def test_a_kept_connection_is_taken_first(proxied: Make) -> None:
    the = proxied()
    connection = the.upstream(answers, kept=True)
    await the.handle()
    assert connection.written
    assert the.recorded().connection_reused


async def test_a_body_that_has_arrived_in_chunks_is_sent_in_one(proxied: Make) -> None:
    the = proxied()
    connection = the.upstream(answers)
    await the.handle(parts=[b"abc", b"defghijklmno"], chunked=True)
    assert connection.written.endswith(b"\r\nTransfer-Encoding: chunked\r\n\r\nf\r\nabcdefghijklmno\r\n0\r\n\r\n")


async def test_an_empty_chunked_body_is_just_its_end(proxied: Make) -> None:
    the = proxied()
    connection = the.upstream(answers)
    await the.handle(chunked=True)
    assert connection.written.endswith(b"\r\n\r\n0\r\n\r\n")


# ---- a body that still arrives ----


@pytest.mark.parametrize(("chunked", "sent"), [(False, b"onetwo"), (True, b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n")])
async def test_a_body_is_passed_on_as_it_arrives(chunked: bool, sent: bytes, proxied: Make) -> None:
    the = proxied()
    connection = the.upstream(answers)
    await the.handle(parts=[b"one", b"two"], arrived=False, chunked=chunked)
    assert connection.written.partition(b"\r\n\r\n")[2] == sent
    assert the.recorded().request_bytes == 6


async def test_what_was_asked_is_known_of_a_body_that_streamed_up(proxied: Make) -> None:
    the = proxied()
    the.upstream(answers)
    await the.handle(parts=[CHAT[:10], CHAT[10:]], arrived=False)
    the.recorded()
    (kept,) = the.ledger.last
    assert kept.model == "gpt"


async def test_an_upstream_that_takes_no_more_holds_the_upload(proxied: Make) -> None:
    the = proxied()
    connection = the.upstream(answers)
    connection.write_paused = True
    await the.handle(parts=[b"one", b"two"], arrived=False)
    assert connection.drained == 3, "after each part and at the end"


async def test_an_answer_before_the_end_of_the_body_stops_the_upload(proxied: Make) -> None:
    async def refuses(connection: ScriptedConnection) -> None:
        connection.receiver.received(response(413), b"no", True, [], connection.clock())

    the = proxied()
    the.upstream(refuses)
    parts: list[bytes | Exception] = [b"x"] * 10_000
    downstream = await the.handle(parts=parts, arrived=False)
    assert downstream.data == b"no"
    assert the.recorded().request_bytes < 10_000


async def test_a_client_that_breaks_off_its_body_left(proxied: Make) -> None:
    the = proxied()
    connection = the.upstream(waits)
    downstream = await the.handle(parts=[b"one", ConnectionResetError()], arrived=False)
    exchange = the.recorded()
    assert exchange.client_gone
    assert connection.discarded
    assert downstream.sent == []


async def test_a_body_that_is_framed_wrongly_is_refused(proxied: Make) -> None:
    the = proxied()
    connection = the.upstream(waits)
    downstream = await the.handle(parts=[b"one", Failure(Code.BAD_REQUEST, "bad chunk")], arrived=False)
    assert error(downstream) == (400, "bad_request")
    assert connection.discarded


# ---- what is refused ----


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        ({"method": "CONNECT", "target": b"api.example:443"}, (400, "bad_request")),
        ({"target": b"http://other.example/"}, (400, "bad_request")),
        ({"target": b"*", "method": "OPTIONS"}, (400, "bad_request")),
        ({"target": b"/elsewhere"}, (404, "no_upstream")),
        ({"headers": [(b"Host", b"a"), (b"Host", b"b")]}, (400, "bad_request")),
        ({"declared_length": 101, "arrived": False}, (413, "body_too_large")),
        ({"parts": [b"x" * 101]}, (413, "body_too_large")),
        ({"parts": [b"x" * 60, b"x" * 60], "arrived": False}, (413, "body_too_large")),
    ],
)
async def test_what_may_not_go_on_is_refused(request_: dict[str, Any], answer: tuple[int, str], proxied: Make) -> None:
    the = proxied(max_request_body=100)
    the.upstream(waits)
    assert error(await the.handle(**request_)) == answer
    exchange = the.recorded()
    assert exchange.failure is not None
    assert exchange.status == answer[0]


@pytest.mark.parametrize("injects", [True, False])
async def test_a_body_that_is_declared_too_large_is_refused_before_any_of_it_is_read(
    injects: bool, proxied: Make
) -> None:
    the = proxied(injects=injects, max_request_body=100)
    the.upstream(waits)
    downstream = await the.handle(parts=[b"x" * 60, b"x" * 60], arrived=False, declared_length=120)
    assert error(downstream) == (413, "body_too_large")
    assert len(downstream.body._parts) == 2
    assert the.pool.new, "no connection was taken for it"


async def test_more_than_max_in_flight_are_turned_away(proxied: Make) -> None:
    the = proxied(max_in_flight=1)
    connection = the.upstream(waits)
    first = asyncio.ensure_future(the.proxy.handle(FakeDownstream(target=b"/api/x")))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    second = FakeDownstream(target=b"/api/x")
    await the.proxy.handle(second)
    assert error(second) == (503, "overloaded")
    assert dict(second.sent[0].head.headers)[b"Retry-After"] == b"1"  # type: ignore[union-attr]
    assert the.proxy.in_flight == 1
    connection.receiver.received(response(), b"", True, [], 101.0)
    await first
    assert the.proxy.in_flight == 0


async def test_an_answer_to_head_has_no_body(proxied: Make) -> None:
    the = proxied()
    downstream = await the.handle(method="HEAD", target=b"/elsewhere")
    (sent,) = downstream.sent
    assert sent.head is not None
    assert sent.body == b""
    assert int(dict(sent.head.headers)[b"Content-Length"]) > 0


async def test_the_answer_is_in_the_shape_of_the_dialect_that_was_asked_for(proxied: Make) -> None:
    the = proxied()
    the.pool.new.append(Failure(Code.DNS_FAILED, "no such name", Phase.DNS))
    downstream = await the.handle(target=b"/api/v1/messages")
    assert json.loads(downstream.data)["type"] == "error"


# ---- failures and another try ----


async def test_a_refused_connection_is_answered_and_logged(proxied: Make, caplog: pytest.LogCaptureFixture) -> None:
    the = proxied()
    the.pool.new.append(Failure(Code.CONNECT_FAILED, "refused", Phase.CONNECT, ErrorReason.REFUSED))
    with caplog.at_level(logging.WARNING, "sidecar"):
        assert error(await the.handle(parts=[b"secret body"], target=b"/api/x?key=secret")) == (502, "connect_failed")
    (record,) = caplog.records
    assert record.message == "request_not_carried"
    assert "secret" not in str(record.__dict__)


async def test_a_handshake_that_was_reset_is_tried_once_more(proxied: Make) -> None:
    the = proxied()
    reset = Failure(Code.TLS_FAILED, "reset", Phase.TLS, ErrorReason.RESET)
    the.pool.new.append(reset)
    the.upstream(answers)
    assert (await the.handle()).data == b"ok"
    assert the.observed.events == [("retry", "api", ErrorReason.RESET)]
    assert the.recorded().retried == "reset"

    the.pool.new += [reset, reset]
    assert error(await the.handle()) == (502, "tls_failed")


@pytest.mark.parametrize("method", ["POST", "GET"])
async def test_a_kept_connection_that_was_dead_already_is_replaced(method: str, proxied: Make) -> None:
    the = proxied()
    dead = the.upstream(fails(DEAD), kept=True)
    alive = the.upstream(answers)
    downstream = await the.handle(method=method, parts=[b"body"])
    assert downstream.data == b"ok"
    assert alive.written == dead.written
    assert the.observed.events == [("retry", "api", ErrorReason.CLOSED)]
    assert not the.recorded().connection_reused


@pytest.mark.parametrize("method", ["POST", "PATCH", *sorted(IDEMPOTENT)])
async def test_a_request_that_may_have_been_accepted_goes_again_only_when_that_does_no_harm(
    method: str, proxied: Make
) -> None:
    the = proxied()
    the.upstream(fails(CUT), kept=True)
    the.upstream(answers)
    downstream = await the.handle(method=method)
    if method in IDEMPOTENT:
        assert downstream.data == b"ok"
    else:
        assert error(downstream) == (502, "upstream_closed")
        assert the.observed.events == []


async def test_on_a_new_connection_nothing_is_sent_again(proxied: Make) -> None:
    the = proxied()
    the.upstream(fails(CUT))
    the.upstream(answers)
    assert error(await the.handle(method="GET")) == (502, "upstream_closed")


async def test_a_second_dead_connection_is_the_end(proxied: Make) -> None:
    the = proxied()
    for _ in range(3):
        the.upstream(fails(DEAD), kept=True)
    assert error(await the.handle()) == (502, "upstream_closed")
    assert len(the.pool.kept) == 1


async def test_a_body_that_streamed_up_cannot_go_again(proxied: Make) -> None:
    the = proxied()
    the.upstream(fails(DEAD), kept=True)
    the.upstream(answers)
    assert error(await the.handle(parts=[b"x"], arrived=False)) == (502, "upstream_closed")


async def test_after_a_byte_of_the_answer_nothing_goes_again(proxied: Make) -> None:
    async def breaks_off(connection: ScriptedConnection) -> None:
        connection.receiver.received(response(), b"part", False, [], 101.0)
        connection.receiver.failed(CUT, 102.0)

    the = proxied()
    the.upstream(breaks_off, kept=True)
    the.upstream(answers)
    downstream = await the.handle(method="GET")
    assert downstream.calls == ["send", "abort"]
    exchange = the.recorded()
    assert exchange.failure is CUT
    assert (exchange.status, exchange.t_end) == (200, 102.0)


async def test_a_client_that_leaves_ends_its_exchange_at_the_upstream(proxied: Make) -> None:
    the = proxied()
    connection = the.upstream(waits)
    handling = asyncio.ensure_future(the.proxy.handle(FakeDownstream(target=b"/api/x")))
    for _ in range(5):
        await asyncio.sleep(0)
    handling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await handling
    assert connection.discarded
    exchange = the.recorded()
    assert exchange.client_gone
    assert exchange.t_end == 100.0
    assert (the.proxy.in_flight, the.observed.running) == (0, 0)


async def test_a_mistake_of_ours_is_answered_and_shown_in_the_log(
    proxied: Make, caplog: pytest.LogCaptureFixture
) -> None:
    the = proxied()  # no connection is in place: a mistake of this test's
    assert error(await the.handle()) == (500, "internal")
    assert [record.message for record in caplog.records if record.exc_info] == ["request_failed"]
    assert the.recorded().status == 500


async def test_a_mistake_of_ours_amid_an_upload_ends_the_exchange_too(
    proxied: Make, caplog: pytest.LogCaptureFixture
) -> None:
    the = proxied()
    connection = the.upstream(waits)
    with caplog.at_level("ERROR", "sidecar"):
        downstream = await the.handle(parts=[CHAT, RuntimeError("a mistake of ours")], arrived=False)
    assert error(downstream) == (500, "internal")
    assert connection.discarded
    assert [record.getMessage() for record in caplog.records] == ["request_failed"]


async def test_a_client_that_is_slow_from_the_start_holds_the_upstream(proxied: Make) -> None:
    the = proxied()
    connection = the.upstream(waits)
    downstream = FakeDownstream(target=b"/api/x", writing_paused=True)
    handling = asyncio.ensure_future(the.proxy.handle(downstream))
    for _ in range(5):
        await asyncio.sleep(0)
    assert connection.reading_paused
    handling.cancel()
    await asyncio.gather(handling, return_exceptions=True)


# ---- stream_usage: inject ----


@pytest.mark.parametrize("arrived", [True, False])
async def test_usage_is_asked_for_on_the_applications_behalf(arrived: bool, proxied: Make) -> None:
    the = proxied(injects=True)
    connection = the.upstream(answers)
    headers = [(b"Host", b"me"), (b"Content-Length", b"29"), (b"Accept-Encoding", b"gzip")]
    await the.handle(parts=[CHAT[:9], CHAT[9:]], arrived=arrived, headers=headers)
    head, _, body = connection.written.partition(b"\r\n\r\n")
    assert body == ASKED
    assert head.split(b"\r\n")[2:] == [b"Content-Length: %d" % len(ASKED), b"Accept-Encoding: identity"]


async def test_a_chunked_request_gets_a_length_when_it_is_changed(proxied: Make) -> None:
    the = proxied(injects=True)
    connection = the.upstream(answers)
    await the.handle(parts=[CHAT], chunked=True)
    assert b"chunked" not in connection.written
    assert connection.written.endswith(b"\r\n\r\n" + ASKED)


@pytest.mark.parametrize(
    "request_",
    [
        {"target": b"/api/v1/responses", "parts": [CHAT]},
        {"method": "PUT", "parts": [CHAT]},
        {"parts": [ASKED]},
        {"parts": [b"{}"]},
    ],
)
async def test_other_requests_are_not_touched(request_: dict[str, Any], proxied: Make) -> None:
    the = proxied(injects=True)
    connection = the.upstream(answers)
    await the.handle(**request_)
    assert connection.written.endswith(b"\r\n\r\n" + b"".join(request_["parts"]))


async def test_a_body_too_large_to_be_changed_streams_up_as_it_is(proxied: Make) -> None:
    the = proxied(injects=True)
    connection = the.upstream(answers)
    part = b'{"stream":true' + b" " * 700_000
    await the.handle(parts=[part, part, part], arrived=False)
    assert connection.written.partition(b"\r\n\r\n")[2] == part * 3
