"""Plays a timetable against the clock: open loop, so that a late event never makes the next one late.

Every event is due at an instant that was fixed when the request was complete. The timer is set anew for each from the
clock as it is then; errors of the timer stay where they happen and cannot add up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from math import ceil
from time import monotonic

from sidecar.simulator.faults import Step
from sidecar.simulator.responder import Link
from sidecar.simulator.timetable import Timetable
from sidecar.simulator.truths import Truth

_EARLY = 0.0002
"""Seconds an event may go out before it is due: less than the loop's timer can wait."""


class Player:
    """Sends one answer. `on_end` is called when its last byte has been handed to the socket."""

    __slots__ = (
        "_clock",
        "_dribble",
        "_loop",
        "_next",
        "_on_end",
        "_paused",
        "_start",
        "_table",
        "_timer",
        "_transport",
        "_truth",
    )

    def __init__(
        self,
        link: Link,
        table: Timetable,
        truth: Truth,
        *,
        on_end: Callable[[], None],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._loop, self._transport, self._dribble = link.loop, link.transport, link.dribble
        self._table, self._truth, self._on_end, self._clock = table, truth, on_end, clock
        self._start = truth.received_at or clock()
        self._next = -1
        """Index of the step that is due next; -1 is the head."""
        self._paused = False
        self._timer: asyncio.TimerHandle | None = None
        truth.event_tokens = [step.tokens for step in table.steps if step.counted]
        truth.event_kinds = [step.kind for step in table.steps if step.counted]

    def begin(self) -> None:
        """Send what is due at once and set the timer for the rest."""
        if self._table.interim:
            self._send(self._table.interim)
        self._wake()

    def stop(self) -> None:
        """Send no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._paused = True

    def pause(self) -> None:
        """The client reads too slowly: hold what comes due."""
        self._paused = True

    def resume(self) -> None:
        """Send what has come due meanwhile, and go on in time."""
        self._paused = False
        if self._timer is None and self._next <= len(self._table.steps):
            self._wake()

    def _wake(self) -> None:
        self._timer = None
        steps, count = self._table.steps, len(self._table.steps)
        while not self._paused:
            at = self._next
            if at == count:
                self._end()
                return
            due = self._start + (self._table.head_due if at < 0 else steps[at].due)
            wait = due - self._clock()
            if wait > _EARLY:
                # uvloop rounds to milliseconds, down as well as up; rounded up here, no event is earlier than allowed.
                self._timer = self._loop.call_later(ceil((wait - _EARLY) * 1000) / 1000, self._wake)
                return
            self._next = at + 1
            if at < 0:
                self._send(self._table.head, self._mark_head)
            else:
                self._send_step(steps[at])

    def _end(self) -> None:
        self._next += 1
        if self._table.last:
            self._send(self._table.last)
        if self._dribble is None:
            self._on_end()
        else:
            self._dribble.write(b"", self._on_end)

    def _send_step(self, step: Step) -> None:
        if self._dribble is None:
            self._transport.write(step.data)
            self._truth.sent_bytes += len(step.data)
            if step.counted:
                self._truth.event_times.append(self._clock())
        else:
            self._send(step.data, self._mark_event if step.counted else None)

    def _send(self, data: bytes, then: Callable[[], None] | None = None) -> None:
        if self._dribble is None:
            self._transport.write(data)
            self._truth.sent_bytes += len(data)
            if then is not None:
                then()
        else:
            self._dribble.write(data, partial(self._sent, len(data), then))

    def _sent(self, size: int, then: Callable[[], None] | None) -> None:
        self._truth.sent_bytes += size
        if then is not None:
            then()

    def _mark_head(self) -> None:
        self._truth.head_at = self._clock()

    def _mark_event(self) -> None:
        self._truth.event_times.append(self._clock())
