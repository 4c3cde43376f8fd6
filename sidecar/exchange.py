"""The vocabulary: one exchange is one request with its response, marked with instants while it runs.

All instants are seconds of one monotonic clock; 0.0 means *not reached*. They are marked once and subtracted once,
by the recorder, when the exchange has ended. The definitions are those of docs/metrics.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sidecar.dialects.reading import Reading
    from sidecar.failures import Failure

Headers = list[tuple[bytes, bytes]]
"""Header fields in the order and spelling of the wire."""


class Outcome(StrEnum):
    """How an exchange ended, seen from the application. The closed set of the label `outcome`."""

    OK = "ok"
    CLIENT_ERROR = "client_error"
    RATE_LIMITED = "rate_limited"
    UPSTREAM_ERROR = "upstream_error"
    TIMEOUT = "timeout"
    NETWORK_ERROR = "network_error"
    STREAM_ERROR = "stream_error"
    STREAM_TRUNCATED = "stream_truncated"
    CLIENT_CANCELLED = "client_cancelled"
    REJECTED = "rejected"
    SIDECAR_ERROR = "sidecar_error"


class Phase(StrEnum):
    """Where the time of an exchange goes; the names are HAR's. Dialling is dns, connect and tls."""

    BLOCKED = "blocked"
    DNS = "dns"
    CONNECT = "connect"
    TLS = "tls"
    SEND = "send"
    WAIT = "wait"
    RECEIVE = "receive"


class CacheState(StrEnum):
    """The part the cache played; the closed set of the label `cache`."""

    NONE = "none"
    HIT = "hit"
    MISS = "miss"
    STALE = "stale"
    COALESCED = "coalesced"
    BYPASS = "bypass"


@dataclass(slots=True)
class Exchange:
    """One request and its response.

    Instants are monotonic seconds (0.0: not reached); `dns`, `connect` and `tls` are durations in seconds of the
    dialling that this very exchange waited for, 0.0 when it used a connection that was there. `network_error` and the
    like are decided by the recorder from `failure`, `status` and the reading.
    """

    upstream: str
    dialect: str
    method: str
    target: str
    t0: float
    started_at: float
    """Wall clock, Unix seconds: for people, never for durations."""
    trace_id: str = ""

    # Request direction.
    t_ready: float = 0.0
    """It is known where the request goes: from here on it waits for a connection, before it was the sidecar's work."""
    t_conn: float = 0.0
    """A connection is in hand. `t_conn - t0 - dns - connect - tls` is the phase `blocked`."""
    t_send0: float = 0.0
    t_send1: float = 0.0
    dns: float = 0.0
    connect: float = 0.0
    tls: float = 0.0
    connection_reused: bool = False
    request_bytes: int = 0
    request_copy: bytes = field(default=b"", repr=False)
    """The request body when it was small, else the members of it that say what was asked (see RequestScanner)."""
    retried: str = ""

    # Response direction.
    status: int = 0
    response_headers: Headers = field(default_factory=list, repr=False)
    response_bytes: int = 0
    t_hdr: float = 0.0
    t_end: float = 0.0
    response_overheads: list[float] = field(default_factory=list)
    """Seconds from read to written, one for each read of the response."""
    client_wait: float = 0.0
    """Seconds during which the response was held up because the application did not take it."""
    rtt: float = 0.0
    """Smoothed round-trip time of the connection at `t_hdr`, from the kernel; 0.0 when it cannot tell."""
    retransmits: int = 0

    # The end.
    failure: Failure | None = None
    client_gone: bool = False
    reading: Reading | None = None
    cache: CacheState = CacheState.NONE
    tunnel: bool = False
    """A WebSocket upgrade that was accepted."""

    @property
    def blocked(self) -> float:
        """Seconds spent waiting for a place: what passed before a connection was in hand, less the dialling."""
        until = self.t_conn or self.t_end
        seconds = until - self.t0 - self.dns - self.connect - self.tls
        return seconds if until and seconds > 0.0 else 0.0
