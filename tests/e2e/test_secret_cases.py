"""AUT-06: no credential in anything the sidecar says, at the chattiest log level and in every kind of error."""

from __future__ import annotations

import logging
import re
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from sidecar.dialects.reading import RequestFacts
from sidecar.exchange import Exchange, Outcome
from sidecar.log import configure
from tests.conftest import UpstreamFactory
from tests.kit import events
from tests.kit.client import get, request_bytes
from tests.kit.h1 import RawRequest, RawResponse
from tests.kit.process import LocalSidecar, SidecarProcess, refusing_port, upstream_config
from tests.kit.shared import eventually
from tests.kit.upstream import Connection, ScriptedUpstream, each_request
from tests.kit.wire import ConnectionEnded

SECRET = re.compile(rb"SECRET[0-9]+|U0VDUkVU")
"""Also in base64, as in Basic credentials."""

CREDENTIALS: list[tuple[bytes, bytes]] = [
    (b"Authorization", b"Bearer SECRET1"),
    (b"x-api-key", b"SECRET2"),
    (b"api-key", b"SECRET3"),
    (b"Cookie", b"s=SECRET5"),
    (b"Proxy-Authorization", b"Basic SECRET6"),
    (b"x-goog-api-key", b"SECRET11"),
]
QUERY = b"?key=SECRET4"
HEAD = b"".join(name + b": " + value + b"\r\n" for name, value in CREDENTIALS)
BODY = events.DEFAULT_BODY.replace(b'"hi"', b'"my password is SECRET12"')
TO_STDERR = ("sh", "-c", 'exec "$0" "$@" 1>&2', sys.executable)
"""Starts Python with its standard output where its log goes, so that both are read."""


def request(prefix: bytes, headers: list[tuple[bytes, bytes]] | None = None, body: bytes = BODY) -> bytes:
    target = prefix + b"/v1/chat/completions" + QUERY
    return request_bytes(target=target, headers=[*(headers or []), *CREDENTIALS], body=body)


async def careless(connection: Connection, asked: RawRequest) -> None:
    """An upstream that breaks in the way the path names, quoting what it was sent."""
    quoted = asked.value("authorization") or b""
    if b"/broken-head" in asked.target:
        await connection.send(b"HTTP/1.1 200 OK\r\nno colon " + quoted + b"\r\n\r\n")
    elif b"/not-http" in asked.target:
        await connection.send(b"SSH-2.0 " + quoted + b"\r\n\r\n")
    elif b"/broken-chunk" in asked.target:
        await connection.send(events.sse_head() + events.chunk(events.ROLE) + quoted + b"\r\n")
    elif b"/broken-json" in asked.target:
        await connection.send(events.json_response(b'{"error": "' + quoted + b'", '))
    elif b"/broken-events" in asked.target:
        await connection.stream(b"data: {" + quoted + b"\n\n", events.DONE)
    elif b"/stream-error" in asked.target:
        await connection.stream(events.event({"error": {"message": quoted.decode(), "type": "x"}}))
    elif b"/hang-up" in asked.target:
        connection.rst()
    else:
        await connection.send(events.chat_completion())


BROKEN = (b"/broken-head", b"/not-http", b"/broken-chunk", b"/broken-json", b"/broken-events", b"/stream-error",
          b"/hang-up")  # fmt: skip

