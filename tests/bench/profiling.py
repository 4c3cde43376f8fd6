"""Runs our proxy alone under a profiler while a load is on, and prints where its time goes."""

from __future__ import annotations

import asyncio
import os
import pstats
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.bench.load import Target
from tests.bench.proxies import ours
from tests.bench.scenario import Scenario, upstream_of

LINES = 45


async def with_cprofile(scenario: Scenario, output: Path | None) -> None:
    """Every call counted, which makes small functions look dearer than they are."""
    with tempfile.TemporaryDirectory() as name:
        profile = output or Path(name) / "sidecar.prof"
        async with upstream_of(scenario, Path(name)) as (setting, load, _):
            proxy = await ours(setting, (sys.executable, "-m", "cProfile", "-o", str(profile)))
            figures = await load(Target(proxy.port, proxy.pid))
            await proxy.stop()
        print(f"{scenario.title}: {figures.rate:.0f}/s, CPU {figures.cpu * 1e6:.0f} µs each, under the profiler\n")
        statistics = pstats.Stats(str(profile))
        statistics.strip_dirs().sort_stats("tottime").print_stats(LINES)


async def with_py_spy(scenario: Scenario, output: Path | None) -> None:
    """Samples from outside, which do not distort; native frames of the event loop are not seen."""
    program = shutil.which("py-spy", path=f"{os.environ['PATH']}{os.pathsep}{sys.prefix}/bin")
    if program is None:
        raise SystemExit("no py-spy on this machine: install the package py-spy")
    with tempfile.TemporaryDirectory() as name:
        stacks = output or Path(name) / "stacks.txt"
        async with upstream_of(scenario, Path(name)) as (setting, load, _):
            proxy = await ours(setting)
            recording = await asyncio.create_subprocess_exec(
                program, "record", "-p", str(proxy.pid), "-d", str(max(1, int(scenario.duration))), "-r", "500",
                "-f", "raw", "-o", str(stacks), stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
            )  # fmt: skip
            figures = await load(Target(proxy.port, proxy.pid))
            await recording.wait()
            await proxy.stop()
        print(f"{scenario.title}: {figures.rate:.0f}/s, CPU {figures.cpu * 1e6:.0f} µs each\n")
        print(summary(stacks.read_text()))


def summary(stacks: str) -> str:
    """Own and inclusive share of each function, from collapsed stacks (`a;b;c COUNT` on each line)."""
    own: Counter[str] = Counter()
    inclusive: Counter[str] = Counter()
    total = 0
    for line in stacks.splitlines():
        frames, _, count = line.rpartition(" ")
        names = frames.split(";")
        total += int(count)
        own[names[-1]] += int(count)
        inclusive.update({frame: int(count) for frame in set(names)})
    rows = [f"{'own %':>7} {'with callees %':>15}  function"]
    rows += [
        f"{100 * samples / total:7.1f} {100 * inclusive[frame] / total:15.1f}  {frame}"
        for frame, samples in own.most_common(LINES)
    ]
    return "\n".join(rows)
