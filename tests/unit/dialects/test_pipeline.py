from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tracemalloc
import zlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar import dialects
from sidecar.dialects.reading import Operation, Reader, Reading, RequestFacts, Usage

CHAT = "/v1/chat/completions"
FACTS = RequestFacts(Operation.CHAT, "m", stream=True)
STREAM = (
    b'data: {"model":"m","choices":[{"index":0,"delta":{"content":"n\xc3\xa9 \xf0\x9f\x98\x8a"}}]}\n\n'
    b": wait\r\n\r\n"
    b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"function":{"arguments":"{}"}}]}}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],\n'
    b'data: "usage":{"prompt_tokens":7,"completion_tokens":3}}\r\n\r\n'
    b"data: [DONE]\n\n"
)
DOCUMENT = json.dumps(
    {
        "model": "m",
        "choices": [{"index": 0, "message": {"content": "hi"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3},
    }
).encode()
DIALECTS = ["openai", "anthropic", "gemini", "ollama", "cohere", "bedrock", "generic"]
STREAM_TYPES = [
    None,
    b"text/event-stream",
    b"text/plain",
    b"application/octet-stream",
    b"TEXT/Event-Stream;charset=utf-8",
]
ANY_TYPE = [None, b"text/event-stream", b"application/json", b"application/x-ndjson"]
EVENT_STREAM = b"application/vnd.amazon.eventstream"
STARTS = [b"", b"data: {", b"{", b"[", b'data: {"choices":[{"delta":', b"\x00\x00\x00\x10\x00\x00\x00\x00"]


def reader(
    content_type: bytes | None = b"text/event-stream",
    *,
    dialect: str = "openai",
    target: str = CHAT,
    status: int = 200,
    method: str = "POST",
    facts: RequestFacts = FACTS,
    coding: bytes | None = None,
) -> Reader:
    headers = [(b"Content-Type", content_type)] if content_type is not None else []
    if coding is not None:
        headers.append((b"Content-Encoding", coding))
    return dialects.open_reader(dialect, facts, method, target, status, headers)


def read(body: bytes, content_type: bytes | None = b"text/event-stream", clean: bool = True, **more: object) -> Reading:
    made = reader(content_type, **more)  # type: ignore[arg-type]
    made.feed(body, 1.0)
    return made.finish(clean=clean)


@given(st.lists(st.integers(0, 400), max_size=30), st.sampled_from([None, b"gzip", b"deflate"]))
def test_any_split_gives_the_same_reading(cuts: list[int], coding: bytes | None) -> None:
    body = {None: STREAM, b"gzip": gzip.compress(STREAM, mtime=0), b"deflate": zlib.compress(STREAM)}[coding]
    whole = read(body, coding=coding)
    made = reader(coding=coding)
    for start, end in pairwise([0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]):
        made.feed(body[start:end], 1.0)
    assert made.finish(clean=True) == whole
    assert (whole.n_text, whole.n_tool, whole.usage, whole.complete) == (1, 1, Usage(7, 3), True)
    assert whole.parse_errors == {}


@given(
    st.binary(max_size=300),
    st.sampled_from(DIALECTS),
    st.sampled_from([*ANY_TYPE, EVENT_STREAM]),
    st.sampled_from(STARTS),
)
def test_no_bytes_make_a_reader_raise(garbage: bytes, dialect: str, content_type: bytes | None, start: bytes) -> None:
    reading = read(start + garbage, content_type, dialect=dialect)
    assert "reader" not in reading.parse_errors


def test_flushed_gzip_gives_its_events_as_they_come() -> None:
    pack = zlib.compressobj(wbits=31)
    made = reader(coding=b"gzip")
    for at, event in enumerate(STREAM.split(b"\n\n")[:2], start=1):
        made.feed(pack.compress(event + b"\n\n") + pack.flush(zlib.Z_SYNC_FLUSH), float(at))
    reading = made.finish(clean=False)
    assert (reading.first_token_at, reading.last_token_at) == (1.0, 2.0)


def test_a_coding_that_cannot_be_undone_is_counted_and_the_end_of_http_believed() -> None:
    reading = read(b"xxxx", coding=b"secret")
    assert (reading.complete, reading.parse_errors) == (True, {"coding": 1})


@pytest.mark.parametrize("content_type", STREAM_TYPES)
def test_a_stream_is_known_by_its_first_bytes(content_type: bytes | None) -> None:
    made = reader(content_type)
    for at in range(len(STREAM)):
        made.feed(STREAM[at : at + 1], 1.0)
    assert made.finish(clean=True) == read(STREAM)


@pytest.mark.parametrize("content_type", [None, b"text/event-stream", b"application/json", b"application/octet-stream"])
def test_a_document_is_known_by_its_first_byte_and_is_no_stream(content_type: bytes | None) -> None:
    reading = read(b"\xef\xbb\xbf" + DOCUMENT, content_type)
    assert (reading.streamed, reading.usage, reading.finish_reasons) == (False, Usage(7, 3), ["stop"])
    assert (reading.complete, reading.token_events, reading.events) == (True, 0, 0)


def test_white_space_before_a_document_costs_nothing() -> None:
    made = reader(b"application/json")
    for _ in range(1000):
        made.feed(b" \n" * 1000, 1.0)
    made.feed(DOCUMENT, 1.0)
    assert made.finish(clean=True).usage == Usage(7, 3)


def test_an_error_called_an_event_stream_is_an_error() -> None:
    reading = read(b'{\n "error": {"code": 404, "status": "NOT_FOUND"}\n}', status=404)
    assert (reading.error_type, reading.error_code, reading.streamed, reading.complete) == (
        "NOT_FOUND",
        "404",
        False,
        True,
    )


def test_a_document_that_breaks_off_is_not_complete_and_not_malformed() -> None:
    reading = read(DOCUMENT[:-1], b"application/json", clean=False)
    assert (reading.complete, reading.parse_errors) == (False, {})
    assert read(DOCUMENT[:-1], b"application/json").parse_errors == {"json": 1}


def test_a_large_document_gives_its_usage_in_little_memory() -> None:
    big = (
        b'{"data":['
        + b",".join([b'{"embedding":"%s"}' % (b"x" * 10_000)] * 2000)
        + b'],"model":"m","usage":{"prompt_tokens":7}}'
    )
    made = reader(b"application/json", target="/v1/embeddings", facts=RequestFacts(Operation.EMBEDDINGS))
    made.feed(big[:300_000], 1.0)
    tracemalloc.start()
    for at in range(300_000, len(big), 65_536):
        made.feed(big[at : at + 65_536], 1.0)
    reading = made.finish(clean=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (reading.model, reading.usage, reading.complete) == ("m", Usage(7), True)
    assert peak < 1024 * 1024


def test_a_large_document_that_breaks_off_is_not_complete() -> None:
    big = b'{"model":"m","data":"' + b"x" * 400_000
    assert not read(big, b"application/json", target="/v1/embeddings").complete


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("GET", 204), ("GET", 304)])
def test_answers_without_a_body_are_complete_when_http_says_so(method: str, status: int) -> None:
    for content_type in (b"text/event-stream", b"application/json", b"application/vnd.amazon.eventstream"):
        reading = reader(content_type, method=method, status=status).finish(clean=True)
        assert (reading.complete, reading.streamed) == (True, False)


def test_a_stream_of_nothing_is_a_stream_that_is_not_complete() -> None:
    for dialect, content_type in (("openai", b"text/event-stream"), ("ollama", b"application/x-ndjson")):
        reading = reader(content_type, dialect=dialect).finish(clean=True)
        assert (reading.streamed, reading.complete) == (True, False)


@pytest.mark.parametrize("body", [b"<html>", b"\x00\x01\x02", b"plain words"])
def test_bodies_of_other_kinds_are_left_alone(body: bytes) -> None:
    reading = read(body, b"text/html", status=502)
    assert (reading.complete, reading.failed, reading.parse_errors) == (True, False, {})


def test_an_array_that_is_not_closed_is_not_complete() -> None:
    facts = RequestFacts(Operation.GENERATE_CONTENT, "g", stream=True)
    target = "/v1beta/models/g:streamGenerateContent"
    element = b'{"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"STOP"}]}'
    for body, complete in ((b"[" + element + b"\n]", True), (b"[" + element, False)):
        reading = read(body, b"application/json", dialect="gemini", target=target, facts=facts)
        assert (reading.n_text, reading.complete) == (1, complete)


def test_gemini_counts_an_event_that_no_blank_line_ends() -> None:
    facts = RequestFacts(Operation.GENERATE_CONTENT, "g", stream=True)
    body = b'data: {"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"STOP"}]}'
    assert read(body, dialect="gemini", facts=facts).complete
    assert not read(body[:30], dialect="gemini", facts=facts, clean=False).parse_errors.get("json")


def test_one_long_event_is_read_like_any_other() -> None:
    content = "x" * 700_000
    event = b'data: {"choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n' % content.encode()
    made = reader()
    for at in range(0, len(event), 65_536):
        made.feed(event[at : at + 65_536], 1.0)
    made.feed(STREAM, 2.0)
    reading = made.finish(clean=True)
    assert (reading.n_text, reading.usage, reading.complete) == (2, Usage(7, 3), True)


def test_importing_the_package_is_cheap() -> None:
    program = "import sys, sidecar.dialects; sys.exit(int('msgspec' in sys.modules))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
