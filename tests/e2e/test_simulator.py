"""The simulator in the eyes of the official SDKs, and of plain HTTP where an API has none here."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import anthropic
import openai
import pytest

from sidecar.simulator.certificate import Certificate, make_certificate
from sidecar.simulator.server import Simulator

TOOL: Any = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
MESSAGES: Any = [{"role": "user", "content": "how long is the night?"}]


@pytest.fixture
async def simulator() -> AsyncIterator[tuple[Simulator, str]]:
    simulator = Simulator(ttft=0.02, itl=0.001, tokens=8)
    address = await simulator.start()
    yield simulator, f"http://{address}"
    await simulator.stop()


@pytest.fixture
async def oai(simulator: tuple[Simulator, str]) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=simulator[1] + "/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
async def ant(simulator: tuple[Simulator, str]) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(base_url=simulator[1], api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
async def http(simulator: tuple[Simulator, str]) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(simulator[1]) as session:
        yield session


async def test_openai_chat_whole(oai: openai.AsyncOpenAI) -> None:
    answer = await oai.chat.completions.create(model="gpt-x", messages=MESSAGES)
    assert answer.model == "gpt-x"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 8
    content = answer.choices[0].message.content
    assert content is not None
    assert len(content.split()) == 8


async def test_openai_chat_streamed_equals_whole(oai: openai.AsyncOpenAI) -> None:
    whole = await oai.chat.completions.create(model="m", messages=MESSAGES)
    stream = await oai.chat.completions.create(
        model="m", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 8
    assert all(chunk.usage is None for chunk in chunks[:-1])


async def test_openai_chat_tools(oai: openai.AsyncOpenAI) -> None:
    two = {"x-sim-tools": "2"}
    whole = await oai.chat.completions.create(model="m", messages=MESSAGES, tools=[TOOL], extra_headers=two)
    calls: Any = whole.choices[0].message.tool_calls
    assert [call.function.name for call in calls] == ["weather", "weather"]
    async with oai.chat.completions.stream(model="m", messages=MESSAGES, tools=[TOOL], extra_headers=two) as stream:
        final = await stream.get_final_completion()
    streamed: Any = final.choices[0].message.tool_calls
    assert final.choices[0].finish_reason == "tool_calls"
    assert [json.loads(call.function.arguments) for call in streamed] == [
        json.loads(call.function.arguments) for call in calls
    ]


async def test_openai_completions(oai: openai.AsyncOpenAI) -> None:
    whole = await oai.completions.create(model="m", prompt="p")
    stream = await oai.completions.create(model="m", prompt="p", stream=True)
    texts = [chunk.choices[0].text async for chunk in stream]
    assert texts[0], "the legacy operation has no role chunk"
    assert "".join(texts) == whole.choices[0].text


async def test_openai_responses(oai: openai.AsyncOpenAI) -> None:
    whole = await oai.responses.create(model="m", input="hello")
    assert len(whole.output_text.split()) == 8
    async with oai.responses.stream(model="m", input="hello", extra_headers={"x-sim-reasoning": "3"}) as stream:
        events: list[Any] = [event async for event in stream]
        final = await stream.get_final_response()
    assert final.output_text == whole.output_text
    assert [item.type for item in final.output] == ["reasoning", "message"]
    assert final.usage is not None
    assert (final.usage.output_tokens, final.usage.output_tokens_details.reasoning_tokens) == (11, 3)
    numbers = [event.sequence_number for event in events if event.type != "response.output_text.delta"]
    assert numbers == sorted(numbers)
    assert [event.type for event in events][:3] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
    ]
    assert events[-1].type == "response.completed"


async def test_openai_responses_tools_and_incomplete(oai: openai.AsyncOpenAI) -> None:
    async with oai.responses.stream(model="m", input="hello", extra_headers={"x-sim-tools": "1"}) as stream:
        final: Any = await stream.get_final_response()
    assert final.output[0].type == "function_call"
    assert json.loads(final.output[0].arguments)["text"]
    cut = await oai.responses.create(model="m", input="hello", max_output_tokens=3)
    assert cut.status == "incomplete"
    assert cut.incomplete_details is not None
    assert cut.incomplete_details.reason == "max_output_tokens"


async def test_openai_embeddings_in_both_encodings(oai: openai.AsyncOpenAI) -> None:
    asked: Any = {"model": "e", "input": ["one", "two", "three"], "dimensions": 16}
    packed = await oai.embeddings.create(**asked)
    plain = await oai.embeddings.create(**asked, encoding_format="float")
    assert [item.index for item in packed.data] == [0, 1, 2]
    assert packed.data[2].embedding == pytest.approx(plain.data[2].embedding)
    assert sum(number * number for number in plain.data[0].embedding) == pytest.approx(1, abs=1e-4)
    one = await oai.embeddings.create(model="e", input="one")
    assert len(one.data[0].embedding) == 1536


async def test_openai_models(oai: openai.AsyncOpenAI) -> None:
    assert "sim-1" in [model.id async for model in oai.models.list()]
    assert (await oai.models.retrieve("any-name")).id == "any-name"


async def test_openai_transcriptions(oai: openai.AsyncOpenAI) -> None:
    recording = ("speech.wav", io.BytesIO(b"RIFF" + bytes(100_000)), "audio/wav")
    whole = await oai.audio.transcriptions.create(model="w", file=recording)
    assert len(whole.text.split()) == 8
    recording[1].seek(0)
    stream = await oai.audio.transcriptions.create(model="w", file=recording, stream=True)
    events: list[Any] = [event async for event in stream]
    assert events[-1].type == "transcript.text.done"
    assert "".join(event.delta for event in events[:-1]) == events[-1].text == whole.text


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, openai.BadRequestError),
        (401, openai.AuthenticationError),
        (429, openai.RateLimitError),
        (503, openai.InternalServerError),
    ],
)
async def test_openai_errors(oai: openai.AsyncOpenAI, status: int, error: type[openai.APIStatusError]) -> None:
    with pytest.raises(error) as caught:
        await oai.chat.completions.create(model="m", messages=MESSAGES, extra_headers={"x-sim-status": str(status)})
    assert caught.value.request_id is not None
    assert caught.value.request_id.startswith("req_sim")


async def test_openai_error_within_a_stream(oai: openai.AsyncOpenAI) -> None:
    failing = {"x-sim-error-event": "2"}
    stream = await oai.chat.completions.create(model="m", messages=MESSAGES, stream=True, extra_headers=failing)
    with pytest.raises(openai.APIError, match="The server had an error"):
        async for _ in stream:
            pass


async def test_anthropic_messages(ant: anthropic.AsyncAnthropic) -> None:
    whole: Any = await ant.messages.create(model="c", max_tokens=100, messages=MESSAGES)
    assert (whole.stop_reason, whole.usage.output_tokens) == ("end_turn", 8)
    async with ant.messages.stream(model="c", max_tokens=100, messages=MESSAGES) as stream:
        text = "".join([piece async for piece in stream.text_stream])
        final: Any = await stream.get_final_message()
    assert text == final.content[0].text == whole.content[0].text
    assert final.usage.output_tokens == 8
    short = await ant.messages.create(model="c", max_tokens=3, messages=MESSAGES)
    assert (short.stop_reason, short.usage.output_tokens) == ("max_tokens", 3)


async def test_anthropic_thinking_and_tools(ant: anthropic.AsyncAnthropic) -> None:
    wishes = {"x-sim-reasoning": "2", "x-sim-tools": "2"}
    asked: Any = {"model": "c", "max_tokens": 100, "messages": MESSAGES, "extra_headers": wishes}
    whole: Any = await ant.messages.create(**asked)
    async with ant.messages.stream(**asked) as stream:
        final: Any = await stream.get_final_message()
    assert [block.type for block in final.content] == ["thinking", "tool_use", "tool_use"]
    assert final.stop_reason == whole.stop_reason == "tool_use"
    assert [block.input for block in final.content[1:]] == [block.input for block in whole.content[1:]]
    assert final.content[0].thinking == whole.content[0].thinking


async def test_anthropic_counts_tokens(ant: anthropic.AsyncAnthropic) -> None:
    assert (await ant.messages.count_tokens(model="c", messages=MESSAGES)).input_tokens > 0


async def test_anthropic_errors(ant: anthropic.AsyncAnthropic) -> None:
    with pytest.raises(anthropic.APIStatusError, match="overloaded_error"):
        await ant.messages.create(model="c", max_tokens=9, messages=MESSAGES, extra_headers={"x-sim-status": "529"})
    async with ant.messages.stream(
        model="c", max_tokens=9, messages=MESSAGES, extra_headers={"x-sim-error-event": "4"}
    ) as stream:
        with pytest.raises(anthropic.APIStatusError, match="Overloaded"):
            await stream.until_done()


async def test_ollama_streams_unless_told_not_to(http: aiohttp.ClientSession) -> None:
    for path, text in (
        ("/api/chat", lambda line: line["message"]["content"]),
        ("/api/generate", lambda x: x["response"]),
    ):
        async with http.post(path, json={"model": "l"}, headers={"x-sim-itl": "0.01"}) as response:
            lines = [json.loads(line) async for line in response.content]
        async with http.post(path, json={"model": "l", "stream": False}) as response:
            whole = await response.json()
        assert [line["done"] for line in lines] == [False] * 8 + [True]
        assert "".join(text(line) for line in lines) == text(whole)
        last = lines[-1]
        assert (last["eval_count"], last["eval_duration"]) == (8, 70_000_000)
        assert last["total_duration"] == last["load_duration"] + last["prompt_eval_duration"] + last["eval_duration"]


async def test_gemini_in_its_three_forms(http: aiohttp.ClientSession) -> None:
    def text(answer: Any) -> str:
        return "".join(part["text"] for part in answer["candidates"][0]["content"]["parts"] if not part.get("thought"))

    wishes = {"x-sim-reasoning": "2"}
    async with http.post("/v1beta/models/g-1:generateContent", json={}, headers=wishes) as response:
        whole = await response.json()
        assert response.headers["server-timing"] == "gfet4t7; dur=29"
    async with http.post("/v1beta/models/g-1:streamGenerateContent", json={}, headers=wishes) as response:
        array = await response.json()
    async with http.post("/v1beta/models/g-1:streamGenerateContent?alt=sse", json={}, headers=wishes) as response:
        blocks = (await response.read()).split(b"\r\n\r\n")
    events = [json.loads(block.removeprefix(b"data: ")) for block in blocks[:-1]]
    for stream in (array, events):
        assert len(stream) == 10
        assert "".join(text(event) for event in stream) == text(whole)
        assert stream[-1]["usageMetadata"] == whole["usageMetadata"]
        assert ["finishReason" in event["candidates"][0] for event in stream] == [False] * 9 + [True]
    usage = whole["usageMetadata"]
    assert (usage["candidatesTokenCount"], usage["thoughtsTokenCount"]) == (8, 2)
    assert usage["totalTokenCount"] == usage["promptTokenCount"] + 10
    assert whole["modelVersion"] == "g-1"


async def test_realtime_with_a_websocket_client(http: aiohttp.ClientSession) -> None:
    async with http.ws_connect("/v1/realtime?model=r") as session:
        assert (await session.receive_json())["type"] == "session.created"
        await session.send_json({"type": "response.create"})
        kinds = []
        while not kinds or kinds[-1] != "response.done":
            kinds.append((await session.receive_json())["type"])
    assert kinds.count("response.output_text.delta") == 8


@pytest.fixture(scope="module")
def certificate() -> Certificate:
    return make_certificate()


async def test_tls_with_its_own_authority(certificate: Certificate) -> None:
    simulator = Simulator(ttft=0.01, itl=0.001, tokens=8, ca_pem=certificate.ca_pem)
    address = await simulator.start(tls=certificate.context)
    connector = aiohttp.TCPConnector(ssl=certificate.client_context())
    async with aiohttp.ClientSession(f"https://{address}", connector=connector) as session:
        async with session.post("/v1/chat/completions", json={"stream": True}) as response:
            assert (await response.read()).endswith(b"data: [DONE]\n\n")
        async with session.post(
            "/v1/chat/completions", json={"stream": True}, headers={"x-sim-reset": "2"}
        ) as response:
            with pytest.raises(aiohttp.ClientError):
                await response.read()
    assert [truth.connection.tls_version for truth in simulator.truths] == ["TLSv1.3"] * 2
    assert [truth.ending for truth in simulator.truths] == ["clean", "reset"]
    await simulator.stop()
