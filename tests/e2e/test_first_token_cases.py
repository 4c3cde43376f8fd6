"""When the first token came, and that nothing else is taken for it.

Durations are held against instants at both ends (see `tests.kit.shared`), so the bounds are tight and never too tight.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import UpstreamFactory
from tests.kit import events
from tests.kit.client import CHAT_REQUEST, MESSAGES_REQUEST, request_bytes
from tests.kit.shared import SharedSidecar, Telling, shared_sidecar, tell

RESPONSES_REQUEST = CHAT_REQUEST.replace(b"/v1/chat/completions", b"/v1/responses")
WHOLE_REQUEST = request_bytes(
    headers=events.DEFAULT_HEADERS, body=events.DEFAULT_BODY.replace(b'"stream":true', b'"stream":false')
)
TWO_CHOICES_REQUEST = request_bytes(
    headers=events.DEFAULT_HEADERS, body=events.DEFAULT_BODY.replace(b'"stream":true', b'"stream":true,"n":2')
)


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedSidecar]:
    with shared_sidecar(tmp_path_factory.mktemp("tokens")) as running:
        yield running


def responses(kind: str, **members: object) -> bytes:
    return events.event({"type": f"response.{kind}", **members}, f"response.{kind}")


FIRST_TEXT = {"chat": events.T("a"), "messages": events.AD("a"), "responses": responses("output_text.delta", delta="a")}
OPENINGS: dict[str, tuple[bytes, tuple[bytes | float, ...]]] = {
    "chat": (CHAT_REQUEST, (0.05, events.ROLE)),
    "messages": (MESSAGES_REQUEST, (0.05, events.MS(25, 1), 0.03, events.AB(), 0.03, events.APING)),
    "responses": (
        RESPONSES_REQUEST,
        (0.05, responses("created", response={"id": "r"}), 0.03, responses("in_progress", response={"id": "r"})),
    ),
}


@pytest.mark.parametrize("api", sorted(OPENINGS))
async def test_met_01_what_opens_a_stream_is_no_token(
    sidecar: SharedSidecar, upstream: UpstreamFactory, api: str
) -> None:
    request, opening = OPENINGS[api]
    script = Telling(*opening, 0.2, FIRST_TEXT[api])
    await upstream(script, port=sidecar.upstream_port)
    told = await tell(sidecar, request)
    assert told.delta("ttft").count == 1
    assert told.delta("ttft").sum in told.until(FIRST_TEXT[api], script)
    assert told.delta("first_output").sum == pytest.approx(told.delta("ttft").sum)


NULL_CONTENT = events.delta({"content": None, "reasoning_content": "x"})


@pytest.mark.parametrize(
    ("request_", "first", "rest"),
    [
        (CHAT_REQUEST, events.RSN("x"), (0.1, events.RSN("y"), 0.2, events.T("a"), events.FIN, events.DONE)),
        (CHAT_REQUEST, events.RSN("x"), (0.1, events.delta({}, finish="length"), events.DONE)),
        (CHAT_REQUEST, NULL_CONTENT, (0.2, events.T("a"), events.FIN, events.DONE)),
        (MESSAGES_REQUEST, events.ATH("x"), (0.2, events.AD("a"), events.MD({"output_tokens": 4}), events.ME)),
    ],
    ids=["text after reasoning", "reasoning cut by its limit", "null content", "thinking"],
)
async def test_met_02_reasoning_is_the_first_token_and_text_the_first_output(
    sidecar: SharedSidecar,
    upstream: UpstreamFactory,
    request_: bytes,
    first: bytes,
    rest: tuple[bytes | float, ...],
) -> None:
    opening = events.ROLE if request_ is CHAT_REQUEST else events.MS(5, 1)
    script = Telling(opening, 0.1, first, *rest)
    await upstream(script, port=sidecar.upstream_port)
    told = await tell(sidecar, request_)
    assert told.outcomes == {"ok": 1}
    assert told.delta("ttft").count == 1
    assert told.delta("ttft").sum in told.until(first, script)
    text = events.T("a") if request_ is CHAT_REQUEST else events.AD("a")
    assert told.delta("first_output").count == (text in script.body)
    if text in script.body:
        assert told.delta("first_output").sum in told.until(text, script)


async def test_met_04_the_first_token_is_not_moved_by_later_ones(
    sidecar: SharedSidecar, upstream: UpstreamFactory
) -> None:
    later = [part for number in range(10) for part in (0.03, events.T(f"t{number}"))]
    script = Telling(events.ROLE, 0.1, events.T("a"), *later, events.FIN, events.DONE)
    await upstream(script, port=sidecar.upstream_port)
    told = await tell(sidecar)
    assert told.delta("ttft").count == 1
    assert told.delta("ttft").sum in told.until(events.T("a"), script)
    assert told.delta("inter_token").count == 10
    assert told.delta("inter_token").sum in told.from_to(events.T("a"), events.T("t9"), script)


async def test_met_04_a_whole_answer_has_a_duration_and_no_first_token(
    sidecar: SharedSidecar, upstream: UpstreamFactory
) -> None:
    answer = events.chat_completion()
    script = Telling(0.3, answer, head=b"", framed=False, end=b"")
    await upstream(script, port=sidecar.upstream_port)
    told = await tell(sidecar, WHOLE_REQUEST)
    assert told.outcomes == {"ok": 1}
    assert told.delta("ttft").count == 0
    assert told.delta("tokens_per_second").count == 0
    assert told.delta("request_duration", stream="false").count == 1
    assert told.delta("request_duration").sum in told.until(answer[-30:], _tail_of(script, answer))
    assert told.tokens() == {"input": 9, "output": 2}


def _tail_of(script: Telling, answer: bytes) -> Telling:
    """The script as if it had written only the end of `answer`: heads are changed on their way."""
    script.written = [(script.written_at(answer), answer[-30:])]
    return script
