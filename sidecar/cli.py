"""The command line. It imports late: `--version`, `check` and `healthcheck` start without the server's libraries."""

from __future__ import annotations

import argparse
import gc
import os
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from sidecar import __version__

if TYPE_CHECKING:
    from sidecar.config.model import Address

OK, FAILED, WRONG_USE = 0, 1, 2
"""Exit codes: a clean stop or drain, a failure at run time, wrong usage or configuration."""

NAME = "llm-latency-sidecar"
HEALTHCHECK_TIMEOUT = 2.0
"""Seconds for the whole of a health check."""

_EXTRAS = {"cryptography": "demo", "brotli": "codings", "zstandard": "codings"}
_BIND_ADDRESS = re.compile(r"address \('([^']*)', (\d+)")
"""asyncio and uvloop both say only in the text of the OSError which address could not be bound."""

Command = Callable[[argparse.Namespace], int]


class _Parser(argparse.ArgumentParser):
    """argparse with its complaint on one line, and no password of a URL in it."""

    def error(self, message: str) -> NoReturn:
        line = re.sub(r"//\S*@", "//***@", " ".join(message.split()))
        self.exit(WRONG_USE, f"sidecar: {line} (see {self.prog} --help)\n")


def main(argv: list[str] | None = None) -> int:
    """Run the command in `argv` (default: that of the process) and return the exit code."""
    try:
        code = _run(argv)
        if sys.stdout is not None:  # None: the process was started with it closed.
            sys.stdout.flush()
    except BrokenPipeError:
        # Who reads our output has gone. Without this Python would say so when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return FAILED
    return code


def _run(argv: list[str] | None) -> int:
    from sidecar.config.problems import ConfigError

    try:
        options = _parser().parse_args(argv)
        command: Command = options.command
        return command(options)
    except SystemExit as stop:  # How argparse ends after --help, --version and mistakes.
        return stop.code if isinstance(stop.code, int) else OK
    except KeyboardInterrupt:
        return OK
    except ConfigError as error:
        for problem in error.problems:
            _complain(str(problem))
        return WRONG_USE
    except BrokenPipeError:
        raise
    except OSError as error:
        _complain(_explained(error))
        return FAILED
    except ImportError as error:
        _complain(_missing(error))
        return FAILED


def _complain(line: str) -> None:
    print(f"sidecar: {line}", file=sys.stderr)


def _explained(error: OSError) -> str:
    reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
    if match := _BIND_ADDRESS.search(str(error)):
        host = f"[{match[1]}]" if ":" in match[1] else match[1]
        return f"cannot listen on {host}:{match[2]}: {reason}"
    return f"{error.filename}: {reason}" if error.filename else reason


def _missing(error: ImportError) -> str:
    package = (error.name or "").partition(".")[0]
    if extra := _EXTRAS.get(package):
        return f"this needs the package {package}: pip install {NAME}[{extra}]"
    return f"the installation is incomplete, {' '.join(str(error).split())}: pip install --force-reinstall {NAME}"


def _serve(options: argparse.Namespace) -> int:
    from sidecar.config.load import ConfigSource, Flags

    flags = Flags(upstream=options.upstream, listen=options.listen, admin=options.admin)
    source = ConfigSource(options.config, flags, dict(os.environ), _histograms())
    source.load()  # What is wrong is said before half a second of imports.

    # Nothing of what the imports make is garbage: looking for it costs a sixth of the start. `serve` switches it on.
    gc.disable()
    from sidecar.serve import run

    return run(source)


def _demo(options: argparse.Namespace) -> int:
    from sidecar.demo import run

    return run(options.duration)


def _simulate(options: argparse.Namespace) -> int:
    if options.grpc is not None:
        _complain("--grpc is not available in this version")
        return WRONG_USE
    from sidecar.simulator.server import run

    return run(
        listen=options.listen,
        ttft=options.ttft,
        itl=options.itl,
        tokens=options.tokens,
        tls=options.tls,
        grpc=options.grpc,
    )


def _check(options: argparse.Namespace) -> int:
    from sidecar.config.load import CONFIG_VARIABLE, Flags, config_file, load
    from sidecar.config.problems import ConfigError

    if config_file(options.config, os.environ) is None:
        _complain(f"check needs --config FILE or {CONFIG_VARIABLE}")
        return WRONG_USE
    try:
        load(options.config, flags=Flags(), environ=os.environ, known_metrics=_histograms())
    except ConfigError as error:
        print(error)
        return WRONG_USE
    return OK


def _histograms() -> frozenset[str]:
    from sidecar.metrics.catalogue import KNOWN_HISTOGRAMS

    return KNOWN_HISTOGRAMS


