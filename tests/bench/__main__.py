"""Compares the sidecar with no proxy, nginx and Envoy on this machine: `python -m tests.bench --help`.

Load generator and upstream share core 0, the proxy has core 1. Absolute figures are the machine's; the ratios within
a round are the result. Never part of the tests: it decides nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import uvloop

from tests.bench import scrapes
from tests.bench.cores import pin_load
from tests.bench.profiling import with_cprofile, with_py_spy
from tests.bench.report import Rounds, json_table, sse_table
from tests.bench.scenario import Scenario, play

VARIANTS = ["direct", "nginx", "envoy", "ours"]
SCENARIOS = ["json", "sse100", "sse300", "streams300"]
"""`streams300` is `sse300` through our proxy alone, without and with scrapes of /metrics."""
EVENTS_PER_SECOND = 50.0


def scenario(name: str, duration: float | None, width: int | None, tls: bool) -> Scenario:
    """One of SCENARIOS, with what the command line changes of it."""
    suffix = ", upstream over TLS" if tls else ""
    if name == "json":
        connections = width or 100
        title = f"JSON POST 1 KB → 1.6 KB, {connections} keep-alive connections{suffix}"
        return Scenario(title, connections, duration or 6.0, tls=tls)
    streams = width or int(name.removeprefix("sse").removeprefix("streams"))
    if name.startswith("streams"):
        suffix += ", with and without a scrape each second"
    title = f"SSE, 232-byte events, {streams} streams at {EVENTS_PER_SECOND:.0f} events/s each{suffix}"
    return Scenario(title, streams, duration or 8.0, EVENTS_PER_SECOND, tls)


def names(allowed: list[str]) -> Callable[[str], list[str]]:
    """A type for argparse: a comma-separated choice of `allowed`."""

    def parse(text: str) -> list[str]:
        chosen = text.split(",")
        unknown = set(chosen) - set(allowed)
        if unknown:
            raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))}: choose from {', '.join(allowed)}")
        return chosen

    return parse


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__.split("\n")[0])
    parser.add_argument("--scenarios", type=names(SCENARIOS), default=SCENARIOS, help=",".join(SCENARIOS))
    parser.add_argument("--variants", type=names(VARIANTS), default=VARIANTS, help=",".join(VARIANTS))
    parser.add_argument("--rounds", type=int, help="rounds in which each variant runs once (3)")
    parser.add_argument("--duration", type=float, help="seconds of each run (6 for JSON, 8 for SSE)")
    parser.add_argument("--width", type=int, help="connections or streams, instead of the scenario's own number")
    parser.add_argument("--tls", action="store_true", help="the upstream speaks TLS")
    parser.add_argument("--quick", action="store_true", help="one round of two seconds: does it run at all")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument("--profile", choices=["json", "sse"], help="profile our proxy instead of comparing")
    parser.add_argument("--profiler", choices=["cprofile", "py-spy"], default="cprofile")
    parser.add_argument("--profile-output", type=Path, metavar="FILE", help="keep the profile")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.rounds, chosen.duration = chosen.rounds or 1, chosen.duration or 2.0
    return chosen


async def compare(chosen: argparse.Namespace) -> None:
    """Run the scenarios and print a table for each."""
    record: dict[str, Rounds] = {}
    rounds = chosen.rounds or 3
    for name in chosen.scenarios:
        each = scenario(name, chosen.duration, chosen.width, chosen.tls)
        note = f"Medians of {rounds} interleaved rounds of {each.duration:g} s."
        if name == "streams300":
            results, found = await scrapes.play(each, rounds)
            shown = [scrapes.ALONE, scrapes.SCRAPED]
            note += f" {scrapes.summary(found)}."
        else:
            results = await play(each, chosen.variants, rounds)
            shown = [variant for variant in chosen.variants if any(variant in figures for figures in results)]
        table = sse_table(results, shown) if each.streaming else json_table(results, shown)
        print(f"## {each.title}\n\n{table}\n\n{note}\n", flush=True)
        record[each.title] = results
    if chosen.json:
        plain = {
            title: [{variant: asdict(run) for variant, run in figures.items()} for figures in results]
            for title, results in record.items()
        }
        chosen.json.write_text(json.dumps(plain, indent=1, ensure_ascii=False) + "\n")


def main() -> None:
    """Entry point."""
    chosen = arguments()
    if not pin_load():
        print("one core only: load and proxy share it, and the figures say little", file=sys.stderr)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        if chosen.profile is None:
            runner.run(compare(chosen))
            return
        each = scenario("json" if chosen.profile == "json" else "sse100", chosen.duration, chosen.width, chosen.tls)
        profiler = with_cprofile if chosen.profiler == "cprofile" else with_py_spy
        runner.run(profiler(each, chosen.profile_output))


if __name__ == "__main__":
    main()
