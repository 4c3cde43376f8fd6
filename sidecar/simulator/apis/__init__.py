"""The simulated APIs and the one table that finds them by the end of a path."""

from __future__ import annotations

from sidecar.simulator.answer import Route
from sidecar.simulator.apis import anthropic, gemini, ollama, openai, openai_audio, openai_chat, openai_responses

ROUTES: tuple[Route, ...] = (
    *openai_chat.ROUTES,
    *openai_responses.ROUTES,
    *openai_audio.ROUTES,
    *openai.ROUTES,
    *anthropic.ROUTES,
    *ollama.ROUTES,
    *gemini.ROUTES,
)
"""The first whose suffix fits wins: longer suffixes stand before shorter ones that they end with."""


def find_route(path: str) -> Route | None:
    """The operation that `path` (without its query) names, by suffix as any base path may stand before it."""
    for route in ROUTES:
        if path.endswith(route.suffix):
            return route
    return openai.MODEL if "/models/" in path and ":" not in path else None
