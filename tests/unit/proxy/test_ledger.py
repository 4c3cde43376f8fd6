from __future__ import annotations

import asyncio
import logging

import pytest

from sidecar.exchange import Exchange, Outcome
from sidecar.proxy.ledger import BATCH, KEPT_EXCHANGES, Ledger
from sidecar.proxy.meter import Meter
from tests.kit.fakes import Observed, make_exchange


@pytest.fixture
def observed() -> Observed:
    return Observed()


@pytest.fixture
def ledger(observed: Observed) -> Ledger:
    return Ledger(observed)


def end(ledger: Ledger, number: int = 1) -> list[Exchange]:
    """Let so many exchanges end."""
    ended = [make_exchange(t_end=101.0 + count) for count in range(number)]
    for exchange in ended:
        ledger.end(exchange, Meter(exchange))
    return ended


async def test_a_batch_is_recorded_when_it_is_full_and_in_order(ledger: Ledger, observed: Observed) -> None:
    ended = end(ledger, BATCH - 1)
    assert not observed.recorded
    ended += end(ledger)
    assert observed.recorded == ended
    ended += end(ledger)
    assert len(observed.recorded) == BATCH
    ledger.flush()
    assert observed.recorded == ended


async def test_a_few_are_recorded_soon_without_more_of_them() -> None:
    recorded = asyncio.Event()

    class Telling(Observed):
        def record(self, exchange: Exchange, facts: object) -> Outcome:
            recorded.set()
            return super().record(exchange, facts)

    telling = Telling()
    ledger = Ledger(telling)
    ended = end(ledger)
    assert not telling.recorded
    await asyncio.wait_for(recorded.wait(), 5)
    assert telling.recorded == ended


async def test_flushing_nothing_is_nothing(ledger: Ledger, observed: Observed) -> None:
    ledger.flush()
    ended = end(ledger)
    ledger.flush()
    ledger.flush()
    assert observed.recorded == ended, "once each"


async def test_one_that_cannot_be_recorded_does_not_escape_nor_stop_the_others(
    observed: Observed, caplog: pytest.LogCaptureFixture
) -> None:
    class Choosy(Observed):
        def record(self, exchange: Exchange, facts: object) -> Outcome:
            if exchange.t_end == 102.0:
                raise ZeroDivisionError
            return super().record(exchange, facts)

    choosy = Choosy()
    ledger = Ledger(choosy)
    end(ledger, 3)
    with caplog.at_level(logging.ERROR, "sidecar"):
        ledger.flush()
    assert [exchange.t_end for exchange in choosy.recorded] == [101.0, 103.0]
    assert [kept.marks.t_end for kept in ledger.last] == [101.0, 103.0]
    assert caplog.messages == ["record_failed"]


async def test_a_reader_that_fails_does_not_escape(
    ledger: Ledger, observed: Observed, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Meter):
        def finish(self) -> None:
            raise RecursionError

    exchange = make_exchange()
    ledger.end(exchange, Broken(exchange))
    ended = end(ledger)
    ledger.flush()
    assert observed.recorded == ended
    assert caplog.messages == ["record_failed"]


async def test_what_is_kept_tells_what_was_asked_and_how_the_recorder_judged_it() -> None:
    class Strict(Observed):
        def record(self, exchange: Exchange, facts: object) -> Outcome:
            super().record(exchange, facts)
            return Outcome.STREAM_TRUNCATED

    ledger = Ledger(Strict())
    exchange = make_exchange(request_copy=b'{"model":"gpt","stream":true}', status=200)
    ledger.end(exchange, Meter(exchange))
    ledger.flush()
    (kept,) = ledger.last
    assert (kept.operation, kept.model, kept.status, kept.outcome) == ("chat", "gpt", 200, Outcome.STREAM_TRUNCATED)


async def test_what_is_kept_holds_no_bodies_and_no_fields(ledger: Ledger) -> None:
    exchange = make_exchange(
        request_copy=b"hunter2",
        response_headers=[(b"Set-Cookie", b"hunter2")],
    )
    ledger.end(exchange, Meter(exchange))
    ledger.flush()
    (kept,) = ledger.last
    assert "hunter2" not in repr(kept)


async def test_the_last_ones_are_kept_and_no_more(ledger: Ledger) -> None:
    end(ledger, KEPT_EXCHANGES + 10)
    ledger.flush()
    assert len(ledger.last) == KEPT_EXCHANGES
    assert ledger.last[-1].marks.t_end == 101.0 + KEPT_EXCHANGES + 9
