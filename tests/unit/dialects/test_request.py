from __future__ import annotations

import json

import pytest

from sidecar import dialects
from sidecar.dialects.json_scan import MemberScanner, members
from sidecar.dialects.reading import Operation, RequestFacts


def facts(target: str, body: object, dialect: str = "openai") -> RequestFacts:
    encoded = body if isinstance(body, bytes) else json.dumps(body).encode()
    return dialects.read_request(dialect, "POST", target, encoded)


def test_a_chat_request_says_model_stream_and_number_of_answers() -> None:
    said = facts("/v1/chat/completions", {"messages": [{}], "model": "m", "stream": True, "n": 3})
    assert said == RequestFacts(Operation.CHAT, "m", stream=True, choices=3)


def test_the_members_of_a_large_body_say_the_same_as_the_whole() -> None:
    body = json.dumps({"messages": ["x" * 100_000], "model": "m", "stream": True, "n": 2}).encode()
    scanner = MemberScanner(dialects.REQUEST_MEMBERS)
    scanner.feed(body)
    assert facts("/v1/chat/completions", members(scanner.found)) == facts("/v1/chat/completions", body)


@pytest.mark.parametrize("model", [{"a": 1}, [1], 7, None, ""])
def test_a_model_that_is_no_name_is_none(model: object) -> None:
    said = facts("/v1/chat/completions", {"model": model, "stream": True})
    assert said.model is None
    assert said.stream


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b'{"model":', b"\xff\xfe", b"{" * 10_000, b"--"])
def test_bodies_that_cannot_be_read_say_nothing(body: bytes) -> None:
    assert facts("/v1/chat/completions", body) == RequestFacts(Operation.CHAT)


def test_odd_numbers_of_answers_are_one() -> None:
    for n in (0, -1, None, "many"):
        assert facts("/v1/chat/completions", {"model": "m", "n": n}).choices == 1


def test_the_path_names_the_model_where_the_body_does_not() -> None:
    assert facts("/v1beta/models/g:generateContent", {"contents": []}, "gemini").model == "g"
    assert facts("/openai/deployments/d/chat/completions", {"messages": []}).model == "d"
    assert facts("/openai/deployments/d/chat/completions", {"model": "m"}).model == "m"


def test_gemini_counts_candidates_and_streams_by_its_method() -> None:
    said = facts("/v1beta/models/g:streamGenerateContent", {"generationConfig": {"candidateCount": 2}}, "gemini")
    assert said == RequestFacts(Operation.GENERATE_CONTENT, "g", stream=True, choices=2)


@pytest.mark.parametrize(("body", "streams"), [({}, True), ({"stream": True}, True), ({"stream": False}, False)])
def test_ollama_streams_unless_told_not_to(body: dict[str, bool], streams: bool) -> None:
    assert facts("/api/chat", body, "ollama").stream is streams


def test_ollamas_embeddings_do_not_stream() -> None:
    assert not facts("/api/embed", {"model": "m"}, "ollama").stream


def test_form_data_gives_its_model_field() -> None:
    form = (
        b'--b\r\nContent-Disposition: form-data; name="model"\r\nContent-Type: text/plain\r\n\r\nwhisper-1\r\n'
        b'--b\r\nContent-Disposition: form-data; name="stream"\r\n\r\ntrue\r\n'
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n\x00\x01'
    )
    assert facts("/v1/audio/transcriptions", form) == RequestFacts(Operation.OTHER, "whisper-1", stream=True)
