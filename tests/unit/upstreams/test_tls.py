from __future__ import annotations

import logging
import ssl
from pathlib import Path

import pytest

from sidecar.config.model import Tls
from sidecar.upstreams.tls import client_context, handshake_seconds, timed_ssl_object
from tests.kit.authority import authority, ca_file, server_context
from tests.kit.fakes import Clock


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, clock: Clock, name: str = "localhost") -> ssl.SSLObject:
    """A handshake in memory; every flight takes the clock a quarter of a second. The client's object."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(back, there, server_hostname=name)
    theirs = server.wrap_bio(there, back, server_side=True)
    waiting = [ours, theirs]
    for _ in range(10):
        for side in list(waiting):
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                clock.advance(0.25)
        if not waiting:
            return ours
    raise AssertionError("no end of the handshake")


def test_the_handshake_times_itself(tmp_path: Path) -> None:
    clock = Clock()
    context = client_context(Tls(ca_file=str(ca_file(tmp_path))), clock, "api")
    connection = shake_hands(context, server_context("localhost"), clock)
    assert isinstance(connection, ssl.SSLObject)
    assert handshake_seconds(connection) == 0.5, "from the first hello to the last flight, both sides' waits"


def test_only_the_first_handshake_is_timed() -> None:
    clock = Clock()
    made = timed_ssl_object(clock)
    assert handshake_seconds(made.__new__(made)) is None, "none has been"


@pytest.mark.parametrize("other", [None, object()])
def test_what_is_no_object_of_ours_has_no_time(other: object) -> None:
    assert handshake_seconds(other) is None


def test_a_stranger_is_refused(tmp_path: Path) -> None:
    context = client_context(Tls(), Clock(), "api")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(context, server_context("localhost"), Clock())


def test_another_name_is_refused(tmp_path: Path) -> None:
    context = client_context(Tls(ca_file=str(ca_file(tmp_path))), Clock(), "api")
    with pytest.raises(ssl.SSLCertVerificationError, match="match"):
        shake_hands(context, server_context("other.example"), Clock())


def test_verify_false_accepts_anybody_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "sidecar"):
        context = client_context(Tls(verify=False), Clock(), "api")
    assert caplog.messages == ["tls_unverified"]
    assert shake_hands(context, server_context("other.example"), Clock())


def test_old_versions_are_not_spoken(tmp_path: Path) -> None:
    assert client_context(Tls(), Clock(), "api").minimum_version == ssl.TLSVersion.TLSv1_2


def test_http_1_1_is_what_is_asked_for(tmp_path: Path) -> None:
    context = client_context(Tls(ca_file=str(ca_file(tmp_path))), Clock(), "api")
    connection = shake_hands(context, server_context("localhost", alpn=("h2", "http/1.1")), Clock())
    assert connection.selected_alpn_protocol() == "http/1.1"


def test_our_own_certificate_is_shown_to_servers_that_ask(tmp_path: Path) -> None:
    own = authority().issue_cert("sidecar.example")
    own.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "own.pem"))
    tls = Tls(ca_file=str(ca_file(tmp_path)), cert_file=str(tmp_path / "own.pem"))
    server = server_context("localhost", version=ssl.TLSVersion.TLSv1_2)  # 1.3 would ask after the handshake
    server.verify_mode = ssl.CERT_REQUIRED
    authority().configure_trust(server)
    assert shake_hands(client_context(tls, Clock(), "api"), server, Clock())


@pytest.mark.parametrize("setting", ["ca_file", "cert_file"])
def test_a_file_that_has_gone_is_an_error(setting: str, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        client_context(Tls(**{setting: str(tmp_path / "gone.pem")}), Clock(), "api")
