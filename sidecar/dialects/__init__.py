"""What the bytes of LLM APIs mean: requests, answers and streams are read from copies, never changed. No I/O, no clock.

- `resolve(configured, method, target)`: the dialect of one request, by the end of its path when `auto`;
- `read_request(dialect, method, target, body)`: what it asks for; `body` is whole JSON, an object of REQUEST_MEMBERS
  found by a scanner, or the beginning of form data;
- `open_reader(dialect, facts, method, target, status, headers)`: the reader of one response;
- `open_tunnel_reader(...)`: the same for what a server sends over a WebSocket;
- `error_body(dialect, code, message, status)`: an error of our own in the dialect's shape.

Importing this is cheap; what reads comes with its first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sidecar.dialects.errors import error_body
    from sidecar.dialects.opening import open_reader, open_tunnel_reader
    from sidecar.dialects.request import read_request
    from sidecar.dialects.route import resolve

__all__ = ["REQUEST_MEMBERS", "error_body", "open_reader", "open_tunnel_reader", "read_request", "resolve"]

REQUEST_MEMBERS: frozenset[bytes] = frozenset(
    {b"model", b"model_id", b"stream", b"n", b"num_generations", b"generationConfig", b"stream_options"}
)
"""The top-level members of a JSON request that say what was asked, for scanning bodies that are too large to keep."""

_HOMES = {
    "error_body": "errors",
    "open_reader": "opening",
    "open_tunnel_reader": "opening",
    "read_request": "request",
    "resolve": "route",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
