"""Runs the sidecar as a process of its own, as a user would, and asks it for its numbers."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.kit.client import RawClient, get
from tests.kit.metrics import Metrics
from tests.kit.wire import PATIENCE

ROOT = Path(__file__).resolve().parents[2]

Address = tuple[str, int]


def free_port(host: str = "127.0.0.1") -> int:
    """A port that is free now."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


_HELD: list[socket.socket] = []


def refusing_port(host: str = "127.0.0.1") -> int:
    """A port that refuses connections while the tests run: bound, so that nobody else gets it, and not listening."""
    held = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    held.bind((host, 0))
    _HELD.append(held)
    port: int = held.getsockname()[1]
    return port


def split_address(text: str) -> Address:
    """`host:port` or `[host]:port` as a pair."""
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def complete_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """`config` with the listeners on ports of the kernel's choice and the log as JSON, unless it says otherwise."""
    return {"listen": "127.0.0.1:0", "admin": "127.0.0.1:0", **config}


def upstream_config(url: str, name: str = "default", **settings: Any) -> dict[str, Any]:
    """One entry of `upstreams`."""
    return {"name": name, "url": url, **settings}


class Admin:
    """The admin port of a sidecar, however it runs."""

    data: Address
    admin: Address

    async def client(self, *, receive_buffer: int | None = None) -> RawClient:
        """A connection to the data port."""
        return await RawClient.connect(self.data, receive_buffer=receive_buffer)

    async def ready(self) -> bool:
        """`/readyz` answers 200."""
        return (await get(self.admin, "/readyz")).status == 200

    async def metrics(self) -> Metrics:
        """A scrape."""
        response = await get(self.admin, "/metrics")
        assert response.status == 200, response.body[:500]
        return Metrics(response.body.decode())

    async def metrics_when(self, condition: Callable[[Metrics], bool], timeout: float = PATIENCE) -> Metrics:
        """The first scrape for which `condition` holds: exchanges are recorded just after they have ended."""
        until = time.monotonic() + timeout
        while not condition(metrics := await self.metrics()):
            assert time.monotonic() < until, "the metrics never came to what was waited for"
            await asyncio.sleep(0.02)
        return metrics

    async def metrics_after(self, before: Metrics, requests: int = 1, timeout: float = PATIENCE) -> Metrics:
        """The first scrape that has counted `requests` more requests than `before`."""
        wanted = before.value("requests") + requests
        return await self.metrics_when(lambda now: now.value("requests") >= wanted, timeout)

    async def exchanges(self) -> list[dict[str, Any]]:
        """The last finished exchanges, as `/exchanges` tells them."""
        response = await get(self.admin, "/exchanges")
        found: list[dict[str, Any]] = json.loads(response.body)
        return found


