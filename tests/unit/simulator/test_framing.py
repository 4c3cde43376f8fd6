from __future__ import annotations

import json

from sidecar.simulator.answer import Event, Wire
from sidecar.simulator.framing import ARRAY_END, comment, frame

EVENTS = [Event(0, b'{"a":1}', b"first"), Event(1, b'{"b":2}')]


def test_sse_has_names_data_and_empty_lines() -> None:
    assert frame(EVENTS, Wire.SSE, b"\r\n", 0) == [
        b'event: first\r\ndata: {"a":1}\r\n\r\n',
        b'data: {"b":2}\r\n\r\n',
    ]


def test_lines_of_json_end_with_the_line_end() -> None:
    assert frame(EVENTS, Wire.NDJSON, b"\n", 0) == [b'{"a":1}\n', b'{"b":2}\n']


def test_an_array_is_json_as_a_whole() -> None:
    assert json.loads(b"".join(frame(EVENTS, Wire.ARRAY, b"\n", 3)) + ARRAY_END) == [{"a": 1}, {"b": 2}]


def test_padding_is_spaces_behind_the_json() -> None:
    assert frame(EVENTS[1:], Wire.SSE, b"\n", 4) == [b'data: {"b":2}    \n\n']
    assert frame(EVENTS[1:], Wire.NDJSON, b"\n", 4) == [b'{"b":2}    \n']


def test_comments_mean_nothing_in_their_format() -> None:
    assert comment(Wire.SSE, b"\n") == b": keep-alive\n\n"
    assert comment(Wire.WHOLE, b"\n").strip() == b""
