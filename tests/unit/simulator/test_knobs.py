from __future__ import annotations

import re
from pathlib import Path

import pytest

from sidecar.simulator.knobs import HEAD, KNOBS, KnobError, Knobs, Split, read_knobs

ROOT = Path(__file__).resolve().parents[3]


def read(**wishes: str) -> Knobs:
    return read_knobs(tuple((f"x-sim-{k.replace('_', '-')}".encode(), v.encode()) for k, v in wishes.items()), Knobs())


def test_no_wish_leaves_the_defaults() -> None:
    defaults = Knobs(ttft=1.5)
    assert read_knobs((), defaults) == defaults


def test_values_are_read_into_their_types() -> None:
    knobs = read(ttft="0.5", tokens="7", stall="3:0.25", cut="head", reset="2", split="random:9", line_end="crlf")
    assert (knobs.ttft, knobs.tokens, knobs.stall) == (0.5, 7, (3, 0.25))
    assert (knobs.cut, knobs.reset, knobs.split, knobs.line_end) == (HEAD, 2, Split(0, 9), b"\r\n")
    assert read(split="5").split == Split(5)
    assert read(close="1").close and not read(close="false").close


def test_tokens_by_header_are_not_shortened_by_the_request() -> None:
    assert read(tokens="7").tokens_fixed
    assert not read(ttft="1").tokens_fixed


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ttft", "soon"), ("ttft", "-1"), ("ttft", "nan"), ("ttft", "3601"), ("tokens", "1.5"), ("tokens", "-3"),
        ("tokens", "99999999"), ("tokens-per-event", "0"), ("stall", "3"), ("stall", "a:1"), ("cut", "tail"),
        ("encoding", "lzma"), ("line-end", "lfcr"), ("split", "random:"), ("split", "0"), ("framing", "none"),
        ("close", "yes"), ("interim", "101"), ("status", "600"), ("status", "199"), ("slow-read", "0"), ("model", ""),
    ],
)  # fmt: skip
def test_a_wrong_value_is_refused_with_what_the_header_takes(name: str, value: str) -> None:
    with pytest.raises(KnobError, match=f"x-sim-{name} takes {re.escape(KNOBS[f'x-sim-{name}'].takes)}"):
        read_knobs(((f"x-sim-{name}".encode(), value.encode()),), Knobs())


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(KnobError, match="x-sim-tfft is not known"):
        read(tfft="1")


def test_trailers_without_chunks_are_refused() -> None:
    with pytest.raises(KnobError, match="only chunked bodies have trailers"):
        read(trailers="1", framing="length")


def test_the_documentation_lists_exactly_these_headers() -> None:
    page = (ROOT / "docs" / "simulator.md").read_text()
    listed = re.findall(r"^\| `(x-sim-[a-z-]+)` \|", page, re.MULTILINE)
    assert listed == list(KNOBS)
