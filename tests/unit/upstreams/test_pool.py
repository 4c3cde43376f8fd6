from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from sidecar.config.model import Timeouts
from sidecar.exchange import Phase
from sidecar.failures import Code, ErrorReason, Failure
from tests.kit.fakes import make_exchange

Make = Callable[..., Any]


async def test_the_youngest_idle_connection_is_taken_first(pooled: Make) -> None:
    the = pooled()
    first, second, third = await the.open(3)
    for connection in (second, third, first):
        the.answer(connection)
    assert [the.pool.take() for _ in range(4)] == [first, third, second, None]
    assert the.observed.names() == ["opened"] * 3 + ["reused"] * 3


async def test_a_dial_notes_its_phases_on_the_exchange(pooled: Make) -> None:
    the = pooled()
    exchange = make_exchange()
    asking = asyncio.ensure_future(the.pool.acquire(exchange))
    await the.turn()
    the.dials[0].set_result(True)
    await asking
    assert (exchange.dns, exchange.connect, exchange.tls, exchange.connection_reused) == (0.001, 0.002, 0.0, False)
    assert the.observed.events == [("opened", "api", 0.001, 0.002, None)]


async def test_there_are_never_more_than_the_limit(pooled: Make) -> None:
    the = pooled(max_connections=2)
    asking = [asyncio.ensure_future(the.use()) for _ in range(5)]
    await the.turn()
    assert len(the.dials) == 2
    assert repr(the.pool) == "<Pool api: 0 active, 0 idle, 2 opening, 3 waiting>"
    for task in asking:
        task.cancel()


async def test_those_who_wait_are_served_in_order(pooled: Make) -> None:
    the = pooled(max_connections=1)
    (connection,) = await the.open()
    order: list[int] = []

    async def wait(number: int) -> None:
        got = await the.use()
        assert got is connection
        order.append(number)

    asking = []
    for number in range(3):
        asking.append(asyncio.ensure_future(wait(number)))
        await the.turn()
    for served in range(1, 4):
        the.answer(connection)
        await the.turn()
        assert order == list(range(served))
    assert the.counts() == (1, 0)
    await asyncio.gather(*asking)


async def test_a_handed_over_connection_counts_as_reused(pooled: Make) -> None:
    the = pooled(max_connections=1)
    (connection,) = await the.open()
    exchange = make_exchange()
    asking = asyncio.ensure_future(the.pool.acquire(exchange))
    await the.turn()
    the.answer(connection)
    assert await asking is connection
    assert exchange.connection_reused
    assert the.observed.names() == ["opened", "reused"]


async def test_a_place_that_comes_free_is_dialled_by_the_one_who_waits_longest(pooled: Make) -> None:
    the = pooled(max_connections=1)
    (connection,) = await the.open()
    asking = [asyncio.ensure_future(the.use()) for _ in range(2)]
    await the.turn()
    connection.connection_lost(None)
    await the.turn()
    assert len(the.dials) == 1
    the.dials[0].set_result(True)
    await the.turn()
    assert [task.done() for task in asking] == [True, False]
    asking[1].cancel()


async def test_a_dial_that_fails_gives_its_place_to_the_next(pooled: Make) -> None:
    the = pooled(max_connections=1)
    first, second = (asyncio.ensure_future(the.use()) for _ in range(2))
    await the.turn()
    the.dials[0].set_exception(Failure(Code.CONNECT_FAILED, "x", Phase.CONNECT, ErrorReason.REFUSED))
    with pytest.raises(Failure, match="connect_failed"):
        await first
    assert the.observed.events == [("error", "api", Phase.CONNECT, ErrorReason.REFUSED)]
    await the.turn()
    the.dials[0].set_result(True)
    await second
    assert the.counts() == (1, 0)


async def test_a_place_that_does_not_come_is_given_up(pooled: Make) -> None:
    the = pooled(max_connections=1, acquire_timeout=0.01)
    (connection,) = await the.open()
    with pytest.raises(Failure) as caught:
        await the.use()
    failure = caught.value
    assert (failure.code, failure.phase, failure.reason) == (Code.POOL_EXHAUSTED, Phase.BLOCKED, ErrorReason.TIMEOUT)
    assert failure.request_untouched
    assert "all 1 connections to upstream 'api' were busy for 0.01 s" in failure.message
    the.answer(connection)
    assert the.counts() == (0, 1), "the one who left gets nothing"


@pytest.mark.parametrize("what", ["connection", "place"])
async def test_a_waiter_that_leaves_at_the_moment_of_the_hand_over_loses_nothing(what: str, pooled: Make) -> None:
    the = pooled(max_connections=1)
    (connection,) = await the.open()
    leaving, staying = (asyncio.ensure_future(the.use()) for _ in range(2))
    await the.turn()
    if what == "connection":
        the.answer(connection)
    else:
        connection.discard()
    leaving.cancel()  # it was given something that it has not seen yet
    await the.turn()
    assert leaving.cancelled()
    if what == "connection":
        assert await staying is connection
    else:
        the.dials[0].set_result(True)
        await staying
    assert the.counts() == (1, 0)
    assert repr(the.pool) == "<Pool api: 1 active, 0 idle, 0 opening, 0 waiting>"


async def test_the_last_waiter_that_leaves_at_the_hand_over_leaves_the_connection_idle(pooled: Make) -> None:
    the = pooled(max_connections=1)
    (connection,) = await the.open()
    leaving = asyncio.ensure_future(the.use())
    await the.turn()
    the.answer(connection)
    leaving.cancel()
    await the.turn()
    assert the.counts() == (0, 1)
    assert the.pool.take() is connection


