from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest

from sidecar.exchange import Phase
from sidecar.failures import Code, ErrorReason, Failure
from sidecar.upstreams.resolver import (
    MAX_TTL_SECONDS,
    MIN_TTL_SECONDS,
    RETRY_STALE_SECONDS,
    STALE_SECONDS,
    AddrInfo,
    Resolver,
    literal_address,
    system_lookup,
)
from tests.kit.fakes import Clock

ADDRESS = literal_address("192.0.2.7", 443)
OTHER = literal_address("192.0.2.8", 443)
assert ADDRESS is not None
assert OTHER is not None


class NameServer:
    """Answers with what it was told, at once or when `answer` is set, and counts the questions."""

    def __init__(self) -> None:
        self.questions: list[tuple[str, int]] = []
        self.addresses: list[AddrInfo] = [ADDRESS]
        self.ttl = 60.0
        self.error: Exception | None = None
        self.answer = asyncio.Event()
        self.answer.set()

    async def __call__(self, host: str, port: int) -> tuple[list[AddrInfo], float]:
        self.questions.append((host, port))
        await self.answer.wait()
        if self.error is not None:
            raise self.error
        return self.addresses, self.ttl


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server() -> NameServer:
    return NameServer()


@pytest.fixture
def resolver(server: NameServer, clock: Clock) -> Resolver:
    return Resolver(server, clock)


@pytest.fixture
def ask(resolver: Resolver) -> Callable[..., Any]:
    def resolve(host: str = "api.example", timeout: float = 5.0) -> Any:
        return resolver.resolve(host, 443, timeout)

    return resolve


@pytest.mark.parametrize(
    ("host", "family", "address"),
    [
        ("127.0.0.1", socket.AF_INET, ("127.0.0.1", 443)),
        ("::1", socket.AF_INET6, ("::1", 443, 0, 0)),
        ("2001:DB8:0::7", socket.AF_INET6, ("2001:db8::7", 443, 0, 0)),
    ],
)
async def test_a_literal_is_nobodys_question(
    host: str, family: int, address: tuple[Any, ...], ask: Callable[..., Any], server: NameServer
) -> None:
    (found,), asked = await ask(host)
    assert (found[0], found[4], asked) == (family, address, False)
    assert not server.questions


@pytest.mark.parametrize("host", ["api.example", "127.1", "1.2.3.4.5", "[::1]", ""])
def test_other_hosts_are_no_literals(host: str) -> None:
    assert literal_address(host, 443) is None


@pytest.mark.parametrize(
    ("ttl", "fresh"),
    [
        (60.0, 60.0),
        (0.0, MIN_TTL_SECONDS),
        (-1.0, MIN_TTL_SECONDS),
        (86_400.0, MAX_TTL_SECONDS),
    ],
)
async def test_an_answer_is_kept_for_its_time_to_live_within_bounds(
    ttl: float, fresh: float, ask: Callable[..., Any], server: NameServer, clock: Clock
) -> None:
    server.ttl = ttl
    assert await ask() == ([ADDRESS], True)
    clock.advance(fresh - 0.01)
    assert await ask() == ([ADDRESS], False)
    clock.advance(0.01)
    server.addresses = [OTHER]
    assert await ask() == ([OTHER], True)
    assert len(server.questions) == 2


async def test_names_and_ports_are_kept_apart(resolver: Resolver, server: NameServer) -> None:
    for host, port in (("a.example", 443), ("a.example", 80), ("b.example", 443)):
        await resolver.resolve(host, port, 5)
    assert server.questions == [("a.example", 443), ("a.example", 80), ("b.example", 443)]


async def test_questions_at_once_are_asked_once(ask: Callable[..., Any], server: NameServer) -> None:
    server.answer.clear()
    asking = [asyncio.ensure_future(ask()) for _ in range(5)]
    await asyncio.sleep(0)
    server.answer.set()
    assert await asyncio.gather(*asking) == [([ADDRESS], True)] * 5
    assert len(server.questions) == 1


