"""The kinds of plain values: numbers, words, durations, sizes, names, files and bucket bounds."""

from __future__ import annotations

import itertools
import math
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sidecar.config.problems import FromEnvironment, Refused, closest, quoted
from sidecar.config.schema import Place

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_BYTES = {"B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}
_DURATION = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)(ms|s|m|h)")
_FLAG_SECONDS = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)(ms|s|m|h)?")
_SIZE = re.compile(r"([0-9]{1,15})(B|KiB|MiB|GiB)?")
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
LONGEST_SECONDS = 30 * 24 * 3600.0
"""Longer is a mistake, and timers of event loops overflow in the end."""


def _number_text(value: object) -> object:
    """An integer that an environment variable gave as text; anything else as it is."""
    return int(value) if isinstance(value, FromEnvironment) and _INTEGER.fullmatch(value) else value


def parse_seconds(text: str) -> float:
    """Seconds of a command line: a plain number, or a number with a unit; 0 to 30 days. Raises Refused."""
    match = _FLAG_SECONDS.fullmatch(text)
    seconds = float(match[1]) * _SECONDS[match[2] or "s"] if match else math.inf
    if seconds > LONGEST_SECONDS:
        raise Refused(f"must be seconds such as 0.5, or a duration such as 500ms, not {quoted(text)}")
    return seconds


@dataclass(frozen=True, slots=True)
class Boolean:
    """true or false."""

    @property
    def label(self) -> str:
        return "true or false"

    def read(self, value: object, place: Place) -> bool:
        if isinstance(value, FromEnvironment) and value in ("true", "false"):
            return value == "true"
        if not isinstance(value, bool):
            raise Refused(f"must be true or false, not {quoted(value)}")
        return value


@dataclass(frozen=True, slots=True)
class Integer:
    """A whole number from `least` to `most`."""

    least: int
    most: int

    @property
    def label(self) -> str:
        return f"whole number, {self.least} to {self.most}"

    def read(self, value: object, place: Place) -> int:
        number = _number_text(value)
        if isinstance(number, bool) or not isinstance(number, int) or not self.least <= number <= self.most:
            raise Refused(f"must be a whole number from {self.least} to {self.most}, not {quoted(value)}")
        return number


@dataclass(frozen=True, slots=True)
class Duration:
    """A time span, read as seconds. `zero`: a plain 0 means something here."""

    zero: bool = False

    @property
    def label(self) -> str:
        return "duration or 0" if self.zero else "duration"

    def read(self, value: object, place: Place) -> float:
        match = _DURATION.fullmatch(value) if isinstance(value, str) else None
        if match:
            seconds = float(match[1]) * _SECONDS[match[2]]
        elif _number_text(value) == 0 and value is not False:
            seconds = 0.0
        elif isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 10**9:
            raise Refused(f"needs a unit: {quoted(value)}s, {quoted(value)}ms, {quoted(value)}m or {quoted(value)}h")
        else:
            raise Refused(f"must be a duration such as 250ms, 5s, 2m or 1h, not {quoted(value)}")
        if seconds == 0 and not self.zero:
            raise Refused("must be longer than 0")
        if 0 < seconds < 0.001 or seconds > LONGEST_SECONDS:
            raise Refused(f"must be from 1ms to 720h, not {quoted(value)}")
        return seconds


@dataclass(frozen=True, slots=True)
class Size:
    """An amount of data, read as bytes, at least `least`."""

    least: int = 1

    @property
    def label(self) -> str:
        return "size"

    def read(self, value: object, place: Place) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**15:
            size = value
        elif isinstance(value, str) and (match := _SIZE.fullmatch(value)):
            size = int(match[1]) * _BYTES[match[2] or "B"]
        else:
            raise Refused(f"must be a size such as 64KiB, 1MiB, 2GiB or a number of bytes, not {quoted(value)}")
        if size < self.least:
            raise Refused(f"must be at least {self.least} bytes, not {quoted(value)}")
        return size


