"""Upstreams at work, made from their configuration and kept over a reload when it did not change."""

from __future__ import annotations

import os
from collections.abc import Callable

from sidecar.config.model import Config, StreamUsage, Tls, Upstream
from sidecar.proxy.route import Origin
from sidecar.upstreams.dial import Dialler, basic_credentials
from sidecar.upstreams.pool import ConnectionObserver, Pool
from sidecar.upstreams.resolver import Resolver
from sidecar.upstreams.tls import client_context

Stamp = tuple[int, int, int] | None
"""What changes when a file does, be it written in place, renamed over, or a symlink swapped above it. None: no file."""


def make_origins(
    config: Config,
    kept: list[Origin],
    resolver: Resolver,
    observer: ConnectionObserver,
    clock: Callable[[], float],
) -> list[Origin]:
    """An Origin for each upstream: one of `kept` where neither settings nor TLS files changed, else new.

    Blocks on files. Raises OSError and ssl.SSLError.
    """
    same = {
        (origin.upstream, origin.tls_stamps): origin
        for origin in kept
        if origin.pool.max_header_bytes == config.limits.max_header_bytes
    }
    made = []
    for upstream in config.upstreams:
        # Read before the files are: one that changes in between is taken for changed the next time.
        stamps = tuple(stamp_of(path) for path in tls_files(upstream.tls))
        origin = same.get((upstream, stamps))
        if origin is None:
            pool = _pool(upstream, config.limits.max_header_bytes, resolver, observer, clock)
            origin = _origin(upstream, pool, stamps)
        made.append(origin)
    return made


def tls_files(tls: Tls) -> list[str]:
    """The files that an upstream's TLS context is made of."""
    return [path for path in (tls.ca_file, tls.cert_file, tls.key_file) if path is not None]


def stamp_of(path: str) -> Stamp:
    """The stamp of a file, through symlinks."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _pool(
    upstream: Upstream,
    max_header_bytes: int,
    resolver: Resolver,
    observer: ConnectionObserver,
    clock: Callable[[], float],
) -> Pool:
    context = client_context(upstream.tls, clock, upstream.name) if upstream.url.secure else None
    return Pool(upstream, Dialler(upstream, resolver, context, clock), observer, clock, max_header_bytes)


def _origin(upstream: Upstream, pool: Pool, stamps: tuple[Stamp, ...]) -> Origin:
    url = upstream.url
    through_proxy = upstream.proxy is not None and not url.secure
    prefix = f"http://{url.authority}{url.base_path}" if through_proxy else url.base_path
    proxy_line = ""
    if through_proxy and upstream.proxy is not None and upstream.proxy.username:
        proxy_line = f"Proxy-Authorization: {basic_credentials(upstream.proxy)}"
    injects = upstream.stream_usage is StreamUsage.INJECT
    return Origin(
        upstream, pool, f"Host: {url.authority}".encode(), prefix.encode(), proxy_line.encode(), injects, stamps
    )
