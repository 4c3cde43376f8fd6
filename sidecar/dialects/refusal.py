"""The type and code of an error answer, whatever its shape; never its message, which may quote the prompt."""

from __future__ import annotations

import msgspec

from sidecar.dialects.reading import Reading
from sidecar.dialects.typed import Typed

_MAX = 128
"""Characters of a type or code that are kept."""


class Inner(msgspec.Struct, gc=False):
    """OpenAI's, Anthropic's and Google's errors; OpenRouter's code is a number, Azure's a text."""

    type: str | None = None
    code: str | int | None = None
    status: str | int | None = None


class ErrorAnswer(msgspec.Struct, gc=False):
    """`error` is an object or a sentence; xAI has its code beside it, AWS its type in `__type`."""

    error: Inner | str | None = None
    code: str | int | None = None
    aws_type: str | None = msgspec.field(name="__type", default=None)


_ANSWER = Typed(ErrorAnswer)
MEMBERS = frozenset({b"error", b"code", b"__type"})


def read_error(reading: Reading, data: bytes, aws_type: bytes = b"") -> None:
    """Note an error answer. `aws_type` is the header x-amzn-errortype (`Name:details`).

    Google answers in an array when an array was asked for: its first element counts.
    """
    text = data.strip()
    if text.startswith(b"["):
        text = text.lstrip(b"[").rstrip(b"]")
    answer = _ANSWER.read(text, reading)
    if answer is None:
        return
    code = answer.code
    type_ = aws_type.partition(b":")[0].decode("latin-1") or (answer.aws_type or "").rpartition("#")[2]
    if isinstance(answer.error, Inner):
        status = answer.error.status
        type_ = answer.error.type or (status if isinstance(status, str) else None) or type_
        code = answer.error.code
    elif answer.error and code is None:
        type_ = type_ or "error"
    reading.error_type = type_[:_MAX] or None
    reading.error_code = None if code is None or code == "" else str(code)[:_MAX]