def _healthcheck(options: argparse.Namespace) -> int:
    from sidecar.config.load import admin_address

    address = admin_address(options.admin, os.environ)
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address.host, address.host)  # noqa: S104 - connected to, not bound
    try:
        status = _readiness(host, address.port)
    except OSError as error:
        reason = "no answer in time" if isinstance(error, TimeoutError) else _explained(error)
        _complain(f"not ready: {address}: {reason}")
        return FAILED
    if status != b"200":
        _complain(f"not ready: {address} answers {status.decode('ascii', 'replace') or 'something that is not HTTP'}")
        return FAILED
    return OK


def _readiness(host: str, port: int) -> bytes:
    """The status of GET /readyz, empty when the answer is none of HTTP. Raises OSError, TimeoutError included.

    Written on a bare socket: a health check runs every few seconds and http.client takes longer to import than to ask.
    """
    import socket
    import time

    deadline = time.monotonic() + HEALTHCHECK_TIMEOUT
    with socket.create_connection((host, port), HEALTHCHECK_TIMEOUT) as connection:
        authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        connection.sendall(f"GET /readyz HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n".encode())
        head = b""
        while b"\n" not in head and len(head) < 1024:
            connection.settimeout(max(0.001, deadline - time.monotonic()))
            data = connection.recv(1024)
            if not data:
                break
            head += data
    match = re.match(rb"HTTP/1\.[01] ([0-9]{3})[ \r\n]", head)
    return match[1] if match else b""


def _seconds(text: str) -> float:
    """`0.5`, or with a unit as in the configuration."""
    from sidecar.config.kinds import parse_seconds
    from sidecar.config.problems import Refused

    try:
        return parse_seconds(text)
    except Refused as refusal:
        raise argparse.ArgumentTypeError(str(refusal)) from None


def _whole(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,7}", text) or int(text) == 0:
        raise argparse.ArgumentTypeError("must be a whole number from 1 to 9999999")
    return int(text)


def _address(text: str) -> Address:
    from sidecar.config.network_kinds import parse_address
    from sidecar.config.problems import Refused

    try:
        return parse_address(text)
    except Refused as refusal:
        raise argparse.ArgumentTypeError(str(refusal)) from None


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="sidecar", description="A proxy that measures where the time of LLM API calls goes.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"{NAME} {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)

    def command(name: str, run: Command, help_text: str) -> argparse.ArgumentParser:
        added: argparse.ArgumentParser = commands.add_parser(
            name, help=help_text, description=f"{help_text[0].upper()}{help_text[1:]}.", allow_abbrev=False
        )
        added.set_defaults(command=run)
        return added

    serve = command("serve", _serve, "run the sidecar")
    serve.add_argument("--config", metavar="FILE", help="the configuration (SIDECAR_CONFIG)")
    serve.add_argument(
        "--upstream", metavar="URL", help="the one upstream, instead of those of the file (SIDECAR_UPSTREAM)"
    )
    serve.add_argument("--listen", metavar="HOST:PORT", help="where the application connects (SIDECAR_LISTEN)")
    serve.add_argument("--admin", metavar="HOST:PORT", help="metrics and health (SIDECAR_ADMIN)")

    demo = command("demo", _demo, "run a simulated LLM API, the sidecar before it and a steady load")
    demo.add_argument("--duration", metavar="SECONDS", type=_seconds, help="end after this time; default: at Ctrl-C")

    _add_simulate_options(command("simulate", _simulate, "run the simulated LLM API alone"))

    check = command("check", _check, "print every problem of a configuration, or nothing")
    check.add_argument("--config", metavar="FILE", help="the configuration (SIDECAR_CONFIG)")

    healthcheck = command("healthcheck", _healthcheck, "exit 0 when the sidecar on this machine is ready")
    healthcheck.add_argument("--admin", metavar="HOST:PORT", help="its admin port (SIDECAR_ADMIN)")
    return parser


def _add_simulate_options(simulate: argparse.ArgumentParser) -> None:
    simulate.add_argument(
        "--listen", metavar="HOST:PORT", type=_address, default="127.0.0.1:8081", help="[%(default)s]"
    )
    simulate.add_argument("--ttft", metavar="S", type=_seconds, default=0.3, help="time to first token [%(default)s]")
    simulate.add_argument("--itl", metavar="S", type=_seconds, default=0.02, help="between tokens [%(default)s]")
    simulate.add_argument("--tokens", metavar="N", type=_whole, default=100, help="tokens of an answer [%(default)s]")
    simulate.add_argument("--tls", action="store_true", help="speak TLS, with a certificate made for the occasion")
    simulate.add_argument("--grpc", metavar="HOST:PORT", type=_address, help="not available in this version")
