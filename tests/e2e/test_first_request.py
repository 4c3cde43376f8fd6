"""The first request of a process costs what the tenth does: what it needs is there before the port is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sidecar.simulator.certificate import make_certificate
from sidecar.simulator.server import Simulator
from tests.kit.client import get, post
from tests.kit.process import SidecarProcess, upstream_config

BODY = b'{"model":"m","stream":true,"max_tokens":99}'

FIRST = {
    "openai": "/v1/chat/completions",
    "anthropic": "/v1/messages",
    "nobody": "/unknown",
}
"""The request that a process serves first, by the dialect that reads it; the last one is answered with an error."""


@pytest.mark.parametrize("dialect", FIRST)
async def test_the_first_request_imports_nothing(tmp_path: Path, dialect: str) -> None:
    certificate = make_certificate()
    (tmp_path / "ca.pem").write_text(certificate.ca_pem)
    simulator = Simulator(ttft=0.01, itl=0.001, tokens=8)
    address = await simulator.start(tls=certificate.context)
    upstream = upstream_config(f"https://localhost:{address.port}", tls={"ca_file": str(tmp_path / "ca.pem")})
    sidecar = SidecarProcess({"upstreams": [upstream]}, tmp_path, python=(sys.executable, "-X", "importtime"))
    try:
        await sidecar.start()
        served_from = len(sidecar.lines)
        response = await post(sidecar.data, FIRST[dialect], BODY)
        assert response.status == (404 if dialect == "nobody" else 200)
        await sidecar.metrics_when(lambda metrics: metrics.value("requests") == 1)
        await get(sidecar.admin, "/exchanges")
        imported = [line.rpartition("|")[2].strip() for line in imports(sidecar.lines[served_from:])]
        assert imported == []
        assert imports(sidecar.lines), "the interpreter reports its imports"
    finally:
        await sidecar.stop()
        await simulator.stop()


def imports(lines: list[str]) -> list[str]:
    """The lines that tell of an import."""
    return [line for line in lines if line.startswith("import time:")]
