"""Calls that the official SDKs make, each reduced to the text and the usage that the SDK made of the answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import anthropic
import openai

MESSAGES: Any = [{"role": "user", "content": "how long is the night?"}]
TOOL: Any = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
USAGE: Any = {"include_usage": True}
CHAT, RESPONSES, CLAUDE, EMBED = "sim-chat", "sim-responses", "sim-claude", "sim-embed"
"""As many models as the label `model` takes by default."""


class Said(NamedTuple):
    """What the SDK made of an answer: its text, and the tokens of its usage (None: it has none)."""

    text: str
    input: int | None
    output: int | None


class Sdks(NamedTuple):
    """The clients, all with the sidecar as their base URL and without retries of their own."""

    oai: openai.AsyncOpenAI
    ant: anthropic.AsyncAnthropic
    oai_sync: openai.OpenAI
    ant_sync: anthropic.Anthropic


@asynccontextmanager
async def clients(base_url: str) -> AsyncIterator[Sdks]:
    """Clients of `base_url` (without `/v1`)."""
    same: Any = {"api_key": "none", "max_retries": 0, "timeout": 20.0}
    v1 = base_url + "/v1"
    with openai.OpenAI(base_url=v1, **same) as oai_sync, anthropic.Anthropic(base_url=base_url, **same) as ant_sync:
        async with (
            openai.AsyncOpenAI(base_url=v1, **same) as oai,
            anthropic.AsyncAnthropic(base_url=base_url, **same) as ant,
        ):
            yield Sdks(oai, ant, oai_sync, ant_sync)


def _chat_said(chunks: list[Any]) -> Said:
    usage = chunks[-1].usage
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    return Said(text, usage.prompt_tokens, usage.completion_tokens)


async def chat_streamed(sdks: Sdks) -> Said:
    stream = await sdks.oai.chat.completions.create(model=CHAT, messages=MESSAGES, stream=True, stream_options=USAGE)
    return _chat_said([chunk async for chunk in stream])


async def chat_streamed_sync(sdks: Sdks) -> Said:
    def ask() -> list[Any]:
        create = sdks.oai_sync.chat.completions.create
        return list(create(model=CHAT, messages=MESSAGES, stream=True, stream_options=USAGE))

    return _chat_said(await asyncio.to_thread(ask))


async def chat_tools_streamed(sdks: Sdks) -> Said:
    async with sdks.oai.chat.completions.stream(
        model=CHAT, messages=MESSAGES, tools=[TOOL], stream_options=USAGE, extra_headers={"x-sim-tools": "1"}
    ) as stream:
        final: Any = await stream.get_final_completion()
    (call,) = final.choices[0].message.tool_calls
    assert call.function.name == "weather"
    return Said(json.loads(call.function.arguments)["text"], final.usage.prompt_tokens, final.usage.completion_tokens)


async def chat_whole(sdks: Sdks) -> Said:
    answer: Any = await sdks.oai.chat.completions.create(model=CHAT, messages=MESSAGES)
    return Said(answer.choices[0].message.content, answer.usage.prompt_tokens, answer.usage.completion_tokens)


async def completions_streamed(sdks: Sdks) -> Said:
    stream = await sdks.oai.completions.create(model=CHAT, prompt="how long", stream=True, stream_options=USAGE)
    chunks: list[Any] = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].text for chunk in chunks if chunk.choices)
    return Said(text, chunks[-1].usage.prompt_tokens, chunks[-1].usage.completion_tokens)


async def completions_whole(sdks: Sdks) -> Said:
    answer: Any = await sdks.oai.completions.create(model=CHAT, prompt="how long is the night?")
    return Said(answer.choices[0].text, answer.usage.prompt_tokens, answer.usage.completion_tokens)


def _response_said(response: Any) -> Said:
    return Said(response.output_text, response.usage.input_tokens, response.usage.output_tokens)


async def responses_streamed(sdks: Sdks) -> Said:
    async with sdks.oai.responses.stream(model=RESPONSES, input="how long is the night?") as stream:
        return _response_said(await stream.get_final_response())


async def responses_streamed_sync(sdks: Sdks) -> Said:
    def ask() -> Any:
        with sdks.oai_sync.responses.stream(model=RESPONSES, input="how long is the night?") as stream:
            return stream.get_final_response()

    return _response_said(await asyncio.to_thread(ask))


async def responses_whole(sdks: Sdks) -> Said:
    return _response_said(await sdks.oai.responses.create(model=RESPONSES, input="how long is the night?"))


async def embeddings(sdks: Sdks) -> Said:
    answer = await sdks.oai.embeddings.create(model=EMBED, input=["one", "two"], dimensions=8)
    assert [len(item.embedding) for item in answer.data] == [8, 8]
    return Said("two vectors", answer.usage.prompt_tokens, None)


def _message_said(message: Any) -> Said:
    text = next(block.text for block in message.content if block.type == "text")
    return Said(text, message.usage.input_tokens, message.usage.output_tokens)


async def messages_streamed(sdks: Sdks) -> Said:
    async with sdks.ant.messages.stream(model=CLAUDE, max_tokens=100, messages=MESSAGES) as stream:
        return _message_said(await stream.get_final_message())


async def messages_streamed_sync(sdks: Sdks) -> Said:
    def ask() -> Any:
        with sdks.ant_sync.messages.stream(model=CLAUDE, max_tokens=100, messages=MESSAGES) as stream:
            return stream.get_final_message()

    return _message_said(await asyncio.to_thread(ask))


async def messages_whole(sdks: Sdks) -> Said:
    return _message_said(await sdks.ant.messages.create(model=CLAUDE, max_tokens=100, messages=MESSAGES))


async def messages_counted(sdks: Sdks) -> Said:
    count = await sdks.ant.messages.count_tokens(model=CLAUDE, messages=MESSAGES)
    return Said("a count", count.input_tokens, None)


Ask = Callable[[Sdks], Awaitable[Said]]

STREAMS: dict[Ask, tuple[str, str]] = {
    chat_streamed: ("chat", CHAT),
    chat_streamed_sync: ("chat", CHAT),
    chat_tools_streamed: ("chat", CHAT),
    completions_streamed: ("completions", CHAT),
    responses_streamed: ("responses", RESPONSES),
    responses_streamed_sync: ("responses", RESPONSES),
    messages_streamed: ("messages", CLAUDE),
    messages_streamed_sync: ("messages", CLAUDE),
}
"""Calls that bring a stream, each with the operation and the model it is counted under."""
WHOLE: dict[Ask, tuple[str, str]] = {
    chat_whole: ("chat", CHAT),
    completions_whole: ("completions", CHAT),
    responses_whole: ("responses", RESPONSES),
    embeddings: ("embeddings", EMBED),
    messages_whole: ("messages", CLAUDE),
}
"""The same for whole answers."""
