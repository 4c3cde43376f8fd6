"""Properties that hold for every body and every cut of it, over all framers, decoders and the member scanner."""

from __future__ import annotations

import gzip
import json
import re
import struct
import time
import zlib
from collections.abc import Callable
from typing import Any

import brotli
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.dialects.codings import open_decoder
from sidecar.dialects.framing.event_stream import EventStreamFramer
from sidecar.dialects.framing.json_array import JsonArrayFramer
from sidecar.dialects.framing.ndjson import NdjsonFramer
from sidecar.dialects.framing.nesting import Nesting
from sidecar.dialects.framing.sse import SseFramer, SseSplitter
from sidecar.dialects.framing.websocket import WebSocketFramer
from sidecar.dialects.json_scan import MemberScanner, members

FRAMERS: dict[str, Callable[[], Any]] = {
    "sse": SseFramer,
    "sse flushed": lambda: SseFramer(flush_last=True),
    "ndjson": NdjsonFramer,
    "json array": JsonArrayFramer,
    "event stream": EventStreamFramer,
    "websocket": WebSocketFramer,
    "websocket deflate": lambda: WebSocketFramer(deflate=True),
}


def in_cuts(body: bytes, cuts: list[int]) -> list[bytes]:
    """The body cut at these places, taken modulo its length; no cuts: byte by byte."""
    places = sorted({cut % (len(body) + 1) for cut in cuts}) or list(range(len(body)))
    return [body[a:b] for a, b in zip([0, *places], [*places, len(body)], strict=True)]


def run(framer: Any, reads: list[bytes]) -> tuple[list[Any], dict[str, int]]:
    units = [unit for read in reads for unit in framer.feed(read)]
    return units + framer.finish(), dict(framer.errors)


def crc_message(payload: bytes) -> bytes:
    headers = b"\x01t\x07\x00\x01x"
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    head = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + payload
    return head + struct.pack(">I", zlib.crc32(head))


def ws_frame(first: int, payload: bytes) -> bytes:
    return bytes([first, 126]) + struct.pack(">H", len(payload)) + payload


def from_parts(*parts: Any) -> st.SearchStrategy[bytes]:
    """Bodies that are often right and often wrong: pieces of the format in any order."""
    return st.lists(st.one_of(st.sampled_from(parts), st.binary(max_size=8)), max_size=30).map(b"".join)


SSE_PARTS = [b"data", b"event", b"id: 1", b":", b": ", b" ", b"\n", b"\r", b"\r\n", b"\n\n", b"data: ", b"\xef\xbb\xbf"]
SSE_PARTS += [b"data: {}\n\n", b"event: e\ndata: {}\n\n", b"event: e\ndata: {}\r\n\r\n", b"data: x\r\r"]
JSON_PARTS = [
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b'"',
    b"\\",
    b'\\"',
    b" ",
    b"\n",
    b"1.5",
    b"true",
    b'"model"',
    b'"a":1,',
]
JSON_PARTS += [
    b'"x":"y",',
    b'{"a":[1,"]"]}',
    b'"' + b"x" * 150 + b'"',
    b"[[],{}]" * 40,
    b'{"model":"m","usage":{"n":1}}',
]
JSON_PARTS += [b'"' + b"x" * 1500 + b'"', b'{"a":["]"]},' * 120, b"[" * 400, b"]" * 400, b'"' + b'\\"' * 700 + b'"']
BODIES = {
    "sse": from_parts(*SSE_PARTS),
    "ndjson": from_parts(b"{}", b"\n", b"\r\n", b"\r", b" "),
    "json": from_parts(*JSON_PARTS),
    "event stream": from_parts(crc_message(b""), crc_message(b"{}"), crc_message(b"x" * 99), crc_message(b"{}")[:9]),
    "websocket": from_parts(
        *(ws_frame(first, b"hello") for first in (0x81, 0x01, 0x00, 0x80, 0x89, 0xC1, 0x41, 0x91, 0x83)),
        ws_frame(0xC1, bytes.fromhex("f248cdc9c90700")),
        ws_frame(0x41, bytes.fromhex("f248cdc9")),
        ws_frame(0x80, bytes.fromhex("c90700")),
    ),
}
ANY_BODY = st.one_of(st.binary(max_size=200), *BODIES.values())
CUTS = st.one_of(st.just([]), st.lists(st.integers(0, 50_000), min_size=1, max_size=12))


@pytest.mark.parametrize("name", FRAMERS)
@given(body=ANY_BODY, cuts=CUTS)
@settings(deadline=None)
def test_no_framer_raises_and_the_units_do_not_depend_on_the_cuts(name, body, cuts):
    assert run(FRAMERS[name](), in_cuts(body, cuts)) == run(FRAMERS[name](), [body])


