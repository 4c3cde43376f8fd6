"""Events to wire bytes: server-sent events, lines of JSON, and the elements of one JSON array."""

from __future__ import annotations

from sidecar.simulator.answer import Event, Wire


def comment(wire: Wire, line_end: bytes) -> bytes:
    """Bytes that say nothing, as keep-alives: an SSE comment, or white space before JSON."""
    return b": keep-alive" + line_end * 2 if wire is Wire.SSE else line_end


def frame(events: list[Event], wire: Wire, line_end: bytes, pad: int) -> list[bytes]:
    """The bytes of each event. `pad` spaces follow the JSON, where they mean nothing (Anthropic pads so itself)."""
    if wire is Wire.SSE:
        return _sse(events, line_end, b" " * pad)
    if wire is Wire.NDJSON:
        end = b" " * pad + line_end
        return [event.payload + end for event in events]
    if wire is Wire.ARRAY:
        end = b" " * pad + b"\n"
        return [(b",\r\n" if place else b"[") + event.payload + end for place, event in enumerate(events)]
    return [event.payload + b" " * pad for event in events]


def _sse(events: list[Event], line_end: bytes, spaces: bytes) -> list[bytes]:
    end = spaces + line_end * 2
    data = line_end + b"data: "
    return [(b"event: " + event.name + data if event.name else b"data: ") + event.payload + end for event in events]


ARRAY_END = b"]"
"""What closes a JSON array after its last element."""
