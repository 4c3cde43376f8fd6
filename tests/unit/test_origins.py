from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sidecar.config.model import Config, Limits, ProxyUrl, Secret, StreamUsage, Tls, Upstream, Url
from sidecar.origins import make_origins, stamp_of, tls_files
from sidecar.proxy.route import Origin
from sidecar.upstreams.resolver import Resolver
from tests.kit.authority import ca_file
from tests.kit.fakes import Clock, Observed, make_upstream

Build = Callable[..., list[Origin]]


async def nowhere(host: str, port: int) -> Any:
    raise OSError


@pytest.fixture
def build() -> Build:
    clock = Clock()
    resolver, observed = Resolver(nowhere, clock), Observed()

    def made(*upstreams: Upstream, kept: list[Origin] | None = None, **limits: int) -> list[Origin]:
        config = Config(upstreams, limits=Limits(**limits))
        return make_origins(config, kept or [], resolver, observed, clock)

    return made


def replace_file(path: Path, text: str) -> None:
    """As Kubernetes and editors do: another file under the same name."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.replace(path)


# ---- what is made ----


PROXY = ProxyUrl("p", 3128, "me", Secret("pw"))
PROXY_LINE = b"Proxy-Authorization: Basic bWU6cHc="


@pytest.mark.parametrize(
    ("upstream", "lines"),
    [
        (make_upstream(Url("https", "a.example", 443, "/v1")), (b"Host: a.example", b"/v1", b"")),
        (make_upstream(Url("http", "a.example", 8000)), (b"Host: a.example:8000", b"", b"")),
        (make_upstream(Url("http", "::1", 80)), (b"Host: [::1]", b"", b"")),
        (
            make_upstream(Url("http", "a.example", 80, "/v1"), proxy=PROXY),
            (b"Host: a.example", b"http://a.example/v1", PROXY_LINE),
        ),
        (
            make_upstream(Url("http", "a.example", 80), proxy=ProxyUrl("p", 3128)),
            (b"Host: a.example", b"http://a.example", b""),
        ),
        (make_upstream(Url("https", "a.example", 443), proxy=PROXY), (b"Host: a.example", b"", b"")),
    ],
)
def test_what_never_changes_of_a_request_head(upstream: Upstream, lines: tuple[bytes, ...], build: Build) -> None:
    (origin,) = build(upstream)
    assert (origin.host_line, origin.target_prefix, origin.proxy_line) == lines


def test_usage_is_asked_for_where_the_configuration_says_so(build: Build) -> None:
    asks, passes = build(
        make_upstream(name="a", stream_usage=StreamUsage.INJECT),
        make_upstream(name="b", prefix="/b"),
    )
    assert (asks.injects_usage, passes.injects_usage) == (True, False)


# ---- what is kept over a reload ----


def test_an_upstream_that_did_not_change_keeps_its_connections(build: Build) -> None:
    first, second = make_upstream(name="a"), make_upstream(name="b", prefix="/b")
    old = build(first, second)
    new = build(replace(second, prefix="/c"), first, kept=old)
    assert new[1] is old[0]
    assert new[0] is not old[1]
    assert new[0].upstream.prefix == "/c"


def test_another_limit_of_header_fields_makes_all_anew(build: Build) -> None:
    upstream = make_upstream()
    (old,) = build(upstream)
    assert build(upstream, kept=[old]) == [old]
    (new,) = build(upstream, kept=[old], max_header_bytes=1024)
    assert new is not old
    assert new.pool.max_header_bytes == 1024


def test_a_tls_file_that_changed_makes_another_context(build: Build, tmp_path: Path) -> None:
    path = ca_file(tmp_path)
    upstream = make_upstream(Url("https", "a.example", 443), tls=Tls(ca_file=str(path)))
    (old,) = build(upstream)
    assert build(upstream, kept=[old]) == [old]
    replace_file(path, path.read_text() + "\n")
    (new,) = build(upstream, kept=[old])
    assert new is not old
    assert build(upstream, kept=[new]) == [new]


def test_a_tls_file_that_is_broken_is_an_error_and_nothing_is_made(build: Build, tmp_path: Path) -> None:
    path = ca_file(tmp_path)
    upstream = make_upstream(Url("https", "a.example", 443), tls=Tls(ca_file=str(path)))
    (old,) = build(upstream)
    replace_file(path, "not a certificate")
    with pytest.raises(ssl.SSLError):
        build(upstream, kept=[old])
    path.unlink()
    with pytest.raises(OSError, match="No such file"):
        build(upstream, kept=[old])


# ---- stamps ----


def test_a_stamp_follows_every_way_to_change_a_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert stamp_of(str(path)) is None
    path.write_text("one")
    seen = [stamp_of(str(path))]
    assert stamp_of(str(path)) == seen[0]

    path.write_text("three")
    seen.append(stamp_of(str(path)))
    replace_file(path, "three")
    seen.append(stamp_of(str(path)))
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    seen.append(stamp_of(str(path)))
    assert len(set(seen)) == 4


def test_a_stamp_looks_through_symlinks(tmp_path: Path) -> None:
    """A mounted ConfigMap is a symlink to a symlink, of which the inner one is swapped."""
    for version in ("v1", "v2"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "file").write_text("same")
    data, path = tmp_path / "data", tmp_path / "file"
    data.symlink_to("v1")
    path.symlink_to("data/file")
    before = stamp_of(str(path))
    fresh = tmp_path / "fresh"
    fresh.symlink_to("v2")
    fresh.replace(data)
    assert stamp_of(str(path)) != before


def test_all_files_of_tls_are_looked_at() -> None:
    assert tls_files(Tls()) == []
    assert tls_files(Tls(ca_file="a", cert_file="b", key_file="c", server_name="d")) == ["a", "b", "c"]
