"""One bad file for each mistake, with exactly what is said about it beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sidecar.config.load import Flags, load
from sidecar.config.model import Config, StreamUsage, Upstream, Url
from sidecar.config.problems import ConfigError

BAD = Path(__file__).parent / "bad"
BAD_FILES = sorted(BAD.glob("*.yaml"))
HISTOGRAMS = frozenset(
    {
        *("request_duration_seconds", "time_to_first_token_seconds", "inter_chunk_seconds"),
        *("time_per_output_token_seconds", "output_tokens_per_second", "tcp_rtt_seconds", "network_ratio"),
        *("overhead_seconds", "request_tokens"),
    }
)
EVERY_KEY = """
listen: 0.0.0.0:80
admin: "[::1]:81"
log: {level: debug, format: console}
upstreams:
  - name: one
    url: HTTPS://API.example:8443/base/
    prefix: /one/
    dialect: anthropic
    protocol: http/1.1
    pool: {max_connections: 7, max_idle: 0, idle_timeout: 1.5s, acquire_timeout: 0, prewarm: 0}
    timeouts: {dns: 250ms, connect: 1s, tls: 2m, headers: 1h, idle: 720h}
    tls: {ca_file: null, cert_file: null, key_file: null, server_name: Real.Example, verify: false}
    proxy: none
    credentials: {type: passthrough}
    cache: {enabled: false}
    stream_usage: inject
models: {limit: 2, allow: [gpt-5, 2024-08-06]}
cache:
  memory: {max_bytes: 128MiB}
  redis: {url: null, timeout: 50ms}
limits: {max_in_flight: 1, max_request_body: 2GiB, max_header_bytes: 2048}
drain_timeout: 0
slo: {ttft: 2s, tpot: 50ms}
metrics: {buckets: {llm_sidecar_network_ratio: [0.1, 1], inter_chunk_seconds: [1]}}
server_timing: false
via: true
debug: false
"""


@pytest.mark.parametrize("path", BAD_FILES, ids=lambda path: path.stem)
def test_every_mistake_is_told_in_its_own_words(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(BAD)

    with pytest.raises(ConfigError) as caught:
        load(path.name, flags=Flags(), environ={"SECRET": "hunter2"}, known_metrics=HISTOGRAMS)

    assert f"{caught.value}\n" == path.with_suffix(".txt").read_text()


def test_bad_files_and_messages_come_in_pairs() -> None:
    assert BAD_FILES
    assert {path.stem for path in BAD_FILES} == {path.stem for path in BAD.glob("*.txt")}


def test_no_message_quotes_a_secret() -> None:
    secrets = ("hunter2", "sk-secret")
    assert [path.name for path in BAD.glob("*.txt") if any(word in path.read_text() for word in secrets)] == []


def test_every_key_arrives_where_it_belongs(tmp_path: Path) -> None:
    file = tmp_path / "sidecar.yaml"
    file.write_text(EVERY_KEY)

    config = load(str(file), flags=Flags(), environ={}, known_metrics=HISTOGRAMS)

    assert (str(config.listen), str(config.admin)) == ("0.0.0.0:80", "[::1]:81")
    assert (config.log.level, config.log.format) == ("debug", "console")
    assert (config.models.limit, config.models.allow) == (2, ("gpt-5", "2024-08-06"))
    limits = config.limits
    assert (limits.max_in_flight, limits.max_request_body, limits.max_header_bytes) == (1, 2 * 1024**3, 2048)
    assert (config.drain_timeout, config.slo.ttft, config.slo.tpot) == (0.0, 2.0, 0.05)
    assert config.buckets == {"network_ratio": (0.1, 1.0), "inter_chunk_seconds": (1.0,)}
    assert (config.server_timing, config.via) == (False, True)
    (one,) = config.upstreams
    assert one.url == Url("https", "api.example", 8443, "/base")
    assert (one.name, one.prefix, one.dialect, one.protocol) == ("one", "/one", "anthropic", "http/1.1")
    assert (one.pool.max_connections, one.pool.max_idle) == (7, 0)
    assert (one.pool.idle_timeout, one.pool.acquire_timeout) == (1.5, 0.0)
    timeouts = one.timeouts
    assert (timeouts.dns, timeouts.connect, timeouts.tls) == (0.25, 1.0, 120.0)
    assert (timeouts.headers, timeouts.idle) == (3600.0, 720 * 3600.0)
    assert (one.tls.server_name, one.tls.verify, one.proxy) == ("real.example", False, None)
    assert one.stream_usage is StreamUsage.INJECT


def test_the_defaults_of_the_table_are_those_of_the_types(tmp_path: Path) -> None:
    file = tmp_path / "sidecar.yaml"
    file.write_text("upstreams: [{name: a, url: https://a.example}]")

    assert load(str(file), flags=Flags(), environ={}) == Config((Upstream("a", Url("https", "a.example", 443)),))


def test_null_stands_for_an_empty_mapping_or_list(tmp_path: Path) -> None:
    file = tmp_path / "sidecar.yaml"
    file.write_text(
        "log:\nmodels: {allow: }\nmetrics: {buckets: }\nupstreams: [{name: a, url: https://a.example, pool: }]"
    )

    assert load(str(file), flags=Flags(), environ={}) == Config((Upstream("a", Url("https", "a.example", 443)),))


def test_fewer_connections_bring_fewer_idle_ones(tmp_path: Path) -> None:
    file = tmp_path / "sidecar.yaml"
    file.write_text("upstreams: [{name: a, url: https://a.example, pool: {max_connections: 10}}]")

    assert load(str(file), flags=Flags(), environ={}).upstreams[0].pool.max_idle == 10


def test_without_a_list_of_metrics_any_name_of_a_histogram_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "sidecar.yaml"
    file.write_text("upstreams: [{name: a, url: https://a.example}]\nmetrics: {buckets: {anything: [1, 2.5]}}")

    assert load(str(file), flags=Flags(), environ={}).buckets == {"anything": (1.0, 2.5)}
