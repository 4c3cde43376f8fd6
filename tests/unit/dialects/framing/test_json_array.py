from __future__ import annotations

import json
from pathlib import Path

import pytest

from sidecar.dialects.framing import MAX_EVENT
from sidecar.dialects.framing.json_array import JsonArrayFramer

ROOT = Path(__file__).resolve().parents[4]
RECORDINGS = ROOT.parent / "shared" / "recordings"


def elements_of(*reads: bytes) -> list[bytes]:
    framer = JsonArrayFramer()
    return [element for read in reads for element in framer.feed(read)] + framer.finish()


def test_pretty_printed_objects_come_out_whole_in_any_cut():
    documents = [{"text": 'a ] } , " \\', "parts": [{"x": [1, 2]}, {}]}, {"usage": {"n": 1}}]
    body = b"[" + b"\n,\r\n".join(json.dumps(d, indent=2).encode() for d in documents) + b"\n]\n"
    for cut in range(len(body)):
        assert [json.loads(e) for e in elements_of(body[:cut], body[cut:])] == documents


def test_an_object_is_given_with_its_closing_brace_not_with_the_comma_after_it():
    framer = JsonArrayFramer()
    assert framer.feed(b'[{"a":1') == []
    assert framer.feed(b"}") == [b'{"a":1}']
    assert framer.feed(b'\n,\r\n"s') == []
    assert framer.feed(b't"') == [b'"st"']
    assert framer.feed(b", 12") == []
    assert framer.feed(b"3 ") == [b"123"]
    assert framer.feed(b"]\n") == []
    assert framer.finish() == []
    assert not framer.errors


def test_elements_may_be_of_any_type():
    body = b' [ -1.5e+3,true , null,"a,]",[1,[2]],{} ]'
    assert elements_of(body) == [b"-1.5e+3", b"true", b"null", b'"a,]"', b"[1,[2]]", b"{}"]


def test_an_empty_array_has_no_elements_and_no_errors():
    framer = JsonArrayFramer()
    assert framer.feed(b"\xef\xbb\xbf[ ]") == []
    assert framer.finish() == []
    assert not framer.errors


def test_an_object_instead_of_the_array_is_one_element():
    framer = JsonArrayFramer()
    error = b'{"error": {"code": 400, "details": []}}'
    assert framer.feed(b"\n" + error + b"\n") == [error]
    framer.finish()
    assert not framer.errors


@pytest.mark.parametrize(
    ("body", "elements", "stretches"),
    [
        (b"upstream error", [], 1),
        (b'xx [{"a":1}]', [b'{"a":1}'], 1),
        (b'[{"a":1} xx yy, {"b":2}]', [b'{"a":1}', b'{"b":2}'], 1),
        (b"[maybe,1]", [b"1"], 1),
        (b"[,1]", [b"1"], 1),
        (b"[1] 2 3", [b"1"], 1),
        (b"[1}2]", [b"1"], 1),
        (b'[1] {"a":1}', [b"1"], 1),
    ],
)
def test_garbage_outside_the_elements_is_passed_over_and_counted(body, elements, stretches):
    framer = JsonArrayFramer()
    assert framer.feed(body) == elements
    assert framer.errors == {"json": stretches}
    assert elements_of(*(body[i : i + 1] for i in range(len(body)))) == elements


@pytest.mark.parametrize("body", [b"[", b'[{"a":', b"[1", b"[1,", b'{"a":1'])
def test_an_array_that_does_not_close_is_counted(body):
    framer = JsonArrayFramer()
    framer.feed(body)
    assert framer.finish() == []
    assert framer.errors == {"truncated": 1}


@pytest.mark.parametrize("read_size", [1 << 30, 65_536])
def test_an_element_beyond_the_bound_is_skipped_and_the_next_is_read(read_size):
    body = b'[1,{"image":"' + b"x" * MAX_EVENT + b'","n":[{}]},' + b"7" * (MAX_EVENT + 1) + b',{"a":2}]'
    framer = JsonArrayFramer()
    elements = [e for i in range(0, len(body), read_size) for e in framer.feed(body[i : i + read_size])]
    assert elements == [b"1", b'{"a":2}']
    assert framer.errors == {"oversized": 2}


def test_recorded_array_streams_have_the_elements_they_are_known_to_have():
    for path in sorted(RECORDINGS.glob("*json-array*.json")):
        recording = json.loads(path.read_bytes())
        body = recording["response"]["body_text"].encode()
        elements = elements_of(*(body[i : i + 13] for i in range(0, len(body), 13)))
        assert [json.loads(element) for element in elements] == json.loads(body), path.name
        assert len(elements) == recording["expected"]["n_events"], path.name
