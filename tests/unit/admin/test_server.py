from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from sidecar.admin.server import DEFAULT_EXCHANGES, Admin
from sidecar.config.model import Config, ProxyUrl, Secret
from sidecar.config.redaction import redacted
from tests.kit.client import get
from tests.kit.fakes import make_upstream
from tests.kit.h1 import RawResponse

Ask = Callable[..., Awaitable[RawResponse]]
PATHS = ["/config", "/exchanges", "/livez", "/metrics", "/readyz", "/startupz"]


class FakeSubject:
    """A sidecar that shows what it was asked for."""

    def __init__(self) -> None:
        self.ready = True
        self.started = True
        self.asked: list[tuple[str, str]] = []

    async def metrics(self, accept: str, accept_encoding: str) -> tuple[bytes, list[tuple[str, str]]]:
        self.asked.append((accept, accept_encoding))
        return b"up 1\n", [("Content-Type", "text/plain; version=0.0.4; charset=utf-8"), ("X-Kept", "1")]

    def exchanges(self, limit: int) -> list[dict[str, Any]]:
        return [{"number": number} for number in range(300)][:limit]

    def effective_config(self) -> dict[str, Any]:
        proxy = ProxyUrl("proxy.example", 3128, "me", Secret("hunter2"))
        return redacted(Config((make_upstream(proxy=proxy),)))


@pytest.fixture
def subject() -> FakeSubject:
    return FakeSubject()


@pytest.fixture
async def ask(subject: FakeSubject) -> AsyncIterator[Ask]:
    """Asks an admin port on a free port of the loopback."""
    server = web.Server(Admin(subject).handle, access_log=None)
    listening = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0)
    address = listening.sockets[0].getsockname()

    async def asked(target: str, method: str = "GET", **fields: str) -> RawResponse:
        headers = [(name.replace("_", "-").encode(), value.encode()) for name, value in fields.items()]
        return await get(address, target, headers, method)

    yield asked
    listening.close()
    await server.shutdown(1)


async def test_metrics_are_negotiated_by_the_fields_of_the_scrape(ask: Ask, subject: FakeSubject) -> None:
    response = await ask("/metrics", accept="application/openmetrics-text", accept_encoding="gzip")
    assert (response.status, response.body) == (200, b"up 1\n")
    assert response.value("content-type") == b"text/plain; version=0.0.4; charset=utf-8"
    assert response.value("x-kept") == b"1"
    await ask("/metrics")
    assert subject.asked == [("application/openmetrics-text", "gzip"), ("", "")]


@pytest.mark.parametrize(
    ("started", "ready", "answers"),
    [
        (False, False, {"/livez": 200, "/startupz": 503, "/readyz": 503}),
        (True, True, {"/livez": 200, "/startupz": 200, "/readyz": 200}),
        (True, False, {"/livez": 200, "/startupz": 200, "/readyz": 503}),
    ],
)
async def test_life_start_and_readiness_are_told_apart(
    started: bool, ready: bool, answers: dict[str, int], ask: Ask, subject: FakeSubject
) -> None:
    subject.started, subject.ready = started, ready
    assert {path: (await ask(path)).status for path in answers} == answers


async def test_readiness_says_why_not(ask: Ask, subject: FakeSubject) -> None:
    subject.ready = False
    assert (await ask("/readyz")).body == b"draining\n"
    subject.started = False
    assert (await ask("/readyz")).body == b"starting\n"


@pytest.mark.parametrize("path", ["/", "/metrics/", "/METRICS", "/config/x", "//metrics"])
async def test_other_paths_are_not_found_and_told_what_there_is(path: str, ask: Ask) -> None:
    response = await ask(path)
    assert response.status == 404
    assert json.loads(response.body)["paths"] == PATHS


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
async def test_other_methods_are_not_allowed(path: str, method: str, ask: Ask) -> None:
    response = await ask(path, method)
    assert (response.status, response.value("allow")) == (405, b"GET, HEAD")


@pytest.mark.parametrize("path", PATHS)
async def test_head_is_get_without_its_body(path: str, ask: Ask) -> None:
    whole, head = await ask(path), await ask(path, "HEAD")
    assert head.status == whole.status == 200
    assert head.value("content-length") == str(len(whole.body)).encode()
    assert head.body == b""


@pytest.mark.parametrize(
    ("query", "number"),
    [
        ("", DEFAULT_EXCHANGES),
        ("?limit=2", 2),
        ("?limit=0", 0),
        ("?limit=1000", 300),
        ("?limit=3&format=json", 3),
    ],
)
async def test_the_last_exchanges_are_limited(query: str, number: int, ask: Ask) -> None:
    response = await ask("/exchanges" + query)
    assert response.value("content-type") == b"application/json"
    assert len(json.loads(response.body)["exchanges"]) == number


@pytest.mark.parametrize("query", ["?limit=-1", "?limit=x", "?limit=", "?limit=1.5", "?limit=" + "9" * 5000])
async def test_a_limit_that_is_no_number_is_refused(query: str, ask: Ask) -> None:
    response = await ask("/exchanges" + query)
    assert response.status == 400
    assert json.loads(response.body)["error"] == "limit takes a number of exchanges"


async def test_a_format_that_is_not_known_is_refused(ask: Ask) -> None:
    response = await ask("/exchanges?format=xml")
    assert response.status == 400
    assert "'xml'" in json.loads(response.body)["error"]


async def test_the_configuration_is_shown_without_its_secrets(ask: Ask) -> None:
    response = await ask("/config")
    assert json.loads(response.body)["upstreams"][0]["proxy"] == "http://***@proxy.example:3128"
    assert b"hunter2" not in response.body
