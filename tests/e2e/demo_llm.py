"""The sidecar before a real llama.cpp server, asked by the official SDKs: `python -m tests.e2e.demo_llm --duration 10`.

The model is half a megabyte of random weights, so the text is nonsense; bytes, usage and timings are real.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import signal
import sys
import tempfile
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import anthropic
import openai

from tests.kit.metrics import Metrics
from tests.kit.process import SidecarProcess, upstream_config
from tests.kit.tiny_llm import MODEL_NAME, TinyLlm

PROGRESS_SECONDS = 2.0
PAUSE_SECONDS = 0.02
TOKENS = 64

SHOWN = re.compile(
    r"^llm_sidecar_(time_to_first_token_seconds|output_tokens_per_second|time_per_output_token_seconds"
    r"|request_phase_seconds|connection_phase_seconds|provider_phase_seconds|tokens_total|requests_total|network_ratio)"
    r"(_count|_sum)?\{.*\} (?!0\.0$)"
)
"""The lines of /metrics that are printed at the end: counts and sums, no buckets, nothing that stayed at zero."""

MESSAGES: Any = [{"role": "user", "content": "say something"}]
WHOLE_LENGTH: Any = {"ignore_eos": True}


class Load:
    """Asks again and again, one call after the other, streamed and whole, by both SDKs."""

    def __init__(self, oai: openai.AsyncOpenAI, ant: anthropic.AsyncAnthropic) -> None:
        self._calls = (self._chat, self._messages, self._whole)
        self._oai = oai
        self._ant = ant
        self.done = 0
        self.failed = 0

    async def run(self, stop: asyncio.Event) -> None:
        """Ask until `stop` is set."""
        number = 0
        while not stop.is_set():
            try:
                await self._calls[number % len(self._calls)]()
                self.done += 1
            except (openai.OpenAIError, anthropic.AnthropicError) as error:
                self.failed += 1
                print(f"failed: {error}", file=sys.stderr)
            number += 1
            await asyncio.sleep(PAUSE_SECONDS)

    async def _chat(self) -> None:
        stream = await self._oai.chat.completions.create(
            model=MODEL_NAME,
            messages=MESSAGES,
            max_tokens=TOKENS,
            stream=True,
            stream_options={"include_usage": True},
            extra_body=WHOLE_LENGTH,
        )
        async for _ in stream:
            pass

    async def _messages(self) -> None:
        async with self._ant.messages.stream(
            model=MODEL_NAME, messages=MESSAGES, max_tokens=TOKENS, extra_body=WHOLE_LENGTH
        ) as stream:
            await stream.until_done()

    async def _whole(self) -> None:
        await self._oai.chat.completions.create(
            model=MODEL_NAME, messages=MESSAGES, max_tokens=TOKENS, extra_body=WHOLE_LENGTH
        )


def progress(now: Metrics) -> str:
    """One line about everything so far."""

    def mean(name: str) -> float:
        count = now.count(name)
        return now.sum(name) / count if count else 0.0

    return (
        f"{now.value('requests'):5.0f} requests   {now.value('tokens_out'):6.0f} tokens   "
        f"first token {mean('ttft') * 1e3:5.2f} ms   {mean('tokens_per_second'):5.0f} tokens/s per stream   "
        f"network share {mean('network_ratio') * 100:4.1f} %"
    )


async def demo(duration: float) -> int:
    """Run for `duration` seconds or until interrupted; the exit code is 0 when every call was answered."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sidecar-demo-llm-")))
        llm = await stack.enter_async_context(TinyLlm(folder))
        sidecar = SidecarProcess({"upstreams": [upstream_config(llm.url, "llama")]}, folder)
        stack.push_async_callback(sidecar.stop)
        await sidecar.start()
        base_url = "http://{}:{}".format(*sidecar.data)
        print(f"llama.cpp at {llm.url}, the sidecar before it at {base_url}")
        print("metrics at http://{}:{}/metrics".format(*sidecar.admin), flush=True)
        same: Any = {"api_key": "none", "max_retries": 0, "timeout": 30.0}
        oai = await stack.enter_async_context(openai.AsyncOpenAI(base_url=base_url + "/v1", **same))
        ant = await stack.enter_async_context(anthropic.AsyncAnthropic(base_url=base_url, **same))
        load = Load(oai, ant)
        running = asyncio.ensure_future(load.run(stop))
        await _watch(sidecar, stop, duration)
        stop.set()
        await running
        metrics = await sidecar.metrics_when(lambda now: now.value("requests") >= load.done)
        print("\n".join(line for line in metrics.text.splitlines() if SHOWN.match(line)))
        print(f"{load.done + load.failed} calls, {load.failed} failed")
    return 0 if load.done and not load.failed else 1


async def _watch(sidecar: SidecarProcess, stop: asyncio.Event, duration: float) -> None:
    loop = asyncio.get_running_loop()
    ends = loop.time() + duration
    while not stop.is_set() and loop.time() < ends:
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), min(PROGRESS_SECONDS, max(0.0, ends - loop.time())))
        print(progress(await sidecar.metrics()), flush=True)


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.demo_llm", description=__doc__.split("\n")[0])
    parser.add_argument("--duration", type=float, default=10.0, help="seconds (10)")
    return asyncio.run(demo(parser.parse_args().duration))


if __name__ == "__main__":
    sys.exit(main())
