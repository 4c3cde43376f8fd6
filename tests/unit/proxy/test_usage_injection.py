from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.proxy.usage_injection import UsageFilter, with_usage_asked

# ---- the request ----


@pytest.mark.parametrize(
    ("body", "sent"),
    [
        (b'{"stream":true}', b'{"stream":true,"stream_options":{"include_usage":true}}'),
        (
            b' {\n  "n": 1.10,\n  "stream": true\n}\r\n',
            b' {\n  "n": 1.10,\n  "stream": true,"stream_options":{"include_usage":true}\n}\r\n',
        ),
        (
            b'{"stream_options" : null, "stream":true}',
            b'{"stream_options" : {"include_usage":true}, "stream":true}',
        ),
        (b'{"stream_options":{},"stream":true}', b'{"stream_options":{"include_usage":true},"stream":true}'),
        (
            b'{"stream":true,"stream_options":{"include_usage": false,"include_obfuscation":false, "x":1E400}}',
            b'{"stream":true,"stream_options":{"include_usage": true,"include_obfuscation":false, "x":1E400}}',
        ),
        (
            b'{"stream":true,"stream_options":{"include_obfuscation" : false }}',
            b'{"stream":true,"stream_options":{"include_obfuscation" : false,"include_usage":true }}',
        ),
    ],
)
def test_one_member_is_asked_for_and_every_other_byte_stays(body: bytes, sent: bytes) -> None:
    assert with_usage_asked(body) == sent


@pytest.mark.parametrize(
    "body",
    [
        b'{"stream":true,"stream_options":{"include_usage":true}}',
        b'{"stream":false}',
        b'{"stream":1}',
        b'{"stream":"true"}',
        b"{}",
        b"[]",
        b'"stream"',
        b"",
        b'{"stream":true',
        b'{"stream":true,}',
        b'{"stream":true} x',
        b'{"stream":true,"stream_options":7}',
        b'{"stream":true,"stream_options":[]}',
        b"--form\r\nx",
        b'\xef\xbb\xbf{"stream":true}',
        '{"stream":true}'.encode("utf-16"),
        b'{"stream":true,"x":"\xff"}',
        b'{"a":' * 100_000,
    ],
)
def test_what_asks_already_or_cannot_ask_stays_as_it_is(body: bytes) -> None:
    assert with_usage_asked(body) is None


@pytest.mark.parametrize(
    "decoy",
    [
        '"m":"\\",\\"stream_options\\":null"',
        '"m":[{"stream_options":null}]',
        '"m":{"stream":false,"stream_options":{"include_usage":true}}',
    ],
)
@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize("options", ["", '"stream_options":null', '"stream_options":{"include_usage":false}'])
def test_look_alikes_inside_other_values_are_not_touched(decoy: str, place: str, options: str) -> None:
    parts = [decoy, '"stream":true'] if place == "before" else ['"stream":true', decoy]
    parts.insert(1, options)
    body = "{" + ",".join(part for part in parts if part) + "}"
    sent = with_usage_asked(body.encode())
    assert sent is not None
    assert decoy in sent.decode()
    assert json.loads(sent) == {**json.loads(body), "stream_options": {"include_usage": True}}


def test_of_repeated_members_the_last_one_counts_as_for_the_api() -> None:
    sent = with_usage_asked(
        b'{"stream":false,"stream":true,"stream_options":{"include_usage":true},"stream_options":null}'
    )
    assert sent == (
        b'{"stream":false,"stream":true,"stream_options":{"include_usage":true},"stream_options":{"include_usage":true}}'
    )
    assert with_usage_asked(b'{"stream":true,"stream":false}') is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(st.text(max_size=8), JSON, max_size=4),
    st.sampled_from([None, "null", '{"include_usage":false}', '{"other":[1.50]}']),
    st.sampled_from([None, 1]),
    st.booleans(),
)
def test_any_document_asks_for_usage_and_says_else_the_same(
    members: dict[str, Any], options: str | None, indent: int | None, ascii_only: bool
) -> None:
    members = {name: value for name, value in members.items() if name not in ("stream", "stream_options")}
    document: dict[str, Any] = {**members, "stream": True}
    if options is not None:
        document["stream_options"] = json.loads(options)
    text = json.dumps(document, indent=indent, ensure_ascii=ascii_only)
    try:
        body = text.encode()
    except UnicodeEncodeError:  # lone surrogates have no bytes
        return
    sent = with_usage_asked(body)
    assert sent is not None
    found = json.loads(sent)
    wanted = {**(document.get("stream_options") or {}), "include_usage": True}
    assert repr(found) == repr({**document, "stream_options": wanted})


# ---- the answer ----

SHOWN = '{"id":"1","choices":[{"delta":{"content":"a"}}]}'


def event(data: str, eol: str = "\n") -> bytes:
    return f"data: {data}{eol}{eol}".encode()


