from __future__ import annotations

import base64
import gzip
import json
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import brotli
import pytest
import zstandard

from sidecar.dialects import codings
from sidecar.dialects.codings import open_decoder
from sidecar.dialects.framing.sse import SseFramer

ROOT = Path(__file__).resolve().parents[3]
RECORDINGS = ROOT.parent / "shared" / "recordings"

BODY = b"".join(b'data: {"n":%d,"text":"a few words"}\n\n' % n for n in range(500))


def bare_deflate(data: bytes) -> bytes:
    context = zlib.compressobj(wbits=-15)
    return context.compress(data) + context.flush()


CODED: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("gzip", gzip.compress),
    ("x-gzip", gzip.compress),
    ("deflate", zlib.compress),
    ("deflate", bare_deflate),
    ("br", lambda body: brotli.compress(body, quality=4)),
    ("zstd", zstandard.compress),
]


def decoded(coding: str, *reads: bytes) -> tuple[bytes, dict[str, int]]:
    decoder = open_decoder(coding)
    assert decoder is not None
    text = b"".join(decoder.feed(read) for read in reads) + decoder.finish()
    return text, decoder.errors


def in_reads(body: bytes, size: int) -> list[bytes]:
    return [body[i : i + size] for i in range(0, len(body), size)]


@pytest.mark.parametrize("value", [None, "", b"", "identity", b"Identity , ", ","])
def test_nothing_is_opened_where_nothing_is_coded(value):
    assert open_decoder(value) is None


@pytest.mark.parametrize(("coding", "encode"), CODED)
@pytest.mark.parametrize("read_size", [1, 100, 1 << 30])
@pytest.mark.parametrize("body", [BODY, b"", b"x"])
def test_every_coding_is_undone_in_any_cut(coding, encode, read_size, body):
    assert decoded(coding, *in_reads(encode(body), read_size)) == (body, {})


@pytest.mark.parametrize(
    ("coding", "encode"), [("gzip", gzip.compress), ("zstd", zstandard.compress), ("x-gzip", gzip.compress)]
)
@pytest.mark.parametrize("read_size", [1, 7, 1 << 30])
def test_several_members_and_frames_are_one_body(coding, encode, read_size):
    coded = encode(b"one ") + encode(b"") + encode(BODY)
    assert decoded(coding, *in_reads(coded, read_size)) == (b"one " + BODY, {})


@pytest.mark.parametrize("garbage", [b"\0" * 600, b"garbage", b"\x1f", b"\0\x1fx", b"\x1e\x8b"])
@pytest.mark.parametrize("read_size", [1, 1 << 30])
def test_what_follows_the_last_gzip_member_is_passed_over(garbage, read_size):
    assert decoded("gzip", *in_reads(gzip.compress(BODY) + garbage, read_size)) == (BODY, {})


def test_zero_padding_may_stand_between_gzip_members():
    assert decoded("gzip", *in_reads(gzip.compress(b"a") + b"\0\0\0" + gzip.compress(b"b"), 1)) == (b"ab", {})


@pytest.mark.parametrize(
    ("value", "encode"),
    [
        (b"gzip, br", lambda body: brotli.compress(gzip.compress(body))),
        ("deflate ,GZIP", lambda body: gzip.compress(zlib.compress(body))),
        ("identity, zstd, gzip", lambda body: gzip.compress(zstandard.compress(body))),
    ],
)
@pytest.mark.parametrize("read_size", [1, 1 << 30])
def test_stacked_codings_are_undone_from_the_last_to_the_first(value, encode, read_size):
    assert decoded(value, *in_reads(encode(BODY), read_size)) == (BODY, {})


@pytest.mark.parametrize("value", ["x-foo", "gzip, x-foo", "compress", b"\xff", "gzip,gzip,gzip,gzip,gzip"])
def test_an_unknown_coding_gives_nothing_and_is_counted_once(value):
    assert decoded(value, gzip.compress(BODY), b"more") == (b"", {"coding": 1})


