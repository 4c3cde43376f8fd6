"""Upstreams at work, made from their configuration and kept over a reload when it did not change."""

from __future__ import annotations

from collections.abc import Callable

from sidecar.config.model import Config, StreamUsage, Upstream
from sidecar.proxy.route import Origin
from sidecar.upstreams.dial import Dialler, basic_credentials
from sidecar.upstreams.pool import ConnectionObserver, Pool
from sidecar.upstreams.resolver import Resolver
from sidecar.upstreams.tls import client_context


def make_origins(
    config: Config,
    kept: list[Origin],
    resolver: Resolver,
    observer: ConnectionObserver,
    clock: Callable[[], float],
) -> list[Origin]:
    """An Origin for each upstream: one of `kept` where nothing changed, else new. Raises OSError and ssl.SSLError."""
    same = {
        origin.upstream: origin for origin in kept if origin.pool.max_header_bytes == config.limits.max_header_bytes
    }
    return [
        same.get(upstream) or _make(upstream, config.limits.max_header_bytes, resolver, observer, clock)
        for upstream in config.upstreams
    ]


def _make(
    upstream: Upstream,
    max_header_bytes: int,
    resolver: Resolver,
    observer: ConnectionObserver,
    clock: Callable[[], float],
) -> Origin:
    url = upstream.url
    context = client_context(upstream.tls, clock, upstream.name) if url.secure else None
    pool = Pool(upstream, Dialler(upstream, resolver, context, clock), observer, clock, max_header_bytes)
    through_proxy = upstream.proxy is not None and not url.secure
    prefix = f"http://{url.authority}{url.base_path}" if through_proxy else url.base_path
    proxy_line = ""
    if through_proxy and upstream.proxy is not None and upstream.proxy.username:
        proxy_line = f"Proxy-Authorization: {basic_credentials(upstream.proxy)}"
    injects = upstream.stream_usage is StreamUsage.INJECT
    return Origin(upstream, pool, f"Host: {url.authority}".encode(), prefix.encode(), proxy_line.encode(), injects)
