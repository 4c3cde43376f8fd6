"""The kit's hold on the sidecar: as a process and in this one."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.conftest import SidecarFactory, UpstreamFactory
from tests.kit import events
from tests.kit.client import get
from tests.kit.metrics import delta, outcomes
from tests.kit.process import LocalSidecar, SidecarProcess, upstream_config
from tests.kit.upstream import streaming

STREAM = (events.ROLE, events.T("a"), 0.05, events.T("b"), events.FIN, events.USE(9, 2), events.DONE)


async def test_a_sidecar_process_serves_and_counts(upstream: UpstreamFactory, sidecar_factory: SidecarFactory) -> None:
    server = await upstream(streaming(*STREAM))
    sidecar = await sidecar_factory(server)
    before = await sidecar.metrics()
    async with await sidecar.client() as client:
        response = await client.chat()
    after = await sidecar.metrics_after(before)
    assert response.body == b"".join(part for part in STREAM if isinstance(part, bytes))
    assert response.clean_end
    assert outcomes(before, after) == {"ok": 1}
    assert delta(before, after, "ttft").count == 1
    assert delta(before, after, "tokens_out").value == 2
    assert sidecar.rss() > 10_000_000
    assert (await get(sidecar.admin, "/livez")).status == 200


async def test_sigterm_ends_a_sidecar_process_with_code_0(
    upstream: UpstreamFactory, sidecar_factory: SidecarFactory
) -> None:
    sidecar = await sidecar_factory(await upstream(streaming(*STREAM)))
    sidecar.signal(signal.SIGTERM)
    assert await sidecar.wait() == 0


async def test_a_sidecar_that_cannot_start_says_why(tmp_path: Path) -> None:
    sidecar = SidecarProcess({"upstreams": [upstream_config("http://127.0.0.1:1", nonsense=1)]}, tmp_path)
    sidecar.expected_exit = 2
    with pytest.raises(AssertionError, match=r"exited with 2(?s:.*)nonsense"):
        await sidecar.start()
    await sidecar.stop()


async def test_a_sidecar_runs_in_the_process_of_the_test(upstream: UpstreamFactory, tmp_path: Path) -> None:
    server = await upstream(streaming(*STREAM))
    sidecar = await LocalSidecar({"upstreams": [upstream_config(server.url)]}, tmp_path).start()
    try:
        before = await sidecar.metrics()
        async with await sidecar.client() as client:
            response = await client.chat()
        after = await sidecar.metrics_after(before)
    finally:
        await sidecar.stop()
    assert response.status == 200
    assert outcomes(before, after) == {"ok": 1}
