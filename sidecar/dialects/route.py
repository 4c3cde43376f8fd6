"""Which format a request speaks, what it asks for, and which model its path names: all from the target, by its end.

Prefixes differ from host to host (`/openai/v1`, `/api/v1`, `/novita/v3/openai`), the ends of the paths do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import parse_qs, unquote

from sidecar.config.model import DialectName
from sidecar.dialects.reading import Operation

_OPENAI, _ANTHROPIC, _GEMINI = DialectName.OPENAI, DialectName.ANTHROPIC, DialectName.GEMINI
_OLLAMA, _COHERE, _BEDROCK, _GENERIC = DialectName.OLLAMA, DialectName.COHERE, DialectName.BEDROCK, DialectName.GENERIC


@dataclass(frozen=True, slots=True)
class Route:
    """What the end of a path says. `certain`: no other format is known to use it."""

    dialect: DialectName = _GENERIC
    operation: Operation = Operation.OTHER
    certain: bool = False
    stream: bool = False
    """The method itself is a streaming one."""


_BY_LAST_TWO = {
    "chat/completions": Route(_OPENAI, Operation.CHAT, certain=True),
    "api/chat": Route(_OLLAMA, Operation.CHAT, certain=True),
    "api/generate": Route(_OLLAMA, Operation.COMPLETIONS, certain=True),
    "api/embed": Route(_OLLAMA, Operation.EMBEDDINGS, certain=True),
    "api/embeddings": Route(_OLLAMA, Operation.EMBEDDINGS, certain=True),
    "v2/chat": Route(_COHERE, Operation.CHAT, certain=True),
    "v1/chat": Route(_COHERE, Operation.CHAT),
    "v2/embed": Route(_COHERE, Operation.EMBEDDINGS, certain=True),
    "v1/embed": Route(_COHERE, Operation.EMBEDDINGS),
    "v2/rerank": Route(_COHERE, certain=True),
    "messages/count_tokens": Route(_ANTHROPIC, certain=True),
    "messages/batches": Route(_ANTHROPIC, certain=True),
    "responses/compact": Route(_OPENAI, Operation.RESPONSES, certain=True),
    "responses/input_tokens": Route(_OPENAI, certain=True),
    "text/chat": Route(operation=Operation.CHAT),
    "text/chat_stream": Route(operation=Operation.CHAT, stream=True),
    "text/generation": Route(operation=Operation.COMPLETIONS),
    "generation/text": Route(operation=Operation.COMPLETIONS),
    "text/generation_stream": Route(operation=Operation.COMPLETIONS, stream=True),
    "generation/text_stream": Route(operation=Operation.COMPLETIONS, stream=True),
}
_BY_LAST = {
    "completions": Route(_OPENAI, Operation.COMPLETIONS, certain=True),
    "responses": Route(_OPENAI, Operation.RESPONSES, certain=True),
    "embeddings": Route(_OPENAI, Operation.EMBEDDINGS),
    "realtime": Route(_OPENAI, Operation.REALTIME, certain=True),
    "moderations": Route(_OPENAI),
    "rerank": Route(_GENERIC),
    "messages": Route(_ANTHROPIC, Operation.MESSAGES, certain=True),
    "complete": Route(_ANTHROPIC, Operation.COMPLETIONS),
    "interactions": Route(_GEMINI, Operation.GENERATE_CONTENT),
    "generate": Route(operation=Operation.COMPLETIONS),
    "generate_stream": Route(operation=Operation.COMPLETIONS, stream=True),
}
_BY_PARENT = {
    "responses": Route(_OPENAI, Operation.RESPONSES, certain=True),
    "audio": Route(_OPENAI),
    "images": Route(_OPENAI),
    "interactions": Route(_GEMINI, Operation.GENERATE_CONTENT),
}
_GOOGLE_METHODS = {
    "generateContent": Route(_GEMINI, Operation.GENERATE_CONTENT, certain=True),
    "streamGenerateContent": Route(_GEMINI, Operation.GENERATE_CONTENT, certain=True, stream=True),
    "countTokens": Route(_GEMINI, certain=True),
    "embedContent": Route(_GEMINI, Operation.EMBEDDINGS, certain=True),
    "batchEmbedContents": Route(_GEMINI, Operation.EMBEDDINGS, certain=True),
    "rawPredict": Route(_ANTHROPIC, Operation.MESSAGES, certain=True),
    "streamRawPredict": Route(_ANTHROPIC, Operation.MESSAGES, certain=True, stream=True),
}
_BEDROCK_METHODS = {
    "converse": Route(_BEDROCK, Operation.CHAT, certain=True),
    "converse-stream": Route(_BEDROCK, Operation.CHAT, certain=True, stream=True),
    "invoke": Route(_BEDROCK, Operation.COMPLETIONS, certain=True),
    "invoke-with-response-stream": Route(_BEDROCK, Operation.COMPLETIONS, certain=True, stream=True),
    "count-tokens": Route(_BEDROCK, certain=True),
}
_UNKNOWN = Route()
_ASSISTANTS = Route(_OPENAI, certain=True)


@lru_cache(maxsize=512)
def route(target: str) -> Route:
    """The route of a request's target (path with or without a query, or an absolute form).

    An application asks for the same few targets again and again; those with ids in them push each other out.
    """
    path = target.partition("?")[0].rstrip("/")
    parent, _, last = path.rpartition("/")
    if ":" in last and (found := _GOOGLE_METHODS.get(last.rpartition(":")[2])):
        return found
    if "/threads" in path and (last == "threads" or "/threads/" in path):
        return _ASSISTANTS
    if last in _BEDROCK_METHODS and "/model/" in path:
        return _bedrock(path, _BEDROCK_METHODS[last])
    above = parent.rpartition("/")[2]
    return _BY_LAST_TWO.get(f"{above}/{last}") or _BY_LAST.get(last) or _BY_PARENT.get(above) or _UNKNOWN


@lru_cache(maxsize=512)
def resolve(configured: str, method: str, target: str) -> str:
    """The dialect of one request. A path that only one format uses tells more than the setting for the whole upstream:
    many servers speak several formats side by side. `generic` asks for no such insight."""
    if configured == DialectName.GENERIC:
        return configured
    found = route(target)
    if configured == DialectName.AUTO or found.certain:
        return found.dialect.value
    return configured


@lru_cache(maxsize=512)
def model_in_target(target: str) -> str | None:
    """The model that the path or the query names; for want of one, Azure's deployment or SageMaker's endpoint."""
    path, _, query = target.partition("?")
    for before, after in (("/models/", ":"), ("/model/", "/"), ("/deployments/", "/"), ("/endpoints/", "/")):
        _, found, rest = path.partition(before)
        if not found:
            continue
        if before == "/model/":
            name = rest.rpartition(after)[0]
        elif before == "/models/":
            name, found, _ = rest.rpartition(after)
        else:
            name, found, _ = rest.partition(after)
        if name and found and not (before == "/endpoints/" and name == "openapi"):
            return unquote(name)
    return next(iter(parse_qs(query).get("model", [])), None) if "model=" in query else None


@lru_cache(maxsize=512)
def asks_for_stream(target: str) -> bool | None:
    """True when the method streams by its name or the query asks for it; None when the target does not tell."""
    if route(target).stream or "stream=true" in target.partition("?")[2] or "/streams/" in target:
        return True
    return None


def _bedrock(path: str, found: Route) -> Route:
    """InvokeModel takes every kind of model; its name tells which."""
    if found.operation is not Operation.COMPLETIONS:
        return found
    if "embed" in path:
        return Route(_BEDROCK, Operation.EMBEDDINGS, certain=True)
    if "anthropic." in path:
        return Route(_BEDROCK, Operation.MESSAGES, certain=True, stream=found.stream)
    return found
