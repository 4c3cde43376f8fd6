from __future__ import annotations

from typing import Any

import pytest

from sidecar.exchange import CacheState, Exchange, Outcome, Phase
from tests.kit.fakes import make_exchange


@pytest.mark.parametrize(
    ("marks", "blocked"),
    [
        ({}, 0.0),
        ({"t_conn": 100.5}, 0.5),
        ({"t_conn": 100.5, "dns": 0.125, "connect": 0.125, "tls": 0.25}, 0.0),
        ({"t_conn": 100.5, "connect": 0.125, "t_end": 105.0}, 0.375),
        ({"t_end": 110.0}, 10.0),
        ({"t_end": 100.5, "dns": 0.75}, 0.0),
    ],
)
def test_blocked_is_what_passed_before_a_connection_less_the_dialling(marks: dict[str, Any], blocked: float) -> None:
    assert make_exchange(**marks).blocked == blocked


def test_exchanges_share_nothing() -> None:
    first, second = make_exchange(), make_exchange()
    first.response_overheads.append(1.0)
    first.response_headers.append((b"a", b"b"))
    assert (second.response_overheads, second.response_headers) == ([], [])


def test_nothing_is_reached_at_first() -> None:
    exchange: Exchange = make_exchange()
    assert (exchange.t_conn, exchange.t_send0, exchange.t_send1, exchange.t_hdr, exchange.t_end) == (0.0,) * 5
    assert (exchange.failure, exchange.client_gone, exchange.status) == (None, False, 0)


@pytest.mark.parametrize("closed", [Outcome, Phase, CacheState])
def test_label_values_are_plain_words(closed: Any) -> None:
    assert all(value == value.lower() and value.replace("_", "").isalpha() for value in closed)
