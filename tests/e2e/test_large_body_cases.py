"""K8S-05: large bodies in both directions stall neither the probes of a kubelet nor the streams of others."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from threading import Event, Thread

import pytest

from tests.conftest import SidecarFactory, UpstreamFactory
from tests.kit import events
from tests.kit.client import CHAT_REQUEST, request_bytes
from tests.kit.h1 import RawRequest
from tests.kit.metrics import delta, outcomes
from tests.kit.upstream import Connection, Script, each_request

MEGABYTES = 20
PATIENT = 0.25
"""Seconds that a health check may take, whatever else goes on."""


def large_document() -> bytes:
    """A chat request of 20 MB in 2,000 messages."""
    message = json.dumps({"role": "user", "content": "x" * (MEGABYTES * 500)}).encode()
    return b'{"model":"m1","stream":false,"messages":[' + b",".join([message] * 2000) + b"]}"


class HealthChecks:
    """Asks for /livez every 50 ms from a thread, as a kubelet does from another machine."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.took: list[float] = []
        self.statuses: list[int] = []
        self._address = address
        self._ended = Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join(10)

    def _run(self) -> None:
        with closing(HTTPConnection(*self._address, timeout=10)) as connection:
            connection.connect()
            while not self._ended.wait(0.05):
                started = time.monotonic()
                connection.request("GET", "/livez")
                response = connection.getresponse()
                response.read()
                self.statuses.append(response.status)
                self.took.append(time.monotonic() - started)


def large_and_small(document: bytes, answer: bytes) -> Script:
    """A large answer to a large request; to others a stream of an event each 50 ms for two seconds."""

    async def handler(connection: Connection, request: RawRequest) -> None:
        if request.target.startswith(b"/large"):
            assert request.body == document
            await connection.send(answer)
        else:
            await connection.stream(*[part for number in range(40) for part in (events.T(f"n{number}"), 0.05)],
                                    events.FIN, events.DONE)  # fmt: skip

    return each_request(handler)


@pytest.mark.slow
async def test_k8s_05_large_bodies_stall_neither_health_checks_nor_streams(
    sidecar_factory: SidecarFactory, upstream: UpstreamFactory
) -> None:
    document = large_document()
    answer = events.chat_completion("y" * MEGABYTES * 1_000_000)
    sidecar = await sidecar_factory(await upstream(large_and_small(document, answer)))
    checks = HealthChecks(sidecar.admin)
    request = request_bytes(target="/large/v1/chat/completions", headers=events.DEFAULT_HEADERS, body=document)
    async with await sidecar.client() as warm:
        assert (await warm.request("POST", "/large/v1/chat/completions", events.DEFAULT_HEADERS, document)).status
    before = await sidecar.metrics()
    async with await sidecar.client() as stream:
        await stream.send(CHAT_REQUEST)
        await stream.arrival(events.T("n0"))
        with checks.running():
            for _ in range(5):
                async with await sidecar.client() as client:
                    await client.send(request)
                    large = await client.response(timeout=30)
                    assert large.status == 200
                    assert large.clean_end
            small = await stream.response()
    assert small.body.endswith(events.DONE)
    after = await sidecar.metrics_after(before, requests=6)
    assert outcomes(before, after) == {"ok": 6}
    assert delta(before, after, "tokens_out").value == 10, "the large answers were read"
    assert delta(before, after, "requests", model="m1").value == 6, "and so were the large requests"
    lag, lag_before = (metrics.buckets("event_loop_lag_seconds") for metrics in (after, before))
    late = (lag[float("inf")] - lag[PATIENT]) - (lag_before[float("inf")] - lag_before[PATIENT])
    assert late == 0, "the loop was held too long"
    assert len(checks.took) > 5
    assert set(checks.statuses) == {200}
    # All but one in twenty: this process, which handles the large bodies as well, may hold its own thread back.
    assert sorted(checks.took)[len(checks.took) * 19 // 20 - 1] < PATIENT
