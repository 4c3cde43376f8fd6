"""The configuration as frozen values. Whoever holds one may rely on it: it was validated once, when it was loaded.

Durations are seconds, sizes are bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NoReturn, SupportsIndex


class Secret:
    """Text that never prints: `repr`, `str`, f-strings and `%s` give `***`; only `reveal()` gives the value.

    It is no `str`, because `"".join`, slices, `json.dumps` and the like read a subclass of `str` past its methods:
    here they raise TypeError. Pickling raises it too, since a pickle would hold the value in the clear.
    """

    __slots__ = ("__value",)

    def __init__(self, value: str) -> None:
        self.__value = value

    def reveal(self) -> str:
        """The secret itself, for the wire only."""
        return self.__value

    def __bool__(self) -> bool:
        return bool(self.__value)

    def __eq__(self, other: object) -> bool:
        return self.__value == other.__value if isinstance(other, Secret) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.__value)

    def __repr__(self) -> str:
        return "'***'"

    def __str__(self) -> str:
        return "***"

    def __format__(self, spec: str) -> str:
        return format("***", spec)

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Secret:
        return self

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError("a Secret cannot be pickled")


_NO_PASSWORD = Secret("")


@dataclass(frozen=True, slots=True)
class Address:
    """Where a listener binds. `port` 0: the kernel picks one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class DialectName(StrEnum):
    """The wire formats that are read; `auto` decides per request by its path."""

    AUTO = "auto"
    OPENAI = "openai"
    ANTHROPIC = "anthropic"
    GEMINI = "gemini"
    OLLAMA = "ollama"
    COHERE = "cohere"
    BEDROCK = "bedrock"
    GENERIC = "generic"


class StreamUsage(StrEnum):
    """Whether the sidecar asks for usage on the application's behalf."""

    PASSTHROUGH = "passthrough"
    INJECT = "inject"


@dataclass(frozen=True, slots=True)
class Url:
    """An upstream's address. `base_path` has no slash at its end ("" for none) and is kept as it was written."""

    scheme: str
    host: str
    port: int
    base_path: str = ""

    @property
    def secure(self) -> bool:
        """TLS is spoken."""
        return self.scheme == "https"

    @property
    def authority(self) -> str:
        """The value of `Host`: the port is left out when it is the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == {"http": 80, "https": 443}[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.base_path}"


@dataclass(frozen=True, slots=True)
class Pool:
    """Bounds of the connections of one upstream."""

    max_connections: int = 100
    max_idle: int = 100
    idle_timeout: float = 60.0
    acquire_timeout: float = 10.0


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds for each phase. There is no total: streams may run for ever."""

    dns: float = 5.0
    connect: float = 5.0
    tls: float = 5.0
    headers: float = 600.0
    idle: float = 600.0


@dataclass(frozen=True, slots=True)
class Tls:
    """How the upstream is verified and what is shown to it."""

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    server_name: str | None = None
    verify: bool = True


@dataclass(frozen=True, slots=True)
class ProxyUrl:
    """An HTTP proxy on the way to an upstream. The user name is kept from `repr` too: it may be a token."""

    host: str
    port: int
    username: str = field(default="", repr=False)
    password: Secret = _NO_PASSWORD

    def __str__(self) -> str:
        return f"http://{Address(self.host, self.port)}"


@dataclass(frozen=True, slots=True)
class Upstream:
    """One API that requests are sent to."""

    name: str
    url: Url
    prefix: str = "/"
    dialect: DialectName = DialectName.AUTO
    protocol: str = "auto"
    pool: Pool = field(default_factory=Pool)
    timeouts: Timeouts = field(default_factory=Timeouts)
    tls: Tls = field(default_factory=Tls)
    proxy: ProxyUrl | None = None
    """Resolved when the configuration is loaded: `env` has become the proxy the environment names for this host."""
    stream_usage: StreamUsage = StreamUsage.PASSTHROUGH


@dataclass(frozen=True, slots=True)
class Models:
    """Bounds of the label `model`."""

    limit: int = 4
    allow: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Limits:
    """What one application may ask of the sidecar at once."""

    max_in_flight: int = 1024
    max_request_body: int = 64 * 1024 * 1024
    max_header_bytes: int = 64 * 1024


@dataclass(frozen=True, slots=True)
class Slo:
    """Thresholds in seconds of slo_requests_total."""

    ttft: float = 3.0
    tpot: float = 0.1


@dataclass(frozen=True, slots=True)
class Log:
    """What is logged and how."""

    level: str = "info"
    format: str = "json"


@dataclass(frozen=True, slots=True)
class Config:
    """The whole configuration."""

    upstreams: tuple[Upstream, ...]
    listen: Address = Address("127.0.0.1", 8080)
    admin: Address = Address("127.0.0.1", 9464)
    log: Log = field(default_factory=Log)
    models: Models = field(default_factory=Models)
    limits: Limits = field(default_factory=Limits)
    drain_timeout: float = 120.0
    slo: Slo = field(default_factory=Slo)
    buckets: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """metrics.buckets: name without the prefix `llm_sidecar_` → upper bounds, strictly increasing, without +Inf."""
    server_timing: bool = True
    via: bool = False
