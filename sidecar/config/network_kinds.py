"""The kinds of values that name places in a network: listening addresses, upstream URLs, proxies, prefixes."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from enum import Enum
from urllib.parse import unquote

from sidecar.config.model import Address, ProxyUrl, Secret, Url
from sidecar.config.problems import Refused, quoted
from sidecar.config.schema import Place

_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST_NAME = re.compile(rf"(?=.{{1,254}}$){_LABEL}(\.{_LABEL})*\.?", re.ASCII)
# The parts of RFC 3986, appendix B. The authority is taken apart by hand: urllib skips over control characters.
_URL = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#]*)(?P<path>[^?#]*)(?P<rest>.*)", re.DOTALL
)
_BASE_PATH = re.compile(r"(/[A-Za-z0-9._~!$&'()*+,;=:@%-]*)*")
_PREFIX = re.compile(r"/[A-Za-z0-9._~!$&'()*+,;=:@%/-]*")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_LATER_SCHEMES = ("grpc", "grpcs")


def valid_host(text: str) -> str | None:
    """The host in lower case, an IPv6 address without brackets; None when it is neither a name nor an address.

    Names beyond ASCII are encoded as DNS wants them (RFC 3490).
    """
    if text.startswith("[") and text.endswith("]"):
        try:
            return str(ipaddress.IPv6Address(text[1:-1])) if "%" not in text else None
        except ValueError:
            return None
    if not text.isascii():
        try:
            text = text.encode("idna").decode("ascii")
        except UnicodeError:
            return None
    if re.fullmatch(r"[0-9.]+", text):  # It would be a name by its letters, and no resolver takes it for one.
        try:
            return str(ipaddress.IPv4Address(text))
        except ValueError:
            return None
    return text.lower() if _HOST_NAME.fullmatch(text) else None


def _port(text: str, least: int) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", text) or not least <= int(text) <= 65535:
        raise Refused(f"the port must be a number from {least} to 65535")
    return int(text)


def _host_and_port(authority: str, default_port: int | None) -> tuple[str, int]:
    """Nothing of `authority` is quoted: with a slash forgotten or added, a password is where the host should be."""
    host, bracket, tail = authority.partition("]")
    name, colon, port_text = (host + bracket, tail[:1], tail[1:]) if bracket else authority.partition(":")
    if bracket and colon not in ("", ":"):
        raise Refused("the host is not a name or an address")
    host_checked = valid_host(name)
    if host_checked is None:
        hint = "; an IPv6 address needs brackets, as in [::1]" if authority.count(":") > 1 and not bracket else ""
        raise Refused(("the host is missing" if not name else "the host is not a name or an address") + hint)
    if port_text:
        return host_checked, _port(port_text, 1)
    if default_port is None:
        raise Refused("the port is missing, as in http://proxy.example:3128")
    return host_checked, default_port


def parse_address(text: str) -> Address:
    """`HOST:PORT` or `[IPV6]:PORT`; port 0 lets the kernel choose. Raises Refused."""
    host, colon, port = text.rpartition(":")
    if not colon and port.isascii() and port.isdigit():
        raise Refused(f"needs a host: 127.0.0.1:{port[:5]}, or 0.0.0.0:{port[:5]} to be reached from outside")
    if not host and colon:
        raise Refused("needs a host: 127.0.0.1 for this machine alone, 0.0.0.0 to be reached from outside")
    if ":" in host and not host.startswith("["):
        raise Refused(f"must be HOST:PORT (an IPv6 address in brackets, as in [::1]:8080), not {quoted(text)}")
    checked = valid_host(host)
    if checked is None:
        hint = "; every address is 0.0.0.0 or [::]" if host == "*" else ""
        raise Refused(f"must be HOST:PORT such as 127.0.0.1:8080, not {quoted(text)}{hint}")
    return Address(checked, _port(port, 0))


def parse_url(text: str) -> Url:
    """An upstream's URL. Raises Refused, with nothing of the URL in its message but the scheme."""
    match = _URL.fullmatch(text)
    if match is None:
        raise Refused("must be a URL with its scheme, such as https://api.openai.com")
    scheme = match["scheme"].lower()
    if scheme in _LATER_SCHEMES:
        raise Refused(f"the scheme {scheme} is not available in this version; it must be http or https")
    if scheme not in _DEFAULT_PORTS:
        raise Refused("the scheme must be http or https")
    if "@" in match["authority"]:
        raise Refused("must not hold a user or a password; the application's own headers carry the credentials")
    if match["rest"]:
        raise Refused(f"must not have a {'query' if match['rest'][0] == '?' else 'fragment'}")
    if not _BASE_PATH.fullmatch(match["path"]):
        raise Refused("the path holds characters that must be percent-encoded")
    host, port = _host_and_port(match["authority"], _DEFAULT_PORTS[scheme])
    return Url(scheme, host, port, match["path"].rstrip("/"))


