from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.exchange import Headers
from sidecar.http_fields import HOP_BY_HOP, NEVER_CONNECTION_OPTIONS, Framing
from sidecar.upstreams.http1_response import SILENT_LIMIT_BYTES, BadResponse, ResponseHead, ResponseParser

LIMIT = 8 * 1024


@dataclass
class Parsed:
    """All that came out of one response."""

    interims: list[tuple[int, bytes, Headers]] = field(default_factory=list)
    head: ResponseHead | None = None
    body: bytes = b""
    trailers: Headers = field(default_factory=list)
    complete: bool = False
    persistent: bool = False
    rest: bytes | None = None
    error: str | None = None


def parse(pieces: list[bytes], method: bytes = b"POST", parser: ResponseParser | None = None) -> Parsed:
    """Feed the pieces as a connection does: after each, what it brought is taken."""
    parser = parser or ResponseParser(LIMIT)
    parser.expect(method)
    out = Parsed()
    for piece in pieces:
        if out.rest is not None:
            out.rest += piece
            continue
        try:
            out.rest = parser.feed(piece)
        except BadResponse as error:
            out.error = str(error)
        out.interims += parser.interims
        parser.interims = []
        if parser.head is not None:
            head, body = parser.take()
            assert head is None or out.head is None, "the head comes once"
            out.head = out.head or head
            out.body += body
        if out.error:
            break
    out.trailers, out.complete, out.persistent = parser.trailers, parser.complete, parser.persistent
    return out


