"""Addresses, URLs and proxies as they are written, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sidecar.config.model import Address, ProxyUrl, Secret, Url
from sidecar.config.network_kinds import parse_address, parse_proxy, parse_url, valid_host
from sidecar.config.problems import Refused


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8080", Address("127.0.0.1", 8080)),
        ("0.0.0.0:0", Address("0.0.0.0", 0)),
        ("[::1]:65535", Address("::1", 65535)),
        ("[::]:80", Address("::", 80)),
        ("LocalHost:80", Address("localhost", 80)),
        ("my_pod-1.ns:80", Address("my_pod-1.ns", 80)),
    ],
)
def test_listening_addresses_are_host_and_port(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("https://api.openai.com", Url("https", "api.openai.com", 443)),
        ("http://api.openai.com", Url("http", "api.openai.com", 80)),
        ("HTTPS://API.OpenAI.com:8443/V1/", Url("https", "api.openai.com", 8443, "/V1")),
        ("https://a.example:/", Url("https", "a.example", 443)),
        ("https://a.example/a%2Fb/../c//", Url("https", "a.example", 443, "/a%2Fb/../c")),
        ("https://a.example/p/x:y@1;v=2", Url("https", "a.example", 443, "/p/x:y@1;v=2")),
        ("http://[2001:DB8::1]:8000/v1", Url("http", "2001:db8::1", 8000, "/v1")),
        ("http://10.0.0.1:8000", Url("http", "10.0.0.1", 8000)),
        ("https://bücher.example", Url("https", "xn--bcher-kva.example", 443)),
    ],
)
def test_upstream_urls_keep_their_base_path(text: str, url: Url) -> None:
    assert parse_url(text) == url


@pytest.mark.parametrize(
    ("text", "proxy"),
    [
        ("http://p.example:3128", ProxyUrl("p.example", 3128)),
        ("http://p.example:3128/", ProxyUrl("p.example", 3128)),
        ("http://[::1]:3128", ProxyUrl("::1", 3128)),
        ("http://me@p.example:1", ProxyUrl("p.example", 1, "me")),
        ("http://me:a:b@p.example:1", ProxyUrl("p.example", 1, "me", Secret("a:b"))),
        ("http://me:p%40%2Fs@p.example:1", ProxyUrl("p.example", 1, "me", Secret("p@/s"))),
        ("http://me@corp:pw@p.example:1", ProxyUrl("p.example", 1, "me@corp", Secret("pw"))),
    ],
)
def test_proxies_may_ask_for_credentials(text: str, proxy: ProxyUrl) -> None:
    assert parse_proxy(text) == proxy


@pytest.mark.parametrize("parse", [parse_url, parse_proxy])
@pytest.mark.parametrize(
    "text",
    [
        "https://user:hunter2@a.example",
        "user:hunter2@a.example:80",
        "http:/user:hunter2@a.example:80",
        "http://user:hunter2/x@a.example:80",
        "http://user:hunter2#x@a.example:80",
        "http://user:hunter2?x@a.example:80",
        "http://a.example:hunter2",
        "http://a.example/?key=hunter2",
        "http://hunter2 a.example:1",
        "socks5://hunter2@a.example:1",
        "http://a.example:80/hunter2 ",
    ],
)
def test_a_wrong_url_is_refused_without_being_quoted(parse: Callable[[str], object], text: str) -> None:
    with pytest.raises(Refused) as caught:
        parse(text)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        *("", ".", "a..b", "-a", "a-", "a b", "a\n", "a/b", "a@b", "1.2.3", "1.2.3.4.5", "256.1.1.1", "[::1"),
        *("[1.2.3.4]", "[fe80::1%eth0]", "::1", "*", "x" * 64, "x." * 130 + "x", "\ud800", "ü" * 70, "a\x00", "a%41"),
    ],
)
def test_what_is_neither_name_nor_address_is_no_host(text: str) -> None:
    assert valid_host(text) is None
