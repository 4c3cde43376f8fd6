"""How fast tokens came and how many there were: the numbers of real exchanges against what the upstream did.

Durations are held against instants at both ends (see `tests.kit.shared`), so the bounds are tight and never too tight.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator

import brotli
import pytest
import zstandard

from tests.conftest import UpstreamFactory
from tests.kit import events
from tests.kit.client import CHAT_REQUEST, MESSAGES_REQUEST, request_bytes
from tests.kit.metrics import Metrics
from tests.kit.shared import Between, SharedSidecar, Telling, leave, shared_sidecar, tell
from tests.kit.upstream import Connection

RESPONSES_REQUEST = CHAT_REQUEST.replace(b"/v1/chat/completions", b"/v1/responses")
WHOLE_REQUEST = request_bytes(
    headers=events.DEFAULT_HEADERS, body=events.DEFAULT_BODY.replace(b'"stream":true', b'"stream":false')
)
TWO_CHOICES_REQUEST = request_bytes(
    headers=events.DEFAULT_HEADERS, body=events.DEFAULT_BODY.replace(b'"stream":true', b'"stream":true,"n":2')
)


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedSidecar]:
    with shared_sidecar(tmp_path_factory.mktemp("tokens")) as running:
        yield running


def infinities(metrics: Metrics) -> list[str]:
    """Lines of the exposition with a NaN, or with an infinity that is no bucket's bound."""
    found = re.compile(r"(?i)\b(nan|inf)\b")
    return [line for line in metrics.text.splitlines()
            if not line.startswith("#") and found.search(line.replace('le="+Inf"', ""))]  # fmt: skip


async def test_met_06_a_burst_in_one_write_has_no_speed(sidecar: SharedSidecar, upstream: UpstreamFactory) -> None:
    burst = events.ROLE + b"".join(events.T(f"w{number}") for number in range(40))
    script = Telling(burst + events.FIN + events.USE(5, 40) + events.DONE)
    await upstream(script, port=sidecar.upstream_port)
    told = await tell(sidecar)
    assert told.outcomes == {"ok": 1}
    assert told.tokens() == {"input": 5, "output": 40}
    assert told.delta("ttft").count == 1
    assert told.delta("inter_token").count == 39
    assert told.delta("tokens_per_second").count == 0
    assert told.delta("time_per_token").count == 0
    assert infinities(told.after) == []
    assert told.after.not_finite() == []


@pytest.mark.parametrize(
    ("parts", "tokens"),
    [
        ((events.ROLE, events.T("a"), 0.05, events.FIN, events.USE(5, 1), events.DONE), {"input": 5, "output": 1}),
        ((events.ROLE, 0.05, events.FIN, events.USE(5, 0), events.DONE), {"input": 5}),
        ((events.T("a"), 0.05, events.T("b"), events.FIN, events.USE(5, 0), events.DONE), {"input": 5}),
        ((events.T("a"), 0.05, events.T("b"), events.FIN, events.USE(5, 1), events.DONE), {"input": 5, "output": 1}),
    ],
    ids=["one chunk", "no token", "tokens that are counted as none", "two chunks of one token"],
)
async def test_met_06_without_two_tokens_there_is_no_speed(
    sidecar: SharedSidecar, upstream: UpstreamFactory, parts: tuple[bytes | float, ...], tokens: dict[str, float]
) -> None:
    await upstream(Telling(*parts), port=sidecar.upstream_port)
    told = await tell(sidecar)
    assert told.outcomes == {"ok": 1}
    assert told.tokens() == tokens
    assert told.delta("tokens_per_second").count == 0
    assert told.delta("time_per_token").count == 0
    assert infinities(told.after) == []
    assert told.after.not_finite() == []


async def test_met_06_a_stream_cancelled_before_a_token_has_no_speed(
    sidecar: SharedSidecar, upstream: UpstreamFactory
) -> None:
    async def only_a_role(connection: Connection) -> None:
        await connection.read_request()
        await connection.send(events.sse_head() + events.chunk(events.ROLE))
        await connection.wait_closed()

    await upstream(only_a_role, port=sidecar.upstream_port)
    before = await sidecar.metrics()
    client = await sidecar.client()
    await client.send(CHAT_REQUEST)
    await client.arrival(events.ROLE)
    await leave(client, "close")
    after = await sidecar.metrics_after(before)
    assert after.count("tokens_per_second") == before.count("tokens_per_second")
    assert after.count("ttft") == before.count("ttft")
    assert infinities(after) == []


async def test_met_07_speed_is_of_tokens_and_not_of_chunks(sidecar: SharedSidecar, upstream: UpstreamFactory) -> None:
    words = [events.T(f"word{number}") for number in range(6)]
    paced = [part for word in words[1:] for part in (0.06, word)]
    script = Telling(0.05, words[0], *paced, events.FIN + events.USE(10, 21), events.DONE)
    await upstream(script, port=sidecar.upstream_port)
    told = await tell(sidecar)
    generation = told.from_to(words[0], words[-1], script)
    assert told.delta("time_per_token").count == 1
    assert told.delta("time_per_token").sum in Between(generation.low / 20, generation.high / 20)
    assert told.delta("tokens_per_second").count == 1
    assert told.delta("tokens_per_second").sum in Between(20 / generation.high, 20 / generation.low)
    assert told.delta("inter_token").count == 5
    assert told.delta("inter_token").sum in generation
    told_of = re.search(r"^# HELP llm_sidecar_inter_chunk_seconds (.*)$", told.after.text, re.MULTILINE)
    assert told_of is not None
    assert "per chunk" in told_of[1]


