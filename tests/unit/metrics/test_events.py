from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sidecar.config.model import Slo
from sidecar.exchange import Phase
from sidecar.failures import ErrorReason
from sidecar.metrics.recorder import Recorder

Make = Callable[..., Any]


def test_met_23_each_phase_of_dialling_is_recorded_once_for_a_new_connection(recorder: Recorder, look: Any) -> None:
    recorder.connection_opened("api", 0.25, 0.5, 0.125)
    recorder.connection_opened("api", None, 0.5, None)
    recorder.connection_reused("api")
    assert look.samples("connection_phase_seconds", phase="dns") == (1, 0.25)
    assert look.samples("connection_phase_seconds", phase="connect") == (2, 1.0)
    assert look.samples("connection_phase_seconds", phase="tls") == (1, 0.125)
    assert look.value("connections_opened_total") == 2
    assert look.value("connections_reused_total") == 1


def test_connection_errors_stay_in_their_closed_sets(recorder: Recorder, look: Any) -> None:
    recorder.connection_error("api", Phase.TLS, ErrorReason.CERTIFICATE)
    recorder.connection_error("api", "tls", "certificate")
    recorder.connection_error("api", "lunch", "hunger")
    assert look.value("connection_errors_total", phase="tls", reason="certificate") == 2
    assert look.value("connection_errors_total", phase="other", reason="other") == 1
    assert look.value("connection_errors_total", phase="dns", reason="not_found") == 0


def test_events_of_one_upstream(recorder: Recorder, look: Any) -> None:
    recorder.retry("api", ErrorReason.CLOSED)
    recorder.parse_error("api", "json")
    recorder.in_flight("api", 1)
    recorder.in_flight("api", 1)
    recorder.in_flight("api", -1)
    recorder.upstream_info("api", "openai", "http/1.1", "a:443")
    recorder.upstream_info("api", "openai", "http/1.1", "b:443")
    assert look.value("retries_total", reason="closed") == 1
    assert look.value("parse_errors_total", reason="json") == 1
    assert look.value("requests_in_flight") == 1
    assert list(recorder.families.gauges["upstream_info"].children) == [("api", "openai", "http/1.1", "b:443")]


def test_open_connections_are_read_when_they_are_asked_for(recorder: Recorder, look: Any) -> None:
    pool = [2, 5]
    recorder.connections("api", lambda: pool[0], lambda: pool[1])
    assert look.value("connections", state="active") == 2
    pool[:] = [3, 4]
    assert look.value("connections", state="active") == 3
    assert look.value("connections", state="idle") == 4


def test_events_of_the_process(recorder: Recorder, look: Any) -> None:
    assert look.value("draining") == 0
    recorder.draining(True)
    recorder.loop_lag(0.25)
    recorder.scrape_rendered(0.002)
    recorder.config_reloaded(True, 1_700_000_000.0)
    recorder.config_reloaded(False, 1_700_000_009.0)
    recorder.build_info("1.0", "3.11")
    recorder.config_info("old")
    recorder.config_info("new")
    assert look.value("draining") == 1
    assert look.samples("event_loop_lag_seconds") == (1, 0.25)
    assert look.value("scrape_render_seconds") == 0.002
    assert look.value("config_last_reload_success_timestamp_seconds") == 1_700_000_000.0
    assert look.value("config_reload_failures_total") == 1
    assert look.value("build_info", version="1.0", python="3.11") == 1
    assert list(recorder.families.gauges["config_info"].children) == [("new",)]


def test_events_of_unknown_upstreams_are_ignored(recorder: Recorder) -> None:
    before = sum(len(family.children) for family in recorder.families)
    recorder.connection_opened("gone", 0.1, 0.1, 0.1)
    recorder.connection_reused("gone")
    recorder.connection_error("gone", Phase.DNS, ErrorReason.OTHER)
    recorder.connections("gone", lambda: 1, lambda: 1)
    recorder.retry("gone", "closed")
    recorder.in_flight("gone", -1)
    recorder.parse_error("gone", "json")
    recorder.upstream_info("gone", "a", "b", "c")
    assert sum(len(family.children) for family in recorder.families) == before


def test_a_reload_keeps_counts_and_takes_away_what_was_removed(config: Make, exchange: Make, chat: Any) -> None:
    recorder = Recorder(config("a", "b"))
    for name in ("a", "b"):
        recorder.record(exchange(upstream=name), chat)
    recorder.configure(config("b", "c", slo=Slo(ttft=1.0)))
    requests = recorder.families.counters["requests_total"].children
    assert {labels[0] for labels in requests} == {"b"}
    recorder.record(exchange(upstream="b"), chat)
    assert [child.value for child in requests.values()] == [2]
    assert recorder.families.gauges["slo_threshold_seconds"].child("ttft").value == 1.0
    assert ("c", "dns") in recorder.families.histograms["connection_phase_seconds"].children
    assert not any("a" in labels for family in recorder.families for labels in family.children)


@pytest.mark.parametrize("name", ["streams_without_token_total", "token_count_source_total", "time_seconds_total"])
def test_closed_label_sets_are_there_before_anything_happens(name: str, recorder: Recorder) -> None:
    family = recorder.families.counters[name]
    values = family.metric.labels[1].values
    assert values is not None
    assert set(family.children) == {("api", value) for value in values}
