from __future__ import annotations

import pytest

from sidecar.config.model import Slo
from sidecar.metrics.catalogue import CATALOGUE
from sidecar.metrics.families import MAX_OPEN_VALUES, Families


def test_families_follow_the_catalogue() -> None:
    assert [family.metric for family in Families({}, Slo())] == list(CATALOGUE)


def test_a_child_is_made_once() -> None:
    family = Families({}, Slo()).counters["retries_total"]
    assert family.child("api", "closed") is family.child("api", "closed")


def test_a_child_needs_a_value_for_each_label() -> None:
    with pytest.raises(ValueError, match="retries_total"):
        Families({}, Slo()).counters["retries_total"].child("api")


def test_an_open_label_is_bounded_by_number_for_each_upstream() -> None:
    family = Families({}, Slo()).counters["parse_errors_total"]
    for number in range(100):
        family.bounded_child("a", f"reason{number}").inc()
    family.bounded_child("b", "late").inc()
    assert len(family.children) == MAX_OPEN_VALUES + 2
    assert family.children["a", "other"].value == 100 - MAX_OPEN_VALUES
    assert family.children["b", "late"].value == 1


def test_forgetting_an_upstream_leaves_the_others_and_families_without_the_label() -> None:
    families = Families({}, Slo())
    kept = families.counters["retries_total"].child("b", "closed")
    families.counters["retries_total"].child("a", "closed")
    direction = families.histograms["overhead_seconds"].child("request")
    families.forget("upstream", "a")
    assert list(families.counters["retries_total"].children.values()) == [kept]
    assert list(families.histograms["overhead_seconds"].children.values()) == [direction]
