"""The README's promises: each command runs, each metric line has a series of that shape, the pod's YAML is YAML."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import yaml

from sidecar.config.load import Flags, load
from sidecar.simulator.certificate import make_certificate
from sidecar.simulator.server import Simulator
from tests.conftest import SidecarFactory
from tests.kit.client import post
from tests.kit.process import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
CI = (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return [text for said, text in found if said == language]


def commands() -> list[str]:
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    return [line.split("#")[0].strip() for line in lines if line.strip()]


def test_every_make_target_of_the_readme_exists_and_runs_in_ci() -> None:
    targets = {command.split()[1] for command in commands() if command.startswith("make ")}
    assert targets == {"demo", "test", "check", "demo-llm", "bench"}
    for target in targets:
        assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE), target
        assert re.search(rf"^make {target}( |$)", CI, re.MULTILINE), target


def test_every_command_of_the_readme_is_one_that_is_tested_here_or_in_ci() -> None:
    known = ("make ", "pip install '.[all]'", "sidecar serve --upstream ", "OPENAI_BASE_URL=")
    assert [command for command in commands() if not command.startswith(known)] == []


async def test_the_serve_command_of_the_readme_becomes_ready() -> None:
    (command,) = [command for command in commands() if command.startswith("sidecar serve")]
    arguments = command.split()[2:]
    assert load(None, flags=Flags(upstream=arguments[1]), environ={}).upstreams[0].url.host == "api.openai.com"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "sidecar", "serve", *arguments, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0",
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    line = await asyncio.wait_for(process.stderr.readline(), 15)
    process.terminate()
    assert b"listening" in line
    assert await asyncio.wait_for(process.wait(), 10) == 0


async def test_the_metric_lines_of_the_readme_are_lines_of_a_real_exposition(
    sidecar_factory: SidecarFactory, tmp_path: Path
) -> None:
    (shown,) = [block for block in blocks("") if "llm_sidecar_" in block]
    certificate = make_certificate()
    (tmp_path / "ca.pem").write_text(certificate.ca_pem)
    simulator = Simulator(ttft=0.02, itl=0.002, tokens=5)
    address = await simulator.start(tls=certificate.context)
    try:
        settings = {"tls": {"ca_file": str(tmp_path / "ca.pem")}}
        sidecar = await sidecar_factory(f"https://{address}", upstream_settings=settings)
        before = await sidecar.metrics()
        body = b'{"model":"gpt-5","stream":true,"stream_options":{"include_usage":true},"messages":[]}'
        assert (await post(sidecar.data, "/v1/chat/completions", body)).status == 200
        await sidecar.metrics_after(before)
        exposition = (await sidecar.metrics()).text
    finally:
        await simulator.stop()
    for line in shown.splitlines():
        name, labels = re.fullmatch(r"llm_sidecar_(\w+)\{(.*)\} \d+", line).groups()  # type: ignore[union-attr]
        names = re.findall(r"(\w+)=", labels)
        pattern = rf"^llm_sidecar_{name}\{{" + ",".join(f'{each}="[^"]*"' for each in names) + r"\} "
        assert re.search(pattern, exposition, re.MULTILINE), line


def test_the_pod_of_the_readme_is_a_native_sidecar() -> None:
    (text,) = blocks("yaml")
    (container,) = yaml.safe_load(text)["initContainers"]
    assert container["restartPolicy"] == "Always"
    assert container["startupProbe"]["httpGet"]["port"] == container["ports"][0]["name"]
