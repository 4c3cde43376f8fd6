from __future__ import annotations

import json
from pathlib import Path

import pytest

from sidecar.dialects.framing import MAX_EVENT
from sidecar.dialects.framing.sse import SseFramer, SseSplitter

ROOT = Path(__file__).resolve().parents[4]
RECORDINGS = ROOT.parent / "shared" / "recordings"

TORTURE = (
    '\ufeffdata: {"a":\ndata: "né 日本 😊"}\r\n\r\n: note\nid: 7\nretry: 10\n\nevent: x\rdata:{}\r\rdata: [DONE]'
).encode()


def events_of(*reads: bytes, flush_last: bool = False) -> list[tuple[bytes, bytes]]:
    framer = SseFramer(flush_last=flush_last)
    events = [event for read in reads for event in framer.feed(read)]
    return events + framer.finish()


def one_by_one(body: bytes) -> list[bytes]:
    return [body[i : i + 1] for i in range(len(body))]


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("cut", [lambda body: [body], one_by_one])
def test_every_line_end_separates_events_in_any_cut(line_end, cut):
    body = b"data: a\n\nevent: e\ndata: b\n\ndata: [DONE]\n\n".replace(b"\n", line_end)
    assert events_of(*cut(body)) == [(b"", b"a"), (b"e", b"b"), (b"", b"[DONE]")]


