"""Certificates for tests: an authority of our own, and contexts for both ends."""

from __future__ import annotations

import ssl
from functools import cache
from pathlib import Path

import trustme


@cache
def authority() -> trustme.CA:
    """The one authority of this test process."""
    return trustme.CA()


def ca_file(directory: Path) -> Path:
    """Write the authority's certificate into `directory`: the value of `tls.ca_file`."""
    path = directory / "ca.pem"
    authority().cert_pem.write_to_path(str(path))
    return path


def server_context(*names: str, version: ssl.TLSVersion | None = None, alpn: tuple[str, ...] = ()) -> ssl.SSLContext:
    """A server's context with a certificate for `names` (DNS names or addresses), at most TLS `version`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority().issue_cert(*(names or ("localhost", "127.0.0.1", "::1"))).configure_cert(context)
    if version is not None:
        context.maximum_version = version
    if alpn:
        context.set_alpn_protocols(list(alpn))
    return context


def client_context() -> ssl.SSLContext:
    """A client's context that trusts the authority and nothing else."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority().configure_trust(context)
    return context
