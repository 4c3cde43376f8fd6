"""What the official SDKs raise when the sidecar cannot carry a call, when the API refuses it, or when it breaks off."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import anthropic
import openai
import pytest
import pytest_asyncio

from tests.conftest import SidecarFactory, UpstreamFactory
from tests.kit import events
from tests.kit.client import CHAT_REQUEST
from tests.kit.metrics import outcomes
from tests.kit.process import refusing_port
from tests.kit.sdk import Stage, forget_environment
from tests.kit.sdk_calls import MESSAGES, Sdks, clients
from tests.kit.upstream import Connection

pytestmark = pytest.mark.asyncio(loop_scope="module")

PATIENCE = 5.0
"""Seconds in which every call here must have ended, one way or the other."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    settings: dict[str, dict[str, Any]] = {
        "/sim": {},
        "/refused": {"url": f"http://127.0.0.1:{refusing_port()}", "tls": {}},
        "/mistrusted": {"tls": {}},
        "/silent": {"timeouts": {"headers": "200ms"}},
        "/stalling": {"timeouts": {"idle": "200ms"}},
        "/narrow": {"pool": {"max_connections": 1, "acquire_timeout": "100ms"}},
    }
    with pytest.MonkeyPatch.context() as patch:
        forget_environment(patch)
        limits = {"max_request_body": "64KiB"}
        async with Stage(tmp_path_factory.mktemp("errors"), settings, limits=limits) as stage:
            yield stage


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sdks(stage: Stage) -> AsyncIterator[Sdks]:
    async with clients(stage.url("/sim")) as sdks:
        yield sdks


def at(sdks: Sdks, stage: Stage, prefix: str) -> Sdks:
    """The asynchronous clients with another base URL."""
    return sdks._replace(
        oai=sdks.oai.with_options(base_url=stage.url(prefix) + "/v1"),
        ant=sdks.ant.with_options(base_url=stage.url(prefix)),
    )


async def chat(sdks: Sdks, headers: dict[str, str], *, stream: bool, text: str = "hi") -> None:
    """A chat by the openai SDK, read to its end."""
    messages: Any = [{"role": "user", "content": text}]
    create: Any = sdks.oai.chat.completions.create
    answer = await create(model="m", messages=messages, stream=stream, extra_headers=headers)
    if stream:
        async for _ in answer:
            pass


async def message(sdks: Sdks, headers: dict[str, str], *, stream: bool, text: str = "hi") -> None:
    """The same by the anthropic SDK."""
    messages: Any = [{"role": "user", "content": text}]
    if not stream:
        await sdks.ant.messages.create(model="m", max_tokens=50, messages=messages, extra_headers=headers)
        return
    async with sdks.ant.messages.stream(model="m", max_tokens=50, messages=messages, extra_headers=headers) as answer:
        await answer.until_done()


class Uncarried(NamedTuple):
    """A call that gets an answer of the sidecar's own."""

    prefix: str
    headers: dict[str, str]
    status: int
    code: str
    outcome: str


UNCARRIED = [
    Uncarried("/refused", {}, 502, "connect_failed", "network_error"),
    Uncarried("/mistrusted", {}, 502, "tls_failed", "network_error"),
    Uncarried("/sim", {"x-sim-cut": "head"}, 502, "upstream_closed", "network_error"),
    Uncarried("/silent", {"x-sim-headers-delay": "3"}, 504, "headers_timeout", "timeout"),
]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("case", UNCARRIED, ids=[case.code for case in UNCARRIED])
async def test_what_could_not_be_carried_raises_a_server_error_that_names_it(
    stage: Stage, sdks: Sdks, case: Uncarried, stream: bool
) -> None:
    there = at(sdks, stage, case.prefix)
    async with stage.call(2) as call, asyncio.timeout(PATIENCE):
        with pytest.raises(openai.InternalServerError) as by_openai:
            await chat(there, case.headers, stream=stream)
        with pytest.raises(anthropic.InternalServerError) as by_anthropic:
            await message(there, case.headers, stream=stream)
    assert by_openai.value.status_code == by_anthropic.value.status_code == case.status
    assert by_openai.value.code == case.code
    for error in (by_openai.value, by_anthropic.value):
        assert error.response.headers["x-sidecar-error"] == case.code
        assert case.code in json.dumps(error.body)
    for operation in ("chat", "messages"):
        labels = {"operation": operation, "code": str(case.status), "upstream": case.prefix.strip("/")}
        assert call.outcomes(**labels) == {case.outcome: 1}


