"""The commands: what they run, what they print, and how they end."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import uvloop

from sidecar import __version__, cli
from sidecar.config.load import ConfigSource
from sidecar.config.model import Address
from sidecar.config.problems import ConfigError, Problem

ROOT = Path(__file__).resolve().parents[2]
RIGHT = "upstreams: [{name: a, url: https://a.example}]\n"
WRONG = "listen: 8080\ncolour: blue\n"
WRONG_LINES = [
    "colour: unknown key, known here: listen, admin, log, upstreams, models, cache, limits, drain_timeout, slo, "
    "metrics, server_timing, via, debug",
    "listen: needs a host: 127.0.0.1:8080, or 0.0.0.0:8080 to be reached from outside",
    "upstreams: at least one is needed, here or as --upstream URL",
]

Run = Callable[..., int]
Provide = Callable[[str, Run], None]


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the environment of the tests."""
    for name in [name for name in os.environ if name.startswith("SIDECAR_") or name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A right configuration file."""
    path = tmp_path / "sidecar.yaml"
    path.write_text(RIGHT)
    return path


@pytest.fixture
def provide(monkeypatch: pytest.MonkeyPatch) -> Provide:
    """Puts a `run` in the place of a part's."""

    def provided(name: str, run: Run) -> None:
        module = ModuleType(name)
        module.run = run  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, name, module)

    return provided


@pytest.mark.parametrize(
    ("argv", "code", "line"),
    [
        ([], 2, "sidecar: the following arguments are required: COMMAND (see sidecar --help)"),
        (["serv"], 2, "sidecar: argument COMMAND: invalid choice: 'serv'"),
        (["serve", "--conf", "x"], 2, "sidecar: unrecognized arguments: --conf x"),
        (["serve", "--config"], 2, "sidecar: argument --config: expected one argument (see sidecar serve --help)"),
        (["serve", "https://me:hunter2@a.example"], 2, "sidecar: unrecognized arguments: https://***@a.example"),
        (["serve", "--upstream", "ftp://a"], 2, "sidecar: --upstream: the scheme must be http or https"),
        (["serve", "--upstream", "http://a", "--listen", "80"], 2, "sidecar: --listen: needs a host: 127.0.0.1:80, or"),
        (["serve", "--config", "/none.yaml"], 2, "sidecar: /none.yaml: cannot be read: No such file or directory"),
        (["serve"], 2, "sidecar: upstreams: at least one is needed, here or as --upstream URL"),
        (["check"], 2, "sidecar: check needs --config FILE or SIDECAR_CONFIG"),
        (["demo", "--duration", "long"], 2, "sidecar: argument --duration: must be seconds such as 0.5, or a duration"),
        (["demo", "--duration", "-1"], 2, "sidecar: argument --duration: "),
        (["simulate", "--ttft", "nan"], 2, "sidecar: argument --ttft: must be seconds such as 0.5"),
        (["simulate", "--tokens", "0"], 2, "sidecar: argument --tokens: must be a whole number from 1 to 9999999"),
        (["simulate", "--listen", ":80"], 2, "sidecar: argument --listen: needs a host"),
        (["simulate", "--grpc", "127.0.0.1:1"], 2, "sidecar: --grpc is not available in this version"),
        (
            ["healthcheck", "--admin", "here"],
            2,
            "sidecar: --admin: must be HOST:PORT such as 127.0.0.1:8080, not 'here'",
        ),
    ],
)
def test_wrong_use_is_told_in_one_line(
    argv: list[str], code: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(argv) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(line)
    assert err.count("\n") == 1


def test_the_version_has_the_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"llm-latency-sidecar {__version__}\n"


@pytest.mark.parametrize("command", [[], ["serve"], ["demo"], ["simulate"], ["check"], ["healthcheck"]])
def test_every_command_has_help(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*command, "--help"]) == 0
    assert capsys.readouterr().out.startswith("usage: " + " ".join(["sidecar", *command]))