def parse_proxy(text: str, default_port: int | None = None) -> ProxyUrl:
    """`http://[user[:password]@]host:port`. Raises Refused, with nothing of the URL in its message but the scheme.

    User and password are percent-decoded. Without `default_port` the port must be there.
    """
    match = _URL.fullmatch(text)
    if match is None:
        raise Refused("must be a URL such as http://proxy.example:3128")
    scheme = match["scheme"].lower()
    if scheme == "https":
        raise Refused("a proxy that is reached over TLS (https://) is not supported, use http://")
    if scheme != "http":
        known = f"{scheme}:// proxies are" if scheme.startswith("socks") else "such a proxy is"
        raise Refused(f"{known} not supported, use http://")
    if match["path"] not in ("", "/") or match["rest"]:
        raise Refused("must end after the port")
    user, _, place = match["authority"].rpartition("@")
    host, port = _host_and_port(place, default_port)
    username, _, password = user.partition(":")
    pair = unquote(username), unquote(password)
    if not "".join(pair).isprintable() or ":" in pair[0]:
        raise Refused("the user and the password must be printable, and the user without a colon (RFC 7617)")
    return ProxyUrl(host, port, pair[0], Secret(pair[1]))


class ProxyMode(Enum):
    """The proxy is not named in the file."""

    ENVIRONMENT = "env"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Where a listener binds."""

    @property
    def label(self) -> str:
        return "HOST:PORT"

    def read(self, value: object, place: Place) -> Address:
        if isinstance(value, str):
            return parse_address(str(value))
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 65535:
            raise Refused(f"needs a host: 127.0.0.1:{value}, or 0.0.0.0:{value} to be reached from outside")
        raise Refused(f"must be HOST:PORT such as 127.0.0.1:8080, not {quoted(value)}")


@dataclass(frozen=True, slots=True)
class UpstreamUrl:
    """Where an upstream is."""

    @property
    def label(self) -> str:
        return "http:// or https:// URL"

    def read(self, value: object, place: Place) -> Url:
        if not isinstance(value, str):
            raise Refused(f"must be a URL with its scheme, such as https://api.openai.com, not {quoted(value)}")
        return parse_url(str(value))


@dataclass(frozen=True, slots=True)
class ProxyChoice:
    """`env`, `none` or a proxy; what `env` comes to depends on the upstream's URL and is settled with it."""

    @property
    def label(self) -> str:
        return "`env`, `none` or http://[user:password@]host:port"

    def read(self, value: object, place: Place) -> ProxyUrl | ProxyMode:
        if not isinstance(value, str) or (value not in ("env", "none") and "://" not in value):
            raise Refused("must be env, none or http://host:port")
        return ProxyMode(str(value)) if "://" not in value else parse_proxy(str(value))


@dataclass(frozen=True, slots=True)
class PathPrefix:
    """The beginning of a path, read without a slash at its end (but for `/` itself)."""

    @property
    def label(self) -> str:
        return "path"

    def read(self, value: object, place: Place) -> str:
        if not isinstance(value, str) or not value.startswith("/"):
            raise Refused(f"must start with /, as in /openai, not {quoted(value)}")
        if not _PREFIX.fullmatch(value):
            raise Refused(f"must be a path without query, fragment and spaces, not {quoted(value)}")
        return str(value).rstrip("/") or "/"


@dataclass(frozen=True, slots=True)
class HostName:
    """A host name or address, null for none."""

    @property
    def label(self) -> str:
        return "host name or null"

    def read(self, value: object, place: Place) -> str | None:
        if value is None:
            return None
        host = valid_host(f"[{value}]" if ":" in str(value) else str(value)) if isinstance(value, str) else None
        if host is None:
            raise Refused(f"must be a host name, not {quoted(value)}")
        return host
