"""Which upstream a request is for, and the target it is asked there."""

from __future__ import annotations

from dataclasses import dataclass, field

from sidecar.config.model import Upstream
from sidecar.upstreams.pool import Pool


@dataclass(slots=True, eq=False)
class Origin:
    """An upstream at work: its settings, its connections, and what of a request head never changes."""

    upstream: Upstream
    pool: Pool
    host_line: bytes
    target_prefix: bytes
    """Put in front of every target: the base path, and for a plain HTTP proxy the origin itself."""
    proxy_line: bytes = field(repr=False)
    """Proxy-Authorization for a plain HTTP proxy, b"" else; a credential."""
    injects_usage: bool = False
    tls_stamps: tuple[tuple[int, int, int] | None, ...] = ()
    """Of the files its TLS context was made of: other stamps call for another context."""


class Router:
    """Longest prefix first. Immutable: a reload makes a new one."""

    def __init__(self, origins: list[Origin]) -> None:
        self.origins = origins
        by_length = sorted(origins, key=lambda origin: len(origin.upstream.prefix), reverse=True)
        self._table = [(origin.upstream.prefix.rstrip("/").encode(), origin) for origin in by_length]

    def match(self, target: bytes) -> tuple[Origin, bytes] | None:
        """The upstream of an origin-form target, and the target to send; the bytes of the rest are untouched.

        A prefix matches at a path segment's end only: /open matches /open/x and /open?x but not /openai.
        """
        for prefix, origin in self._table:
            if not prefix:
                return origin, origin.target_prefix + target
            if target.startswith(prefix):
                rest = target[len(prefix) :]
                if not rest or rest[0] == 0x3F:  # "?"
                    return origin, origin.target_prefix + (rest if origin.upstream.url.base_path else b"/" + rest)
                if rest[0] == 0x2F:  # "/"
                    return origin, origin.target_prefix + rest
        return None
