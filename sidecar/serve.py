"""`sidecar serve`: the process around an App. Signals, reloads, the drain, and the exit code."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import ssl
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

import uvloop

from sidecar import dialects, log
from sidecar.app import App, settle_memory
from sidecar.config.load import ConfigSource
from sidecar.config.model import Config
from sidecar.config.problems import ConfigError
from sidecar.metrics.recorder import Recorder
from sidecar.origins import Stamp, stamp_of, tls_files

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
    preload()
    return uvloop.run(_serve(app, source))


def preload() -> None:
    """Import what the first exchange of any dialect needs, before anybody waits.

    These modules come at their first use, which would be amid the first answer: its stream, and every other of that
    moment, stood still for a tenth of a second, and the measured lag of the event loop with them.
    """
    for name in dialects.__all__:
        getattr(dialects, name)


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

    # Before anybody can see that we are there: a signal right after would find its default, which kills.
    reloader = Reloader(app, source)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    loop.add_signal_handler(signal.SIGHUP, reloader.request)
    await app.start()
    watch = loop.create_task(reloader.watch())
    settle_memory()
    try:
        await stopping.wait()
        log.info("draining", in_flight=app.proxy.in_flight, timeout=app.config.drain_timeout)
        app.drain()
        await drained(app, at_once)
    finally:
        watch.cancel()
        reloader.close()
        await app.stop()
    log.info("stopped", in_flight=app.proxy.in_flight)
    return 0


class Draining(Protocol):
    """What a drain looks at; the App is one."""

    @property
    def config(self) -> Config: ...

    @property
    def quiet_since(self) -> float | None: ...


async def drained(
    app: Draining,
    at_once: asyncio.Event,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[asyncio.Event], Awaitable[None]] | None = None,
) -> bool:
    """Wait until nothing has been in flight for a while: True. False: `drain_timeout` passed, or a second signal came.

    `clock` is that of `app.quiet_since`. `pause` lets a moment pass, or less when the event comes.
    """
    began = clock()
    while not at_once.is_set():
        now = clock()
        quiet = app.quiet_since
        if quiet is not None and now - max(quiet, began) >= QUIET_SECONDS:
            return True
        if now - began >= app.config.drain_timeout:
            log.warning("drain_timeout", seconds=app.config.drain_timeout)
            return False
        await (pause or _pause)(at_once)
    return False


async def _pause(at_once: asyncio.Event) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(at_once.wait(), _POLL_SECONDS)


class Reloadable(Protocol):
    """What takes a new configuration; the App does."""

    @property
    def config(self) -> Config: ...

    @property
    def recorder(self) -> Recorder: ...

    async def reload(self, config: Config) -> None: ...


class Reloader:
    """Loads the configuration again on SIGHUP and when one of its files has changed; a wrong one changes nothing.

    The files are the configuration's own and those that `tls` of an upstream names. They are read in a thread, one
    reload at a time.
    """

    def __init__(self, app: Reloadable, source: ConfigSource) -> None:
        self._app = app
        self._source = source
        self._seen = self._stamps(app.config)
        self._wanted = False
        self._running: asyncio.Task[None] | None = None

    def request(self) -> None:
        """Load and apply soon; when a reload is running, which may have read the old files, one more comes after it."""
        self._wanted = True
        if self._running is None:
            self._running = asyncio.get_running_loop().create_task(self._run())

    async def settled(self) -> None:
        """Wait until no reload is running."""
        if self._running is not None:
            await asyncio.shield(self._running)

    def close(self) -> None:
        """Apply nothing any more."""
        if self._running is not None:
            self._running.cancel()

    async def watch(self) -> None:
        """Look at the files until cancelled."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            self.look()

    def look(self) -> None:
        """Reload when a file is not what it was when it was last read."""
        if self._running is None and self._stamps(self._app.config) != self._seen:
            self.request()

    async def _run(self) -> None:
        try:
            while self._wanted:
                self._wanted = False
                await self._reload()
        finally:
            self._running = None

    async def _reload(self) -> None:
        # Stamps are older than what is read: a change in between is seen the next time.
        before = self._seen = self._stamps(self._app.config)
        try:
            config = await asyncio.to_thread(self._source.load)
            seen = self._stamps(config) | {path: stamp for path, stamp in before.items() if path == self._source.file}
            await self._app.reload(config)
        except ConfigError as error:
            self._refused([str(problem) for problem in error.problems])
        except (OSError, ssl.SSLError) as error:
            self._refused([str(error)])
        else:
            self._seen = seen
            log.configure(config.log.level, config.log.format)
            self._app.recorder.config_reloaded(True, time.time())
            log.info("reloaded", upstreams=[upstream.name for upstream in config.upstreams])

    def _refused(self, problems: list[str]) -> None:
        self._app.recorder.config_reloaded(False, time.time())
        log.error("reload_refused", problems=problems)

    def _stamps(self, config: Config) -> dict[str, Stamp]:
        paths = [path for upstream in config.upstreams for path in tls_files(upstream.tls)]
        if self._source.file is not None:
            paths.append(self._source.file)
        return {path: stamp_of(path) for path in paths}
