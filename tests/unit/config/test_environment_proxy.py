"""Which requests go through the proxy of the environment, as a table."""

from __future__ import annotations

import pytest

from sidecar.config.environment_proxy import environment_proxy
from sidecar.config.model import ProxyUrl, Secret
from sidecar.config.network_kinds import parse_url
from sidecar.config.problems import Refused

P, Q = "http://p.example:3128", "http://q.example:3128"


@pytest.mark.parametrize(
    ("url", "environ", "proxy"),
    [
        ("https://a.example", {}, None),
        ("https://a.example", {"HTTPS_PROXY": P}, P),
        ("https://a.example", {"https_proxy": P}, P),
        ("https://a.example", {"https_proxy": P, "HTTPS_PROXY": Q}, P),
        ("https://a.example", {"https_proxy": "", "HTTPS_PROXY": Q}, Q),
        ("https://a.example", {"HTTP_PROXY": P}, None),
        ("http://a.example", {"HTTP_PROXY": P}, P),
        ("http://a.example", {"http_proxy": P, "HTTP_PROXY": Q}, P),
        ("http://a.example", {"HTTPS_PROXY": P}, None),
        ("http://a.example", {"HTTP_PROXY": P, "REQUEST_METHOD": "GET"}, P),
        ("https://a.example", {"ALL_PROXY": P}, P),
        ("http://a.example", {"all_proxy": P, "ALL_PROXY": Q}, P),
        ("https://a.example", {"HTTPS_PROXY": P, "ALL_PROXY": Q}, P),
        ("https://a.example", {"HTTPS_PROXY": "", "ALL_PROXY": ""}, None),
        ("https://a.example", {"HTTPS_PROXY": "p.example:3128"}, P),
        ("https://a.example", {"HTTPS_PROXY": "http://p.example/"}, "http://p.example:80"),
        ("https://a.example", {"HTTPS_PROXY": "http://[::1]:3128"}, "http://[::1]:3128"),
        # Loopback is never another machine's.
        ("http://localhost:8000", {"ALL_PROXY": P}, None),
        ("http://api.localhost", {"ALL_PROXY": P}, None),
        ("http://127.0.0.1:8000", {"ALL_PROXY": P}, None),
        ("http://127.9.9.9:8000", {"ALL_PROXY": P}, None),
        ("http://[::1]:8000", {"ALL_PROXY": P}, None),
        ("http://[::ffff:127.0.0.1]:8000", {"ALL_PROXY": P}, None),
        ("http://notlocalhost", {"ALL_PROXY": P}, P),
    ],
)
def test_the_variable_of_the_scheme_names_the_proxy(url: str, environ: dict[str, str], proxy: str | None) -> None:
    found = environment_proxy(parse_url(url), environ)
    assert (None if found is None else str(found)) == proxy


@pytest.mark.parametrize(
    ("url", "no_proxy", "direct"),
    [
        ("https://a.example", "", False),
        ("https://a.example", " , ,", False),
        ("https://a.example", "*", True),
        ("https://a.example", "*:443", True),
        ("https://a.example", "*:80", False),
        ("https://a.example", "b.example,*", True),
        # The host itself and what is below it.
        ("https://a.example", "a.example", True),
        ("https://a.example", "A.EXAMPLE", True),
        ("https://a.example", "a.example.", True),
        ("https://a.example.", "a.example", True),
        ("https://a.example", "b.example", False),
        ("https://x.a.example", "a.example", True),
        ("https://x.a.example", ".a.example", True),
        ("https://a.example", ".a.example", True),
        ("https://x.a.example", "*.a.example", True),
        ("https://xa.example", "a.example", False),
        ("https://xa.example", ".a.example", False),
        ("https://a.example", "x.a.example", False),
        ("https://a.example", ".", False),
        # Lists.
        ("https://a.example", "b.example, a.example", True),
        ("https://a.example", "b.example a.example", True),
        # Ports.
        ("https://a.example", "a.example:443", True),
        ("https://a.example:8443", "a.example:443", False),
        ("https://x.a.example:8443", ".a.example:8443", True),
        ("https://[2001:db8::1]:8443", "[2001:db8::1]:8443", True),
        ("https://[2001:db8::1]:8443", "[2001:db8::1]:443", False),
        ("https://10.1.2.3:8443", "10.1.2.3:8443", True),
        # Addresses and networks.
        ("https://10.1.2.3", "10.1.2.3", True),
        ("https://10.1.2.3", "10.1.2.4", False),
        ("https://10.1.2.3", "10.0.0.0/8", True),
        ("https://10.1.2.3", "10.1.2.3/8", True),
        ("https://11.1.2.3", "10.0.0.0/8", False),
        ("https://[2001:db8::1]", "2001:db8::1", True),
        ("https://[2001:db8::1]", "[2001:0db8:0::1]", True),
        ("https://[2001:db8::1]", "2001:db8::/32", True),
        ("https://[2001:db8::1]", "10.0.0.0/8", False),
        ("https://[::ffff:10.1.2.3]", "10.0.0.0/8", True),
        ("https://10.1.2.3", "3", False),
        ("https://10.1.2.3", ".2.3", False),
        ("https://a.example", "10.0.0.0/8", False),
        ("https://a.example", "a.example/8", False),
        ("https://a.example", "https://a.example", False),
    ],
)
def test_no_proxy_lists_what_is_reached_directly(url: str, no_proxy: str, direct: bool) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        found = environment_proxy(parse_url(url), {"ALL_PROXY": P, name: no_proxy})
        assert (found is None) is direct


def test_no_proxy_in_lower_case_wins() -> None:
    environ = {"ALL_PROXY": P, "no_proxy": "a.example", "NO_PROXY": "b.example"}
    assert environment_proxy(parse_url("https://a.example"), environ) is None
    assert environment_proxy(parse_url("https://b.example"), environ) is not None


def test_credentials_of_the_proxy_are_decoded() -> None:
    found = environment_proxy(parse_url("https://a.example"), {"HTTPS_PROXY": "http://me:p%40ss%3Aword@p.example:1"})
    assert found == ProxyUrl("p.example", 1, "me", Secret("p@ss:word"))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("https://me:hunter2@p.example", "is reached over TLS"),
        ("socks5://me:hunter2@p.example", "socks5:// proxies are not supported"),
        ("me:hunter2@p.example:nine", "the port must be a number"),
        ("http://me:hunter2@", "the host is missing"),
    ],
)
def test_a_proxy_that_cannot_be_used_is_named_without_its_password(value: str, message: str) -> None:
    with pytest.raises(Refused) as caught:
        environment_proxy(parse_url("https://a.example"), {"HTTPS_PROXY": value})
    assert message in str(caught.value)
    assert "HTTPS_PROXY" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_wrong_proxy_is_no_concern_of_hosts_that_need_none() -> None:
    environ = {"HTTPS_PROXY": "socks5://p.example", "NO_PROXY": "a.example"}
    assert environment_proxy(parse_url("https://a.example"), environ) is None