class SidecarProcess(Admin):
    """`python -m sidecar serve --config FILE`. `stop` asserts a clean end, unless the test took it over."""

    def __init__(
        self,
        config: Mapping[str, Any],
        directory: Path,
        *,
        arguments: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
        python: tuple[str, ...] = (sys.executable,),
    ) -> None:
        self.config_file = directory / f"sidecar-{id(self):x}.yaml"
        self.write_config(config)
        self.expected_exit: int | None = 0
        """None: whatever it is."""
        self.lines: list[str] = []
        """What it has written to stderr."""
        self._arguments = arguments
        self._python = python
        # A proxy or a setting of the machine's own must not reach the sidecar under test.
        inherited = {key: value for key, value in os.environ.items() if not _meddles(key)}
        self._environment = {**inherited, "PYTHONUNBUFFERED": "1", **(environment or {})}
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Replace the configuration file at once, as an editor or Kubernetes would."""
        fresh = self.config_file.with_suffix(".new")
        fresh.write_text(yaml.safe_dump(complete_config(config), sort_keys=False))
        fresh.replace(self.config_file)

    @property
    def process(self) -> subprocess.Popen[str]:
        """The running process."""
        assert self._process is not None, "not started"
        return self._process

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def launch(self) -> None:
        """Start the process without waiting for it, for tests of a start that fails."""
        command = [*self._python, "-m", "sidecar", "serve", "--config", str(self.config_file), *self._arguments]
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=self._environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        for line in process.stderr:
            self.lines.append(line.rstrip("\n"))

    async def start(self, timeout: float = 20.0) -> SidecarProcess:
        """Start and wait until it is ready."""
        self.launch()
        await self.until_ready(timeout)
        return self

    async def until_ready(self, timeout: float = 20.0) -> None:
        """Read the ports from the line `listening`, and wait until `/readyz` is 200."""
        try:
            line = await self.wait_for_event("listening", timeout)
            self.data, self.admin = split_address(line["data"]), split_address(line["admin"])
            until = time.monotonic() + timeout
            while not await self.ready():
                assert time.monotonic() < until, f"not ready:\n{self.excerpt()}"
                await asyncio.sleep(0.02)
        except BaseException:
            if self.process.poll() is None:
                self.process.kill()
                self.expected_exit = None
            await self.wait()
            raise

    def events(self, name: str) -> list[dict[str, Any]]:
        """The log lines whose `event` is `name`."""
        found = []
        for line in list(self.lines):
            if line.startswith("{"):
                entry = json.loads(line)
                if entry.get("event") == name:
                    found.append(entry)
        return found

    async def wait_for_event(self, name: str, timeout: float = PATIENCE, number: int = 1) -> dict[str, Any]:
        """The `number`th log line whose `event` is `name`; fails when the process ends or `timeout` passes before."""
        until = time.monotonic() + timeout
        while len(found := self.events(name)) < number:
            ended = self.process.poll() is not None
            if ended or time.monotonic() > until:
                why = f"exited with {self.process.returncode}" if ended else "is late"
                raise AssertionError(f"no {name!r} in the log: the sidecar {why}\n{self.excerpt()}")
            await asyncio.sleep(0.01)
        return found[number - 1]

    def excerpt(self, start: str | None = None) -> str:
        """Forty lines of the log for a failure's message: from the line `start`, else the last ones."""
        if start is None:
            return "\n".join(self.lines[-40:])
        first = self.lines.index(start)
        return "\n".join(self.lines[first : first + 40]).replace("\\n", "\n")[:6000]

    def rss(self) -> int:
        """Resident memory in bytes."""
        return _memory(self.pid, "VmRSS")

    def peak_rss(self) -> int:
        """The most resident memory there has been, in bytes."""
        return _memory(self.pid, "VmHWM")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    async def wait(self, timeout: float = 30.0) -> int:
        """Wait for the end of the process and all its output; the exit code."""
        until = time.monotonic() + timeout
        while self.process.poll() is None:
            assert time.monotonic() < until, f"still running after {timeout} s"
            await asyncio.sleep(0.01)
        if self._reader is not None:
            self._reader.join(PATIENCE)
        if self.process.stderr is not None:
            self.process.stderr.close()
        return self.process.returncode

    async def stop(self) -> None:
        """SIGTERM, twice so that nothing in flight holds it, and assert that it ended well."""
        if self._process is None:
            return
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
            try:
                await self.wait(timeout=3.0)
            except AssertionError:
                self.signal(signal.SIGTERM)
        try:
            code = await self.wait(timeout=10.0)
        except AssertionError:
            self.process.kill()
            await self.wait()
            raise
        tracebacks = [line for line in self.lines if "Traceback" in line]
        assert not tracebacks, f"{len(tracebacks)} tracebacks, the first:\n{self.excerpt(tracebacks[0])}"
        assert self.expected_exit is None or code == self.expected_exit, f"exit code {code}\n{self.excerpt()}"


def _meddles(variable: str) -> bool:
    return variable.lower().endswith("_proxy") or variable.startswith("SIDECAR_")


def _memory(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"no {field} for process {pid}")


class LocalSidecar(Admin):
    """The sidecar in the test's own process and event loop: quick, and its objects can be looked at."""

    def __init__(self, config: Mapping[str, Any], directory: Path) -> None:
        self._config = complete_config(config)
        self._directory = directory
        self.app: Any = None

    async def start(self) -> LocalSidecar:
        """Load the configuration as `serve` does, and start listening."""
        from sidecar.app import App
        from sidecar.config.load import load

        path = self._directory / f"local-{id(self):x}.yaml"
        path.write_text(yaml.safe_dump(self._config, sort_keys=False))
        self.app = App(load(path, environ={}))
        await self.app.start()
        self.data = _pair(self.app.data_address)
        self.admin = _pair(self.app.admin_address)
        return self

    async def stop(self) -> None:
        """Stop it."""
        if self.app is not None:
            await self.app.stop()


def _pair(address: Any) -> Address:
    return split_address(str(address)) if not isinstance(address, tuple) else (address[0], address[1])
