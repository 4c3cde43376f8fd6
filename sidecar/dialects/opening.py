"""Chooses who reads an answer: the meaning by dialect, operation and path, the rest by the response's own bytes."""

from __future__ import annotations

from functools import partial

from sidecar.dialects.anthropic import Anthropic
from sidecar.dialects.bedrock import Converse
from sidecar.dialects.bedrock_invoke import Invoke
from sidecar.dialects.codings import open_decoder
from sidecar.dialects.cohere import Cohere
from sidecar.dialects.gemini import Gemini, Interactions
from sidecar.dialects.headers import Fields, fields_of
from sidecar.dialects.ollama import Ollama
from sidecar.dialects.openai_chat import OpenAiChat
from sidecar.dialects.openai_responses import OpenAiResponses, Realtime
from sidecar.dialects.pipeline import Hints, ResponseReader, choose_body, open_tunnel
from sidecar.dialects.reading import Operation, Reader, Reading, RequestFacts
from sidecar.dialects.recognise import Recogniser
from sidecar.dialects.semantics import Semantics
from sidecar.dialects.tally import Tally
from sidecar.dialects.whole_json import WholeJson
from sidecar.exchange import Headers

_PLAIN_JSON = (b"application/json", b"application/json; charset=utf-8", b"application/json; charset=UTF-8")


def open_reader(  # noqa: PLR0917 - what is known of an exchange when its response begins
    dialect: str, facts: RequestFacts, method: str, target: str, status: int, headers: Headers
) -> Reader:
    """A reader for the body of one response. How it is coded and framed, its headers and first bytes tell."""
    semantics = _semantics(dialect, facts, target)
    fields = fields_of(headers)
    coding = fields.get(b"content-encoding")
    if status == 200 and coding is None and fields.get(b"content-type") in _PLAIN_JSON and method != "HEAD":
        return WholeJson(semantics, fields, lambda: _by_first_bytes(semantics, facts, method, status, fields))
    return _by_first_bytes(semantics, facts, method, status, fields)


def _by_first_bytes(
    semantics: Semantics, facts: RequestFacts, method: str, status: int, fields: Fields
) -> ResponseReader:
    dialect = semantics.reading.dialect
    hints = Hints(
        fields.get(b"content-type", b"").partition(b";")[0].strip().lower(),
        status,
        gemini=dialect == "gemini" and facts.stream,
        json_lines=dialect in ("ollama", "cohere") and facts.stream,
        bodiless=method == "HEAD" or status in (204, 304),
        aws_type=fields.get(b"x-amzn-errortype", b""),
    )
    coding = fields.get(b"content-encoding")
    decoder = open_decoder(coding) if coding is not None else None
    return ResponseReader(semantics, fields, partial(choose_body, semantics, hints), decoder)


def open_tunnel_reader(  # noqa: PLR0917 - the same as for open_reader
    dialect: str, facts: RequestFacts, method: str, target: str, status: int, headers: Headers
) -> Reader:
    """A reader for what the server sends over a WebSocket, from the first byte after the head of its 101."""
    tally = Tally(Reading(dialect=dialect, operation=facts.operation), facts)
    semantics: Semantics = Realtime(tally) if dialect == "openai" else Recogniser(tally)
    fields = fields_of(headers)
    body = open_tunnel(semantics, deflate=b"permessage-deflate" in fields.get(b"sec-websocket-extensions", b""))
    return ResponseReader(semantics, fields, lambda first, ended: None, body=body)


def _semantics(dialect: str, facts: RequestFacts, target: str) -> Semantics:
    kind: type[Semantics] = Recogniser
    path = "" if dialect == "openai" else target.partition("?")[0]
    if dialect == "openai":
        # Legacy completions, transcriptions and the rest are told apart by their events.
        if facts.operation is Operation.CHAT:
            kind = OpenAiChat
        elif facts.operation is Operation.RESPONSES:
            kind = OpenAiResponses
    elif dialect == "anthropic":
        kind = Anthropic
    elif dialect == "gemini":
        kind = Interactions if "/interactions" in path else Gemini
    elif dialect == "ollama":
        kind = Ollama
    elif dialect == "cohere" and not path.endswith("/v1/chat"):  # which is Writer's path as well
        kind = Cohere
    elif dialect == "bedrock":
        kind = Invoke if "/invoke" in path else Converse
    return kind(Tally(Reading(dialect=dialect, operation=facts.operation), facts))
