from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from sidecar.exchange import Headers
from sidecar.failures import Code, Failure
from sidecar.http_fields import Framing
from sidecar.listeners.http1 import MAX_HEADER_FIELDS, DataServer
from sidecar.proxy.downstream import Downstream
from sidecar.upstreams.http1_response import ResponseHead
from tests.kit.client import RawClient, request_bytes
from tests.kit.h1 import RawResponse
from tests.kit.wire import Ended

LIMIT = 8 * 1024
Handler = Callable[[Downstream], Awaitable[None]]


class Listening:
    """A data server on a free port, whose handler a test may replace, and a connection to it."""

    def __init__(self) -> None:
        self.handler: Handler = self.echo
        self.seen: list[Downstream] = []
        self.bodies: list[bytes] = []
        self.rejected: list[Failure] = []
        self.server = DataServer(self._handle, self.rejected.append, time.monotonic, LIMIT)
        self.client: Any = None

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_server(self.server, "127.0.0.1", 0)
        self.client = await self.connect()

    async def connect(self) -> RawClient:
        return await RawClient.connect(self._listening.sockets[0].getsockname())

    async def stop(self) -> None:
        await self.client.close()
        self._listening.close()
        await self.server.shutdown(0.01)

    async def _handle(self, downstream: Downstream) -> None:
        self.seen.append(downstream)
        await self.handler(downstream)

    async def echo(self, downstream: Downstream) -> None:
        """Read the body, and answer `ok`."""
        body = b""
        while data := await downstream.body.read():
            body += data
        self.bodies.append(body)
        downstream.send(head(), [], b"ok", True, [])

    async def ask(self, raw: bytes, method: str = "POST") -> RawResponse:
        await self.client.send(raw)
        response: RawResponse = await self.client.response(method)
        return response


def head(
    status: int = 200,
    headers: Headers | None = None,
    framing: Framing = Framing.LENGTH,
    lines: list[bytes] | None = None,
) -> ResponseHead:
    fields = [(b"Content-Length", b"2")] if headers is None and framing is Framing.LENGTH else headers or []
    return ResponseHead(status, b"Fine", fields, framing, lines=lines)


def sends(*pieces: tuple[Any, ...]) -> Handler:
    """A handler that makes these calls of `send`, each with body, ended and trailers filled up."""

    async def handler(downstream: Downstream) -> None:
        for given in pieces:
            made, body, ended, trailers = (*given, *(None, b"", False, [])[len(given) :])
            downstream.send(made, [], body, ended, trailers)

    return handler


@pytest.fixture
async def listening() -> AsyncIterator[Listening]:
    made = Listening()
    await made.start()
    yield made
    await made.stop()


# ---- requests ----


async def test_a_request_arrives_byte_for_byte(listening: Listening) -> None:
    raw = (
        b"PATCH /a%2Fb//../c?q=%3A&%c3%BC HTTP/1.1\r\nHOST: me\r\nX-Twice: 1\r\nx-twice:  2 \r\n"
        b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x00\xff"
    )
    assert (await listening.ask(raw)).body == b"ok"
    (request,) = listening.seen
    assert request.method == "PATCH"
    assert request.target == b"/a%2Fb//../c?q=%3A&%c3%BC"
    assert [tuple(field) for field in request.headers] == [
        (b"HOST", b"me"),
        (b"X-Twice", b"1"),
        (b"x-twice", b"2"),
        (b"Content-Encoding", b"gzip"),
        (b"Content-Length", b"4"),
    ]
    assert (request.chunked, request.declared_length, request.upgrade) == (False, 4, False)
    assert listening.bodies == [b"\x1f\x8b\x00\xff"], "no content coding is undone"


async def test_a_chunked_body_arrives_without_its_chunks(listening: Listening) -> None:
    raw = (
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nT: 1\r\n\r\n"
    )
    await listening.ask(raw)
    assert listening.bodies == [b"abcde"]
    assert (listening.seen[0].chunked, listening.seen[0].declared_length) == (True, None)


async def test_a_body_is_whole_when_it_came_with_its_head(listening: Listening) -> None:
    whole: list[bytes | None] = []

    async def handler(downstream: Downstream) -> None:
        whole.append(downstream.body.whole())
        await listening.echo(downstream)

    listening.handler = handler
    await listening.ask(request_bytes(body=b"all of it"))
    await listening.ask(request_bytes("GET"))
    assert whole == [b"all of it", b""]


