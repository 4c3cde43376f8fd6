from __future__ import annotations

import base64
import json
import struct
import zlib
from pathlib import Path

import pytest

from sidecar.dialects.framing import MAX_EVENT
from sidecar.dialects.framing.event_stream import EventStreamFramer

ROOT = Path(__file__).resolve().parents[4]
RECORDINGS = ROOT.parent / "shared" / "recordings"

# The standard's example of a message without headers and payload, byte for byte.
EMPTY_MESSAGE = bytes.fromhex("00000010 00000000 05c248eb 7d98c8ff")


def text_header(name: str, value: str) -> bytes:
    return bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()


def message(headers: bytes, payload: bytes) -> bytes:
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    head = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + payload
    return head + struct.pack(">I", zlib.crc32(head))


DELTA = message(text_header(":event-type", "contentBlockDelta") + text_header(":message-type", "event"), b'{"a":1}')
STOP = message(text_header(":event-type", "messageStop"), b"{}")


def test_headers_and_payload_are_read_in_any_cut():
    body = DELTA + STOP + EMPTY_MESSAGE
    expected = [
        ({":event-type": "contentBlockDelta", ":message-type": "event"}, b'{"a":1}'),
        ({":event-type": "messageStop"}, b"{}"),
        ({}, b""),
    ]
    for cut in range(len(body)):
        framer = EventStreamFramer()
        assert framer.feed(body[:cut]) + framer.feed(body[cut:]) == expected
        assert framer.finish() == []
        assert not framer.errors


def test_headers_of_other_types_are_passed_over_by_their_length():
    others = b"".join(
        b"\x01" + bytes([97 + kind]) + bytes([kind]) + value
        for kind, value in {
            0: b"",
            1: b"",
            2: b"\x07",
            3: b"\x07" * 2,
            4: b"\x07" * 4,
            5: b"\x07" * 8,
            6: b"\x00\x03\x07\x07\x07",
            8: b"\x07" * 8,
            9: b"\x07" * 16,
        }.items()
    )
    framer = EventStreamFramer()
    assert framer.feed(message(others + text_header("x", "é"[:0] + "y"), b"p")) == [({"x": "y"}, b"p")]
    assert not framer.errors


@pytest.mark.parametrize(
    "headers", [b"\x05ab", b"\x01a\x63", b"\x01a\x07\x00\x09ab", b"\x01a\x07\x00", b"\x01a\x05\x00", b"\x01a"]
)
def test_headers_that_break_off_cost_only_themselves(headers):
    framer = EventStreamFramer()
    body = message(text_header("x", "y") + headers, b"p") + STOP
    assert framer.feed(body) == [({"x": "y"}, b"p"), ({":event-type": "messageStop"}, b"{}")]
    assert framer.errors == {"frame": 1}


@pytest.mark.parametrize("damaged_at", [0, 5, 9, 20, len(DELTA) - 1])
def test_a_wrong_checksum_is_counted_once_and_stops_the_reading(damaged_at):
    damaged = bytearray(DELTA)
    damaged[damaged_at] ^= 0x10
    framer = EventStreamFramer()
    assert framer.feed(STOP + bytes(damaged) + STOP) == [({":event-type": "messageStop"}, b"{}")]
    assert framer.feed(STOP) == []
    assert framer.finish() == []
    assert framer.errors == {"crc": 1}


@pytest.mark.parametrize(("total", "headers"), [(0, 0), (15, 0), (20, 5)])
def test_lengths_that_cannot_be_stop_the_reading(total, headers):
    prelude = struct.pack(">II", total, headers)
    framer = EventStreamFramer()
    assert framer.feed(prelude + struct.pack(">I", zlib.crc32(prelude)) + STOP) == []
    assert framer.errors == {"frame": 1}


@pytest.mark.parametrize("read_size", [1 << 30, 65_536])
def test_a_message_beyond_the_bound_is_skipped_and_the_next_is_read(read_size):
    body = STOP + message(b"", b"x" * MAX_EVENT) + STOP
    framer = EventStreamFramer()
    messages = [m for i in range(0, len(body), read_size) for m in framer.feed(body[i : i + read_size])]
    assert messages == [({":event-type": "messageStop"}, b"{}")] * 2
    assert framer.finish() == []
    assert framer.errors == {"oversized": 1}


@pytest.mark.parametrize("kept", [1, 11, 12, len(STOP) - 1])
def test_a_message_that_breaks_off_is_counted(kept):
    framer = EventStreamFramer()
    framer.feed(STOP + STOP[:kept])
    framer.finish()
    assert framer.errors == {"truncated": 1}


def test_recorded_streams_have_the_messages_they_are_known_to_have():
    for path in sorted(RECORDINGS.glob("bedrock-*-stream-*.json")):
        recording = json.loads(path.read_bytes())
        if "body_base64" not in recording["response"]:
            continue
        body = base64.b64decode(recording["response"]["body_base64"])
        framer = EventStreamFramer()
        messages = [m for i in range(0, len(body), 31) for m in framer.feed(body[i : i + 31])]
        assert EventStreamFramer().feed(body) == messages, path.name
        assert len(messages) == recording["expected"]["n_events"], path.name
        assert framer.finish() == [], path.name
        assert not framer.errors, path.name
        assert all(":message-type" in headers and json.loads(payload) is not None for headers, payload in messages)
