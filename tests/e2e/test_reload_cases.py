"""A new configuration while the sidecar runs: asked for by signal or seen in the file, taken whole or not at all."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from tests.conftest import SidecarFactory, UpstreamFactory
from tests.kit import events
from tests.kit.authority import authority, server_context
from tests.kit.client import CHAT_REQUEST
from tests.kit.h1 import RawResponse
from tests.kit.process import SidecarProcess, complete_config, upstream_config
from tests.kit.shared import eventually
from tests.kit.upstream import Connection, Script, ScriptedUpstream, streaming


def naming(name: str) -> Script:
    """An upstream that names itself."""
    return streaming(events.ROLE, events.T(f"from {name}"), events.FIN, events.DONE)


def to(server: ScriptedUpstream, **config: Any) -> dict[str, Any]:
    """A configuration with this upstream."""
    return {"upstreams": [upstream_config(server.url)], **config}


async def chat(sidecar: SidecarProcess) -> RawResponse:
    async with await sidecar.client() as client:
        return await client.chat()


async def serves_from(sidecar: SidecarProcess, name: str) -> bool:
    return events.T(f"from {name}") in (await chat(sidecar)).body


async def hang_up(sidecar: SidecarProcess) -> None:
    """SIGHUP, and wait until it was obeyed or refused."""

    def reloads() -> int:
        return len(sidecar.events("reloaded")) + len(sidecar.events("reload_refused"))

    before = reloads()
    sidecar.signal(signal.SIGHUP)
    await eventually(lambda: reloads() > before)


@pytest.fixture
async def guests() -> AsyncIterator[AsyncExitStack]:
    """Closes the clients that enter it."""
    async with AsyncExitStack() as stack:
        yield stack


async def test_sighup_moves_new_requests_and_lets_the_running_stream_end_where_it_began(
    sidecar_factory: SidecarFactory, upstream: UpstreamFactory, guests: AsyncExitStack
) -> None:
    release = asyncio.Event()

    async def held(connection: Connection) -> None:
        await connection.read_request()
        await connection.send(events.sse_head() + events.chunk(events.T("from old")))
        await release.wait()
        await connection.send(events.chunk(events.FIN + events.DONE) + events.LAST_CHUNK)
        await connection.wait_closed()

    old, new = await upstream(held), await upstream(naming("new"))
    sidecar = await sidecar_factory(old)
    before = await sidecar.metrics()
    stream = await guests.enter_async_context(await sidecar.client())
    await stream.send(CHAT_REQUEST)
    await stream.arrival(events.T("from old"))

    sidecar.write_config(to(new, slo={"ttft": "2s"}))
    await hang_up(sidecar)
    assert await serves_from(sidecar, "new")
    release.set()
    response = await stream.response()
    assert response.clean_end
    assert response.body.endswith(events.DONE)
    await old.connections[0].wait_closed()
    assert len(old.requests) == 1

    after = await sidecar.metrics_after(before, requests=2)
    reloaded_at = "config_last_reload_success_timestamp_seconds"
    assert after.value(reloaded_at) > before.value(reloaded_at)
    assert after.value("config_reload_failures_total") == 0
    assert after.label_values("config_info", "hash") != before.label_values("config_info", "hash")
    assert after.label_values("upstream_info", "address") == {f"127.0.0.1:{new.port}"}
    assert after.value("slo_threshold_seconds", objective="ttft") == 2
    assert after.value("requests", outcome="ok") == 2, "an upstream that keeps its name keeps its counts"


async def test_a_wrong_configuration_is_said_counted_and_ignored(
    sidecar_factory: SidecarFactory, upstream: UpstreamFactory
) -> None:
    old, new = await upstream(naming("old")), await upstream(naming("new"))
    sidecar = await sidecar_factory(old)
    before = await sidecar.metrics()
    good = yaml.safe_dump(complete_config(to(new)))
    wrong = [good + "nonsense: 1\n", good.replace("http://", "gopher://"), "upstreams: [", "", None]
    for number, text in enumerate(wrong, 1):
        if text is None:
            sidecar.config_file.unlink()
        else:
            sidecar.config_file.write_text(text)
        await hang_up(sidecar)
        assert len(sidecar.events("reload_refused")) >= number, text
        assert await serves_from(sidecar, "old")
    said = [str(event["problems"]) for event in sidecar.events("reload_refused")]
    assert any("nonsense" in problems for problems in said)
    assert any("upstreams.0.url" in problems or "upstreams[0].url" in problems for problems in said)
    refused = await sidecar.metrics()
    assert refused.value("config_reload_failures_total") == len(said)
    reloaded_at = "config_last_reload_success_timestamp_seconds"
    assert refused.value(reloaded_at) == before.value(reloaded_at)
    assert refused.label_values("config_info", "hash") == before.label_values("config_info", "hash")
    assert await sidecar.ready()

    sidecar.write_config(to(new))
    await hang_up(sidecar)
    assert await serves_from(sidecar, "new")


async def until_from(sidecar: SidecarProcess, name: str) -> None:
    """Wait until requests go to the upstream of that name."""
    await eventually(lambda: serves_from(sidecar, name))


async def test_a_changed_file_is_taken_however_it_was_changed(
    sidecar_factory: SidecarFactory, upstream: UpstreamFactory
) -> None:
    first, second = await upstream(naming("first")), await upstream(naming("second"))
    sidecar = await sidecar_factory(first)
    sidecar.write_config(to(second))
    await until_from(sidecar, "second")
    sidecar.config_file.write_text(yaml.safe_dump(complete_config(to(first))))
    await until_from(sidecar, "first")
    assert len(sidecar.events("reloaded")) >= 2


async def test_a_config_map_swapped_by_symlink_is_taken(upstream: UpstreamFactory, tmp_path: Path) -> None:
    first, second = await upstream(naming("first")), await upstream(naming("second"))
    volume = tmp_path / "volume"

    def publish(version: str, server: ScriptedUpstream) -> None:
        """As the kubelet does: a new directory, and a rename of the link that names it."""
        directory = volume / f"..{version}"
        directory.mkdir(parents=True)
        (directory / "config.yaml").write_text(yaml.safe_dump(complete_config(to(server))))
        link = volume / "..data_tmp"
        link.symlink_to(directory.name)
        link.replace(volume / "..data")

    publish("2024_01", first)
    (volume / "config.yaml").symlink_to("..data/config.yaml")
    sidecar = SidecarProcess(to(first), tmp_path)
    sidecar.config_file = volume / "config.yaml"
    try:
        await sidecar.start()
        assert await serves_from(sidecar, "first")
        publish("2024_02", second)
        await until_from(sidecar, "second")
        assert len(sidecar.events("reloaded")) == 1
    finally:
        await sidecar.stop()


async def test_a_changed_certificate_authority_is_taken_without_a_change_of_the_configuration(
    sidecar_factory: SidecarFactory, upstream: UpstreamFactory, tmp_path: Path
) -> None:
    server = await upstream(naming("tls"), tls=server_context("127.0.0.1"))
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(trustme.CA().cert_pem.bytes())
    sidecar = await sidecar_factory(server, upstream_settings={"tls": {"ca_file": str(trusted)}})
    refused = await chat(sidecar)
    assert (refused.status, refused.value("x-sidecar-error")) == (502, b"tls_failed")
    trusted.write_bytes(authority().cert_pem.bytes())
    await until_from(sidecar, "tls")


async def test_reloads_in_quick_succession_break_no_stream(
    sidecar_factory: SidecarFactory, upstream: UpstreamFactory
) -> None:
    words = [part for number in range(20) for part in (events.T(f"w{number}"), 0.03)]
    first = await upstream(streaming(events.T("from first"), *words, events.FIN, events.DONE))
    second = await upstream(streaming(events.T("from second"), *words, events.FIN, events.DONE))
    sidecar = await sidecar_factory(first)
    streams = [asyncio.create_task(chat(sidecar)) for _ in range(20)]
    await first.wait_for_requests(20)
    for number in range(10):
        sidecar.write_config(to((second, first)[number % 2], slo={"ttft": f"{number + 1}s"}))
        sidecar.signal(signal.SIGHUP)
        await asyncio.sleep(0.02)
    responses = await asyncio.gather(*streams)
    assert all(response.clean_end and response.body.endswith(events.DONE) for response in responses)
    sidecar.write_config(to(second))
    await until_from(sidecar, "second")
    assert not sidecar.events("reload_refused")
    metrics = await sidecar.metrics_when(lambda now: now.value("inflight") == 0)
    assert metrics.label_values("requests", "outcome") == {"ok"}
