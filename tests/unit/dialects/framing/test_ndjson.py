from __future__ import annotations

import pytest

from sidecar.dialects.framing import MAX_EVENT
from sidecar.dialects.framing.ndjson import NdjsonFramer


def lines_of(*reads: bytes) -> list[bytes]:
    framer = NdjsonFramer()
    lines = [line for read in reads for line in framer.feed(read)]
    return lines + framer.finish()


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_lines_are_given_without_their_ends_in_any_cut(line_end):
    body = line_end.join([b'{"a":1}', b"", b"  ", b'{"b":"\\n"}', b""])
    expected = [b'{"a":1}', b'{"b":"\\n"}']
    assert lines_of(body) == expected
    for cut in range(len(body)):
        assert lines_of(body[:cut], body[cut:]) == expected


def test_a_line_is_given_by_the_read_that_ends_it():
    framer = NdjsonFramer()
    assert framer.feed(b'{"a"') == []
    assert framer.feed(b":1}\n") == [b'{"a":1}']


def test_the_last_line_needs_no_line_end():
    framer = NdjsonFramer()
    assert framer.feed(b'{"a":1}\n{"done":true}') == [b'{"a":1}']
    assert framer.finish() == [b'{"done":true}']
    assert framer.finish() == []


@pytest.mark.parametrize("read_size", [1 << 30, 50_000])
def test_a_line_beyond_the_bound_is_skipped_and_the_next_is_read(read_size):
    body = b"1\n" + b"x" * (MAX_EVENT + 1) + b"\n" + b"y" * MAX_EVENT + b"\n2"
    framer = NdjsonFramer()
    lines = [line for i in range(0, len(body), read_size) for line in framer.feed(body[i : i + read_size])]
    assert lines + framer.finish() == [b"1", b"y" * MAX_EVENT, b"2"]
    assert framer.errors == {"oversized": 1}


def test_a_last_line_beyond_the_bound_is_counted_once():
    framer = NdjsonFramer()
    framer.feed(b"x" * (MAX_EVENT + 1))
    framer.feed(b"x" * (MAX_EVENT + 1))
    assert framer.finish() == []
    assert framer.errors == {"oversized": 1}
