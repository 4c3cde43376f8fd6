"""What a scrape costs while streams run: how long /metrics takes, and how late it makes events.

`python -m tests.bench.scrapes PORT SECONDS` is the scraper, a process of its own as Prometheus is: within the load
generator it would measure that one's event loop.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

from tests.bench.load import Figures, Target
from tests.bench.proxies import ours
from tests.bench.report import Rounds
from tests.bench.scenario import Scenario, upstream_of
from tests.kit.process import ROOT

INTERVAL_SECONDS = 1.0
TARGET_SECONDS = 0.1
"""What a scrape shall take at most beside 300 streams. Shown beside the figures, and decides nothing."""

HEADERS = {
    "Accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5",
    "Accept-Encoding": "gzip",
}
"""As Prometheus asks."""

ALONE, SCRAPED = "ours", "ours, scraped"


class Scrape(NamedTuple):
    """One scrape: seconds until the last byte, and the compressed size in bytes."""

    seconds: float
    size: int


async def play(scenario: Scenario, rounds: int) -> tuple[Rounds, list[Scrape]]:
    """Let the load run in turn without and with a scrape each second."""
    results: Rounds = []
    scrapes: list[Scrape] = []
    with tempfile.TemporaryDirectory() as name:
        async with upstream_of(scenario, Path(name)) as (setting, load, _):
            proxy = await ours(setting)
            target = Target(proxy.port, proxy.pid)
            try:
                for _ in range(rounds):
                    figures: dict[str, Figures] = {ALONE: await load(target)}
                    scraper = await _start(proxy.admin_port, scenario.duration)
                    figures[SCRAPED] = await load(target)
                    output, _ = await scraper.communicate()
                    scrapes += [Scrape(*each) for each in json.loads(output)]
                    results.append(figures)
            finally:
                await proxy.stop()
    return results, scrapes


async def _start(port: int, seconds: float) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.bench.scrapes", str(port), str(seconds), cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )


def summary(scrapes: list[Scrape]) -> str:
    """One line about all scrapes."""
    if not scrapes:
        return "no scrape was made"
    times = [scrape.seconds for scrape in scrapes]
    return (
        f"{len(scrapes)} scrapes of {median(scrape.size for scrape in scrapes) / 1024:.0f} KiB compressed: "
        f"median {median(times) * 1e3:.1f} ms, slowest {max(times) * 1e3:.1f} ms (target {TARGET_SECONDS * 1e3:.0f} ms)"
    )


def scrape(port: int) -> Scrape:
    """Fetch /metrics once. Raises OSError, and RuntimeError for an answer that is not whole."""
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    began = time.perf_counter()
    connection.request("GET", "/metrics", headers=HEADERS)
    response = connection.getresponse()
    body = response.read()
    seconds = time.perf_counter() - began
    connection.close()
    if response.status != 200 or not body:
        raise RuntimeError(f"/metrics answered {response.status} with {len(body)} bytes")
    return Scrape(seconds, len(body))


def main() -> None:
    """Scrape each second for as long as the command line says; print what each took."""
    port, seconds = int(sys.argv[1]), float(sys.argv[2])
    end = time.monotonic() + seconds
    found = []
    while time.monotonic() < end:
        found.append(scrape(port))
        time.sleep(INTERVAL_SECONDS)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