@pytest.mark.parametrize(("coding", "package"), [("br", "brotli"), ("zstd", "zstandard"), ("gzip, br", "brotli")])
def test_a_missing_package_gives_nothing_and_is_counted_once(coding, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    assert decoded(coding, b"abc", b"def") == (b"", {"coding": 1})


@pytest.mark.parametrize("coding", ["gzip", "br", "zstd", "deflate", "gzip, br"])
def test_a_body_that_is_not_of_its_coding_gives_nothing_and_is_counted_once(coding):
    body = b'{"model":"gpt","usage":{"prompt_tokens":1}}' * 20
    for read_size in (10, 1 << 30):
        text, errors = decoded(coding, *in_reads(body, read_size))
        assert errors == {"coding": 1}
        assert b"model" not in text


@pytest.mark.parametrize(("coding", "encode"), CODED)
def test_a_body_that_breaks_off_gives_what_came_and_is_counted(coding, encode):
    coded = encode(BODY)
    text, errors = decoded(coding, coded[: len(coded) - 5])
    assert BODY.startswith(text)
    assert errors == {"truncated": 1}


@pytest.mark.parametrize("coding", ["gzip", "br", "zstd", "deflate", "gzip, br"])
def test_an_empty_body_is_no_error(coding):
    assert decoded(coding) == decoded(coding, b"") == (b"", {})


def flushing_encoders() -> dict[str, Callable[[bytes], bytes]]:
    """Coding → a function that codes the next part so that it can be decoded at once."""
    zipped = zlib.compressobj(wbits=31)
    deflated = zlib.compressobj()
    br = brotli.Compressor()
    zst = zstandard.ZstdCompressor().compressobj()
    return {
        "gzip": lambda part: zipped.compress(part) + zipped.flush(zlib.Z_SYNC_FLUSH),
        "deflate": lambda part: deflated.compress(part) + deflated.flush(zlib.Z_SYNC_FLUSH),
        "br": lambda part: br.process(part) + br.flush(),
        "zstd": lambda part: zst.compress(part) + zst.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK),
    }


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
def test_each_flushed_event_is_there_as_soon_as_its_bytes_are(coding):
    encode = flushing_encoders()[coding]
    decoder = open_decoder(coding)
    assert decoder is not None
    for n in range(20):
        event = b"data: %d\n\n" % n
        assert decoder.feed(encode(event)) == event


BOMB = b"\0" * (80 * 1024 * 1024)


@pytest.mark.parametrize(
    ("coding", "encode"),
    [
        ("gzip", lambda body: gzip.compress(body, 9)),
        ("deflate", lambda body: zlib.compress(body, 9)),
        ("br", lambda body: brotli.compress(body, quality=3)),
        ("zstd", zstandard.compress),
        ("gzip, zstd", lambda body: zstandard.compress(gzip.compress(body, 9))),
    ],
)
def test_a_bomb_stops_the_decoding_whether_it_comes_at_once_or_slowly(coding, encode):
    coded = encode(BOMB)
    at_once = open_decoder(coding)
    assert at_once is not None
    assert len(at_once.feed(coded)) <= codings.BOMB_CALL_BYTES
    assert at_once.errors == {"bomb": 1}
    slowly = open_decoder(coding)
    assert slowly is not None
    made = sum(len(slowly.feed(read)) for read in in_reads(coded, max(1, len(coded) // 100)))
    assert made <= codings.BOMB_BYTES
    slowly.finish()
    assert slowly.errors == {"bomb": 1}


@pytest.mark.parametrize(("coding", "encode"), CODED)
def test_a_large_answer_that_compresses_well_is_no_bomb_and_comes_in_small_pieces(coding, encode):
    body = b"".join(b"%d " % (n * n) for n in range(700_000))
    decoder = open_decoder(coding)
    assert decoder is not None
    size = 0
    for read in in_reads(encode(body), 65_536):
        for piece in decoder.pieces(read):
            assert len(piece) <= 1024 * 1024
            size += len(piece)
    decoder.finish()
    assert size == len(body)
    assert not decoder.errors


def test_recorded_compressed_streams_are_read():
    for path in sorted(RECORDINGS.glob("*.json")):
        recording = json.loads(path.read_bytes())
        headers = {name.lower(): value for name, value in recording["response"]["headers"]}
        decoder = open_decoder(headers.get("content-encoding"))
        if decoder is None or "body_base64" not in recording["response"]:
            continue
        body = base64.b64decode(recording["response"]["body_base64"])
        text = b"".join(decoder.feed(read) for read in in_reads(body, 50)) + decoder.finish()
        assert not decoder.errors, path.name
        if headers["content-type"].startswith("text/event-stream"):
            assert len(SseFramer().feed(text)) == recording["expected"]["n_events"], path.name
        else:
            assert json.loads(text), path.name
