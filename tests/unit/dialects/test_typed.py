from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sidecar.dialects.reading import Reading
from sidecar.dialects.typed import Typed


class Inner(msgspec.Struct):
    count: int | None = None
    flag: bool = False


class Outer(msgspec.Struct):
    name: str | None = None
    inner: Inner | str | None = None
    items: list[Inner] | None = None
    anything: Any = None


OUTER = Typed(Outer)


def read(text: str | bytes) -> tuple[Outer | None, Reading]:
    reading = Reading()
    return OUTER.read(text if isinstance(text, bytes) else text.encode(), reading), reading


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"name":"a","inner":{"count":1}}', Outer(name="a", inner=Inner(1))),
        ('{"name":{"a":1},"inner":{"count":1}}', Outer(inner=Inner(1))),
        ('{"name":7,"inner":{"count":"12","flag":"x"}}', Outer(inner=Inner(12))),
        ('{"name":[1],"inner":{"count":12.0}}', Outer(inner=Inner(12))),
        ('{"name":"a","inner":{"count":"many"}}', Outer(name="a", inner=Inner())),
        ('{"inner":"text","name":1}', Outer(inner="text")),
        ('{"items":[{"count":1},2,null,{"count":[]}]}', Outer(items=[Inner(1), Inner()])),
        ('{"name":"\\ud83d"}', Outer(name="\ud83d")),
    ],
)
def test_what_does_not_fit_is_left_out_and_the_rest_is_read(text: str, value: Outer) -> None:
    got, reading = read(text)
    assert got == value
    assert reading.parse_errors == {}


def test_bytes_that_are_no_utf8_cost_only_themselves() -> None:
    got, _ = read(b'{"name":"a\xff","inner":{"count":1}}')
    assert got == Outer(name="a\ufffd", inner=Inner(1))


@pytest.mark.parametrize("text", ["{", "7", "null", "[]", '"x"', "not json", "[" * 100_000, '{"a":' * 100_000])
def test_what_is_no_object_is_counted_once(text: str) -> None:
    assert read(text) == (None, Reading(parse_errors={"json": 1}))


@pytest.mark.parametrize("text", ["", " ", "\n"])
def test_nothing_at_all_is_no_mistake(text: str) -> None:
    assert read(text) == (None, Reading())
