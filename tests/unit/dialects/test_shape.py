from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from sidecar.dialects.openai_chat import OpenAiChat
from sidecar.dialects.reading import Reading, RequestFacts
from sidecar.dialects.shape import TRIES, TextShape
from sidecar.dialects.tally import Tally

KEY = b'"content":"'


def event(content: str | None, **beside: object) -> bytes:
    delta = {} if content is None else {"content": content}
    choice = {"index": 0, "delta": {**delta, **beside}, "finish_reason": None}
    document = {"id": "c1", "model": "m", "choices": [choice]}
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def learnt(content: str = "first") -> TextShape:
    shape = TextShape()
    shape.learn(event(content), KEY)
    return shape


def test_nothing_fits_before_something_was_learnt() -> None:
    assert not TextShape().fits(event("a"))


def test_other_text_of_the_same_shape_fits() -> None:
    shape = learnt()
    assert [shape.fits(event(text)) for text in ("a", "longer than the first", "你好😀", "line\nbreak")] == [True] * 4


def test_no_text_a_quote_in_it_or_a_backslash_at_its_end_does_not_fit() -> None:
    shape = learnt()
    assert not shape.fits(event(""))
    assert not shape.fits(event('say "hi"'))
    assert not shape.fits(event("C:\\"))


def test_anything_else_that_changes_does_not_fit() -> None:
    shape = learnt()
    assert not shape.fits(event("a", role="assistant"))
    assert not shape.fits(event("a").replace(b'"id":"c1"', b'"id":"c2"'))
    assert not shape.fits(event("a").replace(b"null", b'"stop"'))


def test_an_event_with_the_key_twice_or_with_escapes_teaches_nothing() -> None:
    for odd in (event("a", other={"content": "b"}), event("a\nb")):
        shape = TextShape()
        shape.learn(odd, KEY)
        assert not shape.fits(odd)


def test_it_gives_up_when_nothing_ever_fits_and_not_while_something_does() -> None:
    padded = TextShape()
    for number in range(TRIES):
        assert padded.wanted
        padded.learn(event("a", pad="x" * number), KEY)
    assert not padded.wanted
    used = TextShape()
    for _ in range(3 * TRIES):
        used.learn(event("a"), KEY)
        assert used.fits(event("b"))
    assert used.wanted


TEXTS = st.one_of(st.none(), st.text(max_size=6), st.sampled_from(['"', "\\", "\\\\", "a\\", '","x":"']))
EVENTS = st.builds(
    lambda text, beside: event(text, **beside),
    TEXTS,
    st.sampled_from(
        [{}, {}, {}, {"role": "assistant"}, {"reasoning": "r"}, {"refusal": "no"}, {"x": {"content": "twice"}}]
    ),
)


@given(st.lists(st.one_of(EVENTS, st.sampled_from([b"{}", b"{", b'{"choices":[]}'])), max_size=30))
def test_many_events_at_once_mean_what_they_mean_one_by_one(payloads: list[bytes]) -> None:
    instants = [float(number) for number in range(len(payloads))]
    readings = []
    for together in (True, False):
        tally = Tally(Reading(streamed=True), RequestFacts(stream=True))
        chat = OpenAiChat(tally)
        if together:
            chat.on_events(payloads, instants)
        else:
            for data, at in zip(payloads, instants, strict=True):
                tally.reading.events += 1
                chat.on_event(b"", data, at)
        tally.close()
        readings.append(tally.reading)
    assert readings[0] == readings[1]
