"""Certificates and keys are tried when the configuration is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from sidecar.config.load import Flags, load
from sidecar.config.model import Tls
from sidecar.config.problems import ConfigError


@pytest.fixture(scope="module")
def pems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with an authority, two certificates with their keys, and files that are wrong."""
    directory = tmp_path_factory.mktemp("pems")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(directory / "ca.pem"))
    for name in ("one", "two"):
        issued = authority.issue_cert(f"{name}.example")
        issued.cert_chain_pems[0].write_to_path(str(directory / f"{name}.crt"))
        issued.private_key_pem.write_to_path(str(directory / f"{name}.key"))
        issued.private_key_and_cert_chain_pem.write_to_path(str(directory / f"{name}.both"))
    key = serialization.load_pem_private_key((directory / "one.key").read_bytes(), None)
    forms = {"pkcs8": serialization.PrivateFormat.PKCS8, "pkcs1": serialization.PrivateFormat.TraditionalOpenSSL}
    for name, form in forms.items():
        (directory / f"{name}.key").write_bytes(
            key.private_bytes(serialization.Encoding.PEM, form, serialization.BestAvailableEncryption(b"hunter2"))
        )
    (directory / "empty").touch()
    (directory / "text").write_text("not a certificate\n")
    damaged = (directory / "one.crt").read_text().splitlines()
    (directory / "damaged.crt").write_text("\n".join([damaged[0], *damaged[5:]]) + "\n")
    return directory


def load_with(pems: Path, tls: str) -> Tls:
    """The section `tls` of a file that lies beside the certificates."""
    file = pems / "sidecar.yaml"
    file.write_text(f"upstreams: [{{name: a, url: https://a.example, tls: {{{tls}}}}}]")
    return load(str(file), flags=Flags(), environ={}).upstreams[0].tls


@pytest.mark.parametrize(
    "tls", ["ca_file: ca.pem", "cert_file: one.crt, key_file: one.key", "cert_file: one.both", "verify: false"]
)
def test_right_files_are_taken(pems: Path, tls: str) -> None:
    load_with(pems, tls)


def test_relative_names_begin_at_the_configuration_file(pems: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    assert load_with(pems, "ca_file: ca.pem").ca_file == str(pems / "ca.pem")
    assert load_with(pems, f"ca_file: {pems / 'ca.pem'}").ca_file == str(pems / "ca.pem")


@pytest.mark.parametrize(
    ("tls", "problem"),
    [
        ("ca_file: none.pem", "ca_file: cannot read 'none.pem': No such file or directory"),
        ("ca_file: empty", "ca_file: is not a PEM file with certificates"),
        ("ca_file: text", "ca_file: is not a PEM file with certificates"),
        ("ca_file: one.key", "ca_file: is not a PEM file with certificates"),
        ("ca_file: damaged.crt", "ca_file: is not a PEM file with certificates"),
        ("cert_file: empty, key_file: one.key", "cert_file: holds no certificate in PEM form"),
        ("cert_file: one.key, key_file: one.crt", "cert_file: holds no certificate in PEM form"),
        ("cert_file: one.crt, key_file: one.crt", "key_file: holds no private key in PEM form"),
        ("cert_file: one.crt", "cert_file: holds no private key in PEM form"),
        ("cert_file: one.crt, key_file: two.key", "key_file: is not the key of the certificate in cert_file"),
        (
            "cert_file: damaged.crt, key_file: one.key",
            "cert_file: cannot be used, the certificate or its key is damaged",
        ),
        ("cert_file: one.crt, key_file: pkcs8.key", "key_file: is encrypted; a key with a passphrase cannot be used"),
        (
            "cert_file: one.crt, key_file: pkcs1.key",
            "key_file: is encrypted; a key with a passphrase cannot be used",
        ),
        ("key_file: one.key", "key_file: needs cert_file beside it"),
        ("key_file: none.key, cert_file: one.crt", "key_file: cannot read 'none.key': No such file or directory"),
    ],
)
def test_wrong_files_are_named(pems: Path, tls: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_with(pems, tls)
    assert str(caught.value) == f"upstreams[0].tls.{problem}"
