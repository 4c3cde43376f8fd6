"""What is wrong with a configuration, how it is said in one line, and what of a value may be quoted."""

from __future__ import annotations

import re
from dataclasses import dataclass

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_LONGEST_QUOTE = 60


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake: `path` is where (`upstreams[0].pool.max_idle`, a flag or a file's name), `message` says what."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


Problems = dict[str, Problem]
"""What was found so far, by path. The first thing found at a path is the cause, what follows from it is left out."""


def note(problems: Problems, path: str, message: str) -> None:
    """Add a problem, unless there is one at `path`."""
    problems.setdefault(path, Problem(path, message))


class ConfigError(ValueError):
    """A configuration that cannot be used. `str` gives one problem per line."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


class Refused(ValueError):
    """A value is not of its kind. The message says why, without the path and without anything secret."""


class FromEnvironment(str):
    """Text that `${NAME}` had a part in. It may be a secret, so `quoted` does not show it."""

    __slots__ = ()


def quoted(value: object) -> str:
    """`value` as a message may show it: on one line, short, without user information and query of a URL."""
    if isinstance(value, FromEnvironment):
        return "what the environment gave"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, float):
        return f"{value:g}"
    return _shortened(_without_credentials(value)) if isinstance(value, str) else _shortened(value)


def key_step(name: str) -> str:
    """A key as a step of a path: odd ones are quoted, so that a problem stays on one line."""
    return name if _PLAIN_KEY.fullmatch(name) else _shortened(_without_credentials(name))


def closest(name: str, names: list[str]) -> str | None:
    """The one of `names` that `name` is probably a misspelling of."""
    import difflib  # noqa: PLC0415 - only needed when something is wrong

    near = difflib.get_close_matches(name[:100], names, n=1, cutoff=0.6)
    return near[0] if near else None


def _without_credentials(text: str) -> str:
    before, _, rest = text.rpartition("@")
    url, mark, _ = rest.partition("?")
    return ("***@" if before else "") + url + ("?***" if mark else "")


def _shortened(value: object) -> str:
    # Python refuses to spell an integer of more than 4300 digits.
    text = "a huge number" if isinstance(value, int) and value.bit_length() > 128 else ascii(value)
    return text if len(text) <= _LONGEST_QUOTE else f"{text[: _LONGEST_QUOTE - 4]}...{text[-1]}"