@pytest.mark.parametrize("usage", ["null", '{"prompt_tokens":1,"details":{"a":[1,2]}}', "7"])
@pytest.mark.parametrize(
    ("received", "shown"),
    [
        ('{"usage":U,"id":"1","choices":[1]}', '{"id":"1","choices":[1]}'),
        ('{"id":"1","usage":U,"choices":[1]}', '{"id":"1","choices":[1]}'),
        ('{"id":"1","choices":[1],"usage":U}', '{"id":"1","choices":[1]}'),
        ('{"id":"1" , "usage" : U , "choices":[1]}', '{"id":"1" , "choices":[1]}'),
        ('{ "usage":U }', "{  }"),
        ('{"usage":U,"a":1,"usage":U,"usage":U}', '{"a":1}'),
        ('{"usage":U,"usage":U}', "{}"),
    ],
)
def test_the_member_usage_is_taken_out_wherever_it_stands(usage: str, received: str, shown: str) -> None:
    assert UsageFilter().feed(event(received.replace("U", usage))) == event(shown)


def test_the_event_that_has_usage_and_no_choices_is_hidden() -> None:
    assert UsageFilter().feed(event('{"id":"1","choices":[],"usage":{"prompt_tokens":1}}')) == b""


def test_an_event_without_choices_and_without_usage_is_shown() -> None:
    received = event('{"id":"","choices":[],"prompt_filter_results":[1],"usage":null}')
    assert UsageFilter().feed(received) == event('{"id":"","choices":[],"prompt_filter_results":[1]}')


@pytest.mark.parametrize(
    "data",
    [
        "[DONE]",
        SHOWN,
        '{"choices":[{"delta":{"content":"\\"usage\\":null"}}]}',
        '{"choices":[{"usage":null}]}',
        '{"choices":[{"delta":{"content":"say \\"usage\\" twice"}}],"usages":1}',
        '{"usage":null',
        '["usage"]',
        '"usage"',
        "",
    ],
)
def test_other_events_pass_as_they_are(data: str) -> None:
    assert UsageFilter().feed(event(data)) == event(data)


def test_look_alikes_after_the_member_are_not_taken_for_it() -> None:
    received = event('{"usage":null,"choices":[{"usage":null,"delta":{"content":",\\"usage\\":null"}}]}')
    assert UsageFilter().feed(received) == event('{"choices":[{"usage":null,"delta":{"content":",\\"usage\\":null"}}]}')


@pytest.mark.parametrize(
    ("received", "shown"),
    [
        (b': data: x\nevent: m\ndata:{"usage":null,"a":1}\nid: 7\n\n', b': data: x\nevent: m\ndata:{"a":1}\nid: 7\n\n'),
        (b'data: {"usage":null,"a":1}\r\n\r\n', b'data: {"a":1}\r\n\r\n'),
        (b'data: {"usage":null,\ndata: "a":1}\n\n', b'data: {"usage":null,\ndata: "a":1}\n\n'),
    ],
)
def test_the_other_lines_of_an_event_stay(received: bytes, shown: bytes) -> None:
    assert UsageFilter().feed(received) == shown


def test_an_event_is_held_until_it_is_whole() -> None:
    hiding = UsageFilter()
    assert hiding.feed(b'data: {"usage"') == b""
    assert hiding.feed(b':null,"a":1}\n') == b""
    assert hiding.feed(b"\n") == b'data: {"a":1}\n\n'
    assert hiding.feed(b"data: cut") == b""
    assert hiding.finish() == b"data: cut"


PIECES = [
    (event(SHOWN), event(SHOWN)),
    (event(SHOWN[:-1] + ',"usage":null}'), event(SHOWN)),
    (event('{"usage":{"total_tokens":3},"id":"\u00fc"}'), event('{"id":"\u00fc"}')),
    (event('{"choices":[],"usage":{"total_tokens":3}}'), b""),
    (event("[DONE]", "\r\n"), event("[DONE]", "\r\n")),
    (b": ping\n\n", b": ping\n\n"),
    (b"\n\n", b"\n\n"),
]


@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=6), st.data())
def test_how_a_stream_is_split_changes_nothing(pieces: list[tuple[bytes, bytes]], data: st.DataObject) -> None:
    stream = b"".join(received for received, _ in pieces)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(stream) - 1), max_size=12))) if len(stream) > 1 else []
    hiding = UsageFilter()
    out = b"".join(hiding.feed(stream[start:end]) for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True))
    assert out + hiding.finish() == b"".join(shown for _, shown in pieces)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_nothing_of_a_hidden_event_is_left_when_every_byte_comes_alone(end: str) -> None:
    before, hidden, after = (
        f"data: {data}{end}{end}".encode()
        for data in ('{"choices":[{"delta":{}}]}', '{"choices":[],"usage":{"prompt_tokens":5}}', "[DONE]")
    )
    hiding = UsageFilter()
    shown = b"".join(hiding.feed(bytes([byte])) for byte in before + hidden + after) + hiding.finish()
    assert shown == before + after
