"""Our own errors, in the shape that the application's SDK for a dialect reads."""

from __future__ import annotations

import json
from collections.abc import Callable

Fields = dict[str, object]

JSON = b"application/json"

_GOOGLE_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    413: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    431: "INVALID_ARGUMENT",
    500: "INTERNAL",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_ANTHROPIC_TYPE = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    431: "invalid_request_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def error_body(dialect: str, code: str, message: str, status: int) -> tuple[bytes, bytes]:
    """Content type and body of an error of our own. `code` is one of sidecar.failures.Code and is in every shape."""
    shape = _SHAPES.get(dialect, _openai)
    return JSON, json.dumps(shape(code, message, status), separators=(",", ":")).encode()


def _openai(code: str, message: str, status: int) -> Fields:
    type_ = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": message, "type": type_, "param": None, "code": code}}


def _anthropic(code: str, message: str, status: int) -> Fields:
    type_ = _ANTHROPIC_TYPE.get(status, "api_error")
    return {"type": "error", "error": {"type": type_, "message": message, "code": code}}


def _gemini(code: str, message: str, status: int) -> Fields:
    reason = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": code.upper(), "domain": "llm-sidecar"}
    name = _GOOGLE_STATUS.get(status, "UNKNOWN")
    return {"error": {"code": status, "message": message, "status": name, "details": [reason]}}


def _ollama(code: str, message: str, _status: int) -> Fields:
    return {"error": message, "code": code}


def _flat(code: str, message: str, _status: int) -> Fields:
    return {"message": message, "code": code}


_SHAPES: dict[str, Callable[[str, str, int], Fields]] = {
    "anthropic": _anthropic,
    "gemini": _gemini,
    "ollama": _ollama,
    "cohere": _flat,
    "bedrock": _flat,
}
