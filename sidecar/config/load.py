"""From a file, the environment and flags to one `Config`, or to the list of everything that is wrong."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sidecar.config.document import read_document
from sidecar.config.model import Address, Config
from sidecar.config.network_kinds import parse_address
from sidecar.config.problems import ConfigError, Problem, Problems, Refused, note
from sidecar.config.schema import Kind, Place, Section, Surroundings, Values
from sidecar.config.sections import LOG, ROOT
from sidecar.config.upstream_section import UPSTREAM

CONFIG_VARIABLE = "SIDECAR_CONFIG"


@dataclass(frozen=True, slots=True)
class Flags:
    """What the command line says, as text; None where it says nothing."""

    upstream: str | None = field(default=None, repr=False)
    """Kept from `repr`: a wrong one may hold a password."""
    listen: str | None = None
    admin: str | None = None


@dataclass(frozen=True, slots=True)
class ConfigSource:
    """Where the configuration comes from, so that it can be loaded again. `environ` may hold secrets."""

    path: str | None
    flags: Flags = field(default_factory=Flags)
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    known_metrics: frozenset[str] = frozenset()
    """Names of the histograms whose buckets may be set; empty: any."""

    @property
    def file(self) -> str | None:
        """The file to watch for changes; None when flags and environment are the whole configuration."""
        return config_file(self.path, self.environ)

    def load(self) -> Config:
        """Read everything again. Blocks on files. Raises ConfigError."""
        return load(self.path, flags=self.flags, environ=self.environ, known_metrics=self.known_metrics)


def config_file(path: str | None, environ: Mapping[str, str]) -> str | None:
    """The configuration file: the flag's, else the environment's."""
    return path or environ.get(CONFIG_VARIABLE) or None


def load(
    path: str | os.PathLike[str] | None,
    *,
    flags: Flags | None = None,
    environ: Mapping[str, str] | None = None,
    known_metrics: frozenset[str] = frozenset(),
) -> Config:
    """The configuration: flags beat environment variables, which beat the file. An empty variable is an unset one.

    `environ` is that of the process when it is not given.

    The file may be left out when `--upstream` or SIDECAR_UPSTREAM names the one upstream. Values of the file that are
    overridden must be right all the same. Raises ConfigError with every problem at once.
    """
    if environ is None:
        environ = os.environ
    name = config_file(None if path is None else os.fspath(path), environ)
    problems: Problems = {}
    tree = read_document(name, environ, problems) if name else {}
    directory = os.path.dirname(os.path.abspath(name)) if name else os.curdir
    place = Place("", problems, Surroundings(environ, directory, known_metrics))
    values = ROOT.read(tree, place)
    _override(values, flags or Flags(), place)
    _check_upstreams(values, place)
    _check_addresses(values, place)
    if problems:
        raise ConfigError(list(problems.values()))
    config = ROOT.build(values)
    assert isinstance(config, Config)
    return config


def admin_address(flag: str | None, environ: Mapping[str, str]) -> Address:
    """Where the admin port of a sidecar with this environment is.

    Only that is read of the configuration file, and mistakes in it are passed over: the running sidecar may have
    started before they were made. Raises ConfigError when the flag or SIDECAR_ADMIN is wrong.
    """
    for name, text in (("--admin", flag), ("SIDECAR_ADMIN", environ.get("SIDECAR_ADMIN"))):
        if text:
            try:
                return parse_address(text)
            except Refused as refusal:
                raise ConfigError([Problem(name, str(refusal))]) from None
    path = config_file(None, environ)
    try:
        written = read_document(path, environ, {}).get("admin") if path else None
        return parse_address(written) if isinstance(written, str) else Config(()).admin
    except (ConfigError, Refused):
        return Config(()).admin


def _override(values: Values, flags: Flags, place: Place) -> None:
    """Put what flags and environment say in the place of what the file said."""
    environ = place.surroundings.environ

    def read(kind: Kind, flag: str | None, option: str, variable: str) -> Any:
        text, origin = (flag, option) if flag is not None else (environ.get(variable) or None, variable)
        return None if text is None else _read_alone(kind, text, origin, place)

    for key, flag in (("listen", flags.listen), ("admin", flags.admin)):
        address = read(_kind(ROOT, key), flag, f"--{key}", f"SIDECAR_{key.upper()}")
        if address is not None:
            values[key] = address
    upstream = read(_OneUpstream(), flags.upstream, "--upstream", "SIDECAR_UPSTREAM")
    if upstream is not None:
        values["upstreams"] = [upstream]
    level = read(_kind(LOG, "level"), None, "", "SIDECAR_LOG_LEVEL")
    if level is not None and "log" in values:
        values["log"]["level"] = level


def _read_alone(kind: Kind, text: str, origin: str, place: Place) -> Any:
    """`text` read as `kind`, its problems noted under the name of the flag or variable; None when there are any."""
    problems: Problems = {}
    value = None
    try:
        value = kind.read(text, Place("", problems, place.surroundings))
    except Refused as refusal:
        note(problems, origin, str(refusal))
    for problem in problems.values():
        note(place.problems, origin, problem.message)
    return None if problems else value


class _OneUpstream:
    """The upstream that a URL alone describes."""

    label = "URL"

    def read(self, value: object, place: Place) -> Values:
        return UPSTREAM.read({"name": "default", "url": value}, place)


def _kind(section: Section, name: str) -> Kind:
    return next(field.kind for field in section.fields if field.name == name)


def _check_upstreams(values: Values, place: Place) -> None:
    origins = ("upstreams", "--upstream", "SIDECAR_UPSTREAM")
    if not values.get("upstreams") and not any(path.startswith(origins) for path in place.problems):
        place.key("upstreams").problem("at least one is needed, here or as --upstream URL")


def _check_addresses(values: Values, place: Place) -> None:
    listen, admin = values.get("listen"), values.get("admin")
    if listen is None or admin is None or listen.port != admin.port or listen.port == 0:
        return
    hosts = {"127.0.0.1" if address.host == "localhost" else address.host for address in (listen, admin)}
    if len(hosts) == 1 or hosts & {"0.0.0.0", "::"}:  # noqa: S104 - compared, not bound
        place.key("admin").problem(f"{admin} is taken by listen ({listen})")
