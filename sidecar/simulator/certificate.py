"""An authority and a server certificate made in memory, for a TLS server that nobody else has to know."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import ssl
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")

_LIFETIME = timedelta(days=30)


class MissingCryptography(RuntimeError):
    """The library that makes certificates is not installed."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """A server's TLS context, and what clients need to trust it.

    `fingerprint` is the SHA-256 of the authority's DER in hexadecimal with colons, as browsers and openssl show it.
    """

    context: ssl.SSLContext
    ca_pem: str
    fingerprint: str

    def client_context(self) -> ssl.SSLContext:
        """A client's context that trusts this authority and no other."""
        return ssl.create_default_context(cadata=self.ca_pem)


def make_certificate(names: tuple[str, ...] = ()) -> Certificate:
    """A certificate for the local names and `names` (host names or addresses), signed by an authority of its own.

    ECDSA on P-256. The keys never leave the process. Raises MissingCryptography.
    """
    try:
        from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415  (an extra, slow to load)
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
    except ImportError:
        raise MissingCryptography("TLS needs the extra `demo` to be installed (the library cryptography)") from None
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca = _authority(ca_key)
    leaf = _leaf(ca, ca_key, key, (*LOCAL_NAMES, *names))
    pem = serialization.Encoding.PEM
    chain = leaf.public_bytes(pem) + ca.public_bytes(pem)
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with _as_file(secret + chain) as path:
        context.load_cert_chain(path)
    context.set_alpn_protocols(["http/1.1"])
    return Certificate(context, ca.public_bytes(pem).decode(), ca.fingerprint(hashes.SHA256()).hex(":").upper())


@contextlib.contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    """A path to `data`: of a file in memory where the system has such, as `ssl` reads certificates from files only."""
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("certificate")
        try:
            os.write(handle, data)
            yield f"/proc/self/fd/{handle}"
        finally:
            os.close(handle)
    else:
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            yield file.name


def _authority(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    from cryptography import x509  # noqa: PLC0415
    from cryptography.hazmat.primitives import hashes  # noqa: PLC0415

    name = _name("simulated LLM API: authority")
    builder = _dated(x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()))
    return (
        builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def _leaf(
    ca: x509.Certificate,
    ca_key: ec.EllipticCurvePrivateKey,
    key: ec.EllipticCurvePrivateKey,
    names: tuple[str, ...],
) -> x509.Certificate:
    from cryptography import x509  # noqa: PLC0415
    from cryptography.hazmat.primitives import hashes  # noqa: PLC0415
    from cryptography.x509.oid import ExtendedKeyUsageOID  # noqa: PLC0415

    builder = x509.CertificateBuilder().subject_name(_name("simulated LLM API")).issuer_name(ca.subject)
    return (
        _dated(builder.public_key(key.public_key()))
        .add_extension(x509.SubjectAlternativeName([_alternative(name) for name in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )


def _name(common_name: str) -> x509.Name:
    from cryptography import x509  # noqa: PLC0415
    from cryptography.x509.oid import NameOID  # noqa: PLC0415

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _alternative(name: str) -> x509.GeneralName:
    from cryptography import x509  # noqa: PLC0415

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _dated(builder: x509.CertificateBuilder) -> x509.CertificateBuilder:
    """Valid from an hour ago, for clocks that disagree."""
    from cryptography import x509  # noqa: PLC0415

    now = datetime.now(UTC)
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + _LIFETIME)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    from cryptography import x509  # noqa: PLC0415

    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