def events_by_the_standard(body: bytes) -> list[tuple[bytes, bytes]]:
    """WHATWG HTML 9.2.6 on the whole body at once."""
    *lines, _unended = re.split(rb"\r\n|\r|\n", body.removeprefix(b"\xef\xbb\xbf"))
    events: list[tuple[bytes, bytes]] = []
    name, data = b"", b""
    for line in lines:
        if line == b"":
            if data:
                events.append((name, data[:-1]))
            name, data = b"", b""
            continue
        field, _, value = line.partition(b":")
        value = value[1:] if value[:1] == b" " else value
        if field == b"data":
            data += value + b"\n"
        elif field == b"event":
            name = value
    return events


@given(body=BODIES["sse"], cuts=CUTS)
@settings(max_examples=600, deadline=None)
def test_events_are_those_of_the_standard_on_the_fast_path_and_off_it(body, cuts):
    expected = events_by_the_standard(body)
    for reads in ([body], in_cuts(body, cuts), in_cuts(body, [])):
        framer = SseFramer()
        assert [event for read in reads for event in framer.feed(read)] == expected


@given(events=st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n")), max_size=8), cuts=CUTS)
@settings(deadline=None)
def test_data_comes_out_as_it_was_sent(events, cuts):
    body = b"".join(b"event: e\ndata: " + event.encode() + b"\n\n" for event in events)
    assert run(SseFramer(), in_cuts(body, cuts)) == ([(b"e", event.encode()) for event in events], {})


@given(body=ANY_BODY, cuts=CUTS)
@settings(deadline=None)
def test_the_splitter_loses_no_byte(body, cuts):
    splitter = SseSplitter()
    pieces = [piece for read in in_cuts(body, cuts) for piece in splitter.feed(read)]
    assert all(pieces)
    assert b"".join(pieces) + splitter.finish() == body


@given(body=BODIES["sse"], cuts=CUTS)
@settings(max_examples=400, deadline=None)
def test_the_pieces_do_not_depend_on_the_cuts_but_for_an_lf_that_came_late(body, cuts):
    splitter = SseSplitter()
    pieces: list[bytes] = []
    for read in in_cuts(body, cuts):
        for piece in splitter.feed(read):
            if piece == b"\n" and pieces and pieces[-1].endswith(b"\r"):
                pieces[-1] += piece
            else:
                pieces.append(piece)
    whole = SseSplitter()
    assert pieces == whole.feed(body)
    assert splitter.finish() == whole.finish()


@given(body=BODIES["sse"])
@settings(deadline=None)
def test_every_piece_but_the_rest_ends_one_event(body):
    splitter, by_piece, whole = SseSplitter(), SseFramer(), SseFramer()
    events = [by_piece.feed(piece) for piece in splitter.feed(body)]
    assert all(len(of_piece) <= 1 for of_piece in events)
    assert [event for of_piece in events for event in of_piece] == whole.feed(body)


DOCUMENTS = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=6), st.dictionaries(st.text(max_size=6), inner, max_size=6)),
    max_leaves=40,
)
KEYS = st.one_of(st.sampled_from(["model", "usage", "é", 'a"b', "\\", "modelx", "mode", ""]), st.text(max_size=6))
STYLES = st.builds(
    dict,
    ensure_ascii=st.booleans(),
    indent=st.sampled_from([None, None, 1, 40]),
    separators=st.sampled_from([(",", ":"), (", ", ": "), ("\r\n,", "\t:\n")]),
)
WANTED = frozenset(key.encode() for key in ("model", "usage", "é", 'a"b', "\\", ""))


@given(
    pairs=st.lists(st.tuples(KEYS, DOCUMENTS), max_size=8),
    style=STYLES,
    lead=st.sampled_from(["", " \n\r\n"]),
    cuts=CUTS,
)
@settings(max_examples=150, deadline=None)
def test_the_scanner_finds_what_json_loads_finds(pairs, style, lead, cuts):
    comma, colon = style["separators"]
    text = comma.join(
        json.dumps(key, ensure_ascii=style["ensure_ascii"]) + colon + json.dumps(value, **style) for key, value in pairs
    )
    body = (lead + "{" + text + "}").encode("utf-8", "surrogatepass")
    scanner = MemberScanner(WANTED, max_value=1 << 20)
    for read in in_cuts(body, cuts):
        scanner.feed(read)
    expected = {key: value for key, value in json.loads(body).items() if key.encode("utf-8", "replace") in WANTED}
    assert json.loads(members(scanner.found)) == expected
    assert scanner.done
    assert not scanner.errors
    assert scanner.bytes_seen == len(body)


@given(body=ANY_BODY, cuts=CUTS, max_value=st.sampled_from([3, 65_536]))
@settings(max_examples=400, deadline=None)
def test_the_scanner_never_raises_and_does_not_depend_on_the_cuts(body, cuts, max_value):
    results = []
    for prefix in (b"", b'{"n":'):
        for reads in ([prefix + body], in_cuts(prefix + body, cuts)):
            scanner = MemberScanner(WANTED, max_value)
            for read in reads:
                scanner.feed(read)
            results.append((scanner.found, scanner.too_long, scanner.done, scanner.errors, scanner.bytes_seen))
    assert results[0] == results[1]
    assert results[2] == results[3]


