from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest

from sidecar import log
from sidecar.config.model import ProxyUrl, Secret
from sidecar.failures import Code


@pytest.fixture(autouse=True)
def loggers_as_they_were() -> Iterator[None]:
    root = logging.getLogger()
    handlers, root_level, level = root.handlers[:], root.level, log.logger.level
    yield
    root.handlers[:] = handlers
    root.setLevel(root_level)
    log.logger.setLevel(level)


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    captured = capsys.readouterr()
    assert not captured.out, "standard output is not the log's"
    assert captured.err.endswith("\n")
    return captured.err[:-1].split("\n")


def entry(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    (line,) = lines(capsys)
    found: dict[str, Any] = json.loads(line)
    return found


def test_an_event_is_one_line_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure("info", "json")
    log.info("listening", data="127.0.0.1:8080", code=Code.DNS_FAILED, count=3, nothing=None)
    found = entry(capsys)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", found.pop("ts"))
    assert found == {
        "level": "info",
        "event": "listening",
        "data": "127.0.0.1:8080",
        "code": "dns_failed",
        "count": 3,
        "nothing": None,
    }


def test_line_ends_in_values_do_not_end_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure("info", "json")
    log.warning("odd", message='first\nlevel="forged"\r\n\u2028end')
    assert entry(capsys)["message"] == 'first\nlevel="forged"\r\n\u2028end'


def test_the_console_form_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure("info", "console")
    log.warning("dns_stale", host="api.example", reason="time out")
    log.info("stopped")
    first, second = lines(capsys)
    assert re.fullmatch(r"\d\d:\d\d:\d\d warning dns_stale host=api\.example reason=time out", first)
    assert re.fullmatch(r"\d\d:\d\d:\d\d info    stopped", second)


def test_the_console_form_cannot_be_forged(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure("info", "console")
    log.warning("refused", message="no\n12:00:00 info    all is well \x1b[2J")
    (line,) = lines(capsys)
    assert "\x1b" not in line


@pytest.mark.parametrize("form", ["json", "console"])
def test_secrets_do_not_print(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    log.configure("info", form)
    secret = Secret("hunter2")
    proxy = ProxyUrl("proxy.example", 3128, "me-token", secret)
    log.info("with", secret=secret, proxy=proxy, all=[secret, {"deep": proxy}])
    try:
        raise ValueError(f"cannot use {secret}")
    except ValueError as error:
        log.error("failed", exc_info=error, proxy=repr(proxy))
    text = capsys.readouterr().err
    assert "***" in text
    assert "hunter2" not in text
    assert "me-token" not in text


@pytest.mark.parametrize("form", ["json", "console"])
def test_a_mistake_of_ours_brings_its_traceback(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    log.configure("info", form)
    try:
        raise KeyError("here")
    except KeyError as error:
        log.error("request_failed", exc_info=error, upstream="api")
    text = capsys.readouterr().err
    assert "Traceback" in text
    assert "KeyError: 'here'" in text
    if form == "json":
        assert json.loads(text)["upstream"] == "api"


@pytest.mark.parametrize(
    ("level", "seen"),
    [
        ("debug", ["d", "i", "w", "e"]),
        ("info", ["i", "w", "e"]),
        ("warning", ["w", "e"]),
        ("error", ["e"]),
    ],
)
def test_the_level_decides_what_is_said(level: str, seen: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    log.configure(level, "json")
    log.debug("d")
    log.info("i")
    log.warning("w")
    log.error("e")
    assert [json.loads(line)["event"] for line in lines(capsys)] == seen


def test_a_reload_does_not_double_the_lines(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure("info", "json")
    log.configure("info", "console")
    log.configure("info", "json")
    log.info("once")
    assert len(lines(capsys)) == 1


def test_libraries_are_heard_when_they_warn(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure("debug", "json")
    logging.getLogger("asyncio").info("not this")
    logging.getLogger("asyncio").warning("this %s", "one")
    found = entry(capsys)
    assert (found["level"], found["event"]) == ("warning", "this one")
