"""From a file to plain values: YAML without its traps, and `${NAME}` replaced by environment variables.

The nodes of the document are read here rather than by PyYAML's constructors, because those keep the last of two equal
keys, expand nested aliases without a bound and turn `2024-08-06` and `1:30` into dates and numbers.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping

import yaml

from sidecar.config.problems import ConfigError, FromEnvironment, Problem, Problems, key_step, note

MAX_FILE_BYTES = 256 * 1024
MAX_VALUES = 10_000
MAX_DEPTH = 32
TOO_MANY = f"has more than {MAX_VALUES} values, its aliases included"
TOO_DEEP = "is nested too deeply, or an alias contains itself"

_TAG = "tag:yaml.org,2002:"
_TEXT_TAGS = {_TAG + "str", _TAG + "timestamp", _TAG + "value"}
_REFERENCE = re.compile(r"\$\$\{|\$\{([^}]*)\}?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_QUOTED_IN_MESSAGE = re.compile(r" ?'([^']*)'")


def read_document(path: str, environ: Mapping[str, str], problems: Problems) -> dict[str, object]:
    """The mapping in the file at `path`; {} when the file is empty.

    Mistakes at one key (given twice, a variable that is unset) are added to `problems`. Raises ConfigError when the
    file cannot be read as a mapping at all.
    """
    shown = path if path.isascii() and path.isprintable() else ascii(path)
    text = _text(path, shown)
    try:
        node = yaml.compose(text, Loader=_BoundedLoader)
        value = None if node is None else _Document(environ, problems).value(node, "", 0)
    except yaml.MarkedYAMLError as error:
        raise ConfigError([Problem(shown, _syntax(error))]) from None
    except yaml.YAMLError:
        raise ConfigError([Problem(shown, "is not a text file (it has control characters)")]) from None
    except _TooMuchError as error:
        raise ConfigError([Problem(shown, str(error))]) from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ConfigError([Problem(shown, "must have keys at its top, such as 'upstreams:'")])
    return value


def _text(path: str, shown: str) -> str:
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError([Problem(shown, f"cannot be read: {os.strerror(error.errno or 0)}")]) from None
    except ValueError:
        raise ConfigError([Problem(shown, "is not a file name")]) from None
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError([Problem(shown, "is larger than 256 KiB")])
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError([Problem(shown, f"is not UTF-8 text (byte {error.start})")]) from None


def _syntax(error: yaml.MarkedYAMLError) -> str:
    """Where and what, without PyYAML's excerpt and without names out of the file: they may be part of a secret."""

    def only_syntax(match: re.Match[str]) -> str:
        return match[0] if len(match[1]) <= 2 or match[1].startswith("<") else ""

    what = error.problem or error.context or "is not YAML"
    if what.startswith(("but ", "second ")) and error.context:
        what = f"{error.context}, {what}"
    what = _QUOTED_IN_MESSAGE.sub(only_syntax, what)
    mark = error.problem_mark or error.context_mark
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    return where + " ".join(what.split())


class _TooMuchError(Exception):
    """Aliases, depth or number of values beyond all use."""


class _BoundedLoader(yaml.SafeLoader):
    """Gives up as soon as a document is too large: PyYAML takes half a second for ten thousand values."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._values = 0
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self._values += 1
        if self._values > 2 * MAX_VALUES:  # Keys are nodes too.
            raise _TooMuchError(TOO_MANY)
        if self._depth > MAX_DEPTH:
            raise _TooMuchError(TOO_DEEP)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


class _Document:
    """Turns nodes into values. A node that is used by many aliases counts each time."""

    def __init__(self, environ: Mapping[str, str], problems: Problems) -> None:
        self._environ = environ
        self._problems = problems
        self._left = MAX_VALUES
        self._plain = yaml.SafeLoader("")

    def value(self, node: yaml.Node, path: str, depth: int) -> object:
        self._count(depth)
        if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
            return self._mapping(node, path, depth)
        if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
            return [self.value(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode) and node.tag.startswith(_TAG) and not node.tag.endswith("binary"):
            return self._scalar(node, path)
        note(self._problems, path or "top level", "YAML tags are not allowed")
        return None

    def _count(self, depth: int) -> None:
        self._left -= 1
        if self._left < 0:
            raise _TooMuchError(TOO_MANY)
        if depth > MAX_DEPTH:
            raise _TooMuchError(TOO_DEEP)

    def _mapping(self, node: yaml.MappingNode, path: str, depth: int) -> dict[str, object]:
        lines: dict[str, int] = {}
        values: dict[str, object] = {}
        for key, child in self._own_pairs(node, path):
            at = f"{path}.{key_step(key.value)}" if path else key_step(key.value)
            line = key.start_mark.line + 1
            if key.value in lines:
                note(self._problems, at, f"is given twice, in lines {lines[key.value]} and {line}")
                continue
            lines[key.value] = line
            values[key.value] = self.value(child, at, depth + 1)
        for key, child in self._merged_pairs(node, path, depth):
            if key.value not in values:
                at = f"{path}.{key_step(key.value)}" if path else key_step(key.value)
                values[key.value] = self.value(child, at, depth + 1)
        return values

    def _own_pairs(self, node: yaml.MappingNode, path: str) -> Iterator[tuple[yaml.ScalarNode, yaml.Node]]:
        for key, child in node.value:
            if not isinstance(key, yaml.ScalarNode):
                note(self._problems, path or "top level", "a key must be a word, not a list or a mapping")
            elif key.tag != _TAG + "merge":
                yield key, child

    def _merged_pairs(
        self, node: yaml.MappingNode, path: str, depth: int
    ) -> Iterator[tuple[yaml.ScalarNode, yaml.Node]]:
        """What `<<: *anchor` brings in, the nearest first (https://yaml.org/type/merge.html)."""
        for key, child in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag != _TAG + "merge":
                continue
            for source in child.value if isinstance(child, yaml.SequenceNode) else [child]:
                self._count(depth + 1)
                if not isinstance(source, yaml.MappingNode):
                    note(self._problems, f"{path}.<<" if path else "<<", "must be an alias of a mapping")
                    continue
                for pair in self._own_pairs(source, path):
                    self._count(depth + 1)
                    yield pair
                yield from self._merged_pairs(source, path, depth + 1)

    def _scalar(self, node: yaml.ScalarNode, path: str) -> object:
        text: str = node.value
        tag = node.tag.removeprefix(_TAG)
        try:
            if tag == "null":
                return None
            if tag == "bool":
                return self._plain.construct_yaml_bool(node)
            if tag == "int" and ":" not in text:
                return self._plain.construct_yaml_int(node)
            if tag == "float" and ":" not in text:
                return self._plain.construct_yaml_float(node)
        except (ValueError, KeyError, IndexError, OverflowError):
            pass  # An explicit tag that does not fit its text: the text is refused where a number is wanted.
        return self._substituted(text, path)

    def _substituted(self, text: str, path: str) -> str:
        if "${" not in text:
            return text
        from_environment = False

        def replacement(match: re.Match[str]) -> str:
            nonlocal from_environment
            name = match[1]
            if name is None:
                return "${"
            from_environment = True
            if not match[0].endswith("}") or not _VARIABLE.fullmatch(name):
                note(self._problems, path, "${...} must hold the name of an environment variable")
            elif name not in self._environ:
                note(self._problems, path, f"the environment variable {name} is not set")
            return self._environ.get(name, "")

        replaced = _REFERENCE.sub(replacement, text)
        return FromEnvironment(replaced) if from_environment else replaced