async def test_a_body_that_still_arrives_is_not_whole(listening: Listening) -> None:
    asked = asyncio.Event()
    whole: list[bytes | None] = []

    async def handler(downstream: Downstream) -> None:
        whole.append(downstream.body.whole())
        asked.set()
        await listening.echo(downstream)

    listening.handler = handler
    await listening.client.send(request_bytes(headers=[(b"Content-Length", b"4")]) + b"ha")
    await asyncio.wait_for(asked.wait(), 5)
    assert whole == [None]
    await listening.client.send(b"lf")
    assert (await listening.client.response()).body == b"ok"
    assert listening.bodies == [b"half"]


async def test_requests_on_one_connection_follow_each_other_also_when_they_came_together(listening: Listening) -> None:
    await listening.client.send(request_bytes(body=b"one") + request_bytes(body=b"two"))
    assert (await listening.client.response()).body == b"ok"
    assert (await listening.client.response()).body == b"ok"
    assert listening.bodies == [b"one", b"two"]


@pytest.mark.parametrize(
    ("raw", "status", "code"),
    [
        (b"NOT HTTP\r\n\r\n", 400, Code.BAD_REQUEST),
        (b"GET / HTTP/1.1\r\nHost: a\r\nBad Name: x\r\n\r\n", 400, Code.BAD_REQUEST),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400, Code.BAD_REQUEST),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n", 400, Code.BAD_REQUEST),
        (
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
            Code.BAD_REQUEST,
        ),
        (
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            400,
            Code.BAD_REQUEST,
        ),
        (b"GET /" + b"x" * LIMIT + b" HTTP/1.1\r\nHost: a\r\n\r\n", 431, Code.HEADERS_TOO_LARGE),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * LIMIT + b"\r\n\r\n", 431, Code.HEADERS_TOO_LARGE),
        (
            b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: %s\r\n" % (b"x" * 1000) * 9 + b"\r\n",
            431,
            Code.HEADERS_TOO_LARGE,
        ),
        (
            b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: 1\r\n" * (MAX_HEADER_FIELDS + 1) + b"\r\n",
            431,
            Code.HEADERS_TOO_LARGE,
        ),
    ],
)
async def test_what_is_no_request_is_refused_and_reported_once(
    raw: bytes, status: int, code: Code, listening: Listening
) -> None:
    response = await listening.ask(raw)
    assert response.status == status
    assert response.value("x-sidecar-error") == code.encode()
    assert response.value("connection") == b"close"
    assert [failure.code for failure in listening.rejected] == [code]
    assert listening.seen == []
    await listening.client.wait_closed()


async def test_a_refusal_does_not_quote_the_request(listening: Listening) -> None:
    response = await listening.ask(b"GET / HTTP/1.1\r\nHost: a\r\nAuthoriz ation: Bearer hunter2\r\n\r\n")
    assert b"hunter2" not in response.raw
    assert "hunter2" not in listening.rejected[0].message


async def test_many_fields_are_no_reason_to_refuse(listening: Listening) -> None:
    raw = b"GET / HTTP/1.1\r\nHost: a\r\n" + b"Cookie: a=1\r\n" * 400 + b"\r\n"
    assert (await listening.ask(raw)).body == b"ok"


async def test_bytes_of_bodies_do_not_count_as_fields(listening: Listening) -> None:
    for _ in range(2):
        assert (await listening.ask(request_bytes(body=b"x" * 2 * LIMIT))).body == b"ok"
    pipelined = request_bytes(body=b"x" * LIMIT) + request_bytes(headers=[(b"X", b"x" * 1000)])
    await listening.client.send(pipelined)
    for _ in range(2):
        assert (await listening.client.response()).body == b"ok"
    assert listening.rejected == []


