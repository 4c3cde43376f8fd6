"""Every wish and every fault, on real sockets."""

from __future__ import annotations

import asyncio
import hashlib
import json
import zlib
from itertools import pairwise
from time import monotonic
from typing import Any

import brotli
import pytest
import zstandard

from sidecar.config.model import Address
from sidecar.simulator.plumbing import content
from sidecar.simulator.server import Simulator

STREAM = {"model": "m", "stream": True, "stream_options": {"include_usage": True}}


def texts(answer: Any) -> list[str]:
    deltas = [event["choices"][0]["delta"] for event in answer.events() if event != "[DONE]" and event["choices"]]
    return [delta["content"] for delta in deltas if delta.get("content")]


async def test_a_stream_comes_in_its_time_and_the_truth_says_so(ask: Any, simulator: Simulator) -> None:
    answer = await ask(body=STREAM, x_sim_ttft=0.1, x_sim_itl=0.02, x_sim_tokens=10)
    truth = simulator.truth(answer.id)
    times = truth.token_times()
    assert truth.received_at is not None
    dues = [truth.received_at + 0.1 + 0.02 * number for number in range(10)]
    assert all(at > due - 0.001 for at, due in zip(times, dues, strict=True)), "nothing is early"
    assert answer.reads[-1][0] - answer.sent_at >= 0.279
    assert truth.head_at is not None
    assert truth.head_at < dues[0] - 0.05, "the head of a stream does not wait for the first token"
    assert (truth.output_tokens, truth.events, truth.ending) == (10, 14, "clean")
    assert answer.headers["openai-processing-ms"] == "0"
    assert truth.sent_bytes == len(answer.raw)


async def test_a_whole_answer_comes_when_its_last_token_would_have_come(ask: Any, simulator: Simulator) -> None:
    answer = await ask(body={"model": "m"}, x_sim_ttft=0.05, x_sim_itl=0.01, x_sim_tokens=6)
    truth = simulator.truth(answer.id)
    assert truth.ttft is not None
    assert truth.ttft >= 0.0999
    assert answer.headers["openai-processing-ms"] == "100"
    assert not truth.streamed


async def test_the_head_can_be_held_back_apart_from_the_first_token(ask: Any, simulator: Simulator) -> None:
    answer = await ask(body=STREAM, x_sim_headers_delay=0.06, x_sim_ttft=0.12)
    truth = simulator.truth(answer.id)
    assert truth.head_at is not None and truth.received_at is not None and truth.ttft is not None
    assert 0.0599 <= truth.head_at - truth.received_at < truth.ttft
    assert answer.headers["openai-processing-ms"] == "60"


async def test_events_need_not_be_tokens(ask: Any, simulator: Simulator) -> None:
    answer = await ask(body=STREAM, x_sim_tokens=10, x_sim_tokens_per_event=4)
    assert len(texts(answer)) == 3
    assert answer.events()[-2]["usage"]["completion_tokens"] == 10
    assert [n for n in simulator.truth(answer.id).event_tokens if n] == [4, 4, 2]


async def test_reasoning_comes_before_the_text(ask: Any, simulator: Simulator) -> None:
    answer = await ask(body=STREAM, x_sim_reasoning=3)
    deltas = [event["choices"][0]["delta"] for event in answer.events()[1:9]]
    assert ["reasoning_content" in delta for delta in deltas] == [True] * 3 + [False] * 5
    truth = simulator.truth(answer.id)
    assert truth.reasoning_tokens == 3
    assert truth.first_output_at == truth.token_times()[3]


async def test_several_choices_are_interleaved(ask: Any) -> None:
    answer = await ask(body={**STREAM, "n": 2}, x_sim_tokens=2)
    indices = [e["choices"][0]["index"] for e in answer.events() if e != "[DONE]" and e["choices"]]
    assert indices == [0, 1] * 4
    assert answer.events()[-2]["usage"]["completion_tokens"] == 4


