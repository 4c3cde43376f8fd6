"""The kit itself: what tests rely on must be true, or they prove nothing."""

from __future__ import annotations

import asyncio
import ssl
import time

import pytest
import uvloop

from tests.conftest import UpstreamFactory
from tests.kit import events
from tests.kit.authority import client_context, server_context
from tests.kit.client import CHAT_REQUEST, RawClient, get, request_bytes
from tests.kit.h1 import Body, Framing, parse_response
from tests.kit.metrics import Metrics, delta, outcomes
from tests.kit.upstream import Connection, answering, each_request, streaming
from tests.kit.wire import ConnectionEnded, End, Ended


async def test_the_loop_of_a_test_is_uvloop() -> None:
    assert isinstance(asyncio.get_running_loop(), uvloop.Loop)


async def test_a_request_arrives_byte_for_byte_and_its_answer_too(upstream: UpstreamFactory) -> None:
    server = await upstream(answering(events.json_response(b'{"a":1}', ("X-A", "1"), ("x-a", "2"))))
    sent = request_bytes(target=b"/v1/a%2Fb?x", headers=[(b"X-Multi", b"1"), (b"x-multi", b"2")], body=b"hi")
    async with await RawClient.connect((server.host, server.port)) as client:
        await client.send(sent)
        response = await client.response()
    (request,) = server.requests
    assert request.head + request.body == sent
    assert request.values("x-multi") == [b"1", b"2"]
    assert response.status == 200
    assert response.body == b'{"a":1}'
    assert response.values("X-A") == [b"1", b"2"]
    assert response.clean_end
    assert response.raw == client.received


async def test_one_connection_carries_requests_one_after_the_other(upstream: UpstreamFactory) -> None:
    server = await upstream(answering(b"HTTP/1.1 204 No Content\r\n\r\n", events.chat_completion()))
    async with await RawClient.connect((server.host, server.port)) as client:
        first = await client.request("DELETE", "/v1/x")
        second = await client.chat()
    assert (first.status, second.status) == (204, 200)
    assert server.accepted == 1
    assert server.requests[1].body == events.DEFAULT_BODY


async def test_parts_of_a_stream_are_timed_as_they_come(upstream: UpstreamFactory) -> None:
    server = await upstream(streaming(events.ROLE, 0.1, events.T("a"), 0.1, events.DONE))
    async with await RawClient.connect((server.host, server.port)) as client:
        start = time.monotonic()
        response = await client.chat()
    assert response.body == events.ROLE + events.T("a") + events.DONE
    assert response.clean_end
    first, last = await client.arrival(events.T("a")), await client.arrival(events.DONE)
    assert first - start > 0.09
    assert last - first > 0.09
    assert last - start < 2


@pytest.mark.parametrize("how", [Ended.EOF, Ended.RST])
async def test_a_cut_stream_has_no_clean_end(upstream: UpstreamFactory, how: Ended) -> None:
    async def cut(connection: Connection) -> None:
        await connection.read_request()
        await connection.send(events.sse_head() + events.chunk(events.ROLE))
        # The client must have read it: a reset throws away what the peer has not read yet.
        await asyncio.sleep(0.05)
        connection.fin() if how is Ended.EOF else connection.rst()

    server = await upstream(cut)
    async with await RawClient.connect((server.host, server.port)) as client:
        response = await client.chat()
        end = await client.wait_closed()
    assert response.body == events.ROLE
    assert not response.clean_end
    assert end.how is how


@pytest.mark.parametrize("leave", ["close", "rst", "half_close"])
async def test_an_upstream_sees_when_and_how_its_client_left(upstream: UpstreamFactory, leave: str) -> None:
    ended: asyncio.Future[End] = asyncio.get_running_loop().create_future()

    async def silent(connection: Connection) -> None:
        await connection.read_request()
        ended.set_result(await connection.wait_closed())

    server = await upstream(silent)
    async with await RawClient.connect((server.host, server.port)) as client:
        await client.send(CHAT_REQUEST)
        await server.wait_for_requests(1)
        left = time.monotonic()
        if leave == "close":
            await client.close()
        else:
            getattr(client, leave)()
        end = await asyncio.wait_for(ended, 2)
    assert end.how is (Ended.RST if leave == "rst" else Ended.EOF)
    assert 0 <= end.at - left < 2


async def test_a_client_that_does_not_read_stalls_the_sender(upstream: UpstreamFactory) -> None:
    async def flood(connection: Connection) -> None:
        await connection.read_request()
        await connection.send(events.sse_head())
        for _ in range(64):
            await connection.chunk(b"x" * 1_000_000)

    server = await upstream(flood)
    async with await RawClient.connect((server.host, server.port), receive_buffer=65536) as client:
        await client.send(CHAT_REQUEST)
        await client.recv_head()
        client.pause_reading()
        await asyncio.sleep(0.2)
        stalled = server.connections[0].accepted
        await asyncio.sleep(0.1)
        assert server.connections[0].accepted == stalled < 16_000_000
        client.resume_reading()
        await client.until(lambda: len(client.buffer) > stalled)


