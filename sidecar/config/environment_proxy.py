"""Which proxy the environment names for a host: HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY.

There is no standard; this is what curl and Python's urllib agree on. The variable in lower case wins, an empty one
counts as unset. NO_PROXY is a list divided by commas or spaces of

- `*`, every host;
- `example.com` or `.example.com`, that domain and all below it;
- an IP address, or a network such as `10.0.0.0/8`, for hosts that are written as addresses (no name is looked up);
- any of the names and addresses with `:port`, for that port alone.

Loopback hosts never go through a proxy of the environment: a proxy's loopback is another machine's.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from sidecar.config.model import ProxyUrl, Url
from sidecar.config.network_kinds import parse_proxy
from sidecar.config.problems import Refused

_IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


def environment_proxy(url: Url, environ: Mapping[str, str]) -> ProxyUrl | None:
    """The proxy for requests to `url`, None: go directly. Raises Refused when the variable in question is wrong.

    A value without a scheme is taken as http://, one without a port as port 80.
    """
    if _is_loopback(url.host) or _is_excluded(url, _variable("no_proxy", environ)[1]):
        return None
    for wanted in (f"{url.scheme}_proxy", "all_proxy"):
        name, value = _variable(wanted, environ)
        if value:
            try:
                return parse_proxy(value if "://" in value else f"http://{value}", 80)
            except Refused as refusal:
                raise Refused(f"{name} in the environment: {refusal}") from None
    return None


def _variable(name: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """The spelling that is set, and its value ("" for neither)."""
    for spelling in (name, name.upper()):
        if value := environ.get(spelling, "").strip():
            return spelling, value
    return name, ""


def _is_loopback(host: str) -> bool:
    name = host.rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    address = _address(host)
    return address is not None and address.is_loopback


def _address(text: str) -> _IPAddress | None:
    """The address that `text` is, an IPv4 address in IPv6 form as IPv4; None for a name."""
    try:
        address = ipaddress.ip_address(text.removeprefix("[").removesuffix("]"))
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _is_excluded(url: Url, no_proxy: str) -> bool:
    return any(_matches(entry.lower(), url) for entry in no_proxy.replace(",", " ").split())


def _matches(entry: str, url: Url) -> bool:
    if "/" in entry:
        return _in_network(url.host, entry)
    name, port = _divided(entry)
    if port is not None and port != str(url.port):
        return False
    if name == "*":
        return True
    wanted = _address(name)
    if wanted is not None:
        return _address(url.host) == wanted
    domain = name.removeprefix("*").strip(".")
    host = url.host.lower().rstrip(".")
    return domain != "" and _address(host) is None and (host == domain or host.endswith(f".{domain}"))


def _divided(entry: str) -> tuple[str, str | None]:
    """Name and port of an entry. More than one colon without brackets is an IPv6 address."""
    if entry.startswith("["):
        name, _, tail = entry.partition("]")
        return name[1:], tail[1:] if tail.startswith(":") else None
    if entry.count(":") == 1:
        name, _, port = entry.partition(":")
        return name, port
    return entry, None


def _in_network(host: str, entry: str) -> bool:
    address = _address(host)
    try:
        network = ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return False
    return address is not None and address in network