async def test_without_being_asked_for_usage_no_chunk_speaks_of_it(ask: Any) -> None:
    answer = await ask(body={"stream": True})
    assert all("usage" not in event for event in answer.events() if event != "[DONE]")
    answer = await ask(body=STREAM, x_sim_no_usage=1)
    assert all("usage" not in event for event in answer.events() if event != "[DONE]")


async def test_the_maximum_of_the_request_shortens_the_answer(ask: Any) -> None:
    answer = await ask(body={"max_completion_tokens": 2})
    assert answer.json()["choices"][0]["finish_reason"] == "length"
    assert answer.json()["usage"]["completion_tokens"] == 2


@pytest.mark.parametrize(
    ("target", "status", "path"),
    [
        ("/v1/chat/completions", 429, ["error", "code"]),
        ("/v1/messages", 529, ["error", "type"]),
        ("/v1beta/models/g:generateContent", 503, ["error", "status"]),
        ("/api/chat", 500, ["error"]),
    ],
)
async def test_errors_have_the_shape_of_their_api(ask: Any, target: str, status: int, path: list[str]) -> None:
    answer = await ask(target, {}, x_sim_status=status)
    found = answer.json()
    for key in path:
        found = found[key]
    assert answer.status == status
    assert found in ("rate_limit_exceeded", "overloaded_error", "UNAVAILABLE", "a simulated error with status 500")
    assert answer.headers.get("retry-after") == ("1" if status in (429, 503, 529) else None)


async def test_statuses_without_a_body_have_none(ask: Any) -> None:
    for status in (204, 304):
        answer = await ask(x_sim_status=status)
        assert (answer.status, answer.body, answer.complete) == (status, b"", True)
        assert "content-length" not in answer.headers


async def test_a_wrong_wish_is_a_bad_request_that_names_it(ask: Any) -> None:
    answer = await ask("/v1/messages", {}, x_sim_ttft="soon")
    assert answer.status == 400
    assert answer.json()["error"]["message"] == "x-sim-ttft takes seconds, 0 to 3600, not 'soon'"


@pytest.mark.parametrize("body", [b"{", b'{"stream": 3}', b"\xff"])
async def test_a_body_that_cannot_be_read_is_a_bad_request(ask: Any, body: bytes) -> None:
    answer = await ask(body=body)
    assert (answer.status, answer.json()["error"]["type"]) == (400, "invalid_request_error")


async def test_unknown_paths_and_methods_are_refused(ask: Any) -> None:
    assert (await ask("/v1/nothing", {})).status == 404
    assert (await ask(method="GET")).status == 405
    assert (await ask("/x-sim/nothing", {})).status == 404
    assert (await ask("/x-sim/sink", method="GET")).headers["allow"] == "POST, PUT"


async def test_a_cut_ends_the_connection_without_the_last_chunk(ask: Any, simulator: Simulator) -> None:
    answer = await ask(body=STREAM, x_sim_cut=3)
    assert (len(answer.events()), answer.complete, answer.error) == (3, False, None)
    assert simulator.truth(answer.id).ending == "cut"


async def test_a_cut_whole_answer_stops_short_of_its_length(ask: Any) -> None:
    answer = await ask(body={}, x_sim_cut=0)
    assert 0 < len(answer.body) < int(answer.headers["content-length"])
    assert not answer.complete


async def test_a_cut_before_the_head_sends_nothing(ask: Any, simulator: Simulator) -> None:
    answer = await ask(body=STREAM, x_sim_cut="head")
    assert (answer.raw, answer.error) == (b"", None)
    assert simulator.truths[-1].ending == "cut"


@pytest.mark.parametrize("after", ["3", "head"])
async def test_a_reset_is_a_reset_and_not_an_end(ask: Any, simulator: Simulator, after: str) -> None:
    answer = await ask(body=STREAM, x_sim_reset=after)
    assert isinstance(answer.error, ConnectionResetError)
    assert len(answer.events()) == (3 if after == "3" else 0)
    assert simulator.truths[-1].ending == "reset"


