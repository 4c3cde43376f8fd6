"""The player against a loop whose clock is turned by hand: every instant is exact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sidecar.simulator.answer import Kind
from sidecar.simulator.faults import Step
from sidecar.simulator.pacing import Player
from sidecar.simulator.responder import Link
from sidecar.simulator.timetable import Timetable
from sidecar.simulator.truths import ConnectionFacts, Ending, Truth


class Handle:
    def __init__(self, when: float, call: Callable[[], None]) -> None:
        self.when, self.call, self.cancelled = when, call, False

    def cancel(self) -> None:
        self.cancelled = True


class Loop:
    """A loop whose timers are always `late` seconds late; it is its own transport."""

    def __init__(self, late: float = 0.0) -> None:
        self.now, self.late = 100.0, late
        self.handles: list[Handle] = []
        self.written: list[tuple[float, bytes]] = []

    def call_later(self, delay: float, call: Callable[[], None]) -> Handle:
        self.handles.append(Handle(self.now + delay, call))
        return self.handles[-1]

    def write(self, data: bytes) -> None:
        self.written.append((round(self.now - 100.0, 6), data))

    def run(self) -> None:
        while self.handles:
            handle = self.handles.pop(0)
            if not handle.cancelled:
                self.now = handle.when + self.late
                handle.call()


def play(loop: Any, steps: list[Step], head_due: float = 0.0) -> tuple[Player, Truth, list[str]]:
    truth = Truth(1, "test", "POST", "/", ConnectionFacts(1, 0.0), 1, 100.0, received_at=100.0)
    table = Timetable(b"", b"HEAD", head_due, steps, b"END", Ending.CLEAN, close=False)
    ended: list[str] = []
    link = Link(loop, loop, None, lambda ending, close: None, lambda: None, lambda: None)
    player = Player(link, table, truth, on_end=lambda: ended.append("ended"), clock=lambda: loop.now)
    player.begin()
    return player, truth, ended


def stream(count: int, itl: float) -> list[Step]:
    return [Step(0.2 + number * itl, b"%d" % number, 1, Kind.OUTPUT) for number in range(count)]


def test_events_go_out_when_they_are_due() -> None:
    loop = Loop()
    _, truth, ended = play(loop, stream(3, 0.05))
    loop.run()
    assert loop.written == [(0.0, b"HEAD"), (0.2, b"0"), (0.25, b"1"), (0.3, b"2"), (0.3, b"END")]
    assert ended == ["ended"]
    assert truth.head_at == 100.0
    assert truth.ttft is not None and abs(truth.ttft - 0.2) < 1e-9


def test_late_timers_do_not_add_up() -> None:
    loop = Loop(late=0.003)
    _, truth, _ = play(loop, stream(1000, 0.02))
    loop.run()
    errors = [at - (100.2 + 0.02 * number) for number, at in enumerate(truth.token_times())]
    assert min(errors) >= 0
    assert max(errors) < 0.0042, "a timer's own error and the rounding to milliseconds, once"
    assert errors[-1] < 0.0042


def test_events_that_a_pause_of_the_machine_held_up_are_sent_at_once_and_the_next_in_time() -> None:
    loop = Loop()
    play(loop, stream(5, 0.01))
    loop.handles[0].when = 100.225
    loop.run()
    times = [at for at, data in loop.written if data.isdigit()]
    assert times == [0.225, 0.225, 0.225, 0.23, 0.24]


def test_a_paused_player_holds_its_events_and_then_sends_them() -> None:
    loop = Loop()
    player, _, ended = play(loop, stream(3, 0.01))
    player.pause()
    loop.run()
    assert [data for _, data in loop.written] == [b"HEAD"]
    loop.now = 100.5
    player.resume()
    loop.run()
    assert loop.written[1:] == [(0.5, b"0"), (0.5, b"1"), (0.5, b"2"), (0.5, b"END")]
    player.resume()
    assert ended == ["ended"]


def test_a_stopped_player_sends_no_more() -> None:
    loop = Loop()
    player, truth, ended = play(loop, stream(3, 0.01))
    player.stop()
    loop.run()
    assert [data for _, data in loop.written] == [b"HEAD"]
    assert (truth.events, ended) == (0, [])


def test_the_head_waits_for_its_own_instant() -> None:
    loop = Loop()
    play(loop, stream(1, 0.01), head_due=0.15)
    loop.run()
    assert loop.written[:2] == [(0.15, b"HEAD"), (0.2, b"0")]
