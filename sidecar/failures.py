"""What can go wrong on the way, whose fault it is, and the one table that turns it into an answer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sidecar.exchange import Outcome, Phase


class Code(StrEnum):
    """Stable error codes, as in the header `x-sidecar-error`. Each has one status and one outcome (see ANSWERS)."""

    BAD_REQUEST = "bad_request"
    NO_UPSTREAM = "no_upstream"
    BODY_TOO_LARGE = "body_too_large"
    HEADERS_TOO_LARGE = "headers_too_large"
    DNS_FAILED = "dns_failed"
    CONNECT_FAILED = "connect_failed"
    TLS_FAILED = "tls_failed"
    PROXY_FAILED = "proxy_failed"
    UPSTREAM_CLOSED = "upstream_closed"
    UPSTREAM_PROTOCOL = "upstream_protocol"
    OVERLOADED = "overloaded"
    POOL_EXHAUSTED = "pool_exhausted"
    DNS_TIMEOUT = "dns_timeout"
    CONNECT_TIMEOUT = "connect_timeout"
    TLS_TIMEOUT = "tls_timeout"
    SEND_TIMEOUT = "send_timeout"
    HEADERS_TIMEOUT = "headers_timeout"
    IDLE_TIMEOUT = "idle_timeout"
    STOPPING = "stopping"
    INTERNAL = "internal"


ANSWERS: dict[Code, tuple[int, Outcome]] = {
    Code.BAD_REQUEST: (400, Outcome.REJECTED),
    Code.NO_UPSTREAM: (404, Outcome.REJECTED),
    Code.BODY_TOO_LARGE: (413, Outcome.REJECTED),
    Code.HEADERS_TOO_LARGE: (431, Outcome.REJECTED),
    Code.DNS_FAILED: (502, Outcome.NETWORK_ERROR),
    Code.CONNECT_FAILED: (502, Outcome.NETWORK_ERROR),
    Code.TLS_FAILED: (502, Outcome.NETWORK_ERROR),
    Code.PROXY_FAILED: (502, Outcome.NETWORK_ERROR),
    Code.UPSTREAM_CLOSED: (502, Outcome.NETWORK_ERROR),
    Code.UPSTREAM_PROTOCOL: (502, Outcome.NETWORK_ERROR),
    Code.OVERLOADED: (503, Outcome.REJECTED),
    Code.POOL_EXHAUSTED: (503, Outcome.REJECTED),
    Code.DNS_TIMEOUT: (504, Outcome.TIMEOUT),
    Code.CONNECT_TIMEOUT: (504, Outcome.TIMEOUT),
    Code.TLS_TIMEOUT: (504, Outcome.TIMEOUT),
    Code.SEND_TIMEOUT: (504, Outcome.TIMEOUT),
    Code.HEADERS_TIMEOUT: (504, Outcome.TIMEOUT),
    Code.IDLE_TIMEOUT: (504, Outcome.TIMEOUT),
    Code.STOPPING: (503, Outcome.SIDECAR_ERROR),
    Code.INTERNAL: (500, Outcome.SIDECAR_ERROR),
}

RETRY_AFTER_SECONDS = 1
"""Sent with every 503 of our own: the SDKs back off exponentially from it."""


class ErrorReason(StrEnum):
    """Label `reason` of connection_errors_total."""

    NOT_FOUND = "not_found"
    REFUSED = "refused"
    RESET = "reset"
    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    CERTIFICATE = "certificate"
    PROTOCOL = "protocol"
    CLOSED = "closed"
    PROXY = "proxy"
    OTHER = "other"


@dataclass(slots=True, eq=False)
class Failure(Exception):
    """An exchange that could not be carried through, with the phase it happened in.

    `message` is for the application's developer: it names hosts and settings, never credentials or bodies.
    `request_untouched` says that the upstream cannot have seen a byte of the request, so that another try is safe.
    """

    code: Code
    message: str
    phase: Phase | None = None
    reason: ErrorReason = ErrorReason.OTHER
    request_untouched: bool = False

    @property
    def status(self) -> int:
        """The HTTP status of our own answer."""
        return ANSWERS[self.code][0]

    @property
    def outcome(self) -> Outcome:
        """The label `outcome` of an exchange that ended so."""
        return ANSWERS[self.code][1]

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"
