from __future__ import annotations

import json
from pathlib import Path

import pytest

from sidecar.dialects.json_scan import MemberScanner, members

ROOT = Path(__file__).resolve().parents[3]
RECORDINGS = ROOT.parent / "shared" / "recordings"

WANTED = frozenset({b"model", b"usage", b"stream"})


def scanned(*reads: bytes, wanted: frozenset[bytes] = WANTED, max_value: int = 65_536) -> MemberScanner:
    scanner = MemberScanner(wanted, max_value)
    for read in reads:
        scanner.feed(read)
    return scanner


def in_reads(body: bytes, size: int) -> list[bytes]:
    return [body[i : i + size] for i in range(0, len(body), size)]


ANSWER = b"""\n  \n{"id" : "x", "model":"gpt-\\"4\\u00e9" ,
 "choices": [ {"model":"no","usage":{}, "text":"\\"usage\\": 1 }{ ]["} ],
 "n":1,"ok":true,"none":null,"e":"\\\\","stream":false ,"usage": {"prompt_tokens": 3, "d": {"x":[1,2]}}}
"""


@pytest.mark.parametrize("read_size", [1, 2, 7, 64, 1 << 20])
def test_the_wanted_members_of_the_top_level_are_found_as_they_were_written(read_size):
    scanner = scanned(*in_reads(ANSWER, read_size))
    assert scanner.found == {
        b"model": b'"gpt-\\"4\\u00e9"',
        b"stream": b"false",
        b"usage": b'{"prompt_tokens": 3, "d": {"x":[1,2]}}',
    }
    assert scanner.done
    assert scanner.bytes_seen == len(ANSWER)
    assert not scanner.errors
    assert not scanner.too_long


def test_what_was_found_is_a_document_again():
    scanner = scanned(ANSWER)
    whole = json.loads(ANSWER)
    assert json.loads(members(scanner.found)) == {key: whole[key] for key in ("model", "stream", "usage")}
    assert members({}) == b"{}"
    assert json.loads(members({b'a"\\\n\xc3\xa9': b"1"})) == {'a"\\\né': 1}


def test_a_member_is_found_as_soon_as_its_value_has_ended_and_not_before():
    scanner = scanned(b'{"model":"a')
    assert scanner.found == {}
    scanner.feed(b'"')
    assert scanner.found == {b"model": b'"a"'}
    scanner.feed(b',"stream":tru')
    scanner.feed(b"e")
    assert b"stream" not in scanner.found
    assert not scanner.done
    scanner.feed(b"}")
    assert scanner.found[b"stream"] == b"true"
    assert scanner.done


@pytest.mark.parametrize("read_size", [1, 1 << 20])
def test_the_last_of_equal_keys_counts_however_it_is_written(read_size):
    body = rb'{"model":1,"x":{},"\u006dodel":2,"model":[3],"mo\u0064el":"4"}'
    assert scanned(*in_reads(body, read_size)).found == {b"model": b'"4"'}


@pytest.mark.parametrize("read_size", [1, 1000, 1 << 20])
def test_values_beyond_the_bound_are_named_but_not_kept(read_size):
    body = b'{"model":"' + b"x" * 5000 + b'","usage":' + b"1" * 5000 + b',"stream":[' + b"1," * 3000 + b'2],"n":1}'
    scanner = scanned(*in_reads(body, read_size), max_value=4096)
    assert scanner.found == {}
    assert scanner.too_long == {b"model", b"usage", b"stream"}
    assert scanner.done
    assert not scanner.errors


def test_a_value_at_the_bound_is_kept_and_a_later_one_replaces_or_removes_it():
    fits, too_long = b'"' + b"x" * 98 + b'"', b'"' + b"x" * 99 + b'"'
    scanner = scanned(b'{"model":' + fits, max_value=100)
    assert scanner.found == {b"model": fits}
    scanner.feed(b',"model":' + too_long)
    assert scanner.found == {}
    assert scanner.too_long == {b"model"}
    scanner.feed(b',"model":1}')
    assert scanner.found == {b"model": b"1"}
    assert scanner.too_long == set()


@pytest.mark.parametrize(
    "body",
    [
        b"<html>",
        b"[1]",
        b'"model"',
        b'{"model" "x"}',
        b'{"model":,}',
        b'{"model":nul}',
        b"{model:1}",
        b'{"n":1 "model":2}',
        b'{"n":1,,"model":2}',
        b'{"n":{}]',
        b'{"n":1} {"model":1}',
        b'{"n":1}x',
    ],
)
@pytest.mark.parametrize("read_size", [1, 1 << 20])
def test_what_is_no_json_object_is_counted_once_and_nothing_is_read_after_it(body, read_size):
    scanner = scanned(*in_reads(body + b'{"model":1}', read_size))
    assert scanner.found == {}
    assert scanner.errors == {"json": 1}


def test_a_body_that_breaks_off_gives_what_was_whole_and_is_not_done():
    scanner = scanned(b'{"model":"a","usage":{"prompt_tokens":1')
    assert scanner.found == {b"model": b'"a"'}
    assert not scanner.done
    assert not scanner.errors


def test_other_bytes_are_not_kept():
    scanner = MemberScanner(WANTED)
    scanner.feed(b'{"image":"')
    for _ in range(100):
        scanner.feed(b"x" * 65_536)
    scanner.feed(b'","' + b"k" * 200_000 + b'":1,"model":1}')
    assert len(scanner._captured) <= 65_536
    assert scanner.found == {b"model": b"1"}
    assert scanner.bytes_seen > 6_000_000


def test_no_wanted_members_is_no_error():
    scanner = scanned(ANSWER, wanted=frozenset())
    assert scanner.found == {}
    assert scanner.done


def test_recorded_documents_give_what_json_loads_gives():
    wanted = frozenset({b"model", b"usage", b"id", b"error", b"choices", b"output", b"candidates", b"object"})
    for path in sorted(RECORDINGS.glob("*.json")):
        body = json.loads(path.read_bytes())["response"].get("body_text", "").encode()
        try:
            document = json.loads(body)
        except ValueError:
            continue
        if isinstance(document, dict):
            scanner = scanned(*in_reads(body, 61), wanted=wanted, max_value=1 << 24)
            expected = {key: value for key, value in document.items() if key.encode() in wanted}
            assert json.loads(members(scanner.found)) == expected, path.name
            assert scanner.done, path.name
