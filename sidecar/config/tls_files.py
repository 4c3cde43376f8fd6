"""Whether the files of a `tls` section hold what they should, asked of OpenSSL before a connection needs them."""

from __future__ import annotations

from sidecar.config.schema import Place, Values


def check_tls(values: Values, given: frozenset[str], place: Place) -> None:
    """Note files that are not PEM, a key that is encrypted or is not the certificate's, and a key on its own."""
    ca_file, cert_file = values.get("ca_file"), values.get("cert_file")
    if ca_file:
        _check_authority(ca_file, place.key("ca_file"))
    if values.get("key_file") and "cert_file" in values and not cert_file:
        place.key("key_file").problem("needs cert_file beside it")
    if cert_file and "key_file" in values:
        _check_pair(cert_file, values["key_file"], place)


def _check_authority(ca_file: str, place: Place) -> None:
    import ssl  # noqa: PLC0415 - only configurations with files pay for it

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(ca_file)
    except OSError:  # ssl.SSLError is one.
        place.problem("is not a PEM file with certificates")


def _check_pair(cert_file: str, key_file: str | None, place: Place) -> None:
    import ssl  # noqa: PLC0415 - only configurations with files pay for it

    asked = False

    def passphrase() -> str:  # Without it OpenSSL would ask at the terminal.
        nonlocal asked
        asked = True
        return ""

    key_place = place.key("key_file" if key_file else "cert_file")
    if not _contains(cert_file, b"-----BEGIN CERTIFICATE-----", place.key("cert_file"), "certificate"):
        return
    if not _contains(key_file or cert_file, b"PRIVATE KEY-----", key_place, "private key"):
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(cert_file, key_file, passphrase)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            key_place.problem("is not the key of the certificate in cert_file")
        elif asked:
            key_place.problem("is encrypted; a key with a passphrase cannot be used")
        else:
            place.key("cert_file").problem("cannot be used, the certificate or its key is damaged")
    except (OSError, ValueError):
        key_place.problem("is encrypted; a key with a passphrase cannot be used")


def _contains(path: str, mark: bytes, place: Place, what: str) -> bool:
    try:
        with open(path, "rb") as file:
            found = mark in file.read()
    except OSError:
        found = False
    if not found:
        place.problem(f"holds no {what} in PEM form")
    return found