async def test_a_script_that_fails_fails_its_test(upstream: UpstreamFactory) -> None:
    async def wrong(connection: Connection) -> None:
        await connection.read_request()
        assert connection.requests[0].method == "GET"

    server = await upstream(wrong)
    async with await RawClient.connect((server.host, server.port)) as client:
        with pytest.raises(ConnectionEnded):
            await client.chat()
    with pytest.raises(AssertionError):
        await server.stop()
    server.errors.clear()


@pytest.mark.parametrize("delay", [0.0, 0.2])
async def test_tls_records_the_server_name_and_may_delay_the_handshake(upstream: UpstreamFactory, delay: float) -> None:
    script = streaming(events.ROLE, events.T("a"), events.DONE)
    server = await upstream(script, tls=server_context("localhost"), handshake_delay=delay)
    loop = asyncio.get_running_loop()
    start = time.monotonic()
    _, client = await loop.create_connection(
        RawClient, server.host, server.port, ssl=client_context(), server_hostname="localhost"
    )
    took = time.monotonic() - start
    async with client:
        responses = [await client.chat(), await client.chat()]
    assert [response.body for response in responses] == [events.ROLE + events.T("a") + events.DONE] * 2
    assert server.server_names == ["localhost"]
    assert delay <= took < delay + 5
    with pytest.raises(ssl.SSLCertVerificationError):
        await loop.create_connection(
            RawClient, server.host, server.port, ssl=client_context(), server_hostname="other.test"
        )


async def test_an_upstream_listens_on_ipv6_and_can_refuse(upstream: UpstreamFactory) -> None:
    async def hello(connection: Connection, _: object) -> None:
        await connection.send(events.chat_completion())

    server = await upstream(each_request(hello), host="::1")
    assert (await get(("::1", server.port), "/")).status == 200
    assert server.url == f"http://[::1]:{server.port}"
    await server.refuse()
    with pytest.raises(ConnectionRefusedError):
        await get(("::1", server.port), "/")


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_a_chunked_body_is_the_same_in_any_split(size: int) -> None:
    wire = b"3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nX-T: 1\r\n\r\nHTTP/1.1 200"
    body = Body(Framing.CHUNKED)
    for start in range(0, len(wire), size):
        body.feed(wire[start : start + size])
    assert body.complete
    assert bytes(body.data) == b"abc0123456789"
    assert body.chunk_sizes == [3, 10, 0]
    assert body.trailers == [(b"X-T", b"1")]
    assert bytes(body.rest) == b"HTTP/1.1 200"


def test_interim_responses_and_responses_without_a_body_are_told_apart() -> None:
    wire = events.head("103 Early Hints", ("Link", "x")) + events.head("200 OK", ("Content-Length", "1234"))
    response, rest = parse_response(wire + b"HTTP/1.1 204", method="HEAD")
    assert response.informational == [(103, [(b"Link", b"x")])]
    assert response.value("content-length") == b"1234"
    assert response.body == b""
    assert response.clean_end
    assert rest == b"HTTP/1.1 204"


def test_a_body_shorter_than_its_length_is_not_clean() -> None:
    response, _ = parse_response(events.head("200 OK", ("Content-Length", "5")) + b"abc")
    assert response.body == b"abc"
    assert not response.clean_end


EXPOSITION = """\
# TYPE llm_sidecar_requests_total counter
llm_sidecar_requests_total{{upstream="a",outcome="ok"}} {ok}
llm_sidecar_requests_total{{upstream="b",outcome="ok"}} 1
llm_sidecar_requests_total{{upstream="a",outcome="timeout"}} 0
# TYPE llm_sidecar_time_to_first_token_seconds histogram
llm_sidecar_time_to_first_token_seconds_bucket{{upstream="a",le="0.1"}} 0
llm_sidecar_time_to_first_token_seconds_bucket{{upstream="a",le="+Inf"}} {count}
llm_sidecar_time_to_first_token_seconds_count{{upstream="a"}} {count}
llm_sidecar_time_to_first_token_seconds_sum{{upstream="a"}} {sum}
"""


def test_changes_between_scrapes_are_told_by_the_words_of_the_catalogue() -> None:
    before = Metrics(EXPOSITION.format(ok=3, count=1, sum=0.5))
    after = Metrics(EXPOSITION.format(ok=5, count=2, sum=1.75))
    assert delta(before, after, "ttft").count == 1
    assert delta(before, after, "ttft", upstream="a").sum == 1.25
    assert delta(before, after, "requests", outcome="ok").value == 2
    assert delta(before, after, "requests_total", upstream="b").value == 0
    assert outcomes(before, after) == {"ok": 2}
    assert after.label_values("requests", "upstream") == {"a", "b"}
    assert after.buckets("ttft") == {0.1: 0.0, float("inf"): 2.0}
    assert after.has("requests", outcome="timeout")
    assert not after.has("requests", outcome="rejected")
    assert after.not_finite() == []