SHAPES: dict[str, tuple[bytes, bytes]] = {
    "length": (b"POST", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: 1\r\nx-a:  2 \r\n\r\nhello"),
    "empty": (b"POST", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    "chunked": (
        b"POST",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n",
    ),
    "extensions": (
        b"POST",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n3;name=value\r\nabc\r\n0;last\r\n\r\n",
    ),
    "trailers": (
        b"POST",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n"
        b"3\r\nabc\r\n0\r\nX-Sum: 1\r\nx-sum: 2\r\n\r\n",
    ),
    "close": (b"POST", b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\ndata: 2\n\n"),
    "old": (b"GET", b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok"),
    "closing": (b"GET", b"HTTP/1.1 200 OK\r\nConnection: X-Hop, close\r\nContent-Length: 2\r\n\r\nok"),
    "interim": (
        b"POST",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
        b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok",
    ),
    "head": (b"HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 4096\r\n\r\n"),
    "head of chunks": (b"HEAD", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
    "no content": (b"DELETE", b"HTTP/1.1 204 No Content\r\nX-A: 1\r\n\r\n"),
    "not modified": (b"GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 100\r\n\r\n"),
    "no reason": (b"GET", b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok"),
    "upgrade": (
        b"GET",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n\x81\x05hello",
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_response_in_one_piece_is_what_it_says(shape: str) -> None:
    method, wire = SHAPES[shape]
    parsed = parse([wire], method)
    assert parsed.error is None
    assert parsed.head is not None
    assert parsed.complete == (shape != "close")


@given(st.sampled_from(sorted(SHAPES)), st.data())
def test_how_a_response_is_split_changes_nothing(shape: str, data: st.DataObject) -> None:
    method, wire = SHAPES[shape]
    cuts = sorted(data.draw(st.sets(st.integers(1, len(wire) - 1))))
    pieces = [wire[start:end] for start, end in zip([0, *cuts], [*cuts, len(wire)], strict=True)]
    assert parse(pieces, method) == parse([wire], method)


@pytest.mark.parametrize("shape", SHAPES)
def test_bytes_one_by_one_give_the_same(shape: str) -> None:
    method, wire = SHAPES[shape]
    assert parse([bytes([byte]) for byte in wire], method) == parse([wire], method)


def test_fields_keep_their_order_spelling_and_repetition() -> None:
    parsed = parse([SHAPES["length"][1]])
    assert parsed.head is not None
    assert parsed.head.headers == [(b"Content-Length", b"5"), (b"X-A", b"1"), (b"x-a", b"2 ")]
    assert (parsed.head.status, parsed.head.reason, parsed.head.framing) == (200, b"OK", Framing.LENGTH)
    assert parsed.body == b"hello"


@pytest.mark.parametrize(
    ("shape", "framing", "body"),
    [
        ("length", Framing.LENGTH, b"hello"),
        ("empty", Framing.LENGTH, b""),
        ("chunked", Framing.CHUNKED, b"abc0123456789"),
        ("extensions", Framing.CHUNKED, b"abc"),
        ("close", Framing.CLOSE, b"data: 1\n\ndata: 2\n\n"),
        ("head", Framing.NONE, b""),
        ("head of chunks", Framing.NONE, b""),
        ("no content", Framing.NONE, b""),
        ("not modified", Framing.NONE, b""),
        ("upgrade", Framing.NONE, b""),
    ],
)
def test_the_framing_is_known_with_the_head(shape: str, framing: Framing, body: bytes) -> None:
    method, wire = SHAPES[shape]
    parsed = parse([wire], method)
    assert parsed.head is not None
    assert (parsed.head.framing, parsed.body) == (framing, body)


def test_trailers_come_with_the_end() -> None:
    parsed = parse([SHAPES["trailers"][1]])
    assert parsed.trailers == [(b"X-Sum", b"1"), (b"x-sum", b"2")]
    assert parsed.body == b"abc"


def test_trailers_are_of_their_own_response_only() -> None:
    parser = ResponseParser(LIMIT)
    assert parse([SHAPES["trailers"][1]], parser=parser).trailers
    assert parse([SHAPES["chunked"][1]], parser=parser).trailers == []
    assert parse([SHAPES["chunked"][1]]).trailers == []


def test_interim_responses_come_apart_from_the_final_one() -> None:
    parsed = parse([SHAPES["interim"][1]])
    assert parsed.interims == [(100, b"Continue", []), (103, b"Early Hints", [(b"Link", b"</a>")])]
    assert parsed.head is not None
    assert (parsed.head.status, parsed.head.headers) == (201, [(b"Content-Length", b"2")])


def test_what_follows_a_101_is_no_http() -> None:
    assert parse([SHAPES["upgrade"][1]]).rest == b"\x81\x05hello"


@pytest.mark.parametrize(
    ("shape", "persistent"),
    [
        ("length", True),
        ("chunked", True),
        ("no content", True),
        ("not modified", True),
        ("head", True),
        ("closing", False),
        ("old", False),
        ("close", False),
    ],
)
def test_it_says_whether_the_connection_carries_on(shape: str, persistent: bool) -> None:
    method, wire = SHAPES[shape]
    assert parse([wire], method).persistent is persistent


def test_connection_options_are_lowered() -> None:
    parsed = parse([SHAPES["closing"][1]])
    assert parsed.head is not None
    assert parsed.head.options == {b"x-hop", b"close"}


def test_the_options_of_several_connection_fields_come_together() -> None:
    parsed = parse([b"HTTP/1.1 204 No Content\r\nConnection: X-A\r\nconnection: x-b,CLOSE\r\n\r\n"])
    assert parsed.head is not None
    assert (parsed.head.options, parsed.persistent) == ({b"x-a", b"x-b", b"close"}, False)


@pytest.mark.parametrize(
    ("fields", "lines"),
    [
        (
            b"X-A: 1\r\nx-a:  2\r\nCONTENT-length: 0\r\nX-Empty:\r\n",
            [b"X-A: 1", b"x-a: 2", b"CONTENT-length: 0", b"X-Empty: "],
        ),
        (b"Content-Length: 0\r\nConnection: keep-alive\r\nKeep-Alive: timeout=5\r\n", [b"Content-Length: 0"]),
        (b"X-HOP: 1\r\nX-A: 1\r\nConnection: close, X-Hop\r\nx-hop: 2\r\nX-Hopped: 1\r\n", [b"X-A: 1", b"X-Hopped: 1"]),
        (b"Connection: X-Hop\r\nX-Hop: 1\r\nConnection: x-b\r\nX-B: 1\r\nX-C: X-B: 1\r\n", [b"X-C: X-B: 1"]),
        (b"Connection: content-type, X-Hop\r\nContent-Type: t\r\nX-Hop: 1\r\n", [b"Content-Type: t"]),
    ],
)
def test_the_lines_that_go_on_are_those_of_fields_that_do_not_end_here(fields: bytes, lines: list[bytes]) -> None:
    parsed = parse([b"HTTP/1.1 200 OK\r\n%b\r\n" % fields])
    assert parsed.error is None
    assert parsed.head is not None
    assert parsed.head.lines == lines


@pytest.mark.parametrize("name", sorted(HOP_BY_HOP))
def test_fields_of_this_hop_do_not_go_on(name: bytes) -> None:
    value = b"chunked" if name == b"transfer-encoding" else b"x"
    parsed = parse([b"HTTP/1.1 200 OK\r\nX-A: 1\r\n%b: %b\r\nX-B: 1\r\n\r\n" % (name.title(), value)])
    assert parsed.head is not None
    assert parsed.head.lines == [b"X-A: 1", b"X-B: 1"]
    assert parsed.head.headers[1] == (name.title(), value), "it can be read all the same"


@pytest.mark.parametrize("name", sorted(NEVER_CONNECTION_OPTIONS - {b"content-length"}))
def test_a_server_cannot_make_the_proxy_drop_what_is_meant_for_everybody(name: bytes) -> None:
    parsed = parse([b"HTTP/1.1 200 OK\r\nConnection: %b\r\n%b: x\r\n\r\n" % (name.upper(), name)])
    assert parsed.head is not None
    assert parsed.head.lines == [name + b": x"]


@pytest.mark.parametrize("first", ["length", "chunked", "trailers", "head", "no content", "interim"])
def test_one_response_after_the_other_on_the_same_connection(first: str) -> None:
    parser = ResponseParser(LIMIT)
    method, wire = SHAPES[first]
    for _ in range(3):
        assert parse([wire], method, parser) == parse([wire], method)
        assert parse([SHAPES["chunked"][1]], b"POST", parser).body == b"abc0123456789"


@pytest.mark.parametrize(
    ("wire", "reason"),
    [
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
            "Content-Length together with Transfer-Encoding",
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n",
            "Content-Length together with Transfer-Encoding",
        ),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "a transfer coding other than chunked"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", "a transfer coding other than chunked"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
            "a transfer coding other than chunked",
        ),
    ],
)
@pytest.mark.parametrize("split", [True, False])
def test_framings_on_which_readers_differ_are_refused(wire: bytes, reason: str, split: bool) -> None:
    parsed = parse([bytes([byte]) for byte in wire] if split else [wire])
    assert parsed.error is not None
    assert parsed.head is None, "nothing of it may reach the client"
    assert parsed.error == reason or "Content-Length" in parsed.error


@pytest.mark.parametrize(
    "wire",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        b"HTTP/1.1 200 OK\r\nContent-Length: -3\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3, 3\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX : 1\r\n\r\n",
        b"HTTP/1.1 2x0 OK\r\n\r\n",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"\x15\x03\x01\x00\x02\x02\x46",
    ],
)
def test_what_is_no_http_is_refused(wire: bytes) -> None:
    parsed = parse([wire])
    assert parsed.error
    assert not parsed.complete


def test_a_second_response_is_refused_but_the_first_is_delivered() -> None:
    first = SHAPES["length"][1]
    parsed = parse([first + b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nforge"])
    assert (parsed.body, parsed.complete, parsed.persistent) == (b"hello", True, False)
    assert parsed.error == "more than one response"


def test_bytes_after_the_end_spoil_the_connection() -> None:
    parsed = parse([SHAPES["length"][1] + b"stray"])
    assert (parsed.body, parsed.complete, parsed.persistent) == (b"hello", True, False)
    assert parsed.error


def test_a_body_after_head_is_refused() -> None:
    parsed = parse([b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"], b"HEAD")
    assert parsed.error == "a body after HEAD"
    assert parsed.body == b""
    assert parsed.head is not None


@pytest.mark.parametrize("piece", [1, 100, 100_000])
def test_a_head_above_the_limit_is_refused_before_it_is_whole(piece: int) -> None:
    wire = b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: %s\r\n" % (number, b"v" * 90) for number in range(200))
    pieces = [wire[start : start + piece] for start in range(0, len(wire), piece)]
    parsed = parse(pieces)
    assert parsed.error == "header or trailer fields larger than limits.max_header_bytes"
    assert parsed.head is None


@pytest.mark.parametrize("before", [b"", b"HTTP/1.1 100 Continue\r\n\r\n"])
def test_a_head_above_the_limit_is_refused_also_when_it_came_whole(before: bytes) -> None:
    fields = b"".join(b"X-%d: %s\r\n" % (number, b"v" * 90) for number in range(200))
    parsed = parse([before + b"HTTP/1.1 200 OK\r\n%b\r\nbody" % fields])
    assert parsed.error == "header or trailer fields larger than limits.max_header_bytes"
    assert parsed.head is None


@pytest.mark.parametrize("split", [True, False])
def test_interim_responses_do_not_add_up_to_a_head_above_the_limit(split: bool) -> None:
    hint = b"HTTP/1.1 103 Early Hints\r\nLink: <%b>\r\n\r\n" % (b"v" * 1000)
    parser = ResponseParser(LIMIT)
    parsed = parse([hint] * 20 if split else [hint * 20], parser=parser)
    assert (parsed.error, len(parsed.interims), parser.nothing_seen) == (None, 20, False)
    assert parser.feed(b"HTTP/1.1 200 OK\r\nContent-") is None
    assert parser.feed(b"Length: 0\r\n\r\n") is None
    assert parser.complete


@pytest.mark.parametrize("piece", [512, 100_000])
def test_one_endless_field_is_refused(piece: int) -> None:
    wire = b"HTTP/1.1 200 OK\r\nX-Long: " + b"v" * 2 * LIMIT
    parsed = parse([wire[start : start + piece] for start in range(0, len(wire), piece)])
    assert parsed.error == "header or trailer fields larger than limits.max_header_bytes"


def test_a_body_in_the_read_of_the_head_does_not_count_as_head() -> None:
    wire = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (4 * LIMIT) + b"v" * 4 * LIMIT
    parsed = parse([wire])
    assert parsed.error is None
    assert len(parsed.body) == 4 * LIMIT


def test_trailers_have_the_same_limit() -> None:
    wire = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"X-T: %s\r\n" % (b"v" * 1000) * 10 + b"\r\n"
    assert parse([wire]).error == "header or trailer fields larger than limits.max_header_bytes"


def test_a_chunk_extension_without_end_is_refused() -> None:
    parsed = parse(
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;"] + [b"x" * 4096] * (SILENT_LIMIT_BYTES // 4096 + 1)
    )
    assert parsed.error is not None
    assert not parsed.complete


def test_silent_bytes_between_body_bytes_do_not_add_up() -> None:
    chunk = b"1;%s\r\nx\r\n" % (b"y" * 10_000)
    parsed = parse([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", *[chunk] * 40, b"0\r\n\r\n"])
    assert parsed.error is None
    assert (parsed.body, parsed.complete) == (b"x" * 40, True)


def test_nothing_seen_until_the_first_byte() -> None:
    parser = ResponseParser(LIMIT)
    parser.expect(b"GET")
    assert parser.nothing_seen
    parser.feed(b"H")
    assert not parser.nothing_seen


@given(st.binary(max_size=300))
def test_no_bytes_bring_another_error_than_a_bad_response(wire: bytes) -> None:
    parse([b"HTTP/1.1 200 OK\r\n", wire])
    parse([wire])
