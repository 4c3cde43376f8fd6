"""Streams on their way through: nothing is held back, nothing is changed, whatever their bytes look like."""

from __future__ import annotations

import hashlib
import statistics
import time
from collections.abc import Iterator

import pytest

from sidecar.config.model import Timeouts
from sidecar.dialects.framing import MAX_EVENT
from tests.conftest import UpstreamFactory
from tests.kit import events
from tests.kit.client import CHAT_REQUEST, MESSAGES_REQUEST, RawClient, request_bytes
from tests.kit.shared import SharedSidecar, Telling, shared_sidecar, tell
from tests.kit.upstream import Connection

MIB = 1024 * 1024
PROMPT = 0.1
"""Seconds within which a written event is at the client."""


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedSidecar]:
    impatient = {"name": "impatient", "prefix": "/impatient", "timeouts": {"idle": "400ms", "headers": "400ms"}}
    with shared_sidecar(tmp_path_factory.mktemp("transport"), {}, impatient) as running:
        yield running


class Lockstep:
    """A script that writes the next part only when the client has had the one before, and times each journey."""

    def __init__(self, *parts: bytes) -> None:
        self._parts = parts
        self.journeys: list[float] = []
        self.client: RawClient | None = None

    async def __call__(self, connection: Connection) -> None:
        await connection.read_request()
        await connection.send(events.sse_head())
        for part in self._parts:
            written = time.monotonic()
            await connection.chunk(part)
            assert self.client is not None
            self.journeys.append(await self.client.arrival(part) - written)
        await connection.last_chunk()

    async def run(self, client: RawClient) -> bytes:
        self.client = client
        await client.send(CHAT_REQUEST)
        return (await client.response()).body


async def test_sse_01_small_events_reach_the_client_before_the_next_one_is_written(
    sidecar: SharedSidecar, upstream: UpstreamFactory
) -> None:
    parts = [events.ROLE, *(events.T(letter) for letter in "abcdefgh"), events.FIN, events.DONE]
    script = Lockstep(*parts)
    await upstream(script, port=sidecar.upstream_port)
    async with await sidecar.client() as client:
        assert await script.run(client) == b"".join(parts)
        assert len(client.log) >= len(parts)
    assert statistics.median(script.journeys) < PROMPT


async def test_sse_03_a_character_cut_by_network_reads_is_neither_lost_nor_replaced(
    sidecar: SharedSidecar, upstream: UpstreamFactory
) -> None:
    event = events.T("你好😀")
    first, second = event.index("你".encode()) + 1, event.index("😀".encode()) + 2
    parts = (event[:first], 0.03, event[first:second], 0.03, event[second:], events.USE(3, 4), events.FIN, events.DONE)
    script = Telling(*parts)
    await upstream(script, port=sidecar.upstream_port)
    told = await tell(sidecar)
    assert told.response.body == script.body
    assert told.delta("ttft").count == 1
    assert told.tokens() == {"input": 3, "output": 4}
    assert told.outcomes == {"ok": 1}
    assert not sidecar.events("request_failed")
    assert told.delta("parse_errors_total").value == 0