async def test_a_chunk_that_is_none_ends_the_body_as_a_failure(listening: Listening) -> None:
    began = asyncio.Event()

    async def handler(downstream: Downstream) -> None:
        assert await downstream.body.read() == b"abc"
        began.set()
        with pytest.raises(Failure) as caught:
            await downstream.body.read()
        assert caught.value.code is Code.BAD_REQUEST
        downstream.send(head(400), [], b"no", True, [])

    listening.handler = handler
    await listening.client.send(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
    await asyncio.wait_for(began.wait(), 5)
    await listening.client.send(b"zz\r\n")
    response = await listening.client.response()
    assert (response.body, response.value("connection")) == (b"no", b"close")


# ---- responses ----


async def test_a_response_goes_as_it_came(listening: Listening) -> None:
    listening.handler = sends(
        (head(headers=[(b"CONTENT-length", b"4"), (b"X-A", b"1"), (b"x-a", b"")]), b"bo"), (None, b"dy", True)
    )
    response = await listening.ask(request_bytes("GET"))
    assert response.raw == b"HTTP/1.1 200 Fine\r\nCONTENT-length: 4\r\nX-A: 1\r\nx-a: \r\n\r\nbody"


async def test_chunks_are_made_anew_and_trailers_follow(listening: Listening) -> None:
    listening.handler = sends(
        (head(framing=Framing.CHUNKED, headers=[(b"Transfer-Encoding", b"chunked")], lines=[]), b"one"),
        (None, b""),
        (None, b"x" * 20_000),
        (None, b"end", True, [(b"X-Sum", b"1")]),
    )
    response = await listening.ask(request_bytes("GET"))
    assert response.chunk_sizes[:3] == [3, 20_000, 3]
    assert response.trailers == [(b"X-Sum", b"1")]
    assert response.values("transfer-encoding") == [b"chunked"]
    assert response.clean_end


async def test_the_field_lines_that_go_on_are_sent_as_they_were_made(listening: Listening) -> None:
    fields = [(b"Connection", b"X-Hop"), (b"X-Hop", b"1"), (b"X-A", b"1"), (b"Content-Length", b"0")]
    made = head(headers=fields, lines=[b"X-A: 1", b"Content-Length: 0"])
    listening.handler = sends((made, b"", True))
    response = await listening.ask(request_bytes("GET"))
    assert response.raw == b"HTTP/1.1 200 Fine\r\nX-A: 1\r\nContent-Length: 0\r\n\r\n"


async def test_a_body_without_length_ends_with_the_connection(listening: Listening) -> None:
    listening.handler = sends((head(framing=Framing.CLOSE), b"all "), (None, b"of it", True))
    response = await listening.ask(request_bytes("GET"))
    assert (response.body, response.value("connection")) == (b"all of it", b"close")
    assert (await listening.client.wait_closed()).how is Ended.EOF


@pytest.mark.parametrize("status", [204, 304])
async def test_a_status_without_a_body_has_none(status: int, listening: Listening) -> None:
    listening.handler = sends((head(status, [], Framing.NONE), b"", True))
    response = await listening.ask(request_bytes("GET"))
    assert response.raw == b"HTTP/1.1 %d Fine\r\n\r\n" % status
    assert (await listening.ask(request_bytes("GET"))).status == status, "and the connection carries on"


async def test_an_answer_to_head_keeps_its_length(listening: Listening) -> None:
    listening.handler = sends((head(headers=[(b"Content-Length", b"4096")], framing=Framing.NONE), b"", True))
    response = await listening.ask(request_bytes("HEAD"), "HEAD")
    assert response.raw == b"HTTP/1.1 200 Fine\r\nContent-Length: 4096\r\n\r\n"


async def test_interim_responses_go_before_and_not_to_http_1_0(listening: Listening) -> None:
    async def handler(downstream: Downstream) -> None:
        downstream.interim(103, b"Early Hints", [(b"Link", b"</a>"), (b"Connection", b"x")])
        await listening.echo(downstream)

    listening.handler = handler
    response = await listening.ask(request_bytes("GET"))
    assert response.informational == [(103, [(b"Link", b"</a>")])]
    old = await listening.ask(b"GET / HTTP/1.0\r\n\r\n")
    assert old.informational == []


async def test_http_1_0_gets_no_chunks(listening: Listening) -> None:
    listening.handler = sends((head(framing=Framing.CHUNKED), b"one"), (None, b"two", True))
    response = await listening.ask(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    assert (response.body, response.value("transfer-encoding")) == (b"onetwo", None)
    assert response.value("connection") == b"close"


async def test_http_1_0_keeps_its_connection_when_it_asks_for_it(listening: Listening) -> None:
    for _ in range(2):
        response = await listening.ask(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        assert response.value("connection") == b"keep-alive"


async def test_the_applications_close_is_kept(listening: Listening) -> None:
    response = await listening.ask(request_bytes("GET", headers=[(b"Connection", b"close")]))
    assert response.value("connection") == b"close"
    assert (await listening.client.wait_closed()).how is Ended.EOF


async def test_while_draining_an_answer_closes_its_connection(listening: Listening) -> None:
    assert (await listening.ask(request_bytes("GET"))).value("connection") is None
    listening.server.draining = True
    assert (await listening.ask(request_bytes("GET"))).value("connection") == b"close"
    await listening.client.wait_closed()


@pytest.mark.parametrize(
    ("framing", "end"), [(Framing.LENGTH, Ended.EOF), (Framing.CHUNKED, Ended.EOF), (Framing.CLOSE, Ended.RST)]
)
async def test_a_response_that_is_broken_off_cannot_be_taken_for_whole(
    framing: Framing, end: Ended, listening: Listening
) -> None:
    going_on = asyncio.Event()

    async def handler(downstream: Downstream) -> None:
        downstream.send(
            head(headers=[(b"Content-Length", b"99")] if framing is Framing.LENGTH else [], framing=framing),
            [],
            b"part",
            False,
            [],
        )
        await going_on.wait()
        downstream.abort()

    listening.handler = handler
    await listening.client.send(request_bytes("GET"))
    await listening.client.arrival(b"part")
    going_on.set()
    assert (await listening.client.wait_closed()).how is end
    if framing is not Framing.CLOSE:
        assert not listening.client.received.endswith(b"0\r\n\r\n")


# ---- flow, departure, tunnels ----


async def test_an_application_that_does_not_read_is_noticed(listening: Listening) -> None:
    class Flow:
        def __init__(self) -> None:
            self.paused = asyncio.Event()
            self.resumed = asyncio.Event()

        def client_paused(self) -> None:
            self.paused.set()

        def client_resumed(self) -> None:
            self.resumed.set()

    flow = Flow()

    async def handler(downstream: Downstream) -> None:
        downstream.observe_flow(flow)
        downstream.send(head(framing=Framing.CHUNKED), [], b"", False, [])
        while not downstream.writing_paused:
            downstream.send(None, [], b"x" * 65_536, False, [])
            await asyncio.sleep(0)
        await flow.resumed.wait()
        downstream.send(None, [], b"", True, [])

    listening.handler = handler
    listening.client.pause_reading()
    await listening.client.send(request_bytes("GET"))
    await asyncio.wait_for(flow.paused.wait(), 5)
    listening.client.resume_reading()
    assert (await listening.client.response()).clean_end


@pytest.mark.parametrize("how", ["fin", "rst"])
async def test_an_application_that_leaves_cancels_its_request(how: str, listening: Listening) -> None:
    began, cancelled = asyncio.Event(), asyncio.Event()

    async def handler(downstream: Downstream) -> None:
        try:
            began.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            # None of these may raise on a connection that is not there any more.
            downstream.send(head(), [], b"ok", True, [])
            downstream.abort()
            downstream.close()
            cancelled.set()
            raise

    listening.handler = handler
    await listening.client.send(request_bytes("GET"))
    await asyncio.wait_for(began.wait(), 5)
    getattr(listening.client, how)()
    await asyncio.wait_for(cancelled.wait(), 5)
    assert cancelled.is_set()


async def test_after_an_upgrade_bytes_go_to_the_other_end(listening: Listening) -> None:
    class Peer:
        def __init__(self) -> None:
            self.received = b""
            self.closed = asyncio.Event()

        def from_client(self, data: bytes) -> None:
            self.received += data
            listening.seen[0].tunnel_write(data.upper())

        def client_closed(self) -> None:
            self.closed.set()

    peer = Peer()

    async def handler(downstream: Downstream) -> None:
        assert downstream.upgrade
        downstream.send(head(101, [(b"Sec-WebSocket-Accept", b"x")], Framing.NONE), [], b"", False, [])
        downstream.start_tunnel(peer)
        downstream.tunnel_write(b"hello ")
        await peer.closed.wait()
        downstream.close()

    listening.handler = handler
    fields: Headers = [(b"Connection", b"Upgrade"), (b"Upgrade", b"WebSocket")]
    response = await listening.ask(request_bytes("GET", headers=fields), "GET")
    assert response.status == 101
    assert response.headers == [
        (b"Sec-WebSocket-Accept", b"x"),
        (b"Connection", b"Upgrade"),
        (b"Upgrade", b"websocket"),
    ]
    await listening.client.send(b"\x81\x03abc")
    await listening.client.arrival(b"\x81\x03ABC")
    assert b"hello " in listening.client.received
    listening.client.fin()
    await asyncio.wait_for(peer.closed.wait(), 5)
    assert peer.received == b"\x81\x03abc"


async def test_the_request_arrived_when_its_first_byte_did(listening: Listening) -> None:
    before = time.monotonic()
    raw = request_bytes("GET")
    await listening.client.send(raw[:10])
    await asyncio.sleep(0.03)
    rest = time.monotonic()
    await listening.client.send(raw[10:])
    await listening.client.response()
    await listening.ask(request_bytes("GET"))
    first, second = (request.received_at for request in listening.seen)
    assert before <= first < rest <= second
