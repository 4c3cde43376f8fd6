"""The end of an exchange: reading what is left of its copy and recording it, a little later and in batches."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from sidecar import log
from sidecar.dialects.reading import RequestFacts
from sidecar.exchange import Exchange, Outcome
from sidecar.proxy.finished import Finished, finished
from sidecar.proxy.meter import Meter

BATCH = 16
DELAY_SECONDS = 0.02
"""Nobody looks at a metric sooner, and sixteen at once cost half of sixteen apart."""

KEPT_EXCHANGES = 200


class ExchangeRecorder(Protocol):
    """What takes ended exchanges; sidecar.metrics has it."""

    def record(self, exchange: Exchange, facts: RequestFacts) -> Outcome: ...


class Ledger:
    """Takes ended exchanges, records them in order, keeps the last ones for the admin port."""

    def __init__(self, recorder: ExchangeRecorder) -> None:
        self._recorder = recorder
        self._ended: list[tuple[Exchange, Meter]] = []
        self._timer: asyncio.TimerHandle | None = None
        self.last: deque[Finished] = deque(maxlen=KEPT_EXCHANGES)

    def end(self, exchange: Exchange, meter: Meter) -> None:
        """An exchange has ended; all its marks are set."""
        self._ended.append((exchange, meter))
        if len(self._ended) >= BATCH:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(DELAY_SECONDS, self.flush)

    def flush(self) -> None:
        """Record what has ended until now: before a scrape, and at the end."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        ended, self._ended = self._ended, []
        for exchange, meter in ended:
            try:
                self._record(exchange, meter)
            except Exception as error:  # measuring must never harm the traffic
                log.error("record_failed", exc_info=error, upstream=exchange.upstream)

    def _record(self, exchange: Exchange, meter: Meter) -> None:
        facts = meter.facts
        exchange.reading = meter.finish()
        outcome = self._recorder.record(exchange, facts)
        self.last.append(finished(exchange, facts, outcome))
