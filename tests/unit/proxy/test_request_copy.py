from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.proxy.request_copy import PREFIX_BYTES, SCAN_BYTES, WHOLE_BYTES, RequestCopy

LONG_TEXT = "x" * 2 * WHOLE_BYTES


def copied(body: bytes, *cuts: int) -> bytes:
    copy = RequestCopy()
    for start, end in zip([0, *cuts], [*cuts, len(body)], strict=True):
        copy.add(body[start:end])
    return copy.result()


def test_a_short_body_is_kept_as_it_is() -> None:
    body = b'{"model":"m","messages":[]}' + b" " * 1000
    assert copied(body, 3, 20) == body
    assert copied(b"") == b""
    assert copied(b"x" * WHOLE_BYTES) == b"x" * WHOLE_BYTES


@pytest.mark.parametrize("order", [("model", "messages", "stream"), ("messages", "stream", "model")])
def test_of_a_long_document_the_members_that_say_what_was_asked_are_kept(order: tuple[str, ...]) -> None:
    values: dict[str, Any] = {"model": "gpt", "messages": [{"content": LONG_TEXT}], "stream": True}
    body = json.dumps({name: values[name] for name in order}).encode()
    assert json.loads(copied(body, 100, WHOLE_BYTES + 1)) == {"model": "gpt", "stream": True}


def test_white_space_before_a_document_does_not_hide_it() -> None:
    body = b" \r\n\t" + json.dumps({"messages": LONG_TEXT, "model": "gpt"}).encode()
    assert json.loads(copied(body)) == {"model": "gpt"}


def test_of_other_long_bodies_the_beginning_is_kept() -> None:
    body = b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\nwhisper-1\r\n' + b"\0" * 2 * WHOLE_BYTES
    assert copied(body, 1000) == body[:PREFIX_BYTES]


def test_a_very_long_document_is_not_read_to_its_end() -> None:
    copy = RequestCopy()
    copy.add(b'{"stream":true,"messages":"')
    for _ in range(SCAN_BYTES // WHOLE_BYTES + 1):
        copy.add(b"x" * WHOLE_BYTES)
    copy.add(b'","model":"late"}')
    assert json.loads(copy.result()) == {"stream": True}


@given(st.data())
def test_how_a_body_is_split_changes_nothing(data: st.DataObject) -> None:
    body = json.dumps({"n": 2, "messages": LONG_TEXT, "model": "gpt"}).encode()
    cuts = sorted(data.draw(st.sets(st.integers(1, len(body) - 1), max_size=5)))
    assert json.loads(copied(body, *cuts)) == {"n": 2, "model": "gpt"}