@given(elements=st.lists(DOCUMENTS, max_size=6), style=STYLES, cuts=CUTS)
@settings(deadline=None)
def test_the_elements_of_an_array_are_those_of_json_loads(elements, style, cuts):
    body = json.dumps(elements, **style).encode("utf-8", "surrogatepass")
    found, errors = run(JsonArrayFramer(), in_cuts(body, cuts))
    assert [json.loads(element) for element in found] == json.loads(body)
    assert not errors


@given(body=BODIES["json"], cuts=CUTS, first=st.sampled_from(b'{["'))
@settings(max_examples=400, deadline=None)
def test_a_value_ends_at_the_same_byte_in_every_cut(body, cuts, first):
    ends = []
    for reads in ([body], in_cuts(body, cuts)):
        nesting = Nesting()
        nesting.open(first)
        before = 0
        for read in reads:
            if (end := nesting.close(read, 0)) >= 0:
                ends.append(before + end)
                break
            before += len(read)
        else:
            ends.append(-1)
    assert ends[0] == ends[1]


ENCODERS: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("gzip", gzip.compress),
    ("deflate", zlib.compress),
    ("deflate", lambda body: zlib.compress(body)[2:-4]),
    ("br", lambda body: brotli.compress(body, quality=4)),
    ("zstd", zstandard.compress),
    ("gzip, zstd", lambda body: zstandard.compress(gzip.compress(body))),
]


@pytest.mark.parametrize(("coding", "encode"), ENCODERS)
@given(bodies=st.lists(st.binary(max_size=2000), min_size=1, max_size=3), cuts=CUTS)
@settings(max_examples=60, deadline=None)
def test_decoders_give_the_body_in_any_cut(coding, encode, bodies, cuts):
    members_too = bodies if coding in ("gzip", "zstd") else bodies[:1]
    coded = b"".join(map(encode, members_too))
    decoder = open_decoder(coding)
    assert decoder is not None
    assert b"".join(map(decoder.feed, in_cuts(coded, cuts))) + decoder.finish() == b"".join(members_too)
    assert not decoder.errors


@pytest.mark.parametrize(("coding", "encode"), ENCODERS)
@given(
    body=st.binary(max_size=300), noise=st.tuples(st.binary(min_size=1, max_size=40), st.integers(0, 200)), cuts=CUTS
)
@settings(max_examples=60, deadline=None)
def test_decoders_never_raise_and_count_one_error_at_most(coding, encode, body, noise, cuts):
    coded = encode(body)
    inserted, at = noise[0], noise[1] % len(coded)
    decoder = open_decoder(coding)
    assert decoder is not None
    for read in in_cuts(coded[:at] + inserted + coded[at:], cuts):
        decoder.feed(read)
    decoder.finish()
    assert set(decoder.errors) <= {"coding", "truncated", "bomb"}
    assert sum(decoder.errors.values()) <= 1


LONG_UNITS: dict[str, tuple[Callable[[], Any], Callable[[int], bytes]]] = {
    "sse": (SseFramer, lambda n: b"data: " + b"x" * n + b"\n\n"),
    "sse crlf": (SseFramer, lambda n: b"data: " + b"x" * n + b"\r\n\r\n"),
    "sse many lines": (SseFramer, lambda n: b"data: xx\n" * (n // 9) + b"\n"),
    "splitter": (SseSplitter, lambda n: b"data: " + b"x" * n + b"\n\n"),
    "splitter crlf": (SseSplitter, lambda n: b"data: xx\r\n" * (n // 10) + b"\r\n"),
    "ndjson": (NdjsonFramer, lambda n: b"x" * n + b"\n"),
    "json array": (JsonArrayFramer, lambda n: b'["' + b"x" * n + b'"]'),
    "json array dense": (JsonArrayFramer, lambda n: b"[[" + b'{"a":[]},' * (n // 9) + b"1]]"),
    "event stream": (EventStreamFramer, lambda n: crc_message(b"x" * n)),
    "websocket": (WebSocketFramer, lambda n: ws_frame(0x01, b"x" * 999) * (n // 1000) + ws_frame(0x80, b"")),
    "scanner": (lambda: MemberScanner(WANTED), lambda n: b'{"x":[' + b'"\\"",' * (n // 5) + b"1]}"),
    "scanner flat": (lambda: MemberScanner(WANTED), lambda n: b"{" + b'"a":1,' * (n // 6) + b'"b":2}'),
}


@pytest.mark.parametrize("name", LONG_UNITS)
def test_a_long_unit_in_many_small_reads_costs_time_in_proportion_to_its_length(name):
    make, body_of = LONG_UNITS[name]

    def cost(size: int) -> float:
        body = body_of(size)
        reads = [body[i : i + 64] for i in range(0, len(body), 64)]
        best = float("inf")
        for _ in range(3):
            framer = make()
            start = time.process_time()
            for read in reads:
                framer.feed(read)
            best = min(best, time.process_time() - start)
        return best

    # Sixteen times the bytes: 16 when linear, 256 when quadratic.
    assert cost(480_000) < 64 * cost(30_000)
