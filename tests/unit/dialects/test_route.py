from __future__ import annotations

import pytest

from sidecar.config.model import DialectName
from sidecar.dialects.reading import Operation
from sidecar.dialects.route import asks_for_stream, model_in_target, resolve, route

PATHS = [
    ("/v1/chat/completions", "openai", Operation.CHAT),
    ("//openai/deployments/d/chat/completions?api-version=1", "openai", Operation.CHAT),
    ("/v1beta/openai/chat/completions", "openai", Operation.CHAT),
    ("/novita/v3/openai/chat/completions", "openai", Operation.CHAT),
    ("/v1/completions", "openai", Operation.COMPLETIONS),
    ("/v1/responses", "openai", Operation.RESPONSES),
    ("/v1/responses/resp_1?stream=true", "openai", Operation.RESPONSES),
    ("/v1/responses/input_tokens", "openai", Operation.OTHER),
    ("/v1/embeddings", "openai", Operation.EMBEDDINGS),
    ("/v1/realtime?model=m", "openai", Operation.REALTIME),
    ("/v1/audio/transcriptions", "openai", Operation.OTHER),
    ("/v1/threads/t/messages", "openai", Operation.OTHER),
    ("/v1/messages?beta=true", "anthropic", Operation.MESSAGES),
    ("/v1/messages/count_tokens", "anthropic", Operation.OTHER),
    ("/v1/projects/p/publishers/anthropic/models/m:streamRawPredict", "anthropic", Operation.MESSAGES),
    ("/v1beta/models/m:streamGenerateContent?alt=sse", "gemini", Operation.GENERATE_CONTENT),
    ("/v1beta/models/m:batchEmbedContents", "gemini", Operation.EMBEDDINGS),
    ("/api/chat", "ollama", Operation.CHAT),
    ("/api/generate/", "ollama", Operation.COMPLETIONS),
    ("/v2/chat", "cohere", Operation.CHAT),
    ("/v1/chat", "cohere", Operation.CHAT),
    ("/model/a.b-v1%3A0/converse-stream", "bedrock", Operation.CHAT),
    ("/model/anthropic.claude/invoke", "bedrock", Operation.MESSAGES),
    ("/model/amazon.titan-embed-text/invoke", "bedrock", Operation.EMBEDDINGS),
    ("/generate_stream", "generic", Operation.COMPLETIONS),
    ("/v1/files", "generic", Operation.OTHER),
    ("/", "generic", Operation.OTHER),
    ("", "generic", Operation.OTHER),
    ("http://host/v1/chat/completions", "openai", Operation.CHAT),
]


@pytest.mark.parametrize(("target", "dialect", "operation"), PATHS)
def test_the_end_of_the_path_tells_dialect_and_operation(target: str, dialect: str, operation: Operation) -> None:
    assert resolve(DialectName.AUTO, "POST", target) == dialect
    assert route(target).operation is operation


def test_a_configured_dialect_holds_where_the_path_leaves_a_doubt() -> None:
    assert resolve(DialectName.OPENAI, "POST", "/v1/chat") == "openai"
    assert resolve(DialectName.ANTHROPIC, "POST", "/proxy/llm") == "anthropic"


def test_a_path_of_one_format_only_tells_more_than_the_setting_of_the_upstream() -> None:
    assert resolve(DialectName.OLLAMA, "POST", "/v1/chat/completions") == "openai"
    assert resolve(DialectName.OPENAI, "POST", "/v1/messages") == "anthropic"


def test_generic_is_never_second_guessed() -> None:
    assert resolve(DialectName.GENERIC, "POST", "/v1/chat/completions") == "generic"


@pytest.mark.parametrize(
    ("target", "model"),
    [
        ("/v1beta/models/gemini-2.5-pro:generateContent", "gemini-2.5-pro"),
        ("/v1/projects/p/publishers/anthropic/models/claude@1:rawPredict", "claude@1"),
        ("/model/us.amazon.nova-v1%3A0/converse", "us.amazon.nova-v1:0"),
        (
            "/model/arn:aws:bedrock:us-east-1:1:inference-profile/x/invoke",
            "arn:aws:bedrock:us-east-1:1:inference-profile/x",
        ),
        ("/openai/deployments/gpt-4o/chat/completions?api-version=1", "gpt-4o"),
        ("/endpoints/my-llama/invocations", "my-llama"),
        ("/v1/projects/p/endpoints/openapi/chat/completions", None),
        ("/v1/realtime?model=gpt%2Drealtime", "gpt-realtime"),
        ("/models/chat/completions", None),
        ("/v1/models/m", None),
        ("/v1/chat/completions", None),
    ],
)
def test_the_model_is_found_in_the_target(target: str, model: str | None) -> None:
    assert model_in_target(target) == model


@pytest.mark.parametrize(
    ("target", "streams"),
    [
        ("/v1beta/models/m:streamGenerateContent", True),
        ("/model/m/invoke-with-response-stream", True),
        ("/v1/responses/r?starting_after=0&stream=true", True),
        ("/generate_stream", True),
        ("/v1/chat/completions", None),
    ],
)
def test_some_targets_ask_for_a_stream(target: str, streams: bool | None) -> None:
    assert asks_for_stream(target) is streams
