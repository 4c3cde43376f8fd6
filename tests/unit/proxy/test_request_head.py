from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sidecar.exchange import Headers
from sidecar.failures import Code, Failure
from sidecar.http_fields import HOP_BY_HOP, NEVER_CONNECTION_OPTIONS
from sidecar.proxy.request_head import request_head, with_new_body
from sidecar.proxy.route import Origin
from tests.kit.fakes import FakeDownstream, make_exchange

TRACEPARENT = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

Build = Callable[..., list[bytes]]


@pytest.fixture
def build(origin: Callable[..., Origin]) -> Build:
    """The lines of the head made for an application's fields (and settings of the request)."""

    def make(headers: Headers, *, proxy_line: bytes = b"", via: bool = False, **settings: Any) -> list[bytes]:
        downstream = FakeDownstream(headers=headers, **settings)
        head = request_head(downstream, origin(proxy_line=proxy_line), b"/v1/x", make_exchange(), via=via)
        assert head.endswith(b"\r\n\r\n")
        return head[:-4].split(b"\r\n")

    return make


def test_fields_keep_their_order_spelling_and_repetition(build: Build) -> None:
    lines = build([(b"host", b"me"), (b"X-A", b"1"), (b"x-a", b"2"), (b"AUTHORIZATION", b"Bearer k"), (b"X-E", b"")])
    assert lines == [
        b"POST /v1/x HTTP/1.1",
        b"Host: api.example",
        b"X-A: 1",
        b"x-a: 2",
        b"AUTHORIZATION: Bearer k",
        b"X-E: ",
    ]


def test_the_host_becomes_the_upstreams_where_it_stood(build: Build) -> None:
    assert build([(b"A", b"1"), (b"HOST", b"me"), (b"B", b"2")])[1:] == [b"A: 1", b"Host: api.example", b"B: 2"]


def test_a_request_without_host_is_given_one(build: Build) -> None:
    assert build([(b"A", b"1")])[1:] == [b"Host: api.example", b"A: 1"]


def test_two_hosts_are_refused(build: Build) -> None:
    with pytest.raises(Failure) as caught:
        build([(b"Host", b"a"), (b"host", b"a")])
    assert caught.value.code is Code.BAD_REQUEST


@pytest.mark.parametrize("name", sorted(HOP_BY_HOP))
def test_fields_of_this_hop_end_here(name: bytes, build: Build) -> None:
    lines = build([(b"Host", b"me"), (name.title(), b"gzip"), (b"X-A", b"1")])
    assert lines[1:] == [b"Host: api.example", b"X-A: 1"]


def test_fields_that_connection_names_end_here_in_any_place_and_spelling(build: Build) -> None:
    lines = build(
        [
            (b"Host", b"me"),
            (b"X-Before", b"1"),
            (b"Connection", b"close, X-BEFORE"),
            (b"connection", b"x-after"),
            (b"X-After", b"2"),
            (b"X-Kept", b"3"),
            (b"x-before", b"4"),
        ]
    )
    assert lines[1:] == [b"Host: api.example", b"X-Kept: 3"]


@pytest.mark.parametrize("name", sorted(NEVER_CONNECTION_OPTIONS - {b"host"}))
def test_connection_cannot_take_away_what_the_server_judges_by(name: bytes, build: Build) -> None:
    lines = build([(b"Host", b"me"), (b"Connection", name), (name, b"1")])
    assert lines[1:] == [b"Host: api.example", name + b": 1"]


def test_the_host_stays_though_connection_names_it(build: Build) -> None:
    assert build([(b"Host", b"me"), (b"Connection", b"host, x")])[1:] == [b"Host: api.example"]


def test_chunks_are_announced_again(build: Build) -> None:
    lines = build([(b"Host", b"me"), (b"transfer-encoding", b"Chunked")], chunked=True)
    assert lines[1:] == [b"Host: api.example", b"Transfer-Encoding: chunked"]


def test_an_upgrade_is_asked_for_again(build: Build) -> None:
    fields: Headers = [(b"Host", b"me"), (b"Upgrade", b"WebSocket"), (b"Connection", b"keep-alive, Upgrade")]
    assert build([*fields, (b"Sec-WebSocket-Key", b"k")], upgrade=True)[1:] == [
        b"Host: api.example",
        b"Sec-WebSocket-Key: k",
        b"Connection: Upgrade",
        b"Upgrade: websocket",
    ]
    assert build(fields, upgrade=False)[1:] == [b"Host: api.example"], "one that we do not know ends here"


@pytest.mark.parametrize(
    ("value", "passed"), [(b"trailers", True), (b"gzip;q=1, Trailers", True), (b"gzip", False), (b"", False)]
)
def test_trailers_are_asked_for_and_no_other_transfer_coding(value: bytes, passed: bool, build: Build) -> None:
    lines = build([(b"Host", b"me"), (b"TE", value), (b"Connection", b"TE")])
    assert lines[1:] == [b"Host: api.example", *([b"Connection: TE", b"TE: trailers"] if passed else [])]


def test_a_plain_proxy_is_shown_our_credentials_and_not_the_applications(build: Build) -> None:
    lines = build(
        [(b"Host", b"me"), (b"Proxy-Authorization", b"Basic app")], proxy_line=b"Proxy-Authorization: Basic us"
    )
    assert lines[1:] == [b"Host: api.example", b"Proxy-Authorization: Basic us"]


def test_via_is_added_when_it_is_wanted(build: Build) -> None:
    assert build([(b"Host", b"me"), (b"Via", b"1.1 other")], via=True)[1:] == [
        b"Host: api.example",
        b"Via: 1.1 other",
        b"Via: 1.1 sidecar",
    ]


@pytest.mark.parametrize(
    ("value", "trace"), [(TRACEPARENT, "4bf92f3577b34da6a3ce929d0e0e4736"), (b"00-short", ""), (b"", "")]
)
def test_the_trace_is_noted_and_passed_on(value: bytes, trace: str, origin: Callable[..., Origin]) -> None:
    exchange = make_exchange()
    downstream = FakeDownstream(headers=[(b"Host", b"me"), (b"Traceparent", value)])
    head = request_head(downstream, origin(), b"/", exchange, via=False)
    assert exchange.trace_id == trace
    assert b"\r\nTraceparent: " + value + b"\r\n" in head


def test_a_changed_body_brings_its_length_and_an_answer_that_can_be_read() -> None:
    head = (
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\naccept-ENCODING: gzip\r\n"
        b"Transfer-Encoding: chunked\r\nX-Content-Length: 7\r\n\r\n"
    )
    assert with_new_body(head, 42) == (
        b"POST / HTTP/1.1\r\nHost: a\r\nX-Content-Length: 7\r\nContent-Length: 42\r\nAccept-Encoding: identity\r\n\r\n"
    )
