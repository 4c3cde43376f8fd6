"""Keeps the copy of a response until it is worth reading: a read costs an append, the parsing comes in batches.

Parsing in batches keeps the decoder's code and data warm (an event costs a fifth of what it costs in place), and none
of it stands between a byte's arrival and its departure. The batches are small and their ends are spread: a hundred
streams that began together would otherwise all be parsed in the same turn of the loop, and stall each other.
"""

from __future__ import annotations

from typing import ClassVar

from sidecar import dialects
from sidecar.dialects.reading import Reader, Reading, RequestFacts
from sidecar.exchange import Exchange

BATCH_BYTES = 4 * 1024
"""How much of a copy is kept before it is read: some 16 events, less than handling one more read costs."""

_SPREAD = 64


class Meter:
    """Collects (instant, bytes) of one exchange and feeds them to its dialect's reader, which is made when needed."""

    __slots__ = ("_chunks", "_exchange", "_facts", "_pending", "_reader")
    _made: ClassVar[int] = 0

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._reader: Reader | None = None
        self._facts: RequestFacts | None = None
        self._chunks: list[tuple[float, bytes]] = []
        Meter._made = (Meter._made + 29) % _SPREAD
        self._pending = Meter._made * BATCH_BYTES // _SPREAD

    @property
    def facts(self) -> RequestFacts:
        """What the request asked for, as far as its copy tells by now."""
        if self._facts is None:
            exchange = self._exchange
            exchange.dialect = dialects.resolve(exchange.dialect, exchange.method, exchange.target)
            self._facts = dialects.read_request(
                exchange.dialect, exchange.method, exchange.target, exchange.request_copy
            )
        return self._facts

    def add(self, at: float, data: bytes) -> None:
        """Keep a read of the body, which arrived at instant `at`."""
        self._chunks.append((at, data))
        self._pending += len(data)
        if self._pending >= BATCH_BYTES:
            self._drain(self._open())

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
        feed = reader.feed
        for at, data in chunks:
            feed(data, at)