async def test_a_stall_makes_one_gap_and_delays_the_rest(ask: Any, simulator: Simulator) -> None:
    answer = await ask(body=STREAM, x_sim_stall="3:0.15")
    times = simulator.truth(answer.id).event_times
    gaps = [after - before for before, after in pairwise(times)]
    assert gaps[2] >= 0.149
    assert max(gaps) == gaps[2]
    assert answer.complete


async def test_an_error_event_ends_the_stream_cleanly(ask: Any) -> None:
    answer = await ask(body=STREAM, x_sim_error_event=3)
    assert answer.complete
    assert [event.get("error", {}).get("type") for event in answer.events()] == [None, None, None, "server_error"]
    answer = await ask("/v1/messages", {"stream": True}, x_sim_error_event=4)
    assert answer.events()[-1]["error"]["type"] == "overloaded_error"
    assert answer.body.rstrip().rsplit(b"\n\n", 1)[1].startswith(b"event: error\n")


async def test_the_terminal_event_can_be_left_out(ask: Any) -> None:
    assert (await ask(body=STREAM, x_sim_no_done=1)).events()[-1] != "[DONE]"
    answer = await ask("/v1/messages", {"stream": True}, x_sim_no_done=1)
    assert (answer.events()[-1]["type"], answer.complete) == ("message_delta", True)


DECODERS = {
    "gzip": lambda: zlib.decompressobj(31).decompress,
    "deflate": lambda: zlib.decompressobj(15).decompress,
    "br": lambda: brotli.Decompressor().process,
    "zstd": lambda: zstandard.ZstdDecompressor().decompressobj().decompress,
}


@pytest.mark.parametrize("coding", list(DECODERS))
async def test_a_coded_stream_can_be_decoded_as_it_comes(ask: Any, coding: str) -> None:
    answer = await ask(body=STREAM, x_sim_encoding=coding, x_sim_itl=0.02)
    decode = DECODERS[coding]()
    plain = [decode(data) for _, data in answer.body_reads]
    assert answer.headers["content-encoding"] == coding
    assert b"".join(plain).endswith(b"data: [DONE]\n\n")
    assert sum(b'"content":" ' in part for part in plain) >= 3, "events come one by one"


@pytest.mark.parametrize("cut", ["cut", "reset"])
async def test_a_coded_stream_breaks_off_too(ask: Any, cut: str) -> None:
    answer = await ask(body=STREAM, x_sim_encoding="gzip", **{f"x_sim_{cut}": 3})
    decoder = zlib.decompressobj(31)
    assert decoder.decompress(answer.body).count(b"data: ") == 3
    assert not decoder.eof
    assert not answer.complete


@pytest.mark.parametrize(("name", "end"), [("lf", b"\n"), ("crlf", b"\r\n"), ("cr", b"\r")])
async def test_line_ends_are_as_wished(ask: Any, name: str, end: bytes) -> None:
    answer = await ask(body=STREAM, x_sim_line_end=name)
    assert answer.body.endswith(b"data: [DONE]" + end * 2)
    assert len(texts(answer)) == 5


async def test_one_byte_writes_and_splits_change_no_byte(ask: Any) -> None:
    wishes: list[dict[str, object]] = [{"x_sim_one_byte": 1}, {"x_sim_split": "random:7"}, {"x_sim_split": 100}]
    for wish in wishes:
        answer = await ask("/v1/messages", {"stream": True}, x_sim_tokens=2, **wish)
        assert answer.complete
        assert [event["type"] for event in answer.events()][-1] == "message_stop"
        assert len(answer.reads) > 10
        assert answer.raw.count(b"HTTP/1.1 200 OK\r\n") == 1


async def test_comments_fill_the_wait_for_the_first_token(ask: Any, simulator: Simulator) -> None:
    answer = await ask(body=STREAM, x_sim_comments=3, x_sim_ttft=0.1)
    assert answer.body.count(b": keep-alive\n\n") == 3
    assert simulator.truth(answer.id).events == 9
    whole = await ask(body={}, x_sim_comments=2, x_sim_ttft=0.05)
    assert whole.body.startswith(b"\n\n{")
    assert whole.json()["object"] == "chat.completion"


