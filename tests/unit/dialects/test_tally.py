from __future__ import annotations

from sidecar.dialects.reading import Reading, ReasoningShown, RequestFacts, Usage
from sidecar.dialects.tally import HIDDEN, MAX_GAPS, OTHER, REASONING, SUMMARY, TEXT, TOOL, Tally


def tally(**facts: int) -> Tally:
    return Tally(Reading(streamed=True), RequestFacts(**facts))  # type: ignore[arg-type]


def event(counted: Tally, kinds: int, at: float, usage: Usage | None = None) -> None:
    counted.reading.events += 1
    if kinds:
        counted.tokens(kinds, at)
    if usage is not None:
        counted.usage(usage)


def test_first_token_first_output_and_gaps_are_marked_once() -> None:
    counted = tally()
    for kinds, at in ((0, 0.1), (REASONING, 0.5), (REASONING, 1.0), (TEXT, 3.0), (TOOL, 3.5), (0, 4.0)):
        event(counted, kinds, at)
    reading = counted.reading
    assert (reading.first_token_at, reading.first_output_at, reading.last_token_at) == (0.5, 3.0, 3.5)
    assert reading.gaps == [0.5, 2.0, 0.5]
    assert (reading.n_reasoning, reading.n_text, reading.n_tool, reading.token_events) == (2, 1, 1, 4)
    assert (reading.first_content_event, reading.first_text_event) == (1, 3)


def test_a_tools_name_and_hidden_reasoning_move_the_clocks_and_no_count() -> None:
    counted = tally()
    event(counted, HIDDEN, 1.0)
    event(counted, OTHER, 2.0)
    reading = counted.reading
    assert (reading.first_token_at, reading.first_output_at) == (1.0, 2.0)
    assert (reading.n_text, reading.n_reasoning, reading.n_tool, reading.first_content_event) == (0, 0, 0, None)
    assert reading.reasoning_shown is ReasoningShown.NONE


def test_reasoning_text_counts_for_more_than_its_summary() -> None:
    counted = tally()
    event(counted, SUMMARY, 1.0)
    assert counted.reading.reasoning_shown is ReasoningShown.SUMMARY
    event(counted, REASONING, 2.0)
    event(counted, SUMMARY, 3.0)
    assert counted.reading.reasoning_shown is ReasoningShown.TEXT


def test_an_answer_that_is_no_stream_has_no_tokens() -> None:
    counted = Tally(Reading(), RequestFacts())
    counted.tokens(TEXT, 1.0)
    assert counted.reading == Reading()


def test_the_last_usage_counts_and_empty_ones_do_not() -> None:
    counted = tally()
    for usage in (Usage(10, 1), Usage(10, 2), Usage(10, 3), Usage(), Usage(0, 0)):
        event(counted, 0, 1.0, usage)
    assert counted.reading.usage == Usage(10, 3)


def test_zeros_are_usage_when_nothing_better_is_known() -> None:
    counted = tally()
    event(counted, 0, 1.0, Usage(0, 0))
    assert counted.reading.usage == Usage(0, 0)


def test_merged_usage_keeps_what_is_not_given_again() -> None:
    counted = tally()
    counted.merge_usage(Usage(input=25, output=1, cached_input=100))
    counted.merge_usage(Usage(output=15))
    assert counted.reading.usage == Usage(input=25, output=15, cached_input=100)


def test_usage_in_the_first_token_event_tells_how_many_tokens_it_holds() -> None:
    counted = tally()
    event(counted, 0, 0.5, Usage(10, 0))
    event(counted, TEXT, 1.0, Usage(10, 3))
    event(counted, TEXT, 2.0, Usage(10, 5))
    assert counted.reading.first_token_tokens == 3


def test_usage_at_the_end_says_nothing_of_the_first_token_event() -> None:
    counted = tally()
    event(counted, TEXT, 1.0)
    event(counted, 0, 2.0, Usage(10, 3))
    assert counted.reading.first_token_tokens is None


def test_hidden_reasoning_is_not_among_the_first_tokens() -> None:
    inside = tally()
    event(inside, TEXT, 1.0, Usage(10, 50, reasoning=48, total=60))
    assert inside.reading.first_token_tokens == 2
    apart = tally()
    event(apart, TEXT, 1.0, Usage(10, 2, reasoning=48, total=60))
    assert apart.reading.first_token_tokens == 2
    shown = tally()
    event(shown, SUMMARY, 1.0, Usage(10, None, reasoning=48, total=58))
    assert shown.reading.first_token_tokens == 48


def test_every_choice_must_finish() -> None:
    counted = tally(choices=2)
    counted.see(0)
    counted.finish(0, "stop")
    assert not counted.all_finished
    counted.finish(1, "length")
    assert counted.all_finished
    counted.see(2)
    assert not counted.all_finished
    counted.finish(0, "tool_calls")
    counted.close()
    assert counted.reading.finish_reasons == ["tool_calls", "length"]


def test_the_first_error_counts_and_a_number_is_a_code() -> None:
    counted = tally()
    counted.error("a", 400)
    counted.error("b", 500)
    assert (counted.reading.error_type, counted.reading.error_code) == ("a", "400")
    nameless = tally()
    nameless.error(None)
    assert nameless.reading.failed


def test_the_memory_of_one_stream_is_bounded() -> None:
    counted = tally(choices=10**9)
    for step in range(MAX_GAPS + 100):
        event(counted, TEXT, float(step))
        counted.see(step)
        counted.finish(step, "stop")
    assert len(counted.reading.gaps) == MAX_GAPS
    assert len(counted.seen) <= 128
    assert counted.reading.token_events == MAX_GAPS + 100
    assert not counted.all_finished or len(counted.seen) == 128


def test_tool_input_is_input_and_thoughts_are_output() -> None:
    usage = Usage(input=15, output=37, reasoning=742, total=1564, tool_input=770).normalised()
    assert (usage.input, usage.output, usage.reasoning) == (785, 779, 742)
