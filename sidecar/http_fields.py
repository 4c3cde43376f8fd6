"""Header fields on their way through: which end here (RFC 9110 §7.6.1) and which say how a message is framed."""

from __future__ import annotations

from collections.abc import Set
from enum import Enum, auto
from functools import lru_cache

from sidecar.exchange import Headers


class Framing(Enum):
    """How the end of a message body is told (RFC 9112 §6.3)."""

    NONE = auto()
    LENGTH = auto()
    CHUNKED = auto()
    CLOSE = auto()


HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"te",
        b"transfer-encoding",
        b"upgrade",
    }
)

NEVER_CONNECTION_OPTIONS = frozenset(
    {
        b"authorization",
        b"accept",
        b"accept-encoding",
        b"api-key",
        b"x-api-key",
        b"x-goog-api-key",
        b"anthropic-version",
        b"anthropic-beta",
        b"cache-control",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"cookie",
        b"expect",
        b"host",
        b"set-cookie",
    }
)
"""Fields that stay although `Connection` names them: a client could otherwise make the proxy drop what the server
judges the request by (RFC 9110 §7.6.1 forbids to name fields that are meant for all recipients)."""

_LOWER: dict[bytes, bytes] = {}
_LOWER_LIMIT = 2048


def lower(name: bytes) -> bytes:
    """The field name in lower case; the usual names are looked up, since this runs for every field of every message."""
    found = _LOWER.get(name)
    if found is None:
        found = name.lower()
        if len(_LOWER) < _LOWER_LIMIT:
            _LOWER[name] = found
    return found


class FieldKinds(dict[bytes, int]):
    """Field names as they are spelt → what to do with the field, 0 for nothing. `kinds` is by names in lower case.

    A dict that learns, because a lookup is all that most fields of most messages cost; what it learns is bounded.
    """

    def __init__(self, kinds: dict[bytes, int]) -> None:
        super().__init__(kinds)
        self._kinds = dict(kinds)

    def __missing__(self, name: bytes) -> int:
        kind = self._kinds.get(name.lower(), 0)
        if len(self) < _LOWER_LIMIT:
            self[name] = kind
        return kind


USUAL_OPTIONS = frozenset({b"keep-alive", b"close", b"upgrade", b"te", b""})
"""Options of `Connection` that name no field which would not end here anyway."""


@lru_cache(maxsize=64)
def all_options(value: bytes) -> frozenset[bytes]:
    """What a Connection header says, in lower case."""
    return frozenset(option.strip().lower() for option in value.split(b","))


def connection_options(value: bytes) -> frozenset[bytes]:
    """The field names that a Connection header ends here, in lower case."""
    return all_options(value) - NEVER_CONNECTION_OPTIONS


def value_of(headers: Headers, name: bytes) -> bytes | None:
    """The first value of a field; `name` in lower case."""
    for key, value in headers:
        if lower(key) == name:
            return value
    return None


def end_to_end(headers: Headers, options: Set[bytes]) -> Headers:
    """The fields that go on, in their order and spelling; `options` are those that `Connection` named."""
    dropped = HOP_BY_HOP | options if options else HOP_BY_HOP
    return [field for field in headers if lower(field[0]) not in dropped]
