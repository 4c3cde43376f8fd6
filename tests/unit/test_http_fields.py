from __future__ import annotations

import pytest

from sidecar import http_fields
from sidecar.exchange import Headers
from sidecar.http_fields import (
    HOP_BY_HOP,
    NEVER_CONNECTION_OPTIONS,
    USUAL_OPTIONS,
    FieldKinds,
    all_options,
    connection_options,
    end_to_end,
    lower,
    value_of,
)


@pytest.mark.parametrize("name", [b"Content-Type", b"content-type", b"X-REQUEST-ID", b""])
def test_names_are_lowered(name: bytes) -> None:
    assert lower(name) == name.lower()
    assert lower(name) == name.lower(), "the second time as well"


def test_the_table_of_names_does_not_grow_with_what_clients_invent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_fields, "_LOWER", {})
    for number in range(http_fields._LOWER_LIMIT + 50):
        assert lower(b"X-%d" % number) == b"x-%d" % number
    assert len(http_fields._LOWER) == http_fields._LOWER_LIMIT


@pytest.mark.parametrize("name", [b"X-Kind", b"x-kind", b"X-KIND"])
def test_the_kind_of_a_field_does_not_depend_on_its_spelling(name: bytes) -> None:
    kinds = FieldKinds({b"x-kind": 3, b"x-other": 1})
    assert [kinds[name], kinds[b"X-Unknown"], kinds[name], kinds[b"X-Unknown"]] == [3, 0, 3, 0]


def test_kinds_are_known_of_more_names_than_are_kept() -> None:
    kinds = FieldKinds({b"x-kind": 3})
    for number in range(http_fields._LOWER_LIMIT + 50):
        assert kinds[b"X-%d" % number] == 0
    assert kinds[b"X-KIND"] == kinds[b"X-Kind"] == 3
    assert len(kinds) == http_fields._LOWER_LIMIT


def test_all_that_connection_says_is_told_in_lower_case() -> None:
    assert all_options(b"Close,  X-Foo ,CONTENT-type") == {b"close", b"x-foo", b"content-type"}
    assert all_options(b"") == {b""}


def test_the_usual_options_name_no_field_that_would_go_on() -> None:
    assert USUAL_OPTIONS - {b"close", b""} <= HOP_BY_HOP


def test_connection_names_fields_in_any_case_and_spacing() -> None:
    assert connection_options(b"Keep-Alive , X-Foo,x-bar") == {b"keep-alive", b"x-foo", b"x-bar"}


@pytest.mark.parametrize("name", sorted(NEVER_CONNECTION_OPTIONS))
def test_a_client_cannot_make_the_proxy_drop_what_is_meant_for_everybody(name: bytes) -> None:
    assert connection_options(b"close, " + name.upper()) == {b"close"}


def test_the_first_value_of_a_field_counts_whatever_its_spelling() -> None:
    headers: Headers = [(b"A", b"1"), (b"CONTENT-type", b"text/plain"), (b"Content-Type", b"other")]
    assert value_of(headers, b"content-type") == b"text/plain"
    assert value_of(headers, b"missing") is None


def test_order_spelling_and_repetition_survive_and_this_hop_does_not() -> None:
    headers: Headers = [
        (b"X-Twice", b"1"),
        (b"Connection", b"X-Hop"),
        (b"x-twice", b"2"),
        (b"X-HOP", b"gone"),
        (b"Transfer-Encoding", b"chunked"),
        (b"Set-Cookie", b"a"),
        (b"Set-Cookie", b"b"),
    ]
    assert end_to_end(headers, {b"x-hop"}) == [
        (b"X-Twice", b"1"),
        (b"x-twice", b"2"),
        (b"Set-Cookie", b"a"),
        (b"Set-Cookie", b"b"),
    ]
    assert (b"X-HOP", b"gone") in end_to_end(headers, set())
