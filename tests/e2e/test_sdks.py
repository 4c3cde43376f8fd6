"""The official Python SDKs through the sidecar to a simulated API over TLS: what they get, and what it measures."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.kit.sdk import HANDSHAKE, ITL, TOKENS, Call, Stage, forget_environment, seconds
from tests.kit.sdk_calls import (
    CHAT,
    CLAUDE,
    MESSAGES,
    RESPONSES,
    STREAMS,
    WHOLE,
    Ask,
    Said,
    Sdks,
    chat_streamed,
    clients,
    messages_counted,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    settings: dict[str, dict[str, Any]] = {"/sim": {}, "/inject": {"stream_usage": "inject"}}
    async with Stage(tmp_path_factory.mktemp("sdks"), settings) as stage:
        yield stage


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sdks(stage: Stage) -> AsyncIterator[Sdks]:
    with pytest.MonkeyPatch.context() as patch:
        forget_environment(patch)
        async with clients(stage.url("/sim")) as sdks:
            yield sdks


def assert_first_token_and_speed(call: Call) -> None:
    """One sample each, and they say what the simulator did."""
    assert call.delta("ttft").count == call.delta("first_output").count == 1
    assert call.delta("ttft").sum == seconds(call.true_ttft())
    assert call.delta("tokens_per_second").count == call.delta("time_per_token").count == 1
    assert call.delta("tokens_per_second").sum == pytest.approx(call.true_rate(), rel=0.2)
    assert call.delta("inter_token").count == len(call.truth.token_times()) - 1


def assert_connection(call: Call) -> None:
    """Its phases have a sample each when it was opened for this call, and none when it was there."""
    opened = call.delta("connections_opened_total").value
    assert opened + call.delta("connections_reused_total").value == 1
    assert call.delta("connect").count == call.delta("tls").count == opened
    if opened:
        assert HANDSHAKE * 0.9 <= call.delta("tls").sum < HANDSHAKE + 1.0
        assert call.delta("connect").sum > 0


def assert_counted(call: Call, said: Said, operation: str, model: str, *, streamed: bool) -> None:
    """One request under the right labels, its tokens as the SDK saw them, its time in every family of requests."""
    flag = "true" if streamed else "false"
    assert call.outcomes() == {"ok": 1}
    assert call.outcomes(operation=operation, model=model, stream=flag, code="200", upstream="sim") == {"ok": 1}
    assert call.delta("tokens_in", model=model).value == said.input == call.truth.input_tokens
    assert call.delta("tokens_out", model=model).value == (said.output or 0)
    assert call.delta("token_count_source_total", source="usage").value == 1
    assert call.delta("request_duration", stream=flag).count == 1
    assert call.delta("parse_errors_total").value == 0
    assert call.delta("network_ratio").count == 1


@pytest.mark.parametrize("ask", STREAMS, ids=lambda ask: ask.__name__)
async def test_a_stream_arrives_and_its_first_token_and_speed_are_measured(stage: Stage, sdks: Sdks, ask: Ask) -> None:
    operation, model = STREAMS[ask]
    call, said = await stage.agreeing_call(lambda: ask(sdks))
    assert said.text
    assert said.output == call.truth.output_tokens >= TOKENS
    assert_counted(call, said, operation, model, streamed=True)
    assert_first_token_and_speed(call)
    assert_connection(call)


@pytest.mark.parametrize("ask", WHOLE, ids=lambda ask: ask.__name__)
async def test_a_whole_answer_arrives_and_counts_tokens_but_no_first_token(stage: Stage, sdks: Sdks, ask: Ask) -> None:
    operation, model = WHOLE[ask]
    async with stage.call() as call:
        said = await ask(sdks)
    assert said.text
    assert_counted(call, said, operation, model, streamed=False)
    assert_connection(call)
    assert call.delta("ttft").count == call.delta("tokens_per_second").count == 0
    assert call.truth.head_at is not None
    assert call.truth.received_at is not None
    # Both ends note an instant just after its write: a busy machine may come in between.
    least = (call.truth.head_at - call.truth.received_at) * 0.8
    assert least < call.delta("send").sum + call.delta("wait").sum < call.delta("request_duration").sum


async def test_a_count_of_tokens_uses_none(stage: Stage, sdks: Sdks) -> None:
    async with stage.call() as call:
        said = await messages_counted(sdks)
    assert said.input
    assert call.outcomes(model=CLAUDE) == {"ok": 1}
    assert call.delta("tokens_total").value == 0


async def test_a_connection_is_measured_when_it_is_opened_and_not_when_it_is_used_again(
    stage: Stage, sdks: Sdks
) -> None:
    closing = {"x-sim-close": "1"}
    await sdks.oai.chat.completions.create(model=CHAT, messages=MESSAGES, extra_headers=closing)
    for connection, handshakes in (("new", 1), ("reused", 0)):
        async with stage.call() as call:
            await chat_streamed(sdks)
        assert call.delta("ttft", connection=connection).count == 1
        assert call.delta("tls").count == handshakes
        assert_connection(call)


async def test_without_usage_events_give_the_speed_and_no_tokens_are_counted(stage: Stage, sdks: Sdks) -> None:
    async def ask() -> list[Any]:
        stream = await sdks.oai.chat.completions.create(model=CHAT, messages=MESSAGES, stream=True)
        return [chunk async for chunk in stream]

    call, chunks = await stage.agreeing_call(ask)
    assert all(chunk.usage is None for chunk in chunks)
    assert call.delta("tokens_total").value == 0
    assert call.delta("token_count_source_total", source="events").value == 1
    assert_first_token_and_speed(call)


async def test_injected_usage_is_counted_and_never_seen_by_the_sdk(stage: Stage, sdks: Sdks) -> None:
    client = sdks.oai.with_options(base_url=stage.url("/inject") + "/v1")

    async def ask() -> list[Any]:
        stream = await client.chat.completions.create(model=CHAT, messages=MESSAGES, stream=True)
        return [chunk async for chunk in stream]

    call, chunks = await stage.agreeing_call(ask)
    assert all(chunk.choices and chunk.usage is None for chunk in chunks)
    assert call.delta("tokens_out", upstream="inject").value == TOKENS
    assert_first_token_and_speed(call)


async def test_reasoning_comes_before_the_first_output_token(stage: Stage, sdks: Sdks) -> None:
    async with (
        stage.call() as call,
        sdks.ant.messages.stream(
            model=CLAUDE, max_tokens=100, messages=MESSAGES, extra_headers={"x-sim-reasoning": "20"}
        ) as stream,
    ):
        final = await stream.get_final_message()
    assert [block.type for block in final.content] == ["thinking", "text"]
    truth = call.truth
    assert truth.first_output_at is not None
    assert call.delta("first_output").sum > call.delta("ttft").sum + ITL * 20 / 2
    assert truth.first_output_at > truth.token_times()[0]
    assert call.delta("tokens_out").value == final.usage.output_tokens == TOKENS + 20


async def test_a_summary_of_reasoning_gives_no_speed(stage: Stage, sdks: Sdks) -> None:
    async with (
        stage.call() as call,
        sdks.oai.responses.stream(model=RESPONSES, input="hello", extra_headers={"x-sim-reasoning": "3"}) as stream,
    ):
        final = await stream.get_final_response()
    assert final.usage is not None
    assert final.usage.output_tokens_details.reasoning_tokens == call.delta("tokens_reasoning").value == 3
    assert call.delta("ttft").count == 1
    assert call.delta("tokens_per_second").count == call.delta("time_per_token").count == 0
