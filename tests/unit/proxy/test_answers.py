from __future__ import annotations

import json

import pytest

from sidecar.failures import ANSWERS, Code, Failure
from sidecar.http_fields import Framing
from sidecar.proxy.answers import error_response, reason_phrase

DIALECTS = ("openai", "anthropic", "gemini", "ollama", "cohere", "bedrock", "generic")


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("code", Code)
def test_every_failure_has_a_whole_answer_in_every_dialect(code: Code, dialect: str) -> None:
    head, body = error_response(Failure(code, "what happened"), dialect)
    fields = dict(head.headers)
    assert head.status == ANSWERS[code][0]
    assert head.framing is Framing.LENGTH
    assert fields[b"x-sidecar-error"] == code.encode()
    assert fields[b"Content-Length"] == str(len(body)).encode()
    assert fields[b"Content-Type"] == b"application/json"
    assert "what happened" in json.dumps(json.loads(body))
    assert (b"Retry-After" in fields) == (head.status == 503)


@pytest.mark.parametrize(
    ("dialect", "path"),
    [("openai", ("error", "code")), ("anthropic", ("error", "code")), ("ollama", ("code",)), ("bedrock", ("code",))],
)
def test_the_code_is_where_the_sdk_looks(dialect: str, path: tuple[str, ...]) -> None:
    found = json.loads(error_response(Failure(Code.DNS_FAILED, "x"), dialect)[1])
    for name in path:
        found = found[name]
    assert found == "dns_failed"


def test_any_text_makes_a_document() -> None:
    _, body = error_response(Failure(Code.INTERNAL, 'a "quoted"\nline \u2028 ü'), "openai")
    assert json.loads(body)["error"]["message"] == 'a "quoted"\nline \u2028 ü'


@pytest.mark.parametrize(("status", "phrase"), [(404, b"Not Found"), (529, b""), (504, b"Gateway Timeout")])
def test_the_reason_phrase_is_the_usual_one(status: int, phrase: bytes) -> None:
    assert reason_phrase(status) == phrase