MALFORMED = {
    "no colon in a field": b"POST /v1" + QUERY + b" HTTP/1.1\r\nHost: x\r\n" + HEAD + b"Bearer SECRET1\r\n\r\n",
    "a space in the target": b"POST /v1 SECRET4" + QUERY + b" HTTP/1.1\r\nHost: x\r\n" + HEAD + b"\r\n",
    "a NUL in a field": b"POST /v1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer SECRET1\0\r\n\r\n",
    "no version": b"POST /v1" + QUERY + b"\r\nHost: x\r\n" + HEAD + b"\r\n",
    "a bad method": b"P@ST /v1" + QUERY + b" HTTP/1.1\r\nHost: x\r\n" + HEAD + b"\r\n",
    "two lengths": b"POST /v1" + QUERY + b" HTTP/1.1\r\nHost: x\r\n" + HEAD + b"Content-Length: 1\r\n"
    b"Content-Length: 2\r\n\r\nab",
    "a length that is none": b"POST /v1 HTTP/1.1\r\nHost: x\r\n" + HEAD + b"Content-Length: SECRET1\r\n\r\n",
    "a bad chunk": b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n" + HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    b"SECRET1\r\nSECRET2\r\n",
    "two hosts": b"POST /v1" + QUERY + b" HTTP/1.1\r\nHost: x\r\nHost: SECRET4\r\n" + HEAD + b"\r\n",
    "another's URL": b"GET http://u:SECRET10@other.test/" + QUERY + b" HTTP/1.1\r\nHost: x\r\n" + HEAD + b"\r\n",
    "a tunnel": b"CONNECT SECRET4.test:443 HTTP/1.1\r\nHost: x\r\n" + HEAD + b"\r\n",
    "a head that is too large": b"POST /v1" + QUERY + b" HTTP/1.1\r\nHost: x\r\n" + HEAD * 2000 + b"\r\n",
    "a field that is too large": b"POST /v1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + b"SECRET1" * 20_000
    + b"\r\n\r\n",
    "a target that is too large": b"POST /v1" + QUERY * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "TLS to a plain port": b"\x16\x03\x01\x02\x00\x01\x00SECRET1",
}  # fmt: skip


class Spilled:
    """Everything the sidecar said, to be searched at the end."""

    def __init__(self) -> None:
        self.texts: list[tuple[str, bytes]] = []

    def note(self, where: str, text: bytes) -> None:
        self.texts.append((where, text))

    def found(self) -> list[tuple[str, bytes]]:
        """Where a secret stands, with what is around it."""
        return [
            (where, text[max(0, match.start() - 60) : match.end() + 20])
            for where, text in self.texts
            for match in SECRET.finditer(text)
        ]


async def send(sidecar: LocalSidecar | SidecarProcess, data: bytes, spilled: Spilled, where: str) -> RawResponse | None:
    """Send the bytes and note a response of the sidecar's own; None when there was none."""
    async with await sidecar.client() as client:
        try:
            await client.send(data)
            response = await client.response(timeout=2)
        except (ConnectionEnded, TimeoutError, OSError):
            return None
    if response.value("x-sidecar-error") is not None:
        spilled.note(f"answer: {where}", response.raw)
    return response


def settings(server: ScriptedUpstream, directory: Path) -> dict[str, Any]:
    dead = refusing_port()
    proxy = f"http://user:SECRET10@127.0.0.1:{dead}"
    proxying = f"http://SECRET13:SECRET10@127.0.0.1:{server.port}"
    return {
        "log": {"level": "debug"},
        "limits": {"max_header_bytes": "16KiB"},
        "upstreams": [
            upstream_config(server.url, "works", prefix="/works", stream_usage="inject"),
            upstream_config(f"http://127.0.0.1:{dead}", "dead", prefix="/dead"),
            upstream_config("http://no-such-name.invalid", "nameless", prefix="/nameless", proxy="none"),
            upstream_config(
                f"https://127.0.0.1:{server.port}", "not-tls", prefix="/not-tls", timeouts={"tls": "300ms"}
            ),
            upstream_config("https://api.test", "proxied", prefix="/proxied", proxy=proxy),
            upstream_config("http://api.test", "by-proxy", prefix="/by-proxy", proxy=proxying),
            upstream_config("https://api.test", "tunnel", prefix="/tunnel", proxy=proxying),
        ],
    }


async def ask_everything(sidecar: LocalSidecar | SidecarProcess, spilled: Spilled) -> int:
    """Every kind of request; how many answers were the sidecar's own."""
    works = await send(sidecar, request(b"/works"), spilled, "works")
    assert works is not None
    assert works.status == 200
    for broken in BROKEN:
        await send(sidecar, request(b"/works" + broken), spilled, broken.decode())
    for prefix in (b"/dead", b"/nameless", b"/not-tls", b"/proxied", b"/by-proxy", b"/tunnel", b"/SECRET-less"):
        await send(sidecar, request(prefix), spilled, prefix.decode())
    for name, data in MALFORMED.items():
        prefixed = data.replace(b" /v1", b" /works/v1", 1)
        await send(sidecar, prefixed, spilled, name)
    for target in ("/metrics", "/exchanges", "/config", "/readyz", "/nothing?key=SECRET4"):
        response = await get(sidecar.admin, target, CREDENTIALS)
        spilled.note(target, response.raw)
    openmetrics = [(b"Accept", b"application/openmetrics-text; version=1.0.0")]
    spilled.note("/metrics", (await get(sidecar.admin, "/metrics", openmetrics)).raw)
    return sum(where.startswith("answer: ") for where, _ in spilled.texts)


