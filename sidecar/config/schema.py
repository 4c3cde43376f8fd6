"""How a section of the configuration is declared, and the one reader that follows a declaration.

A declaration is a table of fields; parsing, defaults, the search for unknown keys and the page docs/configuration.md
all come from it. Reading never stops at the first mistake: what is wrong is noted, and what is right goes on to the
checks that need it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from sidecar.config.problems import Problems, Refused, closest, key_step, note, quoted


class _Required:
    def __repr__(self) -> str:
        return "required"


REQUIRED: Final = _Required()
"""As a default: the key must be given."""

_BAD: Final = object()


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the meaning of a value depends on beside the value: `directory` is where relative file names begin."""

    environ: Mapping[str, str]
    directory: str
    known_metrics: frozenset[str]


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the document one is, and where mistakes are noted."""

    path: str
    problems: Problems
    surroundings: Surroundings

    def key(self, name: str) -> Place:
        """The place of a key of the mapping here."""
        step = key_step(name)
        return Place(f"{self.path}.{step}" if self.path else step, self.problems, self.surroundings)

    def item(self, index: int) -> Place:
        """The place of an item of the list here."""
        return Place(f"{self.path}[{index}]", self.problems, self.surroundings)

    def problem(self, message: str) -> None:
        """Note what is wrong here."""
        note(self.problems, self.path, message)


class Kind(Protocol):
    """A type of value."""

    @property
    def label(self) -> str:
        """What the documentation calls it."""

    def read(self, value: object, place: Place) -> Any:
        """The value in its final form. Raises Refused; mistakes further inside are noted at their own place."""


@dataclass(frozen=True, slots=True)
class Field:
    """One key. `default` is spelled as in the file; `later`: only the default can be had in this version."""

    name: str
    kind: Kind
    default: object
    doc: str
    later: bool = False

    def read(self, value: object, place: Place) -> Any:
        """The value, or Refused."""
        result = self.kind.read(value, place)
        if self.later and not isinstance(self.kind, Section) and result != self.kind.read(self.default, place):
            raise Refused(f"{quoted(value)} is not available in this version, only {quoted(self.default)}")
        return result


Values = dict[str, Any]
"""The keys of a section that were right, defaults included."""


def _as_it_is(values: Values, given: frozenset[str], place: Place) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Section:
    """A mapping with known keys. `finish` checks keys against each other and completes what depends on several."""

    make: Callable[..., Any]
    fields: tuple[Field, ...]
    finish: Callable[[Values, frozenset[str], Place], None] = _as_it_is
    doc: str = ""
    later_keys: tuple[str, ...] = ()
    """Keys that mean something in another version."""

    @property
    def label(self) -> str:
        return "mapping"

    def read(self, value: object, place: Place) -> Values:
        """What is right in the mapping `value` (null: an empty one)."""
        given = {} if value is None else value
        if not isinstance(given, dict):
            raise Refused(f"must be a mapping with keys such as {self.fields[0].name}, not {quoted(value)}")
        names = [field.name for field in self.fields]
        for name in given:
            if name in self.later_keys:
                place.key(name).problem("is not available in this version")
            elif name not in names:
                near = closest(name, names)
                hint = f"did you mean {near}?" if near else f"known here: {', '.join(names)}"
                place.key(name).problem(f"unknown key, {hint}")
        values: Values = {}
        for field in self.fields:
            result = _attempt(field, given.get(field.name, field.default), place.key(field.name))
            if result is not _BAD:
                values[field.name] = result
        self.finish(values, frozenset(given), place)
        return values

    def build(self, values: Values) -> Any:
        """The frozen value of a section in which nothing was wrong."""
        return self.make(**{f.name: _built(f.kind, values[f.name]) for f in self.fields if not f.later})


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list whose items are all of one kind."""

    kind: Kind

    @property
    def label(self) -> str:
        return f"list, each a {self.kind.label}"

    def read(self, value: object, place: Place) -> list[Any]:
        """The items that are right (null: none); what is wrong is noted with its index."""
        if value is None:
            return []
        if not isinstance(value, list):
            raise Refused(f"must be a list, not {quoted(value)}")
        items = [_attempt(self.kind, item, place.item(index)) for index, item in enumerate(value)]
        if isinstance(self.kind, Section):  # An empty one stays in the place of a wrong one: messages name indices.
            return [{} if item is _BAD else item for item in items]
        return [item for item in items if item is not _BAD]


class _Reading(Protocol):
    def read(self, value: object, place: Place) -> Any: ...


def _attempt(kind: _Reading, value: object, place: Place) -> Any:
    if value is REQUIRED:
        place.problem("is missing")
        return _BAD
    try:
        return kind.read(value, place)
    except Refused as refusal:
        place.problem(str(refusal))
        return _BAD


def _built(kind: Kind, value: Any) -> Any:
    if isinstance(kind, Section):
        return kind.build(value)
    if isinstance(kind, ListOf):
        return tuple(_built(kind.kind, item) for item in value)
    return value
