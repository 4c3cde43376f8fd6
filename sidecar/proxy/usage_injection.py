"""`stream_usage: inject`: ask an OpenAI-style API for usage on the application's behalf, and keep it from seeing that.

The only place where the sidecar changes bytes, and only when told to. What it adds to a request is one member; what it
takes out of a response is the event that has usage and no choices, and the member `usage` of the others. All other
bytes stay as they were, so documents are edited as text, by the places of their members.
"""

from __future__ import annotations

import json
import re
from json.decoder import scanstring  # type: ignore[attr-defined]  # documented as the scanner's hook, not typed
from typing import Any, NamedTuple

from sidecar.dialects.framing.sse import SseSplitter

MAX_BODY_BYTES = 1024 * 1024
"""A request that is longer is sent as it is: it would have to be kept whole."""

_SPACE = re.compile(r"[ \t\r\n]*")
_VALUE = json.JSONDecoder().raw_decode
_DATA_LINE = re.compile(rb"^data:[ ]?([^\r\n]*)", re.MULTILINE)


class _Member(NamedTuple):
    """A member of an object's top level: `text[start:end]` is key, colon and value, `text[value_at:end]` the value."""

    key: str
    value: Any
    start: int
    value_at: int
    end: int


def with_usage_asked(body: bytes) -> bytes | None:
    """The request body that asks for usage; None when it must stay as it is (no stream, or usage is asked for)."""
    try:
        text = body.decode()
        found = {member.key: member for member in _members(text)}
    except (ValueError, RecursionError):
        return None
    stream, options = found.get("stream"), found.get("stream_options")
    if stream is None or stream.value is not True:
        return None
    if options is None or options.value is None:
        wanted = '{"include_usage":true}'
    elif isinstance(options.value, dict):
        if options.value.get("include_usage") is True:
            return None
        wanted = _with_member(text[options.value_at : options.end], "include_usage", "true")
    else:
        return None  # let the API say what is wrong with it
    return _with_member(text, "stream_options", wanted).encode()


class UsageFilter:
    """Takes an event stream apart and lets through what the application asked for."""

    def __init__(self) -> None:
        self._splitter = SseSplitter()
        self._hid_half_an_end = False
        """A hidden event ended with the CR of a CR LF whose LF had not come: that one is to be hidden as well."""

    def feed(self, data: bytes) -> bytes:
        """The bytes to send for the next bytes received; an event is held until it is whole."""
        shown = []
        for event in self._splitter.feed(data):
            if self._hid_half_an_end:
                self._hid_half_an_end = False
                if event == b"\n":
                    continue
            kept = _shown(event)
            if kept:
                shown.append(kept)
            else:
                self._hid_half_an_end = event.endswith(b"\r")
        return b"".join(shown)

    def finish(self) -> bytes:
        """What was left at the end of the stream."""
        return self._splitter.finish()


def _shown(event: bytes) -> bytes:
    """An event as the application may see it; b"" to hide it."""
    if b'"usage"' not in event:
        return event
    lines = list(_DATA_LINE.finditer(event))
    if len(lines) != 1:
        return event  # no API spreads its JSON over lines
    start, end = lines[0].span(1)
    try:
        text = event[start:end].decode()
        members = _members(text)
    except (ValueError, RecursionError):
        return event
    chunk = {member.key: member.value for member in members}
    if "usage" not in chunk:
        return event
    if chunk["usage"] is not None and chunk.get("choices") == []:
        return b""
    return event[:start] + _without_member(text, "usage", members).encode() + event[end:]


def _members(text: str) -> list[_Member]:
    """The members of a JSON object in their order, repeated keys too. Raises ValueError when it is none."""
    found: list[_Member] = []
    at = _skip(text, _after(text, 0, "{"))
    while text[at : at + 1] != "}" or found:
        start = at
        key, at = scanstring(text, _after(text, at, '"'))
        value_at = _skip(text, _after(text, at, ":"))
        value, end = _VALUE(text, value_at)
        found.append(_Member(key, value, start, value_at, end))
        at = _skip(text, end)
        if text[at : at + 1] != ",":
            break
        at = _skip(text, at + 1)
    if _skip(text, _after(text, at, "}")) != len(text):
        raise ValueError("text after the object")
    return found


def _skip(text: str, at: int) -> int:
    """The place after white space."""
    match = _SPACE.match(text, at)
    assert match is not None
    return match.end()


def _after(text: str, at: int, mark: str) -> int:
    """The place after `mark`, which may have white space before it."""
    at = _skip(text, at)
    if text[at : at + 1] != mark:
        raise ValueError(f"no {mark} at character {at}")
    return at + 1


def _with_member(text: str, name: str, value: str) -> str:
    """The object with a member replaced where it stands, or added at its end. Of equal keys readers take the last."""
    members = _members(text)
    for member in reversed(members):
        if member.key == name:
            return text[: member.value_at] + value + text[member.end :]
    comma = "," if members else ""
    at = members[-1].end if members else text.index("{") + 1
    return f'{text[:at]}{comma}"{name}":{value}{text[at:]}'


def _without_member(text: str, name: str, members: list[_Member]) -> str:
    """The object without the members of that key, and without the comma and the space that went with each."""
    places = [number for number, member in enumerate(members) if member.key == name]
    if not places:
        return text
    last = places[-1]
    if last + 1 < len(members):
        text = text[: members[last].start] + text[members[last + 1].start :]
    elif last:
        text = text[: members[last - 1].end] + text[members[last].end :]
    else:
        text = text[: members[last].start] + text[members[last].end :]
    return text if len(places) == 1 else _without_member(text, name, _members(text))