def test_check_of_a_right_file_says_nothing(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "--config", str(file)]) == 0
    assert capsys.readouterr() == ("", "")


def test_check_prints_every_problem(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(WRONG)
    monkeypatch.setenv("SIDECAR_CONFIG", str(file))
    assert cli.main(["check"]) == 2
    out, err = capsys.readouterr()
    assert (out.splitlines(), err) == (WRONG_LINES, "")


def test_check_knows_the_histograms(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(f"{RIGHT}metrics: {{buckets: {{time_to_first_token_seconds: [1], time_to_last_token: [1]}}}}")
    assert cli.main(["check", "--config", str(file)]) == 2
    assert capsys.readouterr().out.startswith("metrics.buckets.time_to_last_token: no histogram has this name")


def test_serve_runs_with_a_source_that_can_be_loaded_again(
    file: Path, provide: Provide, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources: list[ConfigSource] = []

    def run(source: ConfigSource) -> int:
        sources.append(source)
        return 0

    provide("sidecar.serve", run)
    monkeypatch.setenv("SIDECAR_ADMIN", "127.0.0.1:3")
    argv = ["serve", "--config", str(file), "--upstream", "http://b.example", "--listen", "127.0.0.1:2"]

    assert cli.main(argv) == 0

    (source,) = sources
    assert source.file == str(file)
    config = source.load()
    assert (config.listen.port, config.admin.port) == (2, 3)
    assert str(config.upstreams[0].url) == "http://b.example"
    assert "time_to_first_token_seconds" in source.known_metrics


def test_serve_tells_every_problem_on_standard_error(
    file: Path, provide: Provide, capsys: pytest.CaptureFixture[str]
) -> None:
    provide("sidecar.serve", lambda source: pytest.fail("it must not run"))
    file.write_text(WRONG)
    assert cli.main(["serve", "--config", str(file)]) == 2
    out, err = capsys.readouterr()
    assert (out, err.splitlines()) == ("", [f"sidecar: {line}" for line in WRONG_LINES])


@pytest.mark.parametrize("code", [0, 1, 2])
def test_the_exit_code_is_that_of_the_command(code: int, provide: Provide) -> None:
    provide("sidecar.serve", lambda source: code)
    assert cli.main(["serve", "--upstream", "http://a.example"]) == code


def raising(error: BaseException) -> Run:
    """A `run` that ends so."""

    def run(*positional: object, **named: object) -> int:
        raise error

    return run


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (KeyboardInterrupt(), 0, ""),
        (ConfigError([Problem("a", "is wrong")]), 2, "sidecar: a: is wrong\n"),
        (
            PermissionError(errno.EACCES, "Permission denied", "/secret.pem"),
            1,
            "sidecar: /secret.pem: Permission denied\n",
        ),
        (OSError(errno.EMFILE, "Too many open files"), 1, "sidecar: Too many open files\n"),
        (socket.gaierror(-2, "Name or service not known"), 1, "sidecar: Name or service not known\n"),
        (OSError("no number"), 1, "sidecar: no number\n"),
        (
            OSError(errno.EADDRNOTAVAIL, "error while attempting to bind on address ('fd00::1', 80, 0, 0): cannot"),
            1,
            "sidecar: cannot listen on [fd00::1]:80: Cannot assign requested address\n",
        ),
        (
            ModuleNotFoundError("No module named 'cryptography'", name="cryptography.x509"),
            1,
            "sidecar: this needs the package cryptography: pip install llm-latency-sidecar[demo]\n",
        ),
        (
            ModuleNotFoundError("No module named 'aiohttp'", name="aiohttp"),
            1,
            "sidecar: the installation is incomplete, No module named 'aiohttp': "
            "pip install --force-reinstall llm-latency-sidecar\n",
        ),
    ],
)
def test_what_goes_wrong_at_run_time_is_told_in_one_line(
    error: BaseException, code: int, line: str, provide: Provide, capsys: pytest.CaptureFixture[str]
) -> None:
    provide("sidecar.serve", raising(error))
    assert cli.main(["serve", "--upstream", "http://a.example"]) == code
    assert capsys.readouterr() == ("", line)


def test_a_fault_of_our_own_is_not_hidden(provide: Provide) -> None:
    provide("sidecar.serve", raising(ZeroDivisionError("a bug")))
    with pytest.raises(ZeroDivisionError):
        cli.main(["serve", "--upstream", "http://a.example"])


@pytest.mark.parametrize("run_loop", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_port_that_is_taken_is_named(run_loop: Any, provide: Provide, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        async def listen() -> None:
            await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", port)

        provide("sidecar.serve", lambda source: run_loop(listen()))
        assert cli.main(["serve", "--upstream", "http://a.example"]) == 1
    assert capsys.readouterr().err == f"sidecar: cannot listen on 127.0.0.1:{port}: Address already in use\n"


@pytest.mark.parametrize(
    ("argv", "duration"), [([], None), (["--duration", "2.5"], 2.5), (["--duration", "2m"], 120.0)]
)
def test_the_demo_ends_after_its_duration(argv: list[str], duration: float | None, provide: Provide) -> None:
    durations: list[float | None] = []

    def run(wanted: float | None) -> int:
        durations.append(wanted)
        return 0

    provide("sidecar.demo", run)
    assert cli.main(["demo", *argv]) == 0
    assert durations == [duration]


@pytest.mark.parametrize(
    ("argv", "wanted"),
    [
        ([], {}),
        (
            ["--listen", "[::1]:9", "--ttft", "250ms", "--itl", "0", "--tokens", "7", "--tls"],
            {"listen": Address("::1", 9), "ttft": 0.25, "itl": 0.0, "tokens": 7, "tls": True},
        ),
    ],
)
def test_the_simulator_gets_its_options_by_name(argv: list[str], wanted: dict[str, object], provide: Provide) -> None:
    calls: list[dict[str, object]] = []

    def run(**named: object) -> int:
        calls.append(named)
        return 0

    provide("sidecar.simulator.server", run)
    assert cli.main(["simulate", *argv]) == 0
    defaults = {"listen": Address("127.0.0.1", 8081), "ttft": 0.3, "itl": 0.02, "tokens": 100, "tls": False}
    assert calls == [{**defaults, "grpc": None, **wanted}]


class AdminPort:
    """Answers one connection with fixed bytes, and keeps what was asked. None: never answers."""

    def __init__(self, answer: bytes | None) -> None:
        self._answer = answer
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._asked = threading.Event()
        self.port: int = self._socket.getsockname()[1]
        self.request = b""
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._socket.accept()
        with connection:
            while not self.request.endswith(b"\r\n\r\n"):
                self.request += connection.recv(4096)
            if self._answer is None:
                connection.recv(1)  # Until the other side has gone.
            else:
                connection.sendall(self._answer)

    def close(self) -> None:
        """Wait until the connection has been served."""
        self._thread.join(10)
        self._socket.close()


@pytest.fixture
def admin_port() -> Iterator[Callable[[bytes | None], AdminPort]]:
    """Starts admin ports, each for one connection."""
    started: list[AdminPort] = []

    def start(answer: bytes | None) -> AdminPort:
        started.append(AdminPort(answer))
        return started[-1]

    yield start
    for port in started:
        port.close()


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 0, ""),
        (b"HTTP/1.0 200\r\n\r\n", 0, ""),
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", 1, "answers 503"),
        (b"HTTP/1.1 2000 OK\r\n\r\n", 1, "answers something that is not HTTP"),
        (b"SSH-2.0-OpenSSH_9\r\n", 1, "answers something that is not HTTP"),
        (b"x" * 5000, 1, "answers something that is not HTTP"),
        (b"", 1, "answers something that is not HTTP"),
    ],
)
def test_healthcheck_is_whether_readyz_is_200(
    answer: bytes,
    code: int,
    said: str,
    admin_port: Callable[[bytes | None], AdminPort],
    capsys: pytest.CaptureFixture[str],
) -> None:
    port = admin_port(answer)

    assert cli.main(["healthcheck", "--admin", f"127.0.0.1:{port.port}"]) == code

    assert port.request.startswith(b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n" % port.port)
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert err.count("\n") == code


def test_healthcheck_does_not_wait_for_ever(
    admin_port: Callable[[bytes | None], AdminPort],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(cli, "HEALTHCHECK_TIMEOUT", 0.1)
    port = admin_port(None).port
    assert cli.main(["healthcheck", "--admin", f"127.0.0.1:{port}"]) == 1
    assert capsys.readouterr().err == f"sidecar: not ready: 127.0.0.1:{port}: no answer in time\n"


def test_healthcheck_asks_the_loopback_of_a_port_on_every_address(
    admin_port: Callable[[bytes | None], AdminPort], monkeypatch: pytest.MonkeyPatch
) -> None:
    port = admin_port(b"HTTP/1.1 200 OK\r\n\r\n").port
    monkeypatch.setenv("SIDECAR_ADMIN", f"0.0.0.0:{port}")
    assert cli.main(["healthcheck"]) == 0


def test_healthcheck_finds_the_port_in_the_configuration(
    file: Path, admin_port: Callable[[bytes | None], AdminPort], monkeypatch: pytest.MonkeyPatch
) -> None:
    port = admin_port(b"HTTP/1.1 200 OK\r\n\r\n").port
    file.write_text(f"admin: 0.0.0.0:{port}\nupstreams: wrong by now")
    monkeypatch.setenv("SIDECAR_CONFIG", str(file))
    assert cli.main(["healthcheck"]) == 0


def test_healthcheck_of_nothing_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert cli.main(["healthcheck", "--admin", f"127.0.0.1:{port}"]) == 1
    assert capsys.readouterr().err == f"sidecar: not ready: 127.0.0.1:{port}: Connection refused\n"


def run_process(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Python with `arguments`, in the root of the repository."""
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, text=True, timeout=60, check=False, **options)


def test_the_module_is_the_command() -> None:
    done = run_process("-m", "sidecar", "check", "--config", "/none.yaml", capture_output=True)
    assert (done.returncode, done.stderr) == (2, "")
    assert done.stdout == "/none.yaml: cannot be read: No such file or directory\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_has_gone_makes_no_noise(file: Path, unbuffered: str) -> None:
    file.write_text(WRONG)
    reading, writing = os.pipe()
    os.close(reading)
    environ = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    arguments = ["-m", "sidecar", "check", "--config", str(file)]
    done = run_process(*arguments, stdout=writing, stderr=subprocess.PIPE, env=environ)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


def test_closed_outputs_are_no_crash(file: Path) -> None:
    file.write_text(WRONG)
    script = "import os, sys\nos.close(1)\nos.close(2)\nos.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    assert run_process("-c", script, "-m", "sidecar", "check", "--config", str(file)).returncode == 2


def test_file_names_beyond_the_encoding_of_the_terminal_are_printed() -> None:
    environ = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = run_process(
        "-m", "sidecar", "check", "--config", os.fsdecode(b"/none-\xff-\xc3\xa9"), env=environ, capture_output=True
    )
    assert (done.returncode, done.stderr) == (2, "")
    assert done.stdout.endswith("cannot be read: No such file or directory\n")


def test_check_and_healthcheck_start_without_the_servers_libraries(file: Path) -> None:
    script = """
import sys
from sidecar.cli import main
codes = [main(["check", "--config", sys.argv[1]]), main(["healthcheck", "--admin", "127.0.0.1:1"])]
heavy = {"aiohttp", "uvloop", "asyncio", "httptools", "prometheus_client", "ssl", "msgspec"} & set(sys.modules)
sys.exit(f"imports {heavy}" if heavy or codes != [0, 1] else 0)
"""
    done = run_process("-c", script, str(file), capture_output=True)
    assert (done.returncode, done.stdout) == (0, "")