async def test_padding_makes_each_event_longer(ask: Any) -> None:
    plain, padded = await ask(body=STREAM), await ask(body=STREAM, x_sim_pad=1000)
    assert len(padded.body) - len(plain.body) >= 9000
    assert texts(padded) == texts(plain)


async def test_bodies_are_framed_as_wished(ask: Any) -> None:
    chunked, closed, length = [await ask(body=STREAM, x_sim_framing=way) for way in ("chunked", "close", "length")]
    assert chunked.headers["transfer-encoding"] == "chunked"
    assert closed.headers["connection"] == "close"
    assert not closed.headers.keys() & {"transfer-encoding", "content-length"}
    assert length.headers["content-length"] == str(len(length.body))
    assert texts(chunked) == texts(closed) == texts(length)


async def test_interim_responses_and_trailers_are_sent(ask: Any) -> None:
    answer = await ask(body=STREAM, x_sim_interim=103)
    assert answer.raw.startswith(b"HTTP/1.1 103 Early Hints\r\nlink: ")
    answer = await ask(body=STREAM, x_sim_trailers=1)
    assert answer.raw.endswith(b"0\r\nx-sim-trailer: the end\r\n\r\n")
    assert answer.headers["trailer"] == "x-sim-trailer"


async def test_a_slow_reader_makes_the_request_slow(ask: Any, simulator: Simulator) -> None:
    body = json.dumps({"messages": "x" * 20_000}).encode()
    answer = await ask(body=body, x_sim_slow_read=100_000)
    truth = simulator.truth(answer.id)
    assert truth.received_at is not None
    assert truth.received_at - truth.head_received_at >= 0.19
    assert (truth.body_bytes, truth.body_sha256) == (len(body), hashlib.sha256(body).hexdigest())


async def test_a_client_that_leaves_ends_its_answer(ask: Any, simulator: Simulator, address: Address) -> None:
    reader, writer = await asyncio.open_connection(address.host, address.port)
    body = b'{"stream":true}'
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nx-sim-ttft: 30\r\ncontent-length: %d\r\n\r\n" % len(body) + body
    )
    await reader.readuntil(b"\r\n\r\n")
    left_at = monotonic()
    writer.transport.abort()
    while simulator.truths[-1].ending == "running":
        assert monotonic() - left_at < 5
        await asyncio.sleep(0.005)
    truth = simulator.truths[-1]
    assert truth.ending == "cancelled"
    assert truth.ended_at is not None
    assert left_at <= truth.ended_at < left_at + 1
    assert simulator.connections_open == 0


async def test_requests_follow_each_other_on_one_connection_even_when_pipelined(
    simulator: Simulator, address: Address
) -> None:
    reader, writer = await asyncio.open_connection(address.host, address.port)
    echo = b"POST /x-sim/echo HTTP/1.1\r\nhost: s\r\ncontent-length: 5\r\n\r\nhello"
    chat = b"POST /v1/chat/completions HTTP/1.1\r\nhost: s\r\ncontent-length: 2\r\n\r\n{}"
    last = b"GET /v1/models HTTP/1.1\r\nhost: s\r\nx-sim-close: 1\r\n\r\n"
    writer.write(chat + echo * 2 + last)
    data = await asyncio.wait_for(reader.read(), 10)
    places = [data.index(mark) for mark in (b"chat.completion", b"hello", b'"object":"list"')]
    assert places == sorted(places)
    assert data.count(b"hello") == 2
    assert [truth.number_on_connection for truth in simulator.truths] == [1, 2, 3, 4]
    assert simulator.connections_opened == 1
    writer.close()


async def test_a_client_may_wait_to_be_told_to_continue(address: Address) -> None:
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(b"POST /x-sim/sink HTTP/1.1\r\nhost: s\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\n")
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(b"abc")
    assert b'"bytes":3' in await reader.readuntil(b"}")
    writer.close()


async def test_garbage_is_a_bad_request(address: Address) -> None:
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(b"\x16\x03\x01 not http\r\n\r\n")
    assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
    writer.close()


