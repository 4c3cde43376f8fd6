"""The official JavaScript SDK, on Node's own fetch, through the sidecar to a simulated API over TLS."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.kit.sdk import TOKENS, Stage

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

INSTALL_SECONDS, RUN_SECONDS = 120, 30

SCRIPT = """
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.argv[2], apiKey: "none", maxRetries: 0 });
const asked = { model: "sim-js", messages: [{ role: "user", content: "how long is the night?" }] };
const extra = { headers: JSON.parse(process.argv[3]) };
const said = { text: "", usage: null, error: null };
try {
  const options = { ...asked, stream: true, stream_options: { include_usage: true } };
  for await (const chunk of await client.chat.completions.create(options, extra)) {
    said.text += chunk.choices[0]?.delta?.content ?? "";
    said.usage = chunk.usage ?? said.usage;
  }
} catch (error) {
  said.error = { type: error.constructor.name, status: error.status ?? null, code: error.code ?? null };
}
console.log(JSON.stringify(said));
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script beside an installation of the SDK."""
    missing = [name for name in ("node", "npm") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"{' and '.join(missing)} not installed, so the JavaScript SDK is not tested")
    directory = tmp_path_factory.mktemp("javascript")
    options = ["--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
    done = subprocess.run(
        ["npm", "install", *options, "--prefix", str(directory), "openai@6"],
        capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"npm could not install the SDK:\n{done.stderr[-2000:]}"
    path = directory / "chat.mjs"
    path.write_text(SCRIPT)
    return path


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    settings: dict[str, dict[str, Any]] = {"/sim": {}, "/silent": {"timeouts": {"headers": "300ms"}}}
    async with Stage(tmp_path_factory.mktemp("stage"), settings) as stage:
        yield stage


async def chat(script: Path, base_url: str, headers: dict[str, str]) -> dict[str, Any]:
    """Run the script; what it has to say."""
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    process = await asyncio.create_subprocess_exec(
        "node", str(script), base_url, json.dumps(headers),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=environment,
    )  # fmt: skip
    async with asyncio.timeout(RUN_SECONDS):
        output, complaint = await process.communicate()
    assert process.returncode == 0, complaint.decode()
    said: dict[str, Any] = json.loads(output)
    return said


async def test_a_chat_streams_and_is_measured(stage: Stage, script: Path) -> None:
    call, said = await stage.agreeing_call(lambda: chat(script, stage.url("/sim") + "/v1", {}))
    assert said["error"] is None
    assert len(said["text"].split()) == TOKENS
    assert call.outcomes(operation="chat", model="sim-js", stream="true") == {"ok": 1}
    assert call.delta("tokens_out").value == said["usage"]["completion_tokens"] == TOKENS
    assert call.delta("tokens_in").value == said["usage"]["prompt_tokens"] == call.truth.input_tokens
    assert call.delta("tokens_per_second").count == 1
    assert call.agrees()


async def test_an_answer_of_our_own_raises_its_status_and_code(stage: Stage, script: Path) -> None:
    async with stage.call() as call:
        said = await chat(script, stage.url("/silent") + "/v1", {"x-sim-headers-delay": "5"})
    assert said["error"] == {"type": "InternalServerError", "status": 504, "code": "headers_timeout"}
    assert call.outcomes(code="504") == {"timeout": 1}


async def test_a_stream_that_breaks_off_raises(stage: Stage, script: Path) -> None:
    async with stage.call() as call:
        said = await chat(script, stage.url("/sim") + "/v1", {"x-sim-cut": "6"})
    assert said["error"] is not None
    assert said["text"]
    assert call.outcomes(code="200") == {"network_error": 1}
