from __future__ import annotations

import struct
import zlib

import pytest

from sidecar.dialects.framing import MAX_EVENT
from sidecar.dialects.framing.websocket import WebSocketFramer

TEXT, BINARY, CONTINUATION, CLOSE, PING, PONG = 0x1, 0x2, 0x0, 0x8, 0x9, 0xA
RSV1, RSV2 = 0x40, 0x20


def frame(payload: bytes, opcode: int = TEXT, *, fin: bool = True, key: bytes = b"", rsv: int = 0) -> bytes:
    size = len(payload)
    if size < 126:
        length, extended = size, b""
    elif size < 65_536:
        length, extended = 126, struct.pack(">H", size)
    else:
        length, extended = 127, struct.pack(">Q", size)
    head = bytes([(0x80 if fin else 0) | rsv | opcode, (0x80 if key else 0) | length]) + extended + key
    return head + (bytes(byte ^ key[i % 4] for i, byte in enumerate(payload)) if key else payload)


class Deflater:
    """The sending side of permessage-deflate."""

    def __init__(self) -> None:
        self.context = zlib.compressobj(wbits=-15)

    def __call__(self, payload: bytes) -> bytes:
        data = self.context.compress(payload) + self.context.flush(zlib.Z_SYNC_FLUSH)
        return data.removesuffix(b"\x00\x00\xff\xff")


def read(body: bytes, framer: WebSocketFramer, read_size: int = 1 << 30) -> list[bytes]:
    return [m for i in range(0, len(body), read_size) for m in framer.feed(body[i : i + read_size])]


@pytest.mark.parametrize("read_size", [1, 3, 1 << 30])
@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536])
@pytest.mark.parametrize("key", [b"", b"\x01\x80\xff\x00"])
def test_messages_of_every_length_form_are_read_masked_or_not(size, key, read_size):
    payload = bytes(i % 251 for i in range(size))
    framer = WebSocketFramer(masked=bool(key))
    body = frame(payload, BINARY, key=key) + frame(b"next", key=key)
    assert read(body, framer, read_size) == [payload, b"next"]
    assert framer.finish() == []
    assert not framer.errors


def test_the_examples_of_the_standard_are_read():
    framer = WebSocketFramer()
    assert framer.feed(bytes.fromhex("810548656c6c6f")) == [b"Hello"]
    assert framer.feed(bytes.fromhex("818537fa213d7f9f4d5158")) == [b"Hello"]
    assert framer.feed(bytes.fromhex("010348656c") + bytes.fromhex("80026c6f")) == [b"Hello"]
    inflating = WebSocketFramer(deflate=True)
    assert inflating.feed(bytes.fromhex("c107f248cdc9c90700")) == [b"Hello"]
    assert inflating.feed(bytes.fromhex("c105f200110000")) == [b"Hello"], "refers to the message before it"
    assert inflating.feed(bytes.fromhex("c108f348cdc9c9070000")) == [b"Hello"], "ends in a final block"
    assert inflating.feed(bytes.fromhex("c10df24805000000ffffcac9c90700")) == [b"Hello"], "two blocks"


def test_control_frames_between_fragments_are_passed_over():
    body = (
        frame(b"one ", fin=False)
        + frame(b"ping", PING)
        + frame(b"two ", CONTINUATION, fin=False)
        + frame(b"", PONG)
        + frame(b"three", CONTINUATION)
        + frame(b"", PING)
    )
    for read_size in (1, 4, 1 << 30):
        assert read(body, WebSocketFramer(), read_size) == [b"one two three"]


def test_nothing_is_read_after_a_close():
    framer = WebSocketFramer()
    assert framer.feed(frame(b"a") + frame(b"\x03\xe8", CLOSE) + frame(b"b")) == [b"a"]
    assert framer.feed(frame(b"c")) == []
    assert framer.finish() == []
    assert not framer.errors


