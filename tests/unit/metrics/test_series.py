from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from sidecar.config.model import Models, Slo
from sidecar.metrics.families import Families
from sidecar.metrics.series import UpstreamSeries, label_value


def series(**models: Any) -> tuple[UpstreamSeries, Families]:
    families = Families({}, Slo())
    return UpstreamSeries(families, "api", Models(**models)), families


def overflow(families: Families) -> float:
    return families.counters["label_overflow_total"].child("model").value


def test_the_first_models_that_succeed_have_their_own_series() -> None:
    upstream, families = series(limit=2)
    assert [upstream.model(name, proven=True).model for name in ("a", "b", "c", "a")] == ["a", "b", "other", "a"]
    assert overflow(families) == 1


def test_met_16_failed_requests_take_no_place() -> None:
    upstream, families = series(limit=1)
    assert upstream.model("typo", proven=False).model == "other"
    assert upstream.model("gpt", proven=True).model == "gpt"
    assert upstream.model("gpt", proven=False).model == "gpt"
    assert overflow(families) == 1


def test_met_16_allowed_models_keep_their_places() -> None:
    upstream, _ = series(limit=2, allow=("mine",))
    assert [upstream.model(name, proven=True).model for name in ("a", "b", "mine")] == ["a", "other", "mine"]


def test_allowed_models_are_there_from_the_start() -> None:
    _, families = series(allow=("mine",))
    assert ("api", "mine", "output") in families.counters["tokens_total"].children


def test_a_new_limit_keeps_the_series_that_exist() -> None:
    upstream, _ = series(limit=1)
    first = upstream.model("a", proven=True)
    upstream.limit_models(Models(limit=2, allow=("z",)))
    assert upstream.model("a", proven=False) is first
    assert upstream.model("b", proven=True).model == "other"
    upstream.limit_models(Models(limit=3, allow=("z",)))
    assert upstream.model("b", proven=True).model == "b"


@pytest.mark.parametrize("odd", [None, "", "  ", {"a": 1}, [1], 7, "unknown"])
def test_met_16_no_name_is_unknown_and_outside_the_limit(odd: object) -> None:
    upstream, families = series(limit=1)
    assert upstream.model(odd, proven=True).model == "unknown"
    assert upstream.model("gpt", proven=True).model == "gpt"
    assert overflow(families) == 0


def test_met_16_labels_are_short_and_printable() -> None:
    assert label_value("x" * 5000) == "x" * 128
    assert label_value("a\nb\x00\u2028c\ud800") == "a_b__c_"
    assert label_value('say "hi" \\ äöü') == 'say "hi" \\ äöü'


def test_a_name_that_was_cut_finds_its_series_again() -> None:
    upstream, _ = series(limit=1)
    first = upstream.model("x" * 5000, proven=True)
    assert upstream.model("x" * 5000, proven=True) is first


def test_met_16_a_flood_of_names_is_not_remembered() -> None:
    upstream, families = series(limit=4)
    upstream.model("warm", proven=False)
    tracemalloc.start()
    try:
        for number in range(20_000):
            upstream.model(f"random-{number}", proven=False)
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert grown < 10_000
    assert {labels[1] for labels in families.counters["tokens_total"].children} == {"other"}