@pytest.mark.parametrize(
    ("body", "events"),
    [
        (b"data:x\n\n", [(b"", b"x")]),
        (b"data:  x \n\n", [(b"", b" x ")]),
        (b"data\n\n", [(b"", b"")]),
        (b"data:\n\n", [(b"", b"")]),
        (b"data: \n\n", [(b"", b"")]),
        (b"data:\ndata:\n\n", [(b"", b"\n")]),
        (b"data: a\ndata: b\n\n", [(b"", b"a\nb")]),
        (b"event: x\n\ndata: a\n\n", [(b"", b"a")]),
        (b"event: x\nevent: y\ndata: a\n\n", [(b"y", b"a")]),
        (b"event: x\nevent:\ndata: a\n\n", [(b"", b"a")]),
        (b"event: x\ndata: a\nevent: y\n\n", [(b"y", b"a")]),
        (b"data: a\nevent: x\nid: 1\n\n", [(b"x", b"a")]),
        (b"event: x\ndata: a\nid: 1\n\n", [(b"x", b"a")]),
        (b" data: a\n\n", []),
        (b"database: a\n\n", []),
        (b"\n\n\ndata: a\n\n\n\n\ndata: b\n\n", [(b"", b"a"), (b"", b"b")]),
        (b"data: a\n: c\ndata: b\n\n", [(b"", b"a\nb")]),
        (b"\xef\xbb\xbfdata: a\n\n", [(b"", b"a")]),
        (b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n", []),
        (b"data: a\n\n\xef\xbb\xbfdata: b\n\n", [(b"", b"a")]),
        (b"data: a: b\n\n", [(b"", b"a: b")]),
    ],
)
def test_fields_are_read_as_the_standard_says(body, events):
    assert events_of(body) == events
    assert events_of(*one_by_one(body)) == events
    assert events_of(b"data: first\n\n", body.removeprefix(b"\xef\xbb\xbf")) == [(b"", b"first"), *events] or (
        body.startswith(b"\xef\xbb\xbf\xef")
    )


def test_the_order_of_fields_and_line_ends_may_be_mixed_within_one_stream():
    expected = [(b"", '{"a":\n"né 日本 😊"}'.encode()), (b"x", b"{}")]
    assert events_of(TORTURE) == expected
    assert events_of(*one_by_one(TORTURE)) == expected


def test_an_event_is_given_with_the_cr_of_its_blank_line_and_the_lf_that_follows_is_no_line():
    framer = SseFramer()
    assert framer.feed(b"data: a\r\n\r") == [(b"", b"a")]
    assert framer.feed(b"") == []
    assert framer.feed(b"\ndata: b\r\n") == []
    assert framer.feed(b"\r\n") == [(b"", b"b")]
    assert not framer.errors


def test_a_character_cut_between_reads_arrives_whole():
    body = "data: 你好😀\n\n".encode()
    for cut in range(1, len(body)):
        assert events_of(body[:cut], body[cut:]) == [(b"", "你好😀".encode())]


def test_comments_are_counted_and_give_no_event():
    framer = SseFramer()
    assert framer.feed(b": OPENROUTER PROCESSING\n\n:\n\n") == []
    assert framer.feed(b": one\n: two\ndata: a\n\n:x\n\n") == [(b"", b"a")]
    assert framer.comments == 5


def test_an_event_without_its_blank_line_is_dropped_and_counted():
    framer = SseFramer()
    assert framer.feed(b"data: a\n\ndata: [DONE]") == [(b"", b"a")]
    assert framer.finish() == []
    assert framer.errors == {"truncated": 1}


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_flush_last_gives_the_event_without_its_blank_line(end):
    assert events_of(b"event: e\ndata: a\ndata: b" + end, flush_last=True) == [(b"e", b"a\nb")]


def test_a_comment_at_the_end_is_nothing_lost():
    framer = SseFramer()
    framer.feed(b"data: a\n\n: bye")
    assert framer.finish() == []
    assert not framer.errors
    assert framer.comments == 1


@pytest.mark.parametrize("size", [700_000, MAX_EVENT - len(b"data: ")])
def test_an_event_up_to_the_bound_is_read_in_small_reads_too(size):
    body = b"data: " + b"x" * size + b"\n\ndata: next\n\n"
    reads = [body[i : i + 4096] for i in range(0, len(body), 4096)]
    assert events_of(body) == events_of(*reads) == [(b"", b"x" * size), (b"", b"next")]


@pytest.mark.parametrize(
    "long_event",
    [
        b"data: " + b"x" * MAX_EVENT + b"\n\n",
        b": " + b"x" * MAX_EVENT + b"\ndata: a\n\n",
        b"event: " + b"x" * MAX_EVENT + b"\ndata: a\n\n",
        b"data: a\n" + (b"data: " + b"x" * 10_000 + b"\n") * 110 + b"event: e\n\n",
    ],
)
@pytest.mark.parametrize("read_size", [1 << 30, 65_536, 1000])
def test_a_longer_event_is_skipped_counted_and_what_follows_is_read(long_event, read_size):
    body = b"data: a\n\n" + long_event + b"event: y\ndata: b\n\n"
    framer = SseFramer()
    events = [e for i in range(0, len(body), read_size) for e in framer.feed(body[i : i + read_size])]
    assert events == [(b"", b"a"), (b"y", b"b")]
    assert framer.errors == {"oversized": 1}


def test_many_comments_are_no_long_event():
    framer = SseFramer()
    for _ in range(300):
        framer.feed(b": wait\n" * 1000)
    assert framer.feed(b"data: a\n\n") == [(b"", b"a")]
    assert framer.comments == 300_000
    assert not framer.errors


def pieces_of(*reads: bytes) -> list[bytes]:
    splitter = SseSplitter()
    pieces = [piece for read in reads for piece in splitter.feed(read)]
    rest = splitter.finish()
    return pieces + ([rest] if rest else [])


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
def test_the_splitter_keeps_each_event_with_its_blank_line(line_end):
    events = [
        part.replace(b"\n", line_end) for part in (b"data: a\n\n", b": c\nevent: e\ndata: b\n\n", b"data: [DONE]\n\n")
    ]
    assert pieces_of(b"".join(events)) == events
    assert pieces_of(events[0] + events[1][:5], events[1][5:] + events[2][:-1], events[2][-1:])[0] == events[0]
    assert b"".join(pieces_of(*one_by_one(b"".join(events)))) == b"".join(events)


def test_the_splitter_gives_an_event_at_once_and_the_late_lf_by_itself():
    splitter = SseSplitter()
    assert splitter.feed(b"data: a\r\n\r") == [b"data: a\r\n\r"]
    assert splitter.feed(b"\n") == [b"\n"]
    assert splitter.feed(b"data: b\r\n") == []
    assert splitter.feed(b"\r\ndata") == [b"data: b\r\n\r\n"]
    assert splitter.finish() == b"data"


def test_the_splitter_leaves_further_blank_lines_in_front_of_the_next_event():
    assert pieces_of(b"data: a\n\n\ndata: b\n\n: x") == [b"data: a\n\n", b"\ndata: b\n\n", b": x"]


def test_the_splitter_lets_a_long_event_go_in_pieces_and_holds_no_more_than_the_bound():
    splitter = SseSplitter()
    body = b"data: " + b"x" * (3 * MAX_EVENT) + b"\n\n"
    pieces: list[bytes] = []
    held = 0
    for start in range(0, len(body), 60_000):
        pieces += splitter.feed(body[start : start + 60_000])
        held = max(held, min(start + 60_000, len(body)) - sum(map(len, pieces)))
    assert b"".join(pieces) == body
    assert len(pieces) > 2
    assert held <= MAX_EVENT
    assert splitter.errors == {"oversized": 1}
    assert splitter.feed(b"data: b\n\n") == [b"data: b\n\n"]
    assert splitter.finish() == b""


def test_recorded_streams_have_the_same_events_in_any_cut_and_survive_the_splitter():
    for path in sorted(RECORDINGS.glob("*.json")):
        recording = json.loads(path.read_bytes())
        types = [value for name, value in recording["response"]["headers"] if name.lower() == "content-type"]
        body = recording["response"].get("body_text", "").encode()
        if not body or not types or not types[0].startswith("text/event-stream"):
            continue
        events = events_of(body)
        if (known := recording["expected"].get("n_events")) is not None:
            assert sum(data != b"[DONE]" for _, data in events) == known, path.name
        assert events_of(*(body[i : i + 7] for i in range(0, len(body), 7))) == events, path.name
        framer, splitter = SseFramer(), SseSplitter()
        pieces = splitter.feed(body)
        assert [event for piece in pieces for event in framer.feed(piece)] == events, path.name
        assert b"".join(pieces) + splitter.finish() == body, path.name