async def test_a_full_pool_raises_a_server_error_and_asks_to_come_back(stage: Stage, sdks: Sdks) -> None:
    there = at(sdks, stage, "/narrow")
    async with stage.call(3) as call, asyncio.timeout(PATIENCE):
        seen = stage.simulator.requests
        holding = asyncio.ensure_future(chat(there, {"x-sim-ttft": "0.6"}, stream=False))
        await stage.requests_after(seen)
        with pytest.raises(openai.InternalServerError, match=r"pool\.max_connections") as by_openai:
            await chat(there, {}, stream=True)
        with pytest.raises(anthropic.InternalServerError, match=r"pool\.max_connections") as by_anthropic:
            await message(there, {}, stream=True)
        await holding
    for error in (by_openai.value, by_anthropic.value):
        assert error.status_code == 503
        assert error.response.headers["retry-after"] == "1"
    assert call.outcomes(upstream="narrow") == {"ok": 1, "rejected": 2}


async def test_a_path_without_upstream_raises_not_found(stage: Stage, sdks: Sdks) -> None:
    nowhere = at(sdks, stage, "/nowhere")
    async with stage.call(2) as call:
        with pytest.raises(openai.NotFoundError) as by_openai:
            await chat(nowhere, {}, stream=True)
        with pytest.raises(anthropic.NotFoundError):
            await message(nowhere, {}, stream=True)
    assert by_openai.value.code == "no_upstream"
    assert call.outcomes(code="404", upstream="none") == {"rejected": 2}


async def test_a_path_without_upstream_is_refused_in_the_shape_of_its_api(stage: Stage, sdks: Sdks) -> None:
    async with stage.call() as call:
        with pytest.raises(anthropic.NotFoundError) as caught:
            await message(at(sdks, stage, "/nowhere"), {}, stream=False)
    body: Any = caught.value.body
    assert body["type"] == "error"
    assert call.outcomes(operation="messages") == {"rejected": 1}


@pytest.mark.asyncio(loop_scope="function")
async def test_a_call_that_was_not_carried_is_counted_as_what_it_asked_for(
    upstream: UpstreamFactory, sidecar_factory: SidecarFactory
) -> None:
    async def mute(connection: Connection) -> None:
        await connection.wait_closed()

    server = await upstream(mute)
    timeouts = {"tls": "300ms"}
    url = server.url.replace("http:", "https:")
    sidecar = await sidecar_factory(url, upstream_settings={"timeouts": timeouts})
    before = await sidecar.metrics()
    async with await sidecar.client() as client:
        # As all SDKs do: two writes.
        await client.send(CHAT_REQUEST.removesuffix(events.DEFAULT_BODY))
        await server.wait_for_connections(1)
        await client.send(events.DEFAULT_BODY)
        assert (await client.response()).status == 504
    after = await sidecar.metrics_after(before)
    assert outcomes(before, after, operation="chat", code="504") == {"timeout": 1}
    assert outcomes(before, after, stream="true") == {"timeout": 1}


async def test_a_body_above_the_limit_raises_status_413(stage: Stage, sdks: Sdks) -> None:
    long = "x" * 70_000
    async with stage.call(2) as call:
        with pytest.raises(openai.APIStatusError, match="max_request_body") as by_openai:
            await chat(sdks, {}, stream=True, text=long)
        with pytest.raises(anthropic.APIStatusError, match="max_request_body") as by_anthropic:
            await message(sdks, {}, stream=True, text=long)
    assert by_openai.value.status_code == by_anthropic.value.status_code == 413
    assert call.outcomes() == {"rejected": 2}
    assert call.truths == []


REFUSALS = {
    400: ("BadRequestError", "client_error"),
    401: ("AuthenticationError", "client_error"),
    429: ("RateLimitError", "rate_limited"),
    503: ("InternalServerError", "upstream_error"),
}