async def test_met_08_tokens_that_a_server_held_back_count_where_they_come(
    sidecar: SharedSidecar, upstream: UpstreamFactory
) -> None:
    first = events.T("a", usage=events.usage(5, 1))
    call = events.TC("{}", usage=events.usage(5, 17))
    script = Telling(events.ROLE, 0.05, first, 0.2, call, events.FIN, events.DONE)
    await upstream(script, port=sidecar.upstream_port)
    told = await tell(sidecar)
    generation = told.from_to(first, call, script)
    assert told.tokens() == {"input": 5, "output": 17}
    assert told.delta("tokens_per_second").sum in Between(16 / generation.high, 16 / generation.low)
    assert told.delta("inter_token").count == 1


@pytest.mark.parametrize("finished", [(0, 1), (0,), (1,)])
async def test_met_08_interleaved_choices_are_one_stream_that_needs_every_finish_reason(
    sidecar: SharedSidecar, upstream: UpstreamFactory, finished: tuple[int, ...]
) -> None:
    chunks = [events.delta({"content": f"c{number}"}, index=number % 2) for number in range(10)]
    paced = [part for chunk in chunks for part in (0.02, chunk)]
    ends = [events.delta({}, index=index, finish="stop") for index in finished]
    script = Telling(*paced, *ends, events.USE(6, 10), events.DONE)
    await upstream(script, port=sidecar.upstream_port)
    told = await tell(sidecar, TWO_CHOICES_REQUEST)
    assert told.response.body == script.body
    assert told.delta("ttft").count == 1
    assert told.tokens() == {"input": 6, "output": 10}
    assert told.delta("inter_token").count == 9
    assert told.outcomes == ({"ok": 1} if finished == (0, 1) else {"stream_truncated": 1})


async def test_met_09_usage_that_grows_is_not_added_up(sidecar: SharedSidecar, upstream: UpstreamFactory) -> None:
    final = {
        "output_tokens": 15,
        "input_tokens": 25,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 0,
    }
    script = Telling(
        events.MS(25, 1, 100, 0), events.AB(), events.AD("a"), events.AD("b"), events.MD(final), events.ME
    )  # fmt: skip
    await upstream(script, port=sidecar.upstream_port)
    told = await tell(sidecar, MESSAGES_REQUEST)
    assert told.outcomes == {"ok": 1}
    # Input has the cached part in it, for every provider: 25 uncached.
    assert told.tokens() == {"input": 125, "output": 15, "cached_input": 100}
    assert told.delta("request_tokens", type="output").sum == 15


async def test_met_12_usage_on_every_chunk_counts_once(sidecar: SharedSidecar, upstream: UpstreamFactory) -> None:
    growing = [events.T("abc"[count - 1], usage=events.usage(10, count)) for count in (1, 2, 3)]
    script = Telling(*growing, events.FIN, events.USE(10, 3), events.DONE)
    await upstream(script, port=sidecar.upstream_port)
    told = await tell(sidecar)
    assert told.tokens() == {"input": 10, "output": 3}
    assert told.delta("token_count_source_total", source="usage").value == 1
    assert told.delta("token_count_source_total").value == 1
    assert told.delta("request_tokens", type="output").count == 1


class _Zstd:
    def __init__(self) -> None:
        self._compressor = zstandard.ZstdCompressor().compressobj()

    def flushed(self, data: bytes) -> bytes:
        return self._compressor.compress(data) + self._compressor.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)

    def end(self) -> bytes:
        return self._compressor.flush()


class _Brotli:
    def __init__(self) -> None:
        self._compressor = brotli.Compressor()

    def flushed(self, data: bytes) -> bytes:
        return bytes(self._compressor.process(data) + self._compressor.flush())

    def end(self) -> bytes:
        return bytes(self._compressor.finish())


class _Zlib:
    def __init__(self, wbits: int) -> None:
        self._compressor = zlib.compressobj(wbits=wbits)

    def flushed(self, data: bytes) -> bytes:
        return self._compressor.compress(data) + self._compressor.flush(zlib.Z_SYNC_FLUSH)

    def end(self) -> bytes:
        return self._compressor.flush()


CODINGS: dict[str, Callable[[], _Zstd | _Brotli | _Zlib]] = {
    "gzip": lambda: _Zlib(31),
    "deflate": lambda: _Zlib(15),
    "br": _Brotli,
    "zstd": _Zstd,
}


@pytest.mark.parametrize("coding", sorted(CODINGS))
async def test_met_15_a_compressed_stream_passes_unchanged_and_is_read_as_it_comes(
    sidecar: SharedSidecar, upstream: UpstreamFactory, coding: str
) -> None:
    compressor = CODINGS[coding]()
    role, token, usage, done = (
        compressor.flushed(event)
        for event in (events.ROLE, events.T("a"), events.FIN + events.USE(7, 3), events.DONE)
    )  # fmt: skip
    script = Telling(
        role, 0.1, token, 0.25, usage, 0.05, done, compressor.end(), head=events.sse_head(("Content-Encoding", coding))
    )
    server = await upstream(script, port=sidecar.upstream_port)
    accepted = (b"Accept-Encoding", b"gzip, deflate, br, zstd")
    request = request_bytes(headers=[*events.DEFAULT_HEADERS, accepted], body=events.DEFAULT_BODY)
    told = await tell(sidecar, request)
    assert server.requests[0].value("accept-encoding") == accepted[1]
    assert told.response.value("content-encoding") == coding.encode()
    assert told.response.body == script.body
    assert told.arrived_at(token) < script.written_at(usage), "a flush is passed on before the next one"
    assert told.delta("ttft").sum in told.until(token, script)
    assert told.tokens() == {"input": 7, "output": 3}
    assert told.outcomes == {"ok": 1}