@pytest.mark.parametrize("in_bytes", [False, True], ids=["whole", "one byte a write"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
async def test_sse_05_every_line_end_of_the_standard_is_read(
    sidecar: SharedSidecar, upstream: UpstreamFactory, end: bytes, in_bytes: bool
) -> None:
    unix = events.ROLE + events.T("hi") + events.FIN + events.USE(9, 2) + events.DONE
    body = unix.replace(b"\n", end)

    async def script(connection: Connection) -> None:
        await connection.read_request()
        await connection.send(events.sse_head())
        if in_bytes:
            for position in range(len(body)):
                await connection.chunk(body[position : position + 1])
        else:
            await connection.chunk(body)
        await connection.last_chunk()

    await upstream(script, port=sidecar.upstream_port)
    told = await tell(sidecar)
    assert told.response.body == body
    assert told.delta("ttft").count == 1
    assert told.tokens() == {"input": 9, "output": 2}
    assert told.outcomes == {"ok": 1}


@pytest.mark.parametrize("size", [700_000, 3 * MIB])
async def test_sse_08_a_very_long_line_passes_and_what_follows_it_is_read(
    sidecar: SharedSidecar, upstream: UpstreamFactory, size: int
) -> None:
    script = Telling(events.ROLE, events.T("x" * size), events.FIN, events.USE(3, 100), events.DONE)
    await upstream(script, port=sidecar.upstream_port)
    told = await tell(sidecar)
    assert hashlib.sha256(told.response.body).digest() == hashlib.sha256(script.body).digest()
    assert told.outcomes == {"ok": 1}
    assert told.tokens() == {"input": 3, "output": 100}
    oversized = told.delta("parse_errors_total", reason="oversized").value
    assert oversized == (1 if size > MAX_EVENT else 0), "what is above the documented bound is counted, and only that"


async def test_sse_09_comments_pass_at_once_and_are_no_tokens(
    sidecar: SharedSidecar, upstream: UpstreamFactory
) -> None:
    ping, token = events.PING, events.T("a")
    script = Telling(ping, 0.1, ping, 0.1, ping, 0.05, events.ROLE, 0.15, token, events.FIN, events.DONE)
    await upstream(script, port=sidecar.upstream_port)
    told = await tell(sidecar)
    assert told.response.body == script.body
    assert told.delta("ttft").count == 1
    assert told.delta("ttft").sum in told.until(token, script)
    assert told.delta("inter_token").count == 0
    assert told.outcomes == {"ok": 1}


async def test_sse_09_each_comment_is_at_the_client_before_the_next_one_is_written(
    sidecar: SharedSidecar, upstream: UpstreamFactory
) -> None:
    pings = [b": ping %d\n\n" % number for number in range(7)]
    script = Lockstep(*pings)
    await upstream(script, port=sidecar.upstream_port)
    async with await sidecar.client() as client:
        assert await script.run(client) == b"".join(pings)
    assert statistics.median(script.journeys) < PROMPT


async def test_sse_10_a_stream_with_steady_pings_outlives_every_timeout(
    sidecar: SharedSidecar, upstream: UpstreamFactory
) -> None:
    pings = [part for _ in range(12) for part in (events.PING, 0.1)]
    script = Telling(*pings, events.T("a"), events.FIN, events.DONE)
    await upstream(script, port=sidecar.upstream_port)
    request = CHAT_REQUEST.replace(b"POST /v1", b"POST /impatient/v1")
    told = await tell(sidecar, request)
    assert told.delta("request_duration").sum > 1.2, "three times as long as any of its timeouts"
    assert told.response.body == script.body
    assert told.outcomes == {"ok": 1}


def test_sse_10_no_timeout_bounds_a_whole_exchange() -> None:
    assert set(Timeouts.__slots__) == {"dns", "connect", "tls", "headers", "idle"}


async def test_sse_13_an_error_in_json_is_passed_as_it_is_where_a_stream_was_asked_for(
    sidecar: SharedSidecar, upstream: UpstreamFactory
) -> None:
    body = b'{"error":{"message":"no key"}}'
    assert len(body) == 30
    answer = events.json_response(body, status="401 Unauthorized")
    await upstream(Telling(answer, head=b"", framed=False, end=b""), port=sidecar.upstream_port)
    request = request_bytes(headers=[*events.DEFAULT_HEADERS, (b"Accept", b"text/event-stream")],
                            body=events.DEFAULT_BODY)  # fmt: skip
    told = await tell(sidecar, request)
    assert told.response.status == 401
    assert told.response.value("content-type") == b"application/json"
    assert told.response.value("content-length") == b"30"
    assert told.response.body == body
    assert told.delta("ttft").count == 0
    assert told.delta("requests_total", outcome="client_error", code="401", stream="true").value == 1
    assert told.outcomes == {"client_error": 1}


async def test_sse_15_a_responses_stream_is_complete_with_its_terminal_event(
    sidecar: SharedSidecar, upstream: UpstreamFactory
) -> None:
    running = {"id": "r1", "status": "in_progress", "model": "m1"}
    done = {**running, "status": "completed", "usage": {"input_tokens": 7, "output_tokens": 1, "total_tokens": 8}}
    script = Telling(
        events.event({"type": "response.created", "response": running}, "response.created"),
        events.event({"type": "response.output_text.delta", "delta": "hi"}, "response.output_text.delta"),
        events.event({"type": "response.completed", "response": done}, "response.completed"),
    )
    await upstream(script, port=sidecar.upstream_port)
    told = await tell(sidecar, CHAT_REQUEST.replace(b"/v1/chat/completions", b"/v1/responses"))
    assert told.response.body == script.body
    assert told.response.clean_end
    assert told.tokens() == {"input": 7, "output": 1}
    assert told.outcomes == {"ok": 1}


async def test_sse_15_a_messages_stream_is_complete_with_message_stop(
    sidecar: SharedSidecar, upstream: UpstreamFactory
) -> None:
    script = Telling(events.MS(7, 1), events.AB(), events.AD("hi"), events.MD({"output_tokens": 1}), events.ME)
    await upstream(script, port=sidecar.upstream_port)
    told = await tell(sidecar, MESSAGES_REQUEST)
    assert told.response.body == script.body
    assert told.response.clean_end
    assert told.tokens() == {"input": 7, "output": 1}
    assert told.outcomes == {"ok": 1}
