from __future__ import annotations

import hashlib
import ssl

import pytest

from sidecar.simulator.certificate import Certificate, make_certificate


@pytest.fixture(scope="module")
def certificate() -> Certificate:
    return make_certificate(("api.example.test", "10.1.2.3"))


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> ssl.SSLObject:
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    ours = client.wrap_bio(to_client, to_server, server_hostname=name)
    waiting = [ours, theirs]
    while waiting:
        side = waiting.pop(0)
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            waiting.append(side)
    return ours


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "::1", "api.example.test", "10.1.2.3"])
def test_every_name_is_trusted_by_who_trusts_the_authority(certificate: Certificate, name: str) -> None:
    strict = certificate.client_context()
    strict.verify_flags |= ssl.VERIFY_X509_STRICT
    assert handshake(certificate.context, strict, name).version() == "TLSv1.3"


def test_another_name_is_not_trusted(certificate: Certificate) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(certificate.context, certificate.client_context(), "other.example.test")


def test_nobody_else_trusts_it(certificate: Certificate) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(certificate.context, make_certificate().client_context(), "localhost")


def test_the_fingerprint_is_that_of_the_authority(certificate: Certificate) -> None:
    digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate.ca_pem)).hexdigest()
    assert certificate.fingerprint.replace(":", "").lower() == digest
