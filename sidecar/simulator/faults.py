"""Faults as changes of a timetable, decided before the first byte goes out."""

from __future__ import annotations

import os
import socket
import struct
from typing import NamedTuple

from sidecar.simulator.answer import Kind
from sidecar.simulator.knobs import HEAD, Knobs
from sidecar.simulator.truths import Ending


class Step(NamedTuple):
    """Bytes that are due `due` seconds after the complete request. Events are `counted`, comments are not."""

    due: float
    data: bytes
    tokens: int = 0
    kind: Kind = Kind.CONTROL
    counted: bool = True


def stalled(steps: list[Step], after: int, seconds: float) -> list[Step]:
    """Everything behind the first `after` events comes `seconds` later."""
    out, seen = [], 0
    for step in steps:
        out.append(step._replace(due=step.due + seconds) if seen >= after else step)
        seen += step.counted
    return out


def broken_off(steps: list[Step], after: int, *, whole: bool) -> list[Step] | None:
    """What still goes out when the answer breaks off after `after` events; None when it has no more than those.

    A whole answer is one event: broken off before it, half of its bytes still go out.
    """
    if after >= sum(step.counted for step in steps):
        return None
    out, seen = [], 0
    for step in steps:
        if seen >= after:
            if whole and after == 0:
                out.append(step._replace(data=step.data[: len(step.data) // 2], counted=False))
            break
        out.append(step)
        seen += step.counted
    return out


def ending_of(knobs: Knobs) -> tuple[int, Ending] | None:
    """Where and how the knobs break an answer off; a reset beats a cut."""
    if knobs.reset is not None:
        return knobs.reset, Ending.RESET
    if knobs.cut is not None:
        return knobs.cut, Ending.CUT
    return None


def before_head(knobs: Knobs) -> Ending | None:
    """How the connection ends instead of answering, if it does."""
    broken = ending_of(knobs)
    return broken[1] if broken and broken[0] == HEAD else None


def set_socket_option(handle: int, level: int, option: int, value: int | bytes) -> None:
    """Set an option on the socket behind a file descriptor, which event loops hide from TLS transports."""
    with socket.socket(fileno=os.dup(handle)) as twin:
        twin.setsockopt(level, option, value)


def arm_reset(handle: int) -> None:
    """Make closing the socket send RST: SO_LINGER with zero seconds (socket(7))."""
    set_socket_option(handle, socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