@dataclass(frozen=True, slots=True)
class Choice:
    """One word of a closed set. `later`: words that mean something, in another version. `make` gives the final form."""

    options: tuple[str, ...]
    later: tuple[str, ...] = ()
    make: Callable[[str], Any] = str

    @property
    def label(self) -> str:
        return ", ".join(f"`{option}`" for option in self.options)

    def read(self, value: object, place: Place) -> Any:
        if isinstance(value, str) and value in self.options:
            return self.make(str(value))
        allowed = f"one of {', '.join(self.options)}" if len(self.options) > 1 else self.options[0]
        if isinstance(value, str) and value in self.later:
            raise Refused(f"{quoted(value)} is not available in this version; it must be {allowed}")
        raise Refused(f"must be {allowed}, not {quoted(value)}")


@dataclass(frozen=True, slots=True)
class Text:
    """Text on one line that matches `pattern` as a whole; `what` says so in words. `optional`: null means none."""

    what: str
    pattern: str = r".+"
    optional: bool = False
    longest: int = 200

    @property
    def label(self) -> str:
        return f"{self.what} or null" if self.optional else self.what

    def read(self, value: object, place: Place) -> str | None:
        if value is None and self.optional:
            return None
        if isinstance(value, (bool, int, float)):
            raise Refused(f"must be a {self.what}, not {quoted(value)}; put quotes around it if it is meant as text")
        if not isinstance(value, str) or not value.isprintable() or not re.fullmatch(self.pattern, value):
            raise Refused(f"must be a {self.what}, not {quoted(value)}")
        if len(value) > self.longest:
            raise Refused(f"must have at most {self.longest} characters")
        return str(value)


@dataclass(frozen=True, slots=True)
class FileName:
    """The name of a file; a relative one begins at the directory of the configuration file. null: none."""

    @property
    def label(self) -> str:
        return "file or null"

    def read(self, value: object, place: Place) -> str | None:
        if value is None:
            return None
        if not isinstance(value, str) or not value or not value.isprintable():
            raise Refused(f"must be the name of a file, not {quoted(value)}")
        path = os.path.join(place.surroundings.directory, value)
        try:
            with open(path, "rb") as file:
                file.read(1)
        except OSError as error:
            raise Refused(f"cannot read {quoted(value)}: {os.strerror(error.errno or 0)}") from None
        return path


@dataclass(frozen=True, slots=True)
class Buckets:
    """Bucket bounds by the name of a histogram, with or without the prefix of all metrics."""

    prefix: str = "llm_sidecar_"

    @property
    def label(self) -> str:
        return "mapping of metric names to lists of numbers"

    def read(self, value: object, place: Place) -> dict[str, tuple[float, ...]]:
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise Refused(f"must be a mapping from metric names to lists of numbers, not {quoted(value)}")
        known = {name.removeprefix(self.prefix) for name in place.surroundings.known_metrics}
        bounds: dict[str, tuple[float, ...]] = {}
        for name, numbers in value.items():
            short = name.removeprefix(self.prefix)
            at = place.key(name)
            if known and short not in known:
                near = closest(short, sorted(known))
                at.problem("no histogram has this name" + (f", did you mean {near}?" if near else ""))
            elif short in bounds:
                at.problem(f"is given twice, as {short} and {self.prefix}{short}")
            elif (wrong := _wrong_bounds(numbers)) is not None:
                at.problem(wrong)
            else:
                bounds[short] = tuple(float(number) for number in numbers)
        return bounds


def _wrong_bounds(numbers: object) -> str | None:
    if numbers == []:
        return "must hold at least one number"
    if not isinstance(numbers, list):
        return f"must be a list of numbers such as [0.1, 0.5, 1], not {quoted(numbers)}"
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            return f"must be a list of numbers, and {quoted(number)} is none"
        if not 0 <= number <= 1e15 or not math.isfinite(number):
            return f"bounds must be finite and not negative, not {quoted(number)} (+Inf is added)"
    for before, after in itertools.pairwise(numbers):
        if before >= after:
            return f"bounds must increase, and {quoted(after)} follows {quoted(before)}"
    return None
