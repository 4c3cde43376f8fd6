"""A real llama.cpp server behind the sidecar: its framing, its usage and timings, and how it closes connections."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import anthropic
import openai
import pytest
import pytest_asyncio

from tests.kit.metrics import delta, outcomes
from tests.kit.process import ROOT, SidecarProcess, upstream_config
from tests.kit.sdk import forget_environment
from tests.kit.tiny_llm import MODEL_NAME, TinyLlm

pytestmark = pytest.mark.asyncio(loop_scope="module")

MESSAGES: Any = [{"role": "user", "content": "say something"}]
TOKENS = 48
WHOLE_LENGTH: Any = {"ignore_eos": True}
"""Random weights may say at any time that they have said all."""


class Running(NamedTuple):
    """The sidecar before the server, and the clients of it."""

    sidecar: SidecarProcess
    oai: openai.AsyncOpenAI
    ant: anthropic.AsyncAnthropic


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    directory = tmp_path_factory.mktemp("llm")
    with pytest.MonkeyPatch.context() as patch:
        forget_environment(patch)
        async with TinyLlm(directory) as llm:
            sidecar = SidecarProcess({"upstreams": [upstream_config(llm.url, "llama")]}, directory)
            await sidecar.start()
            base_url = f"http://127.0.0.1:{sidecar.data[1]}"
            same: Any = {"api_key": "none", "max_retries": 0, "timeout": 20.0}
            try:
                async with (
                    openai.AsyncOpenAI(base_url=base_url + "/v1", **same) as oai,
                    anthropic.AsyncAnthropic(base_url=base_url, **same) as ant,
                ):
                    yield Running(sidecar, oai, ant)
            finally:
                await sidecar.stop()


async def chat(oai: openai.AsyncOpenAI, tokens: int = TOKENS) -> list[Any]:
    """The chunks of a streamed chat."""
    stream = await oai.chat.completions.create(
        model=MODEL_NAME,
        messages=MESSAGES,
        max_tokens=tokens,
        stream=True,
        stream_options={"include_usage": True},
        extra_body=WHOLE_LENGTH,
    )
    return [chunk async for chunk in stream]


async def test_a_streamed_chat_is_measured_and_agrees_with_the_timings_of_the_server(running: Running) -> None:
    before = await running.sidecar.metrics()
    chunks = await chat(running.oai)
    after = await running.sidecar.metrics_after(before)
    usage, timings = chunks[-1].usage, chunks[-1].model_extra["timings"]
    assert usage.completion_tokens == TOKENS
    assert outcomes(before, after, operation="chat", model=MODEL_NAME, stream="true") == {"ok": 1}
    assert delta(before, after, "tokens_in").value == usage.prompt_tokens
    assert delta(before, after, "tokens_out").value == TOKENS
    for phase, milliseconds in (("prompt", timings["prompt_ms"]), ("generation", timings["predicted_ms"])):
        change = delta(before, after, "provider_phase_seconds", phase=phase)
        assert change.count == 1
        assert change.sum == pytest.approx(milliseconds / 1e3, abs=1e-6)
    ttft = delta(before, after, "ttft")
    assert ttft.count == 1
    assert timings["prompt_ms"] / 1e3 <= ttft.sum < timings["prompt_ms"] / 1e3 + 0.5
    speed = delta(before, after, "tokens_per_second")
    assert speed.count == 1
    # What the network and this machine delay comes on top of the server's own generation, and takes speed away.
    assert 0 < speed.sum < timings["predicted_per_second"] * 1.5
    # Bytes that are no whole character yet wait for the next token.
    assert TOKENS // 2 < delta(before, after, "inter_token").count < TOKENS
    assert delta(before, after, "parse_errors_total").value == 0


async def test_streamed_messages_are_measured(running: Running) -> None:
    before = await running.sidecar.metrics()
    async with running.ant.messages.stream(
        model=MODEL_NAME, max_tokens=TOKENS, messages=MESSAGES, extra_body=WHOLE_LENGTH
    ) as stream:
        final = await stream.get_final_message()
    after = await running.sidecar.metrics_after(before)
    usage = final.usage
    assert usage.output_tokens == TOKENS
    assert outcomes(before, after, operation="messages", model=MODEL_NAME, stream="true") == {"ok": 1}
    assert delta(before, after, "tokens_out").value == TOKENS
    cached = usage.cache_read_input_tokens or 0
    assert delta(before, after, "tokens_in").value == usage.input_tokens + cached
    assert delta(before, after, "tokens_cached").value == cached
    assert delta(before, after, "ttft").count == delta(before, after, "tokens_per_second").count == 1
    assert delta(before, after, "parse_errors_total").value == 0


async def test_whole_answers_are_counted(running: Running) -> None:
    before = await running.sidecar.metrics()
    create: Any = running.oai.chat.completions.create
    answer = await create(model=MODEL_NAME, messages=MESSAGES, max_tokens=8, extra_body=WHOLE_LENGTH)
    message = await running.ant.messages.create(
        model=MODEL_NAME, messages=MESSAGES, max_tokens=8, extra_body=WHOLE_LENGTH
    )
    after = await running.sidecar.metrics_after(before, 2)
    assert answer.usage.completion_tokens == message.usage.output_tokens == 8
    assert outcomes(before, after, stream="false", model=MODEL_NAME) == {"ok": 2}
    assert delta(before, after, "tokens_out").value == 16
    assert delta(before, after, "ttft").count == 0


async def test_streams_one_after_the_other_all_succeed_though_the_server_closes_kept_connections_unsaid(
    running: Running,
) -> None:
    before = await running.sidecar.metrics()
    for _ in range(30):
        assert (await chat(running.oai, 4))[-1].usage.completion_tokens == 4
    after = await running.sidecar.metrics_after(before, 30)
    assert outcomes(before, after) == {"ok": 30}
    assert delta(before, after, "connection_errors_total").value == 0


@pytest.mark.slow
async def test_the_demo_prints_the_metric_lines_of_a_real_server_and_ends_well() -> None:
    command = [sys.executable, "-m", "tests.e2e.demo_llm", "--duration", "3"]
    done = await asyncio.to_thread(
        subprocess.run, command, cwd=ROOT, capture_output=True, text=True, timeout=40, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for family in (
        "time_to_first_token_seconds_count",
        "output_tokens_per_second_sum",
        'tokens_total{model="tiny",type="output"',
        'provider_phase_seconds_count{phase="prompt"',
        'connection_phase_seconds_count{phase="connect"',
    ):
        assert f"llm_sidecar_{family}" in done.stdout
    assert " 0 failed" in done.stdout
