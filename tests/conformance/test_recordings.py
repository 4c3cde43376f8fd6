"""Recorded exchanges, whole and in every split, must give what their authors counted by hand.

The bodies beside this file are our own and always there; recordings of real providers are read where the checkout has
them next to it. Both have the same layout: a request, a response, and `expected`.
"""

from __future__ import annotations

import base64
import json
import random
import struct
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from sidecar import dialects
from sidecar.config.model import DialectName
from sidecar.dialects.reading import Reader, Reading

ROOT = Path(__file__).resolve().parents[2]
BODIES = sorted(Path(__file__).with_name("bodies").glob("*.json"))
RECORDINGS = sorted((ROOT.parent / "shared" / "recordings").glob("*.json"))
EXCHANGES = [pytest.param(path, id=path.stem) for path in BODIES + RECORDINGS]

COUNTED: dict[str, Callable[[Reading], object]] = {
    "input_tokens": lambda reading: reading.usage and reading.usage.input,
    "output_tokens": lambda reading: reading.usage and reading.usage.output,
    "cached_tokens": lambda reading: reading.usage and reading.usage.cached_input,
    "cache_write_tokens": lambda reading: reading.usage and reading.usage.cache_creation_input,
    "reasoning_tokens": lambda reading: reading.usage and reading.usage.reasoning,
    "total_tokens": lambda reading: reading.usage and reading.usage.total,
    "n_events": lambda reading: reading.events,
    "n_text": lambda reading: reading.n_text,
    "n_reasoning": lambda reading: reading.n_reasoning,
    "n_tool": lambda reading: reading.n_tool,
    "first_content_event": lambda reading: reading.first_content_event,
    "first_text_event": lambda reading: reading.first_text_event,
    "finish_reason": lambda reading: ",".join(reading.finish_reasons) or None,
    "terminator": lambda reading: reading.terminator,
    "model": lambda reading: reading.model,
    "upstream_ms": lambda reading: _milliseconds(reading.provider.total),
    "upstream_ttft_ms": lambda reading: _milliseconds(reading.provider.prompt),
}
ALWAYS_COMPARED = {"n_text", "n_reasoning", "n_tool", "first_content_event", "first_text_event"}

OURS: dict[str, dict[str, object]] = {
    # The count in the recording knows nothing of this API's events, which carry text and usage all the same.
    "gemini-interactions-stream": {
        "n_text": 1,
        "first_content_event": 6,
        "first_text_event": 6,
        "model": "gemini-2.5-flash-lite",
        "input_tokens": 266,
        "output_tokens": 3,
        "reasoning_tokens": 57,
        "finish_reason": "incomplete",
    },
    # 24 is the number of messages in both directions; the server sent 21.
    "openai-realtime-ws": {"n_events": 21, "n_text": 3, "first_content_event": 8, "first_text_event": 8},
    # The last event has no blank line and is dropped, as the standard says.
    "sse-torture": {"terminator": None},
    # The provider's own error, after the finish reason, in a stream with status 200.
    "openrouter-stream-comments": {"error": {"code": 400}},
    # The counts are in the body under names of Llama's own.
    "bedrock-invoke-llama": {"input_tokens": 5, "output_tokens": 10},
}
"""Where we say otherwise than `expected`, and why."""

INCOMPLETE = {
    # The second of two answers never gives its finish reason.
    "litellm-proxy-stream-n2",
}
"""Streams that end without an error and are not whole."""


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)


def body_of(exchange: dict[str, Any]) -> bytes:
    response = exchange["response"]
    if "websocket" in exchange:
        return b"".join(_frame(message) for message in exchange["websocket"] if message["direction"] == "received")
    if "body_base64" in response:
        return base64.b64decode(response["body_base64"])
    return (response["body_text"] or "").encode()


def _frame(message: dict[str, str]) -> bytes:
    text = message["text"].encode()
    if len(text) < 126:
        return struct.pack(">BB", 0x81, len(text)) + text
    return struct.pack(">BBQ", 0x81, 127, len(text)) + text


def reader_of(exchange: dict[str, Any]) -> Reader:
    request, response = exchange["request"], exchange["response"]
    method, target = request["method"], request["path"]
    body = request.get("body")
    encoded = body.encode() if isinstance(body, str) else json.dumps(body).encode() if body else b""
    dialect = dialects.resolve(DialectName.AUTO, method, target)
    facts = dialects.read_request(dialect, method, target, encoded)
    if body is None:
        # Some recordings have lost their request's body; whether they are streams is known all the same.
        facts = facts._replace(stream=facts.stream or bool(exchange["streaming"]))
    headers = [(name.encode(), value.encode()) for name, value in response["headers"]]
    open_ = dialects.open_tunnel_reader if response["status"] == 101 else dialects.open_reader
    return open_(dialect, facts, method, target, response["status"], headers)