async def test_one_who_leaves_does_not_take_the_answer_from_the_others(
    ask: Callable[..., Any], server: NameServer
) -> None:
    server.answer.clear()
    first, second = asyncio.ensure_future(ask()), asyncio.ensure_future(ask())
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    server.answer.set()
    assert await second == ([ADDRESS], True)
    assert len(server.questions) == 1


async def test_an_answer_that_nobody_waits_for_any_more_is_kept(ask: Callable[..., Any], server: NameServer) -> None:
    server.answer.clear()
    only = asyncio.ensure_future(ask())
    await asyncio.sleep(0)
    only.cancel()
    with pytest.raises(asyncio.CancelledError):
        await only
    server.answer.set()
    for _ in range(3):
        await asyncio.sleep(0)
    assert await ask() == ([ADDRESS], False)


@pytest.mark.parametrize("error", [OSError("server failure"), TimeoutError()])
async def test_an_old_answer_serves_while_the_name_server_fails(
    error: Exception, ask: Callable[..., Any], server: NameServer, clock: Clock
) -> None:
    await ask()
    clock.advance(61)
    server.error = error
    assert await ask() == ([ADDRESS], True)
    clock.advance(RETRY_STALE_SECONDS - 0.01)
    assert await ask() == ([ADDRESS], False), "it counts as fresh for a while"
    clock.advance(0.01)
    server.error = None
    server.addresses = [OTHER]
    assert await ask() == ([OTHER], True), "then the server is asked again"


async def test_an_old_answer_dies_in_the_end(ask: Callable[..., Any], server: NameServer, clock: Clock) -> None:
    await ask()
    server.error = OSError("server failure")
    clock.advance(STALE_SECONDS)
    with pytest.raises(Failure):
        await ask()


async def test_a_name_that_is_not_known_is_a_failure_of_dns(ask: Callable[..., Any], server: NameServer) -> None:
    server.error = OSError("Domain name not found")
    with pytest.raises(Failure) as caught:
        await ask()
    failure = caught.value
    assert (failure.code, failure.phase, failure.reason) == (Code.DNS_FAILED, Phase.DNS, ErrorReason.NOT_FOUND)
    assert failure.request_untouched
    assert failure.message == "cannot resolve 'api.example': Domain name not found"


async def test_a_name_without_an_address_is_a_failure_and_not_cached(
    ask: Callable[..., Any], server: NameServer
) -> None:
    server.addresses = []
    for _ in range(2):
        with pytest.raises(Failure, match="the name has no address"):
            await ask()
    assert len(server.questions) == 2


async def test_a_name_server_that_is_silent_is_given_up(ask: Callable[..., Any], server: NameServer) -> None:
    server.answer.clear()
    with pytest.raises(Failure) as caught:
        await ask(timeout=0.01)
    failure = caught.value
    assert (failure.code, failure.phase, failure.reason) == (Code.DNS_TIMEOUT, Phase.DNS, ErrorReason.TIMEOUT)
    assert failure.request_untouched
    server.answer.set()
    for _ in range(3):
        await asyncio.sleep(0)
    assert await ask() == ([ADDRESS], False), "the late answer is of use to those who come after"


async def test_a_silent_name_server_does_not_cost_every_request_its_timeout(
    ask: Callable[..., Any], server: NameServer, clock: Clock
) -> None:
    await ask()
    clock.advance(61)
    server.answer.clear()
    assert await ask(timeout=0.01) == ([ADDRESS], True)
    assert await ask(timeout=0.01) == ([ADDRESS], False)
    server.answer.set()


async def test_a_failed_question_leaves_no_complaint_of_the_loop(
    ask: Callable[..., Any], server: NameServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.answer.clear()
    only = asyncio.ensure_future(ask())
    await asyncio.sleep(0)
    only.cancel()
    with pytest.raises(asyncio.CancelledError):
        await only
    server.error = OSError("server failure")
    server.answer.set()
    for _ in range(3):
        await asyncio.sleep(0)
    import gc

    gc.collect()
    assert not caplog.records


async def test_the_hosts_file_is_asked_as_well() -> None:
    addresses, ttl = await asyncio.wait_for(system_lookup()("localhost", 8080), 10)
    assert {address[4][:2] for address in addresses} & {("127.0.0.1", 8080), ("::1", 8080)}
    assert ttl >= 0
