from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sidecar import log
from sidecar.config.load import ConfigSource
from sidecar.config.model import Config
from sidecar.serve import QUIET_SECONDS, Reloader, drained
from tests.kit.authority import authority, ca_file
from tests.kit.fakes import Clock, make_upstream

RIGHT = "upstreams: [{{name: {name}, url: https://a.example{tls}}}]\n"


@pytest.fixture(autouse=True)
def loggers_as_they_were(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A reload sets the log up anew, which would take the records away from caplog."""
    level = log.logger.level
    monkeypatch.setattr(log, "configure", lambda level, form: log.logger.setLevel(level.upper()))
    yield
    log.logger.setLevel(level)


# ---- the drain ----


class Draining:
    """A sidecar in which an exchange is running from time to time; time passes while it is looked at."""

    def __init__(self, *, timeout: float = 60.0) -> None:
        self.clock = Clock()
        self.config = Config((make_upstream(),), drain_timeout=timeout)
        self.busy: list[tuple[float, float]] = []
        """When exchanges ran, seconds after the drain began."""
        self.at_once = asyncio.Event()
        self.second_signal: float | None = None

    @property
    def quiet_since(self) -> float | None:
        passed = self.clock() - 100.0
        if any(began <= passed < ended for began, ended in self.busy):
            return None
        return 100.0 + max([ended for _, ended in self.busy if ended <= passed], default=-1000.0)

    async def pause(self, at_once: asyncio.Event) -> None:
        self.clock.advance(0.25)
        if self.second_signal is not None and self.clock() - 100.0 >= self.second_signal:
            at_once.set()

    async def drain(self) -> tuple[bool, float]:
        """Whether all was done, and after how many seconds it ended."""
        done = await drained(self, self.at_once, self.clock, self.pause)
        return done, self.clock() - 100.0


async def test_an_idle_sidecar_drains_in_the_quiet_time_however_long_it_was_idle() -> None:
    assert await Draining().drain() == (True, QUIET_SECONDS)


async def test_a_drain_ends_when_nothing_has_been_in_flight_for_a_while() -> None:
    draining = Draining()
    draining.busy = [(0.0, 5.0), (5.5, 7.0)]
    assert await draining.drain() == (True, 7.0 + QUIET_SECONDS)


async def test_a_stream_that_does_not_end_is_left_at_the_timeout(caplog: pytest.LogCaptureFixture) -> None:
    draining = Draining(timeout=10.0)
    draining.busy = [(0.0, 1e9)]
    with caplog.at_level(logging.WARNING, "sidecar"):
        assert await draining.drain() == (False, 10.0)
    assert caplog.messages == ["drain_timeout"]


async def test_a_second_signal_ends_the_drain_at_once() -> None:
    draining = Draining()
    draining.busy = [(0.0, 1e9)]
    draining.second_signal = 2.0
    assert await draining.drain() == (False, 2.0)
    assert await draining.drain() == (False, 2.0), "also when it has come already"


async def test_the_signal_is_not_waited_for_longer_than_it_takes() -> None:
    draining = Draining()
    draining.busy = [(0.0, 1e9)]
    waiting = asyncio.ensure_future(drained(draining, draining.at_once, draining.clock))
    await asyncio.sleep(0)
    draining.at_once.set()
    assert await asyncio.wait_for(waiting, 5) is False


# ---- reloads ----


class FakeApp:
    """Takes configurations, when it is let."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.taken: list[Config] = []
        self.outcomes: list[bool] = []
        self.recorder: Any = SimpleNamespace(config_reloaded=lambda ok, at: self.outcomes.append(ok))
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.began = asyncio.Event()
        self.error: Exception | None = None

    async def reload(self, config: Config) -> None:
        self.began.set()
        await self.go_on.wait()
        if self.error is not None:
            raise self.error
        self.taken.append(config)
        self.config = config


class Reloading:
    """A configuration file, and a reloader that watches it for a fake app."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.file = directory / "sidecar.yaml"
        self.write("a")
        self.source = ConfigSource(str(self.file))
        self.app = FakeApp(self.source.load())
        self.reloader = Reloader(self.app, self.source)

    def write(self, name: str, tls: str = "") -> None:
        """Replace the file by a right one with an upstream of this name."""
        self.replace(self.file, RIGHT.format(name=name, tls=f", tls: {tls}" if tls else ""))

    def replace(self, path: Path, text: str) -> None:
        fresh = path.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(path)

    async def look(self) -> None:
        """Look at the files once, as the watch does, and let what follows from it end."""
        self.reloader.look()
        await asyncio.wait_for(self.reloader.settled(), 10)

    @property
    def names(self) -> list[str]:
        """Of the upstreams that were taken, one for each reload."""
        return [config.upstreams[0].name for config in self.app.taken]


@pytest.fixture
def reloading(tmp_path: Path) -> Reloading:
    return Reloading(tmp_path)


async def test_a_changed_file_is_loaded(reloading: Reloading) -> None:
    await reloading.look()
    assert reloading.names == []
    reloading.write("b")
    await reloading.look()
    await reloading.look()
    assert reloading.names == ["b"]
    assert reloading.app.outcomes == [True]


async def test_a_file_that_was_only_touched_is_loaded_as_well(reloading: Reloading) -> None:
    status = reloading.file.stat()
    os.utime(reloading.file, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    await reloading.look()
    assert reloading.names == ["a"]


async def test_a_signal_loads_what_did_not_change(reloading: Reloading) -> None:
    reloading.reloader.request()
    await asyncio.wait_for(reloading.reloader.settled(), 10)
    assert reloading.names == ["a"]


async def test_a_wrong_file_is_logged_counted_and_ignored(
    reloading: Reloading, caplog: pytest.LogCaptureFixture
) -> None:
    reloading.replace(reloading.file, "listen: 8080\ncolour: blue\n")
    await reloading.look()
    await reloading.look()
    assert reloading.app.outcomes == [False], "once: it is not tried again until it changes"
    assert reloading.names == []
    (record,) = [record for record in caplog.records if record.message == "reload_refused"]
    assert [problem.partition(":")[0] for problem in record.fields["problems"]] == ["colour", "listen", "upstreams"]  # type: ignore[attr-defined]
    reloading.write("b")
    await reloading.look()
    assert (reloading.names, reloading.app.outcomes) == (["b"], [False, True])


async def test_a_file_that_has_gone_is_ignored_until_it_is_back(reloading: Reloading) -> None:
    text = reloading.file.read_text()
    reloading.file.unlink()
    await reloading.look()
    assert reloading.app.outcomes == [False]
    reloading.file.write_text(text)
    await reloading.look()
    assert reloading.app.outcomes == [False, True]


async def test_an_error_of_the_app_is_a_refusal(reloading: Reloading, caplog: pytest.LogCaptureFixture) -> None:
    reloading.app.error = OSError(2, "No such file", "ca.pem")
    reloading.write("b")
    await reloading.look()
    assert reloading.app.outcomes == [False]
    assert "reload_refused" in caplog.messages


async def test_the_file_is_read_beside_the_loop(reloading: Reloading, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[bool] = []
    load = ConfigSource.load

    def noting(source: ConfigSource) -> Config:
        threads.append(threading.current_thread() is threading.main_thread())
        return load(source)

    monkeypatch.setattr(ConfigSource, "load", noting)
    reloading.write("b")
    await reloading.look()
    assert threads == [False]


async def test_signals_during_a_reload_lead_to_one_more_after_it(reloading: Reloading) -> None:
    app, reloader = reloading.app, reloading.reloader
    app.go_on.clear()
    reloading.write("b")
    reloader.request()
    await asyncio.wait_for(app.began.wait(), 10)
    reloading.write("c")
    reloader.request()
    reloader.request()
    reloader.look()
    app.go_on.set()
    await asyncio.wait_for(reloader.settled(), 10)
    assert reloading.names == ["b", "c"]
    await reloading.look()
    assert reloading.names == ["b", "c"], "what was read last is known"


async def test_a_change_during_a_reload_is_seen_by_the_next_look(reloading: Reloading) -> None:
    reloading.app.go_on.clear()
    reloading.write("b")
    reloading.reloader.look()
    await asyncio.wait_for(reloading.app.began.wait(), 10)
    reloading.write("c")
    reloading.app.go_on.set()
    await asyncio.wait_for(reloading.reloader.settled(), 10)
    assert reloading.names == ["b"]
    await reloading.look()
    assert reloading.names == ["b", "c"]


async def test_nothing_is_applied_after_the_end(reloading: Reloading) -> None:
    reloading.app.go_on.clear()
    reloading.write("b")
    reloading.reloader.look()
    await asyncio.wait_for(reloading.app.began.wait(), 10)
    reloading.reloader.close()
    with pytest.raises(asyncio.CancelledError):
        await reloading.reloader.settled()
    assert reloading.names == []
    reloading.reloader.close()


async def test_the_watch_looks_again_and_again(reloading: Reloading, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sidecar.serve.WATCH_SECONDS", 0.01)
    watching = asyncio.ensure_future(reloading.reloader.watch())
    for name in ("b", "c"):
        reloading.app.began.clear()
        reloading.write(name)
        await asyncio.wait_for(reloading.app.began.wait(), 10)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    await reloading.reloader.settled()
    assert reloading.names == ["b", "c"]


async def test_a_configuration_without_a_file_is_loaded_by_signal_only() -> None:
    source = ConfigSource(None, environ={"SIDECAR_UPSTREAM": "https://a.example"})
    app = FakeApp(source.load())
    reloader = Reloader(app, source)
    reloader.look()
    await reloader.settled()
    assert app.taken == []
    reloader.request()
    await asyncio.wait_for(reloader.settled(), 10)
    assert len(app.taken) == 1


# ---- the files of tls ----


async def test_certificates_that_are_rotated_are_taken_up(reloading: Reloading, tmp_path: Path) -> None:
    path = ca_file(tmp_path)
    reloading.write("b", f"{{ca_file: {path}}}")
    await reloading.look()
    await reloading.look()
    assert reloading.names == ["b"], "a file that is named for the first time is no change"
    reloading.replace(path, path.read_text() + "\n")
    await reloading.look()
    await reloading.look()
    assert reloading.names == ["b", "b"]


async def test_a_rotation_that_is_half_done_is_refused_and_taken_up_when_it_is_whole(
    reloading: Reloading, tmp_path: Path
) -> None:
    cert, key = tmp_path / "own.crt", tmp_path / "own.key"

    def issue() -> tuple[str, str]:
        made = authority().issue_cert("me.example")
        return made.cert_chain_pems[0].bytes().decode(), made.private_key_pem.bytes().decode()

    for path, text in zip((cert, key), issue(), strict=True):
        path.write_text(text)
    reloading.write("b", f"{{cert_file: {cert}, key_file: {key}}}")
    await reloading.look()
    assert reloading.app.outcomes == [True]

    fresh_cert, fresh_key = issue()
    reloading.replace(cert, fresh_cert)
    await reloading.look()
    await reloading.look()
    assert reloading.app.outcomes == [True, False], "the key is that of the old certificate"
    reloading.replace(key, fresh_key)
    await reloading.look()
    assert reloading.app.outcomes == [True, False, True]
