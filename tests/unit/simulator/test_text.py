from __future__ import annotations

import json

from sidecar.simulator.text import WORDS, fragments, text


def test_words_stand_between_json_quotes_as_they_are() -> None:
    for word in WORDS:
        assert json.loads(b'"' + word + b'"') == word.decode()


def test_some_words_are_longer_in_bytes_than_in_characters() -> None:
    assert any(len(word) > len(word.decode()) for word in WORDS)


def test_fragments_put_together_are_the_text() -> None:
    pieces = fragments(100, 7, start=3)
    assert b"".join(words for words, _ in pieces) == text(100, 3)
    assert [count for _, count in pieces] == [7] * 14 + [2]


def test_no_tokens_are_no_fragments() -> None:
    assert fragments(0, 3) == ()
