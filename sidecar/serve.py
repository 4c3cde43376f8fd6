"""`sidecar serve`: the process around an App. Signals, reloads, the drain, and the exit code."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import ssl
import time

import uvloop

from sidecar import log
from sidecar.app import App, settle_memory
from sidecar.config.load import ConfigSource
from sidecar.config.problems import ConfigError

QUIET_SECONDS = 1.0
"""A drain ends when nothing has been in flight for so long: an application that is stopping has paused, not ended."""

WATCH_SECONDS = 1.0
"""How often the configuration file is looked at. ConfigMaps are swapped by symlink, which inotify misses."""

_POLL_SECONDS = 0.05


def run(source: ConfigSource) -> int:
    """Serve until told to stop; returns the exit code. Raises ConfigError and OSError of the start."""
    config = source.load()
    log.configure(config.log.level, config.log.format)
    app = App(config)
    return uvloop.run(_serve(app, source))


async def _serve(app: App, source: ConfigSource) -> int:
    loop = asyncio.get_running_loop()
    stops = 0
    stopping = asyncio.Event()
    at_once = asyncio.Event()

    def stop() -> None:
        nonlocal stops
        stops += 1
        stopping.set()
        if stops > 1:
            at_once.set()

    await app.start()
    reloader = Reloader(app, source)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    loop.add_signal_handler(signal.SIGHUP, reloader.reload)
    watch = loop.create_task(reloader.watch())
    settle_memory()
    try:
        await stopping.wait()
        log.info("draining", in_flight=app.proxy.in_flight, timeout=app.config.drain_timeout)
        app.drain()
        await _drained(app, at_once)
    finally:
        watch.cancel()
        await app.stop()
    log.info("stopped", in_flight=app.proxy.in_flight)
    return 0


async def _drained(app: App, at_once: asyncio.Event) -> None:
    """Wait until nothing has been in flight for a while, `drain_timeout` has passed, or a second signal came."""
    began = time.monotonic()
    while not at_once.is_set():
        now = time.monotonic()
        quiet = app.quiet_since
        if quiet is not None and now - max(quiet, began) >= QUIET_SECONDS:
            return
        if now - began >= app.config.drain_timeout:
            log.warning("drain_timeout", in_flight=app.proxy.in_flight)
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(at_once.wait(), _POLL_SECONDS)


class Reloader:
    """Loads the configuration again on SIGHUP and when its file has changed; a wrong one changes nothing."""

    def __init__(self, app: App, source: ConfigSource) -> None:
        self._app = app
        self._source = source
        self._seen = self._stamp()

    def reload(self) -> None:
        """Load and apply now."""
        self._seen = self._stamp()
        try:
            config = self._source.load()
            self._app.reload(config)
        except ConfigError as error:
            self._refused([str(problem) for problem in error.problems])
        except (OSError, ssl.SSLError) as error:
            self._refused([str(error)])
        else:
            log.configure(config.log.level, config.log.format)
            self._app.recorder.config_reloaded(True, time.time())
            log.info("reloaded", upstreams=[upstream.name for upstream in config.upstreams])

    def _refused(self, problems: list[str]) -> None:
        self._app.recorder.config_reloaded(False, time.time())
        log.error("reload_refused", problems=problems)

    async def watch(self) -> None:
        """Look at the file until cancelled."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            if self._stamp() != self._seen:
                self.reload()

    def _stamp(self) -> tuple[int, int, int] | None:
        """What changes when the file does, be it written in place, renamed over, or a symlink swapped above it."""
        path = self._source.file
        if path is None:
            return None
        try:
            status = os.stat(path)
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns, status.st_size
