from __future__ import annotations

import pytest
from prometheus_client.registry import CollectorRegistry

from sidecar.metrics.catalogue import CATALOGUE
from sidecar.metrics.collector import SidecarCollector, process_registry, visible
from sidecar.metrics.recorder import Recorder


def test_the_registry_refuses_a_name_that_is_in_the_catalogue(recorder: Recorder) -> None:
    registry = CollectorRegistry()
    registry.register(SidecarCollector(recorder.families))
    with pytest.raises(ValueError, match="requests_in_flight"):
        registry.register(SidecarCollector(recorder.families))


def test_the_library_reads_our_numbers(recorder: Recorder) -> None:
    registry = CollectorRegistry()
    registry.register(SidecarCollector(recorder.families))
    recorder.connection_opened("api", None, 0.02, None)
    labels = {"upstream": "api", "phase": "connect"}
    assert registry.get_sample_value("llm_sidecar_connection_phase_seconds_count", labels) == 1
    assert registry.get_sample_value("llm_sidecar_connection_phase_seconds_sum", labels) == 0.02
    assert registry.get_sample_value("llm_sidecar_connection_phase_seconds_bucket", {**labels, "le": "0.01"}) == 0
    assert registry.get_sample_value("llm_sidecar_connection_phase_seconds_bucket", {**labels, "le": "0.025"}) == 1
    assert registry.get_sample_value("llm_sidecar_connections_opened_total", {"upstream": "api"}) == 1


def test_every_metric_of_the_catalogue_is_described(recorder: Recorder) -> None:
    described = {family.name for family in SidecarCollector(recorder.families).describe()}
    assert described == {metric.full_name.removesuffix("_total") for metric in CATALOGUE}


def test_histograms_of_a_model_are_shown_with_their_first_observation(recorder: Recorder) -> None:
    family = recorder.families.histograms["provider_phase_seconds"]
    assert list(visible(family)) == []
    family.child("api", "queue").observe(0.1)
    assert [labels for labels, _ in visible(family)] == [("api", "queue")]
    assert len(list(visible(recorder.families.histograms["connection_phase_seconds"]))) == 3


def test_a_gauge_that_nobody_set_is_not_shown(recorder: Recorder) -> None:
    names = {family.name for family in SidecarCollector(recorder.families).collect()}
    assert "llm_sidecar_ratelimit_remaining" not in names
    assert "llm_sidecar_draining" in names


def test_the_process_is_described_by_the_library() -> None:
    names = {family.name for family in process_registry().collect()}
    assert {"process_cpu_seconds", "process_resident_memory_bytes", "python_info"} <= names
