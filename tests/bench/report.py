"""Rounds of figures as a table of medians. A column "to nginx" holds the ratio to nginx: those are the result."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

from tests.bench.load import Figures

Rounds = list[dict[str, Figures]]
"""For each round, variant → figures. A variant that could not run is missing."""


def _middle(rounds: Rounds, variant: str, pick: Callable[[Figures], float]) -> float:
    return median(pick(each[variant]) for each in rounds if variant in each)


def ratio(rounds: Rounds, variant: str, peer: str, pick: Callable[[Figures], float]) -> str:
    """Median over the rounds of the ratio within a round: the machine's moods cancel out."""
    both = [each for each in rounds if variant in each and peer in each and pick(each[peer])]
    return f"{median(pick(each[variant]) / pick(each[peer]) for each in both):.2f}" if both else "-"


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _table(head: list[str], rows: list[list[str]]) -> str:
    rule = ["---" if number == 0 else "---:" for number in range(len(head))]
    return "\n".join(_row(cells) for cells in [head, rule, *rows])


def json_table(rounds: Rounds, variants: list[str]) -> str:
    """Requests per second, and processor time per request."""
    head = ["variant", "requests/s", "to nginx", "to Envoy", "CPU µs/request", "CPU to nginx", "CPU to Envoy"]
    head += ["p50 ms", "p99 ms", "load core %", "MiB", "errors"]
    rows = [
        [
            variant,
            f"{_middle(rounds, variant, lambda run: run.rate):.0f}",
            ratio(rounds, variant, "nginx", lambda run: run.rate),
            ratio(rounds, variant, "envoy", lambda run: run.rate),
            *_cpu_cells(rounds, variant),
            f"{_middle(rounds, variant, lambda run: run.p50 * 1e3):.2f}",
            f"{_middle(rounds, variant, lambda run: run.p99 * 1e3):.2f}",
            *_health_cells(rounds, variant),
        ]
        for variant in variants
    ]
    return _table(head, rows)


def sse_table(rounds: Rounds, variants: list[str]) -> str:
    """Time from the upstream's write to the client's read, and processor time per event."""
    head = ["variant", "events/s", "p50 µs", "p99 µs", "p50 to nginx", "CPU µs/event", "CPU to nginx", "CPU to Envoy"]
    head += ["load core %", "MiB", "errors"]
    rows = [
        [
            variant,
            f"{_middle(rounds, variant, lambda run: run.rate):.0f}",
            f"{_middle(rounds, variant, lambda run: run.p50 * 1e6):.0f}",
            f"{_middle(rounds, variant, lambda run: run.p99 * 1e6):.0f}",
            ratio(rounds, variant, "nginx", lambda run: run.p50),
            *_cpu_cells(rounds, variant),
            *_health_cells(rounds, variant),
        ]
        for variant in variants
    ]
    return _table(head, rows)


def _cpu_cells(rounds: Rounds, variant: str) -> list[str]:
    own = _middle(rounds, variant, lambda run: run.cpu)
    if not own:
        return ["-", "-", "-"]
    return [
        f"{own * 1e6:.0f}",
        ratio(rounds, variant, "nginx", lambda run: run.cpu),
        ratio(rounds, variant, "envoy", lambda run: run.cpu),
    ]


def _health_cells(rounds: Rounds, variant: str) -> list[str]:
    memory = _middle(rounds, variant, lambda run: run.memory)
    return [
        f"{_middle(rounds, variant, lambda run: run.load * 100):.0f}",
        f"{memory:.0f}" if memory else "-",
        str(sum(each[variant].errors for each in rounds if variant in each)),
    ]
