"""The configuration as it may be shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sidecar.config.load import Flags, load
from sidecar.config.model import Config
from sidecar.config.redaction import fingerprint, redacted

TEXT = """
upstreams:
  - name: a
    url: https://a.example/v1
    proxy: http://token-user:hunter2@p.example:3128
    timeouts: {dns: 250ms}
limits: {max_request_body: 1KiB}
metrics: {buckets: {network_ratio: [0.5, 1]}}
"""


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """A configuration with a secret in it."""
    return loaded(tmp_path, TEXT)


def loaded(directory: Path, text: str) -> Config:
    """`text` as a configuration."""
    (directory / "sidecar.yaml").write_text(text)
    return load(str(directory / "sidecar.yaml"), flags=Flags(), environ={})


def test_the_shown_configuration_has_the_keys_of_the_file(config: Config) -> None:
    shown = json.loads(json.dumps(redacted(config)))
    assert shown["listen"] == "127.0.0.1:8080"
    assert shown["limits"]["max_request_body"] == 1024
    assert shown["metrics"] == {"buckets": {"network_ratio": [0.5, 1.0]}}
    (upstream,) = shown["upstreams"]
    assert (upstream["url"], upstream["dialect"], upstream["timeouts"]["dns"]) == ("https://a.example/v1", "auto", 0.25)
    assert upstream["proxy"] == "http://***@p.example:3128"


def test_no_way_of_printing_a_configuration_shows_a_secret(config: Config) -> None:
    printed = [json.dumps(redacted(config)), repr(config), str(config), f"{config}", "%s" % (config,)]  # noqa: UP031
    assert not [text for text in printed if "hunter2" in text or "token-user" in text]


def test_a_proxy_without_credentials_is_shown_as_it_is(tmp_path: Path) -> None:
    config = loaded(tmp_path, TEXT.replace("token-user:hunter2@", ""))
    assert redacted(config)["upstreams"][0]["proxy"] == "http://p.example:3128"


def test_the_fingerprint_changes_with_every_setting_and_with_nothing_else(config: Config, tmp_path: Path) -> None:
    assert fingerprint(config) == fingerprint(loaded(tmp_path, f"# A comment.\n{TEXT}"))
    changes = [("1KiB", "2KiB"), ("250ms", "251ms"), ("0.5", "0.6"), ("/v1", "/v2"), ("p.example", "q.example")]
    others = {fingerprint(loaded(tmp_path, TEXT.replace(old, new))) for old, new in changes}
    assert len(others | {fingerprint(config)}) == len(changes) + 1
    assert fingerprint(config).isalnum()
    assert len(fingerprint(config)) == 12