@pytest.mark.parametrize("read_size", [1, 5, 1 << 30])
def test_compressed_messages_share_their_window_and_plain_ones_may_stand_between(read_size):
    deflate = Deflater()
    texts = [b'{"type":"response.output_text.delta","delta":"%d"}' % i for i in range(5)]
    body = b"".join(frame(deflate(text), rsv=RSV1, key=b"abcd") for text in texts[:3])
    body += frame(b"plain") + frame(deflate(texts[3]), rsv=RSV1)
    last = deflate(texts[4])
    body += frame(last[:3], rsv=RSV1, fin=False) + frame(b"", PING) + frame(last[3:], CONTINUATION)
    framer = WebSocketFramer(deflate=True)
    assert read(body, framer, read_size) == [*texts[:3], b"plain", *texts[3:]]
    assert not framer.errors


def test_senders_that_start_their_window_anew_are_read():
    framer = WebSocketFramer(deflate=True)
    body = b"".join(frame(Deflater()(b"hello hello"), rsv=RSV1) for _ in range(3))
    assert framer.feed(body) == [b"hello hello"] * 3


@pytest.mark.parametrize("read_size", [1 << 30, 65_536])
def test_a_message_beyond_the_bound_is_left_out_and_the_next_is_read(read_size):
    half = b"x" * (MAX_EVENT // 2 + 1)
    body = frame(half, fin=False) + frame(half, CONTINUATION) + frame(b"y" * MAX_EVENT) + frame(b"z")
    framer = WebSocketFramer()
    assert read(body, framer, read_size) == [b"y" * MAX_EVENT, b"z"]
    assert framer.errors == {"oversized": 1}


def test_a_compressed_message_beyond_the_bound_does_not_spoil_those_after_it():
    deflate = Deflater()
    body = frame(deflate(b"ab" * MAX_EVENT), rsv=RSV1) + frame(deflate(b"ab" * 100), rsv=RSV1)
    framer = WebSocketFramer(deflate=True)
    assert framer.feed(body) == [b"ab" * 100]
    assert framer.errors == {"oversized": 1}


def test_a_message_that_expands_without_end_stops_decompression_but_not_plain_messages():
    deflate = Deflater()
    framer = WebSocketFramer(deflate=True)
    bomb = b"".join(deflate.context.compress(b"\0" * MAX_EVENT) for _ in range(65)) + deflate(b"")
    assert framer.feed(frame(bomb, rsv=RSV1)) == []
    assert framer.feed(frame(deflate(b"a"), rsv=RSV1) + frame(b"plain")) == [b"plain"]
    assert framer.errors == {"oversized": 1, "coding": 1}


@pytest.mark.parametrize("deflate", [False, True])
def test_messages_that_cannot_be_decompressed_are_left_out_and_counted(deflate):
    framer = WebSocketFramer(deflate=deflate)
    assert framer.feed(frame(b"\xff\xff\xff\xff", rsv=RSV1) + frame(b"plain")) == [b"plain"]
    assert framer.errors == {"coding": 1}


@pytest.mark.parametrize(
    "body",
    [
        frame(b"x", CONTINUATION) + frame(b"good"),
        frame(b"x", 0x3) + frame(b"good"),
        frame(b"x", 0xB) + frame(b"good"),
        frame(b"x", rsv=RSV2) + frame(b"good"),
        frame(b"x", fin=False) + frame(b"good"),
    ],
)
def test_breaches_of_the_protocol_are_counted_and_the_next_message_is_read(body):
    framer = WebSocketFramer()
    assert read(body, framer, 1) == [b"good"]
    assert framer.errors == {"protocol": 1}


def test_an_impossible_length_stops_the_reading():
    framer = WebSocketFramer()
    assert framer.feed(b"\x81\x7f\x80" + b"\0" * 7 + frame(b"x")) == []
    assert framer.feed(frame(b"x")) == []
    assert framer.errors == {"protocol": 1}


def test_a_mask_in_the_wrong_direction_is_counted_once_and_read_all_the_same():
    framer = WebSocketFramer(masked=False)
    assert framer.feed(frame(b"a", key=b"1234") + frame(b"b", key=b"1234")) == [b"a", b"b"]
    assert framer.errors == {"protocol": 1}


@pytest.mark.parametrize("body", [b"\x81", frame(b"abc")[:-1], frame(b"a", fin=False), frame(b"x" * 200)[:3]])
def test_a_message_that_breaks_off_is_counted(body):
    framer = WebSocketFramer()
    assert framer.feed(body) == []
    assert framer.finish() == []
    assert framer.errors == {"truncated": 1}
