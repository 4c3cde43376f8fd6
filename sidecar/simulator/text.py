"""The text of all answers: words that come round and round, each standing for one token.

No word needs an escape inside a JSON string, so that a text can be put between quotes as it is. Some are not ASCII: a
reader that cuts between the bytes of a character shall be found out.
"""

from __future__ import annotations

from functools import lru_cache

WORDS: tuple[bytes, ...] = tuple(
    f" {word}".encode()
    for word in (  # noqa: SIM905  (sixty quoted words are no easier to read)
        "the answer to this question is simulated and every word of it comes at its due time so that a watch held "
        "beside the wire may be compared with the clock that sent it café naïve 東京 🙂 while rivers carry slow water "
        "past quiet towns whose people count tokens by candle light and never ask how long the night will be"
    ).split()
)


@lru_cache(maxsize=256)
def fragments(tokens: int, per_event: int, start: int = 0) -> tuple[tuple[bytes, int], ...]:
    """The text of `tokens` tokens from token `start` on, cut into events: (UTF-8 text, tokens in it)."""
    end = start + tokens
    return tuple(
        (text(min(per_event, end - first), first), min(per_event, end - first))
        for first in range(start, end, per_event)
    )


@lru_cache(maxsize=256)
def text(tokens: int, start: int = 0) -> bytes:
    """The text of `tokens` tokens from token `start` on, in UTF-8."""
    size = len(WORDS)
    if tokens == 1:
        return WORDS[start % size]
    return b"".join(WORDS[index % size] for index in range(start, start + tokens))
