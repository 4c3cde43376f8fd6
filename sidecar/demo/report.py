"""What the demo prints: a line every few seconds, and the true values beside the measured ones at the end."""

from __future__ import annotations

from sidecar.demo.kinds import Kind
from sidecar.demo.scrape import Sample

TOLERANCE_SECONDS = 0.005
TOLERANCE_RATIO = 0.05

Row = tuple[str, str, float, float | None]
"""kind, quantity, simulated seconds, measured seconds."""


def progress(now: Sample, before: Sample) -> str:
    """One line about the last few seconds."""
    first = now.mean("time_to_first_token_seconds", before)
    speed = now.mean("output_tokens_per_second", before)
    requests = now.total("requests_total") - before.total("requests_total")
    network = now.total("time_seconds_total", component="network") - before.total(
        "time_seconds_total", component="network"
    )
    whole = now.total("time_seconds_total") - before.total("time_seconds_total")
    hits = now.total("requests_total", cache="hit") - before.total("requests_total", cache="hit")
    share = f"{100 * network / whole:.1f} %" if whole else "-"
    return (
        f"{requests:4.0f} requests   first token {_ms(first)}   {speed or 0:5.1f} tokens/s per stream   "
        f"network share {share}   cache hits {hits:.0f}"
    )


def rows(kind: Kind, sample: Sample) -> list[Row]:
    """Every quantity of one kind of traffic, simulated and measured."""
    label = kind.name
    found: list[Row] = []
    if kind.streamed:
        first = sample.mean("time_to_first_token_seconds", upstream=label, connection="reused")
        found.append((label, "first token", kind.ttft, first))
        found.append((label, "time per token", kind.itl, sample.mean("time_per_output_token_seconds", upstream=label)))
    else:
        found.append((label, "wait", kind.ttft, sample.mean("request_phase_seconds", upstream=label, phase="wait")))
    found.append((label, "connect", 0.0, sample.mean("connection_phase_seconds", upstream=label, phase="connect")))
    found.append((label, "tls", kind.tls_delay, sample.mean("connection_phase_seconds", upstream=label, phase="tls")))
    return found


def agrees(row: Row) -> bool:
    """Measured is within 5 ms or 5 % of what was simulated."""
    _, _, simulated, measured = row
    if measured is None:
        return False
    return abs(measured - simulated) <= max(TOLERANCE_SECONDS, TOLERANCE_RATIO * simulated)


def table(all_rows: list[Row]) -> str:
    """The rows as text, with a verdict for each."""
    lines = [f"{'traffic':12}{'quantity':16}{'simulated':>12}{'measured':>12}"]
    for row in all_rows:
        kind, quantity, simulated, measured = row
        verdict = "ok" if agrees(row) else "OFF"
        lines.append(f"{kind:12}{quantity:16}{_ms(simulated):>12}{_ms(measured):>12}  {verdict}")
    return "\n".join(lines)


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.2f} ms"
