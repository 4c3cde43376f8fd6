"""Keeps the copy of a response until it is worth reading: a read costs an append, the parsing comes in batches.

Parsing in batches keeps the decoder's code and data warm (an event costs a fifth of what it costs in place), and none
of it stands between a byte's arrival and its departure. The batches are small and their ends are spread: a hundred
streams that began together would otherwise all be parsed in the same turn of the loop, and stall each other.
"""

from __future__ import annotations

from itertools import cycle

from sidecar import dialects, log
from sidecar.dialects.reading import Reader, Reading, RequestFacts
from sidecar.exchange import Exchange

BATCH_BYTES = 4 * 1024
"""How much of a copy is kept before it is read: some 16 events, less than handling one more read costs."""

_STARTS = cycle([-(step * 29 % 64) * BATCH_BYTES // 64 for step in range(64)])
"""Bytes that do not count towards a copy's first batch: the ends of the batches of neighbours lie apart. A short answer
is never read before it has ended."""


class Meter:
    """Collects (instant, bytes) of one exchange and feeds them to its dialect's reader, which is made when needed."""

    __slots__ = ("_chunks", "_exchange", "_facts", "_pending", "_reader")

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._reader: Reader | None = None
        self._facts: RequestFacts | None = None
        self._chunks: list[tuple[float, bytes]] = []
        self._pending = next(_STARTS)

    @property
    def facts(self) -> RequestFacts:
        """What the request asked for, as far as its copy tells by now."""
        if self._facts is not None:
            return self._facts
        exchange = self._exchange
        exchange.dialect = dialects.resolve(exchange.dialect, exchange.method, exchange.target)
        facts = dialects.read_request(exchange.dialect, exchange.method, exchange.target, exchange.request_copy)
        if exchange.t_send1 or exchange.t_end:  # else more of the request may come
            self._facts = facts
        return facts

    def add(self, at: float, data: bytes) -> None:
        """Keep a read of the body, which arrived at instant `at`."""
        self._chunks.append((at, data))
        self._pending += len(data)
        if self._pending >= BATCH_BYTES:
            self._read_batch()

    def _read_batch(self) -> None:
        """Read in the middle of an exchange, where a mistake of ours must cost no more than the measurement."""
        try:
            self._drain(self._open())
        except Exception as error:
            self._chunks, self._pending = [], 0
            log.error("read_failed", exc_info=error, upstream=self._exchange.upstream)

    def finish(self) -> Reading | None:
        """Read the rest, now that the exchange has ended; None when there was no response."""
        exchange = self._exchange
        if not exchange.t_hdr:
            return None
        reader = self._open()
        self._drain(reader)
        return reader.finish(clean=exchange.failure is None and not exchange.client_gone)

    def _open(self) -> Reader:
        if self._reader is None:
            exchange = self._exchange
            facts = self.facts  # decides the dialect as well
            make = dialects.open_tunnel_reader if exchange.tunnel else dialects.open_reader
            self._reader = make(
                exchange.dialect,
                facts,
                exchange.method,
                exchange.target,
                exchange.status,
                exchange.response_headers,
            )
        return self._reader

    def _drain(self, reader: Reader) -> None:
        chunks, self._chunks = self._chunks, []
        self._pending = 0
        reader.feed_all(chunks)