def read(exchange: dict[str, Any], pieces: list[bytes]) -> Reading:
    reader = reader_of(exchange)
    for piece in pieces:
        reader.feed(piece, 1.0)
    return reader.finish(clean=True)


def read_by_events(exchange: dict[str, Any], body: bytes) -> Reading:
    """As most bodies come: one event in each read, and many reads taken at once."""
    reader = reader_of(exchange)
    pieces = [piece + b"\n\n" for piece in body.split(b"\n\n")]
    pieces[-1] = pieces[-1][:-2]
    chunks = [(1.0, piece) for piece in pieces if piece]
    middle = len(chunks) // 2
    reader.feed_all(chunks[:middle])
    reader.feed_all(chunks[middle:])
    return reader.finish(clean=True)


def load(path: Path) -> tuple[dict[str, Any], bytes]:
    exchange = json.loads(path.read_text("utf-8"))
    return exchange, body_of(exchange)


def expected_of(path: Path, exchange: dict[str, Any]) -> dict[str, Any]:
    expected = {**exchange["expected"], **OURS.get(path.stem, {})}
    if expected.get("terminator") == "none(EOF)":
        expected["terminator"] = None
    if expected.get("finish_reason") is not None:
        expected["finish_reason"] = str(expected["finish_reason"])
    return expected


@pytest.mark.parametrize("path", EXCHANGES)
def test_the_reading_is_what_was_counted(path: Path) -> None:
    exchange, body = load(path)
    reading = read(exchange, [body])
    expected = expected_of(path, exchange)
    keys = [key for key in COUNTED if expected.get(key) is not None or key in ALWAYS_COMPARED]
    assert {key: COUNTED[key](reading) for key in keys} == {
        key: expected.get(key, 0 if key in ("n_text", "n_reasoning", "n_tool") else None) for key in keys
    }
    assert reading.streamed == bool(exchange["streaming"])
    assert set(reading.parse_errors) <= {"truncated"}


@pytest.mark.parametrize("path", EXCHANGES)
def test_errors_and_ends_are_recognised(path: Path) -> None:
    exchange, body = load(path)
    reading = read(exchange, [body])
    error = expected_of(path, exchange).get("error")
    if isinstance(error, dict):
        code = error.get("code")
        assert reading.error_type == (error.get("type") or error.get("status"))
        assert reading.error_code == (None if code is None else str(code))
    elif isinstance(error, str):
        assert reading.failed
    elif exchange["response"]["status"] < 400:
        assert not reading.failed
    whole = exchange["response"]["status"] >= 400 or not error
    assert reading.complete == (whole and path.stem not in INCOMPLETE)


@pytest.mark.parametrize("path", EXCHANGES)
def test_one_byte_at_a_time_gives_the_same_reading(path: Path) -> None:
    exchange, body = load(path)
    whole = read(exchange, [body])
    edge = 4096
    middle = body[edge:-edge]
    pieces = [
        *singly(body[:edge]),
        *([middle[at : at + 1009] for at in range(0, len(middle), 1009)]),
        *singly(body[max(edge, len(body) - edge) :]),
    ]
    assert b"".join(pieces) == body
    assert read(exchange, pieces) == whole


def singly(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


@pytest.mark.parametrize("path", EXCHANGES)
def test_random_pieces_give_the_same_reading(path: Path) -> None:
    exchange, body = load(path)
    whole = read(exchange, [body])
    for seed in range(5):
        places = random.Random(seed)
        cuts = sorted(places.randrange(len(body) + 1) for _ in range(places.randrange(1, 40)))
        edges = [0, *cuts, len(body)]
        pieces = [body[start:end] for start, end in pairwise(edges)]
        assert read(exchange, pieces) == whole, f"seed {seed}"


@pytest.mark.parametrize("path", EXCHANGES)
def test_one_event_in_each_read_and_many_reads_at_once_give_the_same_reading(path: Path) -> None:
    exchange, body = load(path)
    assert read_by_events(exchange, body) == read(exchange, [body])


@pytest.mark.parametrize("path", EXCHANGES)
def test_a_body_that_breaks_off_is_never_complete(path: Path) -> None:
    exchange, body = load(path)
    reader = reader_of(exchange)
    reader.feed(body[: len(body) * 2 // 3], 1.0)
    reading = reader.finish(clean=False)
    assert not reading.complete
    assert "reader" not in reading.parse_errors
