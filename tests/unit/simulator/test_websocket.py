from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.simulator.websocket import CLOSE, PING, TEXT, Frames, ProtocolError, accept_key, frame


def masked(opcode: int, payload: bytes, *, final: bool = True) -> bytes:
    plain = bytearray(frame(opcode, payload))
    if not final:
        plain[0] &= 0x7F
    plain[1] |= 0x80
    mask = os.urandom(4)
    head = len(plain) - len(payload)
    return bytes(plain[:head]) + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))


def test_the_accept_key_is_that_of_the_rfc() -> None:
    assert accept_key(b"dGhlIHNhbXBsZSBub25jZQ==") == b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


@pytest.mark.parametrize("size", [0, 125, 126, 65535, 65536])
def test_frames_of_all_three_lengths_are_read(size: int) -> None:
    assert Frames().feed(masked(TEXT, b"x" * size)) == [(TEXT, b"x" * size)]


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=5), st.integers(1, 50))
def test_messages_survive_any_cut(payloads: list[bytes], size: int) -> None:
    wire = b"".join(masked(TEXT, payload) for payload in payloads)
    frames = Frames()
    got = [message for at in range(0, len(wire), size) for message in frames.feed(wire[at : at + size])]
    assert got == [(TEXT, payload) for payload in payloads]


def test_fragments_are_put_together_around_a_ping() -> None:
    wire = masked(TEXT, b"ab", final=False) + masked(PING, b"p") + masked(0, b"cd")
    assert Frames().feed(wire) == [(PING, b"p"), (TEXT, b"abcd")]


def test_a_frame_without_a_mask_is_an_error() -> None:
    with pytest.raises(ProtocolError) as caught:
        Frames().feed(frame(CLOSE, b""))
    assert caught.value.code == 1002


def test_a_frame_that_is_too_big_is_an_error_before_it_has_come() -> None:
    with pytest.raises(ProtocolError) as caught:
        Frames().feed(b"\x81\xff" + (1 << 40).to_bytes(8, "big"))
    assert caught.value.code == 1009