@pytest.mark.parametrize("status", REFUSALS)
async def test_an_error_of_the_api_passes_as_it_is(stage: Stage, sdks: Sdks, status: int) -> None:
    kind, outcome = REFUSALS[status]
    failing = {"x-sim-status": str(status)}
    async with stage.call(2) as call:
        with pytest.raises(getattr(openai, kind)) as first:
            await chat(sdks, failing, stream=True)
        with pytest.raises(getattr(anthropic, kind)) as second:
            await message(sdks, failing, stream=True)
    for caught in (first, second):
        error: Any = caught.value
        assert f"status {status}" in error.message
        assert "x-sidecar-error" not in error.response.headers
    assert call.outcomes(code=str(status), stream="true") == {outcome: 2}
    assert call.delta("streams_without_token_total").value == 0


@pytest.mark.parametrize(
    ("prefix", "fault", "outcome"),
    [
        ("/sim", {"x-sim-cut": "6"}, "network_error"),
        ("/sim", {"x-sim-reset": "6"}, "network_error"),
        ("/stalling", {"x-sim-stall": "6:3"}, "timeout"),
    ],
    ids=["cut", "reset", "stall"],
)
async def test_a_stream_that_breaks_off_never_looks_complete(
    stage: Stage, sdks: Sdks, prefix: str, fault: dict[str, str], outcome: str
) -> None:
    there = at(sdks, stage, prefix)
    async with stage.call(2) as call, asyncio.timeout(PATIENCE):
        # Depending on its version an SDK wraps the transport's error or lets it through.
        with pytest.raises(Exception, match=r"(?i)connection"):
            await chat(there, fault, stream=True)
        with pytest.raises(Exception, match=r"(?i)connection"):
            await message(there, fault, stream=True)
    assert call.outcomes(code="200") == {outcome: 2}
    assert call.delta("ttft").count == 2


async def test_an_error_event_within_a_stream_raises_and_is_told_apart(stage: Stage, sdks: Sdks) -> None:
    failing = {"x-sim-error-event": "6"}
    async with stage.call(2) as call:
        with pytest.raises(openai.APIError, match="The server had an error"):
            await chat(sdks, failing, stream=True)
        with pytest.raises(anthropic.APIStatusError, match="Overloaded"):
            await message(sdks, failing, stream=True)
    assert call.outcomes(code="200") == {"stream_error": 2}


@pytest.mark.asyncio(loop_scope="function")
async def test_retries_of_the_sdk_reach_the_api_and_are_counted_each(
    upstream: UpstreamFactory, sidecar_factory: SidecarFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_environment(monkeypatch)
    busy = events.json_response({"error": {"message": "busy"}}, ("retry-after-ms", "1"), status="503 Busy")
    answers = iter([busy, busy, events.chat_completion("at last")])

    async def script(connection: Connection) -> None:
        while True:
            await connection.read_request(timeout=600)
            await connection.send(next(answers))

    server = await upstream(script)
    sidecar = await sidecar_factory(server)
    before = await sidecar.metrics()
    base_url = f"http://127.0.0.1:{sidecar.data[1]}/v1"
    async with openai.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=2) as client:
        answer = await client.chat.completions.create(model="m1", messages=MESSAGES)
    assert answer.choices[0].message.content == "at last"
    counts = [dict(request.headers)[b"x-stainless-retry-count"] for request in server.requests]
    assert counts == [b"0", b"1", b"2"]
    after = await sidecar.metrics_after(before, 3)
    assert outcomes(before, after) == {"ok": 1, "upstream_error": 2}
    assert after.value("retries_total") == 0, "they are the application's, not ours"


async def test_an_sdk_that_stops_reading_is_a_client_that_left(stage: Stage, sdks: Sdks) -> None:
    async with stage.call() as call:
        stream = await sdks.oai.chat.completions.create(
            model="m", messages=MESSAGES, stream=True, extra_headers={"x-sim-tokens": "500"}
        )
        async for _ in stream:
            break
        await stream.close()
    assert call.outcomes() == {"client_cancelled": 1}
    assert call.truth.ending == "cancelled"