async def test_a_connection_that_closes_at_the_moment_of_the_hand_over_is_not_used(pooled: Make) -> None:
    the = pooled(max_connections=1)
    (connection,) = await the.open()
    asking = asyncio.ensure_future(the.use())
    await the.turn()
    the.answer(connection)
    connection.connection_lost(None)  # the answer and the end came in one read
    await the.turn()
    the.dials[0].set_result(True)
    assert await asking is not connection
    assert the.counts() == (1, 0)


async def test_nor_one_whose_end_has_arrived_and_was_not_read(pooled: Make) -> None:
    the = pooled(max_connections=1)
    (connection,) = await the.open()
    asking = asyncio.ensure_future(the.use())
    await the.turn()
    the.answer(connection)
    the.peers[connection].close()
    await the.turn()
    the.dials[0].set_result(True)
    assert await asking is not connection
    assert connection.closed
    assert the.counts() == (1, 0)


async def test_a_connection_that_closes_while_its_taker_leaves_is_forgotten(pooled: Make) -> None:
    the = pooled(max_connections=1)
    (connection,) = await the.open()
    leaving = asyncio.ensure_future(the.use())
    await the.turn()
    the.answer(connection)
    connection.connection_lost(None)
    leaving.cancel()
    await the.turn()
    assert repr(the.pool) == "<Pool api: 0 active, 0 idle, 0 opening, 0 waiting>"


async def test_a_new_connection_that_closed_before_it_was_used_is_a_failure(pooled: Make) -> None:
    the = pooled()
    asking = asyncio.ensure_future(the.use())
    await the.turn()
    the.dials[0].set_result(False)
    with pytest.raises(Failure) as caught:
        await asking
    failure = caught.value
    assert (failure.code, failure.phase, failure.reason) == (Code.UPSTREAM_CLOSED, Phase.CONNECT, ErrorReason.CLOSED)
    assert failure.request_untouched
    assert the.counts() == (0, 0)
    assert the.observed.events == [("error", "api", Phase.CONNECT, ErrorReason.CLOSED)]


async def test_dead_idle_connections_are_passed_over(pooled: Make) -> None:
    the = pooled()
    alive, dead, stray = await the.open(3)
    for connection in (alive, dead, stray):
        the.answer(connection)
    the.peers[dead].close()
    the.peers[stray].send(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
    assert the.pool.take() is alive
    assert dead.closed
    assert stray.closed
    assert the.counts() == (1, 0)


async def test_no_more_than_max_idle_are_kept(pooled: Make) -> None:
    the = pooled(max_idle=1)
    connections = await the.open(3)
    for connection in connections:
        the.answer(connection)
    assert the.counts() == (0, 1)
    assert [connection.closed for connection in connections] == [False, True, True]


async def test_idle_connections_age_out(pooled: Make) -> None:
    the = pooled(idle_timeout=60.0)
    old, young = await the.open(2)
    the.answer(old)
    the.clock.advance(30)
    the.answer(young)
    the.pool.sweep(the.clock.advance(29.9))
    assert the.counts() == (0, 2)
    the.pool.sweep(the.clock.advance(0.1))
    assert (old.closed, young.closed) == (True, False)


async def test_the_sweep_gives_up_what_is_silent(pooled: Make) -> None:
    the = pooled(timeouts=Timeouts(headers=10.0))
    (connection,) = await the.open()
    the.pool.sweep(the.clock.advance(10))
    assert connection.closed
    assert the.counts() == (0, 0)


async def test_a_retired_pool_closes_its_idle_connections_and_lets_the_others_end(pooled: Make) -> None:
    the = pooled()
    idle, active = await the.open(2)
    the.answer(idle)
    the.pool.retire()
    assert idle.closed
    assert not active.closed
    assert the.pool.in_use
    the.answer(active)
    assert active.closed
    assert not the.pool.in_use


async def test_a_retired_pool_is_in_use_while_somebody_dials_or_waits(pooled: Make) -> None:
    the = pooled(max_connections=1)
    asking = [asyncio.ensure_future(the.use()) for _ in range(2)]
    await the.turn()
    the.pool.retire()
    assert the.counts() == (0, 0)
    assert the.pool.in_use
    for task in asking:
        task.cancel()
    await the.turn()
    assert not the.pool.in_use


async def test_an_abort_fails_whoever_has_a_connection_or_is_about_to_get_one(pooled: Make) -> None:
    the = pooled(max_connections=3)
    active, idle = await the.open(2)
    the.answer(idle)
    asking = [asyncio.ensure_future(the.pool.acquire(make_exchange())) for _ in range(3)]
    await the.turn()
    assert repr(the.pool) == "<Pool api: 1 active, 1 idle, 1 opening, 2 waiting>"
    receiver = active._receiver
    the.pool.abort()
    assert (active.closed, idle.closed) == (True, True)
    assert receiver.failure.code is Code.STOPPING
    await the.turn()
    for task in asking:
        failure = task.exception()
        assert isinstance(failure, Failure)
        assert failure.code is Code.STOPPING
    with pytest.raises(Failure, match="stopping"):
        await the.pool.acquire(make_exchange())
    assert not the.pool.in_use
    the.pool.abort()


async def test_a_connection_handed_over_at_the_abort_is_not_followed_by_a_dial(pooled: Make) -> None:
    the = pooled(max_connections=1)
    (connection,) = await the.open()
    asking = asyncio.ensure_future(the.use())
    await the.turn()
    the.answer(connection)
    the.pool.abort()
    with pytest.raises(Failure, match="stopping"):
        await asking
    assert not the.dials
    assert not the.pool.in_use
