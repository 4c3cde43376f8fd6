"""What a request may ask of the simulator by its `x-sim-*` headers. docs/simulator.md shows the same table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

HEAD = -1
"""Value of `cut` and `reset`: break off before the response head."""

MAX_COUNT = 1_000_000
"""Bound of counts: a typing error shall not take the machine's memory."""


class Split(NamedTuple):
    """How the wire bytes are cut into writes: pieces of `size` bytes, or of random sizes when `size` is 0."""

    size: int
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Knobs:
    """One request's wishes. Durations are seconds; counts of events are those of docs/simulator.md."""

    ttft: float = 0.2
    itl: float = 0.02
    tokens: int = 64
    tokens_fixed: bool = False
    """`tokens` was asked for by header: the request's own maximum does not shorten it."""
    tokens_per_event: int = 1
    reasoning: int = 0
    tools: int = 0
    model: str = ""
    status: int = 0
    headers_delay: float | None = None
    cut: int | None = None
    reset: int | None = None
    stall: tuple[int, float] | None = None
    error_event: int | None = None
    no_usage: bool = False
    no_done: bool = False
    slow_read: int = 0
    encoding: str = ""
    line_end: bytes = b""
    one_byte: bool = False
    split: Split | None = None
    comments: int = 0
    pad: int = 0
    framing: str = ""
    close: bool = False
    interim: int = 0
    trailers: bool = False


class KnobError(ValueError):
    """A header the simulator does not know or cannot obey; the message names it and what it takes."""


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) > MAX_COUNT:
        raise ValueError
    return int(text)


def _positive(text: str) -> int:
    number = _count(text)
    if not number:
        raise ValueError
    return number


def _seconds(text: str) -> float:
    number = float(text)
    if not 0 <= number <= 3600:
        raise ValueError
    return number


def _flag(text: str) -> bool:
    return {"1": True, "true": True, "0": False, "false": False}[text.lower()]


def _status(text: str) -> int:
    number = _count(text)
    if not 200 <= number <= 599:
        raise ValueError
    return number


def _place(text: str) -> int:
    return HEAD if text == "head" else _count(text)


def _stall(text: str) -> tuple[int, float]:
    after, seconds = text.split(":")
    return _count(after), _seconds(seconds)


def _split(text: str) -> Split:
    if text.startswith("random:"):
        return Split(0, _count(text.removeprefix("random:")))
    return Split(_positive(text))


def _one_of(*allowed: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in allowed:
            raise ValueError
        return text

    return read


def _name(text: str) -> str:
    if not text or not text.isascii() or not text.isprintable():
        raise ValueError
    return text


class Knob(NamedTuple):
    """One header: the field it sets, how its value is read, and what it takes, in words."""

    field: str
    read: Callable[[str], Any]
    takes: str


_LINE_ENDS = {"lf": b"\n", "crlf": b"\r\n", "cr": b"\r"}

KNOBS: dict[str, Knob] = {
    "x-sim-ttft": Knob("ttft", _seconds, "seconds, 0 to 3600"),
    "x-sim-itl": Knob("itl", _seconds, "seconds, 0 to 3600"),
    "x-sim-tokens": Knob("tokens", _count, "a count of tokens"),
    "x-sim-tokens-per-event": Knob("tokens_per_event", _positive, "a count of at least 1"),
    "x-sim-reasoning": Knob("reasoning", _count, "a count of events"),
    "x-sim-tools": Knob("tools", _count, "a count of tool calls"),
    "x-sim-model": Knob("model", _name, "a model name in printable ASCII"),
    "x-sim-status": Knob("status", _status, "a status, 200 to 599"),
    "x-sim-headers-delay": Knob("headers_delay", _seconds, "seconds, 0 to 3600"),
    "x-sim-cut": Knob("cut", _place, "a count of events, or head"),
    "x-sim-reset": Knob("reset", _place, "a count of events, or head"),
    "x-sim-stall": Knob("stall", _stall, "EVENTS:SECONDS"),
    "x-sim-error-event": Knob("error_event", _count, "a count of events"),
    "x-sim-no-usage": Knob("no_usage", _flag, "1 or 0"),
    "x-sim-no-done": Knob("no_done", _flag, "1 or 0"),
    "x-sim-slow-read": Knob("slow_read", _positive, "bytes per second, at least 1"),
    "x-sim-encoding": Knob("encoding", _one_of("gzip", "deflate", "br", "zstd"), "gzip, deflate, br or zstd"),
    "x-sim-line-end": Knob("line_end", lambda text: _LINE_ENDS[text], "lf, crlf or cr"),
    "x-sim-one-byte": Knob("one_byte", _flag, "1 or 0"),
    "x-sim-split": Knob("split", _split, "random:SEED, or a count of bytes"),
    "x-sim-comments": Knob("comments", _count, "a count of comments"),
    "x-sim-pad": Knob("pad", _count, "bytes per event"),
    "x-sim-framing": Knob("framing", _one_of("chunked", "close", "length"), "chunked, close or length"),
    "x-sim-close": Knob("close", _flag, "1 or 0"),
    "x-sim-interim": Knob("interim", lambda text: int(_one_of("100", "102", "103")(text)), "100, 102 or 103"),
    "x-sim-trailers": Knob("trailers", _flag, "1 or 0"),
}


@lru_cache(maxsize=1024)
def read_knobs(headers: tuple[tuple[bytes, bytes], ...], defaults: Knobs) -> Knobs:
    """The wishes in `headers` (names in lower case, only those that begin with `x-sim-`) over `defaults`.

    Raises KnobError for a name or a value that is not in the table, and for wishes that contradict each other.
    """
    changes: dict[str, Any] = {}
    for raw_name, raw_value in headers:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1").strip()
        knob = KNOBS.get(name)
        if knob is None:
            raise KnobError(f"{name} is not known; there are {', '.join(KNOBS)}")
        try:
            changes[knob.field] = knob.read(value)
        except (ValueError, KeyError):
            raise KnobError(f"{name} takes {knob.takes}, not {value!r}") from None
    if "tokens" in changes:
        changes["tokens_fixed"] = True
    knobs = replace(defaults, **changes)
    if knobs.trailers and knobs.framing not in ("", "chunked"):
        raise KnobError("x-sim-trailers takes x-sim-framing chunked: only chunked bodies have trailers")
    return knobs
