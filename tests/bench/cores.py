"""Which core runs what, and how much processor time a process has used."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOAD_CORE = 0
PROXY_CORE = 1

_TICK = os.sysconf("SC_CLK_TCK")


_apart = False


def pin_load() -> bool:
    """Keep this process, which is load generator and upstream, on its core. False on a machine with one core."""
    global _apart
    _apart = {LOAD_CORE, PROXY_CORE} <= os.sched_getaffinity(0)
    if _apart:
        os.sched_setaffinity(0, {LOAD_CORE})
    return _apart


@contextmanager
def on_proxy_core() -> Iterator[None]:
    """Processes started inside run on the proxy's core with all their threads: affinity is inherited."""
    if not _apart:
        yield
        return
    os.sched_setaffinity(0, {PROXY_CORE})
    try:
        yield
    finally:
        os.sched_setaffinity(0, {LOAD_CORE})


def cpu_seconds(pid: int) -> float:
    """Processor time of a process, its threads and its children so far, in seconds.

    From schedstat (nanoseconds) where the kernel keeps it, else from utime and stime (ticks of 10 ms).
    """
    return sum(_own_seconds(each) for each in family(pid))


def family(pid: int) -> list[int]:
    """A process and all that descend from it."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            parents.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry.name))
    found = [pid]
    for each in found:
        found.extend(parents.get(each, []))
    return found


def _own_seconds(pid: int) -> float:
    total = 0
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            total += int((task / "schedstat").read_text().split()[0])
    except (OSError, ValueError):
        total = 0
    if total:
        return total / 1e9
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def rss_mebibytes(pid: int) -> float:
    """Resident memory of a process and its children."""
    total = 0
    for each in family(pid):
        for line in Path(f"/proc/{each}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                total += int(line.split()[1])
    return total / 1024


class Stopwatch:
    """Wall time and processor time of the proxy and of this process between `start` and `stop`."""

    def __init__(self, proxy: int | None) -> None:
        self._proxy = proxy
        self.wall = self.load = self.cpu = 0.0

    def _now(self) -> tuple[float, float, float]:
        return time.perf_counter(), time.process_time(), 0.0 if self._proxy is None else cpu_seconds(self._proxy)

    def start(self) -> None:
        """Begin."""
        self._begin = self._now()

    def stop(self) -> None:
        """End: fills `wall`, `load` and `cpu`, all in seconds."""
        wall, load, cpu = self._now()
        self.wall, self.load, self.cpu = wall - self._begin[0], load - self._begin[1], cpu - self._begin[2]
