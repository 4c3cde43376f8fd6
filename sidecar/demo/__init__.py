"""`sidecar demo`: a simulated LLM API, the sidecar before it, a steady load; no key and no network.

The sidecar runs in a process of its own, as it does in a pod; the simulated API and the load share this one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile

from sidecar.config.model import Address

PROGRESS_SECONDS = 4.0
START_SECONDS = 15.0


def run(duration: float | None) -> int:
    """Run for `duration` seconds, or until interrupted; the exit code is 0 unless the sidecar failed."""
    import uvloop  # noqa: PLC0415 - the command line imports this module before it knows that it will run

    from sidecar.simulator.certificate import MissingCryptography  # noqa: PLC0415

    try:
        return uvloop.run(_demo(duration))
    except MissingCryptography as problem:
        sys.stderr.write(f"sidecar demo: {problem}\n")
        return 2


async def _demo(duration: float | None) -> int:
    from sidecar.demo.kinds import KINDS  # noqa: PLC0415
    from sidecar.demo.load import Load  # noqa: PLC0415
    from sidecar.demo.report import rows, table  # noqa: PLC0415
    from sidecar.demo.scrape import scrape  # noqa: PLC0415

    stop = asyncio.Event()
    # A closed terminal too: the sidecar is in a session of its own and would outlive it.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with contextlib.AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="sidecar-demo-"))
        upstreams = await _start_simulators(stack, folder)
        process, data, admin = await _start_sidecar(folder, upstreams)
        stack.push_async_callback(_stop_sidecar, process)
        _say(f"sidecar on http://{data} (one prefix each: {', '.join('/' + kind.name for kind in KINDS)})")
        _say(f"metrics at http://{admin}/metrics, the last exchanges at http://{admin}/exchanges")
        loads = [Load(kind, data) for kind in KINDS]
        running = [asyncio.create_task(load.run(stop)) for load in loads]
        # Whatever ends the watch, a reader of our output that left included: first the load ends, then the sidecar.
        stack.push_async_callback(_end_load, stop, running)
        await _watch(admin, stop, duration)
        await _end_load(stop, running)
        sample = await scrape(admin)
        _say(table([row for kind in KINDS for row in rows(kind, sample)]))
        failed = sum(load.failed for load in loads)
        _say(f"{sum(load.done for load in loads)} requests, {failed} failed")
    return 0 if not failed and process.returncode == 0 else 1


async def _start_simulators(stack: contextlib.AsyncExitStack, folder: str) -> list[dict[str, object]]:
    """One simulated API for each kind of traffic, stopped by `stack`; gives the sidecar's upstreams."""
    from sidecar.demo.kinds import KINDS  # noqa: PLC0415
    from sidecar.simulator.certificate import make_certificate  # noqa: PLC0415
    from sidecar.simulator.server import Simulator  # noqa: PLC0415

    certificate = make_certificate()
    authority = _write(folder, "ca.pem", certificate.ca_pem)
    upstreams: list[dict[str, object]] = []
    for kind in KINDS:
        simulator = Simulator(ttft=kind.ttft, itl=kind.itl, tokens=kind.tokens, tls_delay=kind.tls_delay)
        address = await simulator.start(tls=certificate.context)
        stack.push_async_callback(simulator.stop)
        upstreams.append(
            {
                "name": kind.name,
                "prefix": f"/{kind.name}",
                "url": f"https://{address}",
                "tls": {"ca_file": authority},
                "dialect": kind.dialect,
            }
        )
    return upstreams


async def _end_load(stop: asyncio.Event, running: list[asyncio.Task[None]]) -> None:
    stop.set()
    await asyncio.gather(*running)


async def _watch(admin: Address, stop: asyncio.Event, duration: float | None) -> None:
    """Print a line every few seconds until it is time."""
    from sidecar.demo.report import progress  # noqa: PLC0415
    from sidecar.demo.scrape import scrape  # noqa: PLC0415

    loop = asyncio.get_running_loop()
    ends = None if duration is None else loop.time() + duration
    before = await scrape(admin)
    while not stop.is_set() and (ends is None or loop.time() < ends):
        wait = PROGRESS_SECONDS if ends is None else min(PROGRESS_SECONDS, max(0.0, ends - loop.time()))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), wait)
        now = await scrape(admin)
        _say(progress(now, before))
        before = now


async def _start_sidecar(
    folder: str, upstreams: list[dict[str, object]]
) -> tuple[asyncio.subprocess.Process, Address, Address]:
    """Start `sidecar serve` and read from its log where it listens. Raises OSError when it does not come up."""
    config = {
        "listen": "127.0.0.1:0",
        "admin": "127.0.0.1:0",
        "upstreams": upstreams,
        "drain_timeout": "5s",
    }
    path = _write(folder, "sidecar.yaml", json.dumps(config))  # YAML reads JSON
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "sidecar", "serve", "--config", path, stderr=asyncio.subprocess.PIPE,
        # Not to be interrupted by the Ctrl-C that is meant for the demo: it is stopped in order.
        start_new_session=True,
    )  # fmt: skip
    assert process.stderr is not None
    async with asyncio.timeout(START_SECONDS):
        while line := await process.stderr.readline():
            event = json.loads(line) if line.startswith(b"{") else {}
            if event.get("event") == "listening":
                asyncio.get_running_loop().create_task(_pass_on(process.stderr)).add_done_callback(_kept.discard)
                return process, _address(event["data"]), _address(event["admin"])
            sys.stderr.write(line.decode())
    raise OSError("the sidecar did not start")


_kept: set[asyncio.Task[None]] = set()


async def _pass_on(stream: asyncio.StreamReader) -> None:
    """Show what the sidecar complains of."""
    while line := await stream.readline():
        if b'"level": "info"' not in line:
            sys.stderr.write(line.decode())


async def _stop_sidecar(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    await process.wait()


def _write(folder: str, name: str, text: str) -> str:
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def _address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return Address(host.strip("[]"), int(port))


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
