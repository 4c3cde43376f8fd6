"""Whatever happens to a pool, and in which order: its counts do not drift, and nobody waits beside a free place."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sidecar.exchange import Phase
from sidecar.failures import Code, Failure
from sidecar.upstreams.http1 import Http1Connection
from tests.kit.pooled import Pooled


class PoolMachine(RuleBasedStateMachine):
    """Exchanges come, wait, leave and end; connections open, fail and close; time and turns of the loop pass."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.asking: list[asyncio.Task[None]] = []
        self.held: list[Http1Connection] = []

    @initialize(limit=st.integers(1, 3), max_idle=st.integers(0, 3))
    def make(self, limit: int, max_idle: int) -> None:
        self.limit = limit
        self.the = Pooled(max_connections=limit, max_idle=max_idle, acquire_timeout=3600.0)
        self.pool = self.the.pool

    async def _use(self) -> None:
        connection = await self.the.use()
        assert connection not in self.held, "a connection for two exchanges"
        assert not connection.closed
        self.held.append(connection)

    def _turn(self) -> None:
        self.loop.run_until_complete(self.the.turn())
        for task in [task for task in self.asking if task.done()]:
            self.asking.remove(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                assert isinstance(error, Failure), error

    # ---- what may happen ----

    @rule()
    def an_exchange_comes(self) -> None:
        self.asking.append(self.loop.create_task(self._use()))

    @rule()
    def the_loop_turns(self) -> None:
        self._turn()

    @rule(data=st.data())
    @precondition(lambda self: self.asking)
    def an_application_leaves_before_it_got_a_connection(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.asking)).cancel()

    @rule(data=st.data(), how=st.sampled_from(["open", "closed at once", "refused"]))
    @precondition(lambda self: self._dials())
    def a_dial_ends(self, data: st.DataObject, how: str) -> None:
        dial = data.draw(st.sampled_from(self._dials()))
        if how == "refused":
            dial.set_exception(Failure(Code.CONNECT_FAILED, "x", Phase.CONNECT))
        else:
            dial.set_result(how == "open")

    @rule(data=st.data())
    @precondition(lambda self: self.held)
    def an_exchange_ends(self, data: st.DataObject) -> None:
        self.the.answer(self._release(data))

    @rule(data=st.data())
    @precondition(lambda self: self.held)
    def an_exchange_ends_and_the_connection_with_it(self, data: st.DataObject) -> None:
        connection = self._release(data)
        self.the.answer(connection)
        connection.connection_lost(None)

    @rule(data=st.data(), how=st.sampled_from(["lost", "given up"]))
    @precondition(lambda self: self.held)
    def a_connection_breaks(self, data: st.DataObject, how: str) -> None:
        connection = self._release(data)
        if how == "lost":
            connection.connection_lost(ConnectionResetError())
        else:
            connection.discard()

    @rule(data=st.data(), heard=st.booleans())
    @precondition(lambda self: self.pool._idle)
    def the_upstream_closes_an_idle_connection(self, data: st.DataObject, heard: bool) -> None:
        connection = data.draw(st.sampled_from(self.pool._idle))
        self.the.peers[connection].close()
        if heard:
            connection.connection_lost(None)

    @rule(seconds=st.sampled_from([1.0, 61.0]))
    def time_passes(self, seconds: float) -> None:
        for connection in self.held:
            connection.last_read = connection.request_sent_at = self.the.clock() + seconds
        self.pool.sweep(self.the.clock.advance(seconds))

    def _dials(self) -> list[asyncio.Future[Any]]:
        return [dial for dial in self.the.dials if not dial.done()]

    def _release(self, data: st.DataObject) -> Http1Connection:
        connection = data.draw(st.sampled_from(self.held))
        self.held.remove(connection)
        return connection

    # ---- what must hold ----

    @invariant()
    def the_limit_holds(self) -> None:
        pool = self.pool
        assert pool._opening >= 0
        assert pool.count_active() + pool.count_idle() + pool._opening <= self.limit

    @invariant()
    def every_connection_has_one_place(self) -> None:
        pool = self.pool
        assert not pool._active & set(pool._idle)
        assert len(set(pool._idle)) == len(pool._idle)
        assert set(self.held) <= pool._active
        assert not any(connection.closed for connection in [*pool._active, *pool._idle])

    @invariant()
    def nobody_waits_beside_a_free_place(self) -> None:
        pool = self.pool
        if any(not waiter.done() for waiter in pool._waiters):
            assert not pool._idle
            assert pool.count_active() + pool._opening == self.limit

    def teardown(self) -> None:
        if not hasattr(self, "pool"):
            self.loop.close()
            return
        while self.asking:
            self._turn()
            for dial in self._dials():
                dial.set_result(True)
            while self.held:
                self.the.answer(self.held.pop())
        while self.held:
            self.the.answer(self.held.pop())
        self._turn()
        pool = self.pool
        assert (pool.count_active(), pool._opening, len(pool._waiters), len(pool._dialling)) == (0, 0, 0, 0)
        alive = [connection for connection in self.the.peers if not connection.closed]
        assert sorted(map(id, alive)) == sorted(map(id, pool._idle)), "no connection is open that nobody knows of"
        self.the.close()
        self.loop.close()


PoolMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestPool = PoolMachine.TestCase
