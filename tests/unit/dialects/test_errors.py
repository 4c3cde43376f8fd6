from __future__ import annotations

import json

import pytest

from sidecar import dialects
from sidecar.dialects.reading import Reading
from sidecar.dialects.refusal import read_error
from sidecar.failures import ANSWERS, Code


@pytest.mark.parametrize("dialect", ["openai", "anthropic", "gemini", "ollama", "cohere", "bedrock", "generic", "new"])
@pytest.mark.parametrize("code", list(Code))
def test_every_error_of_ours_holds_code_and_message_in_every_shape(dialect: str, code: Code) -> None:
    content_type, body = dialects.error_body(dialect, code.value, 'no "host"', ANSWERS[code][0])
    assert content_type == b"application/json"
    text = json.dumps(json.loads(body))
    assert json.dumps('no "host"') in text
    assert code.value in text.lower()


def test_the_shapes_are_those_of_the_sdks() -> None:
    def body(dialect: str, status: int) -> object:
        return json.loads(dialects.error_body(dialect, "dns_failed", "m", status)[1])

    assert body("openai", 502) == {
        "error": {"message": "m", "type": "server_error", "param": None, "code": "dns_failed"}
    }
    assert body("anthropic", 413) == {
        "type": "error",
        "error": {"type": "request_too_large", "message": "m", "code": "dns_failed"},
    }
    gemini = body("gemini", 504)
    assert isinstance(gemini, dict)
    assert gemini["error"]["code"] == 504
    assert gemini["error"]["status"] == "DEADLINE_EXCEEDED"
    assert body("ollama", 502) == {"error": "m", "code": "dns_failed"}
    assert body("cohere", 502) == body("bedrock", 502) == {"message": "m", "code": "dns_failed"}


@pytest.mark.parametrize(
    ("body", "type_", "code"),
    [
        (
            '{"error":{"message":"x","type":"invalid_request_error","code":"invalid_api_key"}}',
            "invalid_request_error",
            "invalid_api_key",
        ),
        ('{"error":{"code":"401","message":"x"}}', None, "401"),
        ('{"error":{"message":"x","code":429}}', None, "429"),
        ('{"type":"error","error":{"type":"overloaded_error","message":"x"}}', "overloaded_error", None),
        ('{"error":{"code":404,"message":"x","status":"NOT_FOUND"}}', "NOT_FOUND", "404"),
        ('[{"error":{"code":404,"message":"x","status":"NOT_FOUND"}}]', "NOT_FOUND", "404"),
        ('{"code":"invalid-argument","error":"a sentence"}', None, "invalid-argument"),
        ('{"error":"a sentence"}', "error", None),
        ('{"__type":"com.amazon#ThrottlingException","message":"x"}', "ThrottlingException", None),
        ('{"detail":"x"}', None, None),
        ('{"id":"1","message":"x"}', None, None),
        ('{"error":{"type":["odd"],"code":"kept"}}', None, "kept"),
    ],
)
def test_error_answers_are_classified_and_their_messages_dropped(
    body: str, type_: str | None, code: str | None
) -> None:
    reading = Reading()
    read_error(reading, body.encode())
    assert (reading.error_type, reading.error_code) == (type_, code)


def test_aws_names_the_error_in_a_header() -> None:
    reading = Reading()
    read_error(reading, b'{"message":"x"}', b"ThrottlingException:http://internal/")
    assert reading.error_type == "ThrottlingException"
