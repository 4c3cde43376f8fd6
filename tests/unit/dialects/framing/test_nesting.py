from __future__ import annotations

import json

import pytest

from sidecar.dialects.framing.nesting import Nesting

VALUES = [
    '"plain"',
    json.dumps('quotes " and \\ and \\" and { [ ] }'),
    '"' + '\\"' * 3000 + '"',
    '"' + "\\\\" * 3000 + '"',
    '"' + "x" * 50_000 + '"',
    "[]",
    "{}",
    "[" * 3000 + "]" * 3000,
    json.dumps([[], [], {}, [[]]] * 700),
    json.dumps([{"role": "user", "content": 'a "quoted" \\ text'}] * 300),
    json.dumps([i / 7 for i in range(4000)]),
    "[" + '"' + "x" * 1000 + '"' + '\\]\\[\\}\\{\\"' * 300 + "x" * 1000 + "]",
    json.dumps({"a": ["]", "}", '"', "\\"] * 500, "b": {"c": "x" * 9000}}),
]


def end_of(value: bytes, read_size: int) -> int:
    nesting = Nesting()
    nesting.open(value[0])
    for start in range(1, len(value), read_size):
        end = nesting.close(value[start : start + read_size], 0)
        if end >= 0:
            return start + end
    return -1


@pytest.mark.parametrize("read_size", [1, 2, 3, 100, 129, 4096, 1 << 20])
@pytest.mark.parametrize("index", range(len(VALUES)))
def test_a_value_ends_where_its_last_bracket_or_quote_is_whatever_follows_and_however_it_is_cut(index, read_size):
    value = VALUES[index].encode()
    tail = b',"next":[1,2,{"x":"]"}]]]}}"' + b" " * 300
    assert end_of(value + tail, read_size) == len(value)


@pytest.mark.parametrize("read_size", [1, 1000, 1 << 20])
@pytest.mark.parametrize("index", range(len(VALUES)))
def test_a_value_without_its_last_byte_has_not_ended(index, read_size):
    assert end_of(VALUES[index].encode()[:-1], read_size) == -1


def test_one_follower_serves_one_value_after_another():
    nesting = Nesting()
    nesting.open(ord("{"))
    assert nesting.close(b'"a\\', 0) == -1
    nesting.open(ord('"'))
    assert nesting.close(b'"', 0) == 1
    nesting.open(ord("["))
    assert nesting.close(b'"]"]x', 0) == 4
