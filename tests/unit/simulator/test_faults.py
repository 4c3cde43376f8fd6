from __future__ import annotations

from sidecar.simulator.faults import Step, before_head, broken_off, ending_of, stalled
from sidecar.simulator.knobs import HEAD, Knobs
from sidecar.simulator.truths import Ending

STEPS = [Step(0.1, b"a"), Step(0.2, b": c", counted=False), Step(0.3, b"b"), Step(0.4, b"cd")]


def test_a_stall_shifts_what_comes_after_it() -> None:
    assert [step.due for step in stalled(STEPS, 1, 5.0)] == [0.1, 5.2, 5.3, 5.4]
    assert [step.due for step in stalled(STEPS, 3, 5.0)] == [0.1, 0.2, 0.3, 0.4]


def test_a_cut_counts_events_and_not_comments() -> None:
    kept = broken_off(STEPS, 2, whole=False)
    assert kept is not None
    assert [step.data for step in kept] == [b"a", b": c", b"b"]


def test_a_cut_behind_the_last_event_does_nothing() -> None:
    assert broken_off(STEPS, 3, whole=False) is None


def test_a_cut_whole_answer_still_sends_half_of_it() -> None:
    assert broken_off([Step(0.1, b"abcd")], 0, whole=True) == [Step(0.1, b"ab", counted=False)]
    assert broken_off([Step(0.1, b"abcd")], 0, whole=False) == []


def test_a_reset_beats_a_cut() -> None:
    assert ending_of(Knobs(cut=1, reset=2)) == (2, Ending.RESET)
    assert ending_of(Knobs(cut=1)) == (1, Ending.CUT)
    assert ending_of(Knobs()) is None


def test_breaking_off_before_the_head_is_told_apart() -> None:
    assert before_head(Knobs(cut=HEAD)) is Ending.CUT
    assert before_head(Knobs(reset=HEAD)) is Ending.RESET
    assert before_head(Knobs(cut=0)) is None
