"""JSON read into typed values that name only what is needed, forgiving what does not fit.

The usual case is one call of a compiled decoder. Only when it fails is the text read again, slowly: members of the
wrong type are then left out, so that a `model` that is an object does not cost the `usage` beside it.
"""

from __future__ import annotations

import json
import types
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Union, get_args, get_origin

import msgspec

if TYPE_CHECKING:
    from sidecar.dialects.reading import Reading

T = TypeVar("T")

_UNFIT: Any = object()
_DEPTH = 100


class Typed(Generic[T]):
    """A decoder of one struct type. The caller's bytes may hold anything."""

    __slots__ = ("_decode", "_type")

    def __init__(self, type_: type[T]) -> None:
        self._type = type_
        self._decode = msgspec.json.Decoder(type_).decode

    def read(self, data: bytes, reading: Reading | None) -> T | None:
        """The value, None when there is none; what is no JSON object is then counted in the reading."""
        try:
            return self._decode(data)
        except (ValueError, RecursionError):  # msgspec's errors are ValueErrors
            if data.strip():
                value = self.forgiving(data)
                if value is not None:
                    return value
                if reading is not None:
                    reading.degrade("json")
            return None

    def forgiving(self, data: bytes) -> T | None:
        """The value with what does not fit left out; None when the bytes are not a JSON object."""
        try:
            document = json.loads(data.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            return None
        value = _fit(document, self._type, _DEPTH)
        return None if value is _UNFIT or value is None else value


def _fit(value: object, type_: Any, depth: int) -> Any:
    if depth == 0:
        return _UNFIT
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        return _fit_struct(value, type_, depth) if isinstance(value, dict) else _UNFIT
    origin = get_origin(type_)
    if origin in (Union, types.UnionType):
        for option in _most_alike(value, get_args(type_)):
            fitted = _fit(value, option, depth)
            if fitted is not _UNFIT:
                return fitted
        return _UNFIT
    if origin is list:
        if not isinstance(value, list):
            return _UNFIT
        (item,) = get_args(type_)
        return [fitted for each in value if (fitted := _fit(each, item, depth - 1)) is not _UNFIT]
    return _fit_plain(value, type_)


def _fit_struct(value: dict[str, object], type_: Any, depth: int) -> Any:
    members = {}
    for field in msgspec.structs.fields(type_):
        if field.encode_name in value:
            fitted = _fit(value[field.encode_name], field.type, depth - 1)
            if fitted is not _UNFIT:
                members[field.name] = fitted
    return type_(**members)


def _most_alike(value: object, options: tuple[Any, ...]) -> list[Any]:
    """The options of a union, those first that take the value as it is."""
    return sorted(options, key=lambda option: isinstance(option, type) and not isinstance(value, option))


def _fit_plain(value: object, type_: Any) -> Any:
    if type_ is Any:
        return value
    if type_ is msgspec.Raw:
        return msgspec.Raw(json.dumps(value).encode())
    if type_ is bool and not isinstance(value, bool):
        return _UNFIT  # "false" asks for nothing that 0 or "" would not
    try:
        return msgspec.convert(value, type_, strict=False)
    except (ValueError, RecursionError):
        return _UNFIT