async def test_http_1_0_clients_get_no_chunks(address: Address) -> None:
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(b'POST /v1/messages HTTP/1.0\r\ncontent-length: 15\r\n\r\n{"stream":true}')
    data = await asyncio.wait_for(reader.read(), 10)
    assert b"transfer-encoding" not in data
    assert data.endswith(b"\n\n")
    writer.close()


async def test_head_has_the_length_and_no_body(ask: Any, address: Address) -> None:
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(b"HEAD /v1/models HTTP/1.1\r\nhost: s\r\nconnection: close\r\n\r\n")
    head, _, body = (await asyncio.wait_for(reader.read(), 10)).partition(b"\r\n\r\n")
    expected = len((await ask("/v1/models", method="GET")).body)
    assert b"content-length: %d" % expected in head
    assert body == b""
    writer.close()


async def test_bytes_are_the_same_every_time_in_both_framings(ask: Any) -> None:
    for framing in ("length", "chunked"):
        answer = await ask("/x-sim/bytes?n=300001", method="GET", x_sim_framing=framing)
        assert answer.complete
        assert answer.body == content(300_001)
    assert content(1000, 65_530) == content(66_530)[65_530:]
    assert (await ask("/x-sim/bytes?n=-1", method="GET")).status == 400


async def test_a_client_that_does_not_read_costs_no_memory(simulator: Simulator, address: Address) -> None:
    reader, writer = await asyncio.open_connection(address.host, address.port, limit=1024)
    writer.write(b"GET /x-sim/bytes?n=1000000000 HTTP/1.1\r\nhost: s\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    before = -1
    while simulator.truths[-1].sent_bytes != before:
        before = simulator.truths[-1].sent_bytes
        await asyncio.sleep(0.05)
    assert before < 50_000_000, "what the kernel's buffers hold, and little more"
    writer.transport.abort()


async def test_an_echo_streams_back_what_comes(address: Address) -> None:
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(b"POST /x-sim/echo HTTP/1.1\r\nhost: s\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n")
    assert (await reader.readuntil(b"5\r\nfirst\r\n")).startswith(b"HTTP/1.1 200 OK"), "before the request has ended"
    writer.write(b"6\r\nsecond\r\n0\r\n\r\n")
    assert await reader.readuntil(b"0\r\n\r\n") == b"6\r\nsecond\r\n0\r\n\r\n"
    writer.close()


async def test_an_echo_of_megabytes_loses_nothing_while_the_client_reads_slowly(address: Address) -> None:
    reader, writer = await asyncio.open_connection(address.host, address.port, limit=4096)
    body = content(8_000_000)
    writer.write(b"POST /x-sim/echo HTTP/1.1\r\nhost: s\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
    await reader.readuntil(b"\r\n\r\n")
    digest = hashlib.sha256()
    left = len(body)
    while left:
        data = await asyncio.wait_for(reader.read(100_000), 10)
        digest.update(data)
        left -= len(data)
    assert digest.digest() == hashlib.sha256(body).digest()
    writer.close()


async def test_a_sink_tells_what_it_swallowed(ask: Any, simulator: Simulator) -> None:
    body = content(2_000_000)
    answer = await ask("/x-sim/sink", body)
    assert answer.json() == {"bytes": 2_000_000, "sha256": hashlib.sha256(body).hexdigest()}
    assert simulator.truths[-1].body_bytes == 2_000_000


async def test_truths_can_be_asked_for_over_http(ask: Any, simulator: Simulator) -> None:
    await ask(body=STREAM)
    second = await ask(body=STREAM, x_sim_model="named")
    told = (await ask("/x-sim/truths?after=1", method="GET")).json()
    assert (told["requests"], told["connections_opened"]) == (2, 3)
    (truth,) = told["truths"]
    assert (truth["id"], truth["model"], truth["ending"], truth["events"]) == (second.id, "named", "clean", 9)
    assert truth["ttft"] == simulator.truth(second.id).ttft
    assert len(truth["event_times"]) == len(truth["event_tokens"]) == 9
    assert told["now"] >= truth["ended_at"]
