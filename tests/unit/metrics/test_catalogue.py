from __future__ import annotations

import re
import subprocess
import sys

import pytest

from sidecar.metrics.buckets import SETS
from sidecar.metrics.catalogue import CATALOGUE, KNOWN_HISTOGRAMS, Kind, Metric

FORBIDDEN_LABELS = {"user", "key", "prompt", "ip", "path", "request_id"}


@pytest.mark.parametrize("metric", CATALOGUE, ids=lambda metric: metric.name)
def test_every_metric_is_declared_whole(metric: Metric) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9_]*", metric.name)
    assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
    assert (metric.kind is Kind.HISTOGRAM) == (metric.buckets in SETS) == bool(metric.buckets)
    assert metric.help.endswith(".")
    assert metric.reason.endswith(".")
    assert not FORBIDDEN_LABELS & {label.name for label in metric.labels}
    for label in metric.labels:
        assert label.values is None or len(set(label.values)) == len(label.values) > 0


def test_names_are_unique() -> None:
    assert len({metric.name for metric in CATALOGUE}) == len(CATALOGUE)


def test_known_histograms_are_those_that_can_be_overridden() -> None:
    assert "time_to_first_token_seconds" in KNOWN_HISTOGRAMS
    assert "requests_total" not in KNOWN_HISTOGRAMS


def test_help_says_what_a_reader_would_get_wrong() -> None:
    helps = {metric.name: metric.help for metric in CATALOGUE}
    assert "per chunk and not per token" in helps["inter_chunk_seconds"]
    assert "ends where TLS ends" in helps["network_ratio"]
    assert "CDN" in helps["network_ratio"]
    assert "never estimated" in helps["tokens_total"]


def test_declaring_does_not_load_the_client_library() -> None:
    program = "import sys, sidecar.metrics.recorder; sys.exit('prometheus_client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
