"""Which token comes at which step: the order of reasoning, text and tool calls that all APIs share."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from sidecar.simulator.text import fragments


class Part(NamedTuple):
    """One event's worth of text: UTF-8 that fits between JSON quotes, and the tokens in it."""

    step: int
    text: bytes
    tokens: int


class Tool(NamedTuple):
    """One tool call: its name comes at `step` and counts as one token, its arguments follow in parts.

    The parts' texts are escaped once for a JSON string; put together, as in `arguments`, and unescaped they are a JSON
    object.
    """

    step: int
    parts: tuple[Part, ...]
    arguments: bytes


class Outline(NamedTuple):
    """A whole answer: reasoning (all of it in `thought`), text (in `said`) and tool calls.

    `last` is its last step, 0 when nothing comes.
    """

    reasoning: tuple[Part, ...]
    texts: tuple[Part, ...]
    tools: tuple[Tool, ...]
    last: int
    reasoning_tokens: int
    tokens: int
    """All output tokens, with the reasoning in them."""
    thought: bytes
    said: bytes


@lru_cache(maxsize=256)
def outline(tokens: int, per_event: int, reasoning: int, tools: int) -> Outline:
    """`reasoning` events of `per_event` tokens each, then `tokens` tokens as text, or spread over `tools` calls.

    A tool call takes two tokens at least, its name and its arguments, even when `tokens` is smaller.
    """
    step = 0
    thoughts = []
    for words, count in fragments(reasoning * per_event, per_event, start=7):
        thoughts.append(Part(step, words, count))
        step += 1
    parts: list[Part] = []
    calls: list[Tool] = []
    if tools:
        share = max(2, tokens // tools)
        for _ in range(tools):
            call = _tool(step, share - 1, per_event)
            calls.append(call)
            step += 1 + len(call.parts)
    else:
        for words, count in fragments(tokens, per_event):
            parts.append(Part(step, words, count))
            step += 1
    visible = sum(part.tokens for part in parts) + sum(1 + sum(p.tokens for p in call.parts) for call in calls)
    hidden = reasoning * per_event
    return Outline(
        tuple(thoughts),
        tuple(parts),
        tuple(calls),
        max(0, step - 1),
        hidden,
        visible + hidden,
        b"".join(part.text for part in thoughts),
        b"".join(part.text for part in parts),
    )


def _tool(step: int, tokens: int, per_event: int) -> Tool:
    pieces = list(fragments(tokens, per_event))
    opened = (b'{\\"text\\":\\"' + pieces[0][0], pieces[0][1])
    pieces[0] = opened
    pieces[-1] = (pieces[-1][0] + b'\\"}', pieces[-1][1])
    parts = tuple(Part(step + 1 + place, *piece) for place, piece in enumerate(pieces))
    return Tool(step, parts, b"".join(part.text for part in parts))


def plain(escaped: bytes) -> bytes:
    """A text that was escaped once for a JSON string, as it was: the arguments as JSON."""
    return escaped.replace(b'\\"', b'"')
