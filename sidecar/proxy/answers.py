"""Our own error responses: one table of failures, in the shape the application's SDK expects."""

from __future__ import annotations

from http import HTTPStatus

from sidecar import dialects
from sidecar.exchange import Headers
from sidecar.failures import RETRY_AFTER_SECONDS, Failure
from sidecar.http_fields import Framing
from sidecar.upstreams.http1_response import ResponseHead


def error_response(failure: Failure, dialect: str) -> tuple[ResponseHead, bytes]:
    """Head and body for a failure that happened before any byte of a response was sent."""
    status = failure.status
    content_type, body = dialects.error_body(dialect, str(failure.code), failure.message, status)
    headers: Headers = [
        (b"Content-Type", content_type),
        (b"Content-Length", b"%d" % len(body)),
        (b"x-sidecar-error", str(failure.code).encode()),
    ]
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers.append((b"Retry-After", b"%d" % RETRY_AFTER_SECONDS))
    return ResponseHead(status, reason_phrase(status), headers, Framing.LENGTH), body


def reason_phrase(status: int) -> bytes:
    """The usual reason phrase of a status."""
    try:
        return HTTPStatus(status).phrase.encode()
    except ValueError:
        return b""
