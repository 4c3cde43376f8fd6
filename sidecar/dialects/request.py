"""What a request says of itself: model, stream, number of answers."""

from __future__ import annotations

import re

import msgspec

from sidecar.dialects.reading import Operation, RequestFacts
from sidecar.dialects.route import asks_for_stream, model_in_target, route
from sidecar.dialects.typed import Typed

_MODEL_FIELD = re.compile(rb'name="?model"?\r?\n(?:[^\r\n]+\r?\n)*\r?\n([^\r\n]{1,512})')
_STREAM_FIELD = re.compile(rb'name="?stream"?\r?\n(?:[^\r\n]+\r?\n)*\r?\n(?:true|True|1)\r?\n')
_MULTIPART_PREFIX = 64 * 1024


class GenerationConfig(msgspec.Struct, gc=False):
    """Gemini's place for the number of candidates."""

    candidate_count: int | None = msgspec.field(name="candidateCount", default=None)


class Request(msgspec.Struct, gc=False):
    """The members that matter; watsonx and Vertex's rawPredict have their own names for the model."""

    model: str | None = None
    model_id: str | None = None
    stream: bool | None = None
    n: int | None = None
    num_generations: int | None = None
    generation_config: GenerationConfig | None = msgspec.field(name="generationConfig", default=None)


_REQUEST = Typed(Request)


def read_request(dialect: str, method: str, target: str, body: bytes) -> RequestFacts:
    """Facts of a request from its target and body: whole JSON, a document of the wanted members, or form data."""
    found = route(target)
    form = body[:2] == b"--"
    request = _form(body) if form else _json(body)
    streams = asks_for_stream(target)
    if streams is None:
        streams = _streams_unasked(dialect, found.operation, request) if request.stream is None else request.stream
    config = request.generation_config
    choices = request.n or request.num_generations or (config and config.candidate_count) or 1
    return RequestFacts(
        found.operation,
        request.model or request.model_id or model_in_target(target) or None,
        streams or found.operation is Operation.REALTIME,
        max(1, choices),
    )


def _streams_unasked(dialect: str, operation: Operation, request: Request) -> bool:
    """Ollama's own API streams unless it is told not to."""
    return dialect == "ollama" and operation in (Operation.CHAT, Operation.COMPLETIONS) and request.stream is None


def _json(body: bytes) -> Request:
    if not body.lstrip().startswith(b"{"):
        return Request()
    return _REQUEST.read(body, None) or Request()


def _form(body: bytes) -> Request:
    """Audio and image requests; the file may come before the model, which is then not found."""
    prefix = body[:_MULTIPART_PREFIX]
    model = _MODEL_FIELD.search(prefix)
    stream = _STREAM_FIELD.search(prefix) is not None
    return Request(model=model and model[1].decode("utf-8", "replace").strip(), stream=stream)
