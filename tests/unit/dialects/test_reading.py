from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.dialects.reading import Reading, Usage

COUNTS = st.none() | st.integers(-5, 10_000)


@pytest.mark.parametrize(
    ("reported", "counts"),
    [
        (Usage(input=10, output=5, cached_input=4), (10, 5, 4, 0, 0)),
        # Anthropic: what the cache gave is no part of input_tokens.
        (
            Usage(input=10, output=5, cached_input=100, cache_creation_input=20, input_excludes_cache=True),
            (130, 5, 100, 20, 0),
        ),
        # Gemini: thoughts are no part of candidates when the total says so.
        (Usage(input=10, output=5, reasoning=7, total=22), (10, 12, 0, 0, 7)),
        (Usage(input=10, output=12, reasoning=7, total=22), (10, 12, 0, 0, 7)),
        (Usage(input=10, output=5, tool_input=3), (13, 5, 0, 0, 0)),
        (Usage(input=10, output=5, cached_input=50), (10, 5, 10, 0, 0)),
        (Usage(input=10, output=5), (10, 5, None, None, None)),
        (Usage(input=-10, output=5), (0, 5, 0, 0, 0)),
        (Usage(input=10, output=-5), (10, 0, 0, 0, 0)),
        (Usage(input=-1, output=-1, cached_input=-1, reasoning=-1), (0, 0, 0, 0, 0)),
        (Usage(output=5), (None, 5, 0, 0, 0)),
        (Usage(), (None, None, 0, 0, 0)),
    ],
)
def test_counts_are_made_comparable(reported: Usage, counts: tuple[int | None, ...]) -> None:
    usage = reported.normalised()
    assert (usage.input, usage.output, usage.cached_input, usage.cache_creation_input, usage.reasoning) == counts


@given(st.builds(Usage, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS, st.booleans(), COUNTS))
def test_whatever_was_reported_nothing_is_negative_and_cached_is_within_input(reported: Usage) -> None:
    usage = reported.normalised()
    for count in (usage.input, usage.output, usage.cached_input, usage.cache_creation_input, usage.reasoning):
        assert count is None or count >= 0
    if usage.input is not None:
        assert (usage.cached_input or 0) <= usage.input
        assert (usage.cache_creation_input or 0) <= usage.input
    assert (usage.input is None) == (reported.input is None)


@given(st.builds(Usage, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS, st.booleans(), COUNTS))
def test_counts_that_are_comparable_stay_as_they_are(reported: Usage) -> None:
    usage = reported.normalised()
    assert usage.normalised() == usage


@pytest.mark.parametrize("excludes_cache", [True, False])
def test_input_and_output_alone_need_no_other_object(excludes_cache: bool) -> None:
    usage = Usage(input=10, output=0, cached_input=0, total=10, input_excludes_cache=excludes_cache)
    assert usage.normalised() is usage


def test_either_name_of_an_error_makes_an_answer_failed() -> None:
    assert not Reading().failed
    assert Reading(error_type="overloaded").failed
    assert Reading(error_code="503").failed


def test_what_could_not_be_read_is_counted_by_reason() -> None:
    reading = Reading()
    for reason in ("json", "coding", "json"):
        reading.degrade(reason)
    assert reading.parse_errors == {"json": 2, "coding": 1}
