"""`stream_usage: inject`: ask an OpenAI-style API for usage on the application's behalf, and keep it from seeing that.

The only place where the sidecar changes bytes, and only when told to. What it adds to a request is one member; what it
takes out of a response is the event that has usage and no choices, and the member `usage` of the others.
"""

from __future__ import annotations

import json
import re
from typing import Any

from sidecar.dialects.framing.sse import SseSplitter
from sidecar.dialects.json_scan import MemberScanner

MAX_BODY_BYTES = 1024 * 1024
"""A request that is longer is sent as it is: it would have to be kept whole."""

_MEMBER = b'"stream_options":{"include_usage":true}'


def with_usage_asked(body: bytes) -> bytes | None:
    """The request body that asks for usage; None when it must stay as it is (no stream, or usage is asked for)."""
    try:
        request = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(request, dict) or request.get("stream") is not True:
        return None
    options = request.get("stream_options")
    if isinstance(options, dict) and options.get("include_usage") is True:
        return None
    if "stream_options" not in request:
        kept = body.rstrip()
        return kept[:-1] + b"," + _MEMBER + b"}"
    if options is not None and not isinstance(options, dict):
        return None  # let the API say what is wrong with it
    wanted = {**request, "stream_options": {**(options or {}), "include_usage": True}}
    edited = _replace_member(body, b"stream_options", json.dumps(wanted["stream_options"]).encode())
    if edited is not None and json.loads(edited) == wanted:
        return edited
    return json.dumps(wanted, ensure_ascii=False, separators=(",", ":")).encode()


def _replace_member(document: bytes, name: bytes, value: bytes | None) -> bytes | None:
    """The document with the text of one top-level member replaced, or the member removed (value None)."""
    scanner = MemberScanner(frozenset({name}))
    scanner.feed(document)
    raw = scanner.found.get(name)
    if raw is None:
        return None
    member = rb'"' + re.escape(name) + rb'"\s*:\s*' + re.escape(raw)
    if value is None:
        places = list(re.finditer(rb",\s*" + member + rb"|" + member + rb"\s*,?", document))
    else:
        places = list(re.finditer(member, document))
    if not places:
        return None
    at = places[-1]
    new = b"" if value is None else b'"' + name + b'":' + value
    return document[: at.start()] + new + document[at.end() :]


class UsageFilter:
    """Takes the copy-to-be of an event stream apart and lets through what the application asked for."""

    def __init__(self) -> None:
        self._splitter = SseSplitter()

    def feed(self, data: bytes) -> bytes:
        """The bytes to send for the next bytes received; an event is held until it is whole."""
        return b"".join(_shown(event) for event in self._splitter.feed(data))

    def finish(self) -> bytes:
        """What was left at the end of the stream."""
        return self._splitter.finish()


def _shown(event: bytes) -> bytes:
    """An event as the application may see it; b"" to hide it."""
    if b'"usage"' not in event:
        return event
    data = event.split(b"data:", 1)[-1].strip()
    try:
        chunk: Any = json.loads(data)
    except (ValueError, RecursionError):
        return event
    if not isinstance(chunk, dict) or "usage" not in chunk:
        return event
    if chunk["usage"] is not None and chunk.get("choices") == []:
        return b""
    stripped = _replace_member(data, b"usage", None)
    return event if stripped is None else event.replace(data, stripped, 1)