async def test_aut_06_no_output_of_the_process_has_a_credential(upstream: UpstreamFactory, tmp_path: Path) -> None:
    spilled = Spilled()
    config = settings(await upstream(each_request(careless)), tmp_path)
    config["upstreams"][4]["proxy"] = config["upstreams"][4]["proxy"].replace("SECRET10", "${PROXY_PASSWORD}")
    environment = {"PROXY_PASSWORD": "SECRET10", "PYTHONASYNCIODEBUG": "1", "SIDECAR_LOG_LEVEL": "debug"}
    sidecar = SidecarProcess(config, tmp_path, environment=environment, python=TO_STDERR)
    try:
        await sidecar.start()
        assert await ask_everything(sidecar, spilled) > 20
        # A reload that fails quotes nothing either, and one that works shows the new configuration.
        text = sidecar.config_file.read_text()
        sidecar.config_file.write_text(text.replace("level: debug", "level: debug, format: SECRET10"))
        sidecar.signal(signal.SIGHUP)
        await sidecar.wait_for_event("reload_refused")
        sidecar.config_file.write_text(text.replace("level: debug", "level: debug\n  format: console"))
        sidecar.signal(signal.SIGHUP)
        await eventually(lambda: any(" reloaded " in line for line in sidecar.lines))
        await ask_everything(sidecar, spilled)
    finally:
        await sidecar.stop()
    spilled.note("output", "\n".join(sidecar.lines).encode())
    assert any("request_not_carried" in line for line in sidecar.lines)
    assert spilled.found() == []


@pytest.fixture
def log_text(capfd: pytest.CaptureFixture[str]) -> Iterator[pytest.CaptureFixture[str]]:
    """The log as the process would write it."""
    root, own = logging.getLogger(), logging.getLogger("sidecar")
    before = root.handlers[:], root.level, own.level
    configure("debug", "json")
    yield capfd
    root.handlers[:], level, own_level = before
    root.setLevel(level)
    own.setLevel(own_level)


@pytest.fixture
async def local(upstream: UpstreamFactory, tmp_path: Path) -> AsyncIterator[LocalSidecar]:
    sidecar = await LocalSidecar(settings(await upstream(each_request(careless)), tmp_path), tmp_path).start()
    yield sidecar
    await sidecar.stop()


@pytest.mark.parametrize("place", ["_admit", "_carry", "_send"])
async def test_aut_06_the_traceback_of_a_mistake_of_ours_has_no_credential(
    local: LocalSidecar, log_text: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    spilled = Spilled()

    def mistaken(*_: Any) -> None:
        raise LookupError("a mistake with the request in the frames around it")

    monkeypatch.setattr(local.app.proxy, place, mistaken)
    response = await send(local, request(b"/works"), spilled, "mistake")
    assert response is not None
    assert response.status == 500
    assert response.value("x-sidecar-error") == b"internal"
    output = log_text.readouterr()
    assert "Traceback" in output.err
    spilled.note("log", (output.err + output.out).encode())
    assert spilled.found() == []


async def test_aut_06_what_the_objects_of_a_sidecar_print_has_no_credential(
    local: LocalSidecar, monkeypatch: pytest.MonkeyPatch
) -> None:
    spilled = Spilled()
    app = local.app
    ended: list[tuple[Exchange, RequestFacts]] = []
    record = app.recorder.record

    def noted(exchange: Exchange, facts: RequestFacts) -> Outcome:
        ended.append((exchange, facts))
        return record(exchange, facts)

    monkeypatch.setattr(app.recorder, "record", noted)
    await send(local, request(b"/works"), spilled, "works")
    await local.metrics_when(lambda metrics: metrics.value("requests") == 1)
    ((exchange, facts),) = ended
    (kept,) = app.ledger.last
    for name, thing in {
        "config": app.config,
        "upstreams": app.config.upstreams,
        "origins": app.proxy.router.origins,
        "exchange": exchange,
        "facts": facts,
        "kept": kept,
        "effective": app.effective_config(),
    }.items():
        # The query stays in an exchange and in what is kept of it; what is shown of it is cut (see /exchanges).
        spilled.note(name, repr(thing).replace(QUERY.decode(), "").encode())
    assert spilled.found() == []
