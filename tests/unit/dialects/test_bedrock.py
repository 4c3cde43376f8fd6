from __future__ import annotations

import base64
import json
import struct
import zlib

import pytest

from sidecar import dialects
from sidecar.dialects.reading import Operation, Reading, RequestFacts, Usage

STREAM = [(b"Content-Type", b"application/vnd.amazon.eventstream")]


def frame(headers: dict[str, str], payload: bytes) -> bytes:
    """One message of the AWS event stream encoding."""
    encoded = b"".join(
        struct.pack(">B", len(name)) + name.encode() + struct.pack(">BH", 7, len(value)) + value.encode()
        for name, value in headers.items()
    )
    prelude = struct.pack(">II", len(encoded) + len(payload) + 16, len(encoded))
    start = prelude + struct.pack(">I", zlib.crc32(prelude)) + encoded + payload
    return start + struct.pack(">I", zlib.crc32(start))


def event(type_: str, **payload: object) -> bytes:
    return frame({":event-type": type_, ":message-type": "event"}, json.dumps(payload).encode())


def chunk(**vendor: object) -> bytes:
    return event("chunk", bytes=base64.b64encode(json.dumps(vendor).encode()).decode(), p="ab")


def read(*frames: bytes, target: str = "/model/m/converse-stream", piece: int = 7, clean: bool = True) -> Reading:
    facts = RequestFacts(Operation.CHAT, "m", stream=True)
    reader = dialects.open_reader("bedrock", facts, "POST", target, 200, STREAM)
    body = b"".join(frames)
    for start in range(0, len(body), piece):
        reader.feed(body[start : start + piece], 1.0)
    return reader.finish(clean=clean)


START = event("messageStart", role="assistant")
HELLO = event("contentBlockDelta", contentBlockIndex=0, delta={"text": "Hel"})
STOP = event("messageStop", stopReason="end_turn")
USAGE = {"inputTokens": 12, "outputTokens": 25, "totalTokens": 137, "cacheReadInputTokens": 100}
METADATA = event("metadata", usage=USAGE, metrics={"latencyMs": 481})


def test_converse_counts_text_reasoning_and_tools() -> None:
    reading = read(
        START,
        event("contentBlockDelta", delta={"text": ""}),
        event("contentBlockDelta", delta={"reasoningContent": {"text": "hm"}}),
        event("contentBlockDelta", delta={"reasoningContent": {"signature": "x"}}),
        HELLO,
        event("contentBlockStart", start={"toolUse": {"name": "f", "toolUseId": "1"}}),
        event("contentBlockDelta", delta={"toolUse": {"input": "{}"}}),
        STOP,
        METADATA,
    )
    assert (reading.events, reading.n_text, reading.n_reasoning, reading.n_tool) == (9, 1, 1, 1)
    assert (reading.first_content_event, reading.first_text_event, reading.token_events) == (2, 4, 4)
    assert reading.usage == Usage(12, 25, 100, total=137, input_excludes_cache=True)
    assert reading.usage.normalised().input == 112
    assert (reading.complete, reading.terminator, reading.finish_reasons) == (True, "metadata", ["end_turn"])
    assert reading.provider.total == 0.481


def test_converse_without_its_last_events_is_not_complete() -> None:
    assert not read(START, HELLO).complete
    assert not read(START, HELLO, STOP, clean=False).complete
    assert read(START, HELLO, STOP).complete
    assert read(START, HELLO, STOP, METADATA, clean=False).complete


@pytest.mark.parametrize(
    ("headers", "error"),
    [
        ({":message-type": "exception", ":exception-type": "throttlingException"}, ("throttlingException", None)),
        ({":message-type": "error", ":error-code": "InternalError"}, (None, "InternalError")),
    ],
)
def test_exception_frames_are_failures(headers: dict[str, str], error: tuple[str | None, str | None]) -> None:
    reading = read(START, HELLO, frame(headers, b'{"message":"secret"}'))
    assert (reading.error_type, reading.error_code) == error
    assert (reading.complete, reading.events, reading.n_text) == (False, 3, 1)


def test_a_damaged_frame_is_counted_and_ends_the_reading() -> None:
    damaged = bytearray(HELLO)
    damaged[-1] ^= 1
    reading = read(START, bytes(damaged), STOP, METADATA)
    assert (reading.complete, reading.parse_errors) == (False, {"crc": 1})


LAST = {"inputTokenCount": 21, "outputTokenCount": 22, "invocationLatency": 2033, "firstByteLatency": 1229}
METRICS = {"amazon-bedrock-invocationMetrics": LAST}


@pytest.mark.parametrize(
    ("events", "n_text", "finish", "usage"),
    [
        (
            [
                {"type": "message_start", "message": {"model": "c", "usage": {"input_tokens": 21, "output_tokens": 2}}},
                {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "a"}},
                {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 22}},
                {"type": "message_stop", **METRICS},
            ],
            1,
            "end_turn",
            (21, 22),
        ),
        (
            [
                {"messageStart": {"role": "assistant"}},
                {"contentBlockDelta": {"delta": {"text": "a"}}},
                {"messageStop": {"stopReason": "end_turn"}},
                {"metadata": {"usage": {"inputTokens": 12, "outputTokens": 13}, "metrics": {}}, **METRICS},
            ],
            1,
            "end_turn",
            (12, 13),
        ),
        (
            [
                {"generation": "a", "prompt_token_count": 10, "generation_token_count": 1, "stop_reason": None},
                {
                    "generation": "b",
                    "prompt_token_count": None,
                    "generation_token_count": 2,
                    "stop_reason": "length",
                    **METRICS,
                },
            ],
            2,
            "length",
            (10, 2),
        ),
        (
            [
                {
                    "outputText": "a",
                    "totalOutputTextTokenCount": 10,
                    "completionReason": "LENGTH",
                    "inputTextTokenCount": 5,
                    **METRICS,
                }
            ],
            1,
            "LENGTH",
            (5, 10),
        ),
        (
            [{"is_finished": False, "text": "a"}, {"is_finished": True, "finish_reason": "MAX_TOKENS", **METRICS}],
            1,
            "MAX_TOKENS",
            (21, 22),
        ),
        (
            [
                {"choices": [{"index": 0, "delta": {"content": "a"}}]},
                {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], **METRICS},
            ],
            1,
            "stop",
            (21, 22),
        ),
    ],
)
def test_the_formats_of_the_vendors_are_recognised(
    events: list[dict[str, object]], n_text: int, finish: str, usage: tuple[int, int]
) -> None:
    frames = [chunk(**vendor) for vendor in events]
    reading = read(*frames, target="/model/m/invoke-with-response-stream")
    assert (reading.events, reading.n_text, reading.finish_reasons) == (len(events), n_text, [finish])
    assert reading.usage is not None
    assert (reading.usage.input, reading.usage.output) == usage
    assert (reading.provider.total, reading.provider.prompt) == (2.033, 1.229)
    assert reading.complete
    assert not read(*frames[: len(frames) > 1], target="/model/m/invoke-with-response-stream").complete


def test_an_error_before_the_stream_is_named_by_its_header() -> None:
    headers = [(b"content-type", b"application/json"), (b"x-amzn-ErrorType", b"ValidationException:http://x/")]
    facts = RequestFacts(Operation.CHAT, "m", stream=True)
    reader = dialects.open_reader("bedrock", facts, "POST", "/model/m/converse-stream", 400, headers)
    reader.feed(b'{"message":"x"}', 1.0)
    reading = reader.finish(clean=True)
    assert (reading.error_type, reading.streamed, reading.complete) == ("ValidationException", False, True)
