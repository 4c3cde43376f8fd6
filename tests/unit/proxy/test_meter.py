from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sidecar.dialects.reading import Operation
from sidecar.exchange import Exchange
from sidecar.failures import Code, Failure
from sidecar.proxy import meter as module
from sidecar.proxy.meter import BATCH_BYTES, Meter
from tests.kit.fakes import make_exchange

ASK = b'{"model":"gpt","stream":true,"messages":[]}'
SSE = [(b"content-type", b"text/event-stream")]
STEP = b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'
END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


def answered(**values: Any) -> Exchange:
    """An exchange whose head has come at 101.0 s."""
    known: dict[str, Any] = {"t_hdr": 101.0, "status": 200, "response_headers": SSE, "request_copy": ASK}
    return make_exchange(**{**known, **values})


def read_times(meter: Meter) -> list[float]:
    """The instants of what the reader has been fed until now."""
    reader = meter._reader
    return [] if reader is None else reader.seen  # type: ignore[attr-defined]


@pytest.fixture
def spied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers that keep the instants of what they are fed."""
    from sidecar import dialects

    open_reader = dialects.open_reader

    class Spy:
        def __init__(self, reader: Any) -> None:
            self.reader = reader
            self.seen: list[float] = []

        def feed_all(self, chunks: list[tuple[float, bytes]]) -> None:
            self.seen += [at for at, _ in chunks]
            self.reader.feed_all(chunks)

        def finish(self, *, clean: bool) -> Any:
            return self.reader.finish(clean=clean)

    monkeypatch.setattr(module.dialects, "open_reader", lambda *arguments: Spy(open_reader(*arguments)), raising=False)


def test_the_instants_are_those_of_the_arrival_not_of_the_reading() -> None:
    meter = Meter(answered())
    for at in (101.5, 102.0, 102.25):
        meter.add(at, STEP)
    meter.add(103.0, END)
    reading = meter.finish()
    assert reading is not None
    assert (reading.first_token_at, reading.last_token_at) == (101.5, 102.25)
    assert reading.gaps == [0.5, 0.25]
    assert reading.complete


def test_reads_are_kept_until_there_are_enough_of_them(spied: None) -> None:
    meter = Meter(answered())
    meter._pending = 0
    number = 0
    while number * len(STEP) < BATCH_BYTES:
        assert read_times(meter) == []
        number += 1
        meter.add(101.0 + number, STEP)
    assert read_times(meter) == [101.0 + count for count in range(1, number + 1)]
    meter.add(200.0, STEP)
    assert len(read_times(meter)) == number


def test_the_batches_of_streams_that_began_together_end_apart() -> None:
    ends = {Meter(answered())._pending for _ in range(64)}
    assert len(ends) == 64
    assert max(ends) < BATCH_BYTES


def test_without_a_response_there_is_nothing_to_read() -> None:
    meter = Meter(make_exchange(request_copy=ASK))
    assert meter.finish() is None
    assert (meter.facts.model, meter.facts.operation, meter.facts.stream) == ("gpt", Operation.CHAT, True)


@pytest.mark.parametrize("end", [{"failure": Failure(Code.UPSTREAM_CLOSED, "x")}, {"client_gone": True}])
def test_a_stream_that_broke_off_is_not_complete(end: dict[str, Any]) -> None:
    meter = Meter(answered(**end))
    meter.add(101.5, STEP)
    reading = meter.finish()
    assert reading is not None
    assert not reading.complete
    assert reading.token_events == 1


def test_an_automatic_dialect_is_settled_by_the_request() -> None:
    exchange = make_exchange(dialect="auto", target="/v1/messages", request_copy=b'{"model":"claude"}')
    assert Meter(exchange).facts.operation is Operation.MESSAGES
    assert exchange.dialect == "anthropic"


@pytest.mark.parametrize("mark", ["t_send1", "t_end"])
def test_what_was_asked_is_read_once_when_no_more_of_it_can_come(mark: str) -> None:
    exchange = answered(**{mark: 101.0})
    meter = Meter(exchange)
    first = meter.facts
    exchange.request_copy = b'{"model":"other"}'
    assert meter.facts is first


def test_what_was_asked_is_read_anew_while_the_request_still_arrives() -> None:
    exchange = make_exchange()
    meter = Meter(exchange)
    assert meter.facts.model is None
    exchange.request_copy = ASK
    assert meter.facts.model == "gpt"


def test_a_tunnel_is_read_as_messages() -> None:
    exchange = make_exchange(target="/v1/realtime", method="GET", status=101, t_hdr=101.0, tunnel=True)
    meter = Meter(exchange)
    message = b'{"type":"response.output_text.delta","delta":"a"}'
    meter.add(102.0, b"\x81" + bytes([len(message)]) + message)
    reading = meter.finish()
    assert reading is not None
    assert reading.token_events == 1


@pytest.mark.parametrize("body", [b"\x00\xff" * 5000, b"data: {\n\n" * 1000, b"{" * 10_000, b"data:" * 3000])
async def test_a_copy_that_cannot_be_read_does_not_raise(body: bytes) -> None:
    meter = Meter(answered())
    for start in range(0, len(body), 1000):
        meter.add(102.0, body[start : start + 1000])
    await asyncio.sleep(0)
    assert meter.finish() is not None


def test_a_reader_that_breaks_costs_the_measurement_and_not_the_exchange(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr("sidecar.dialects.open_reader", broken)
    meter = Meter(make_exchange(status=200, t_hdr=101.0))
    with caplog.at_level("ERROR", "sidecar"):
        meter.add(101.0, b"x" * 2 * BATCH_BYTES)
    assert [record.getMessage() for record in caplog.records] == ["read_failed"]
