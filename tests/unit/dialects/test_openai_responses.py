from __future__ import annotations

import json
import struct

from sidecar import dialects
from sidecar.dialects.reading import Operation, Reading, ReasoningShown, RequestFacts, Usage

SSE = [(b"content-type", b"text/event-stream; charset=utf-8")]


def event(type_: str, **more: object) -> dict[str, object]:
    return {"type": type_, **more}


def response(status: str, **more: object) -> dict[str, object]:
    return {"object": "response", "status": status, "model": "m", **more}


def read(*events: tuple[float, dict[str, object]], named: bool = True, clean: bool = True) -> Reading:
    facts = RequestFacts(Operation.RESPONSES, "m", stream=True)
    reader = dialects.open_reader("openai", facts, "POST", "/v1/responses", 200, SSE)
    for at, data in events:
        name = f"event: {data['type']}\n" if named else ""
        reader.feed(f"{name}data: {json.dumps(data)}\n\n".encode(), at)
    return reader.finish(clean=clean)


COMPLETED = event("response.completed", response=response("completed", usage={"input_tokens": 7, "output_tokens": 1}))


def test_the_first_delta_is_the_first_token_and_the_terminal_event_completes() -> None:
    events = [
        (0.2, event("response.created", response=response("in_progress"))),
        (0.3, event("response.in_progress", response=response("in_progress"))),
        (1.2, event("response.output_text.delta", delta="hi")),
        (1.4, COMPLETED),
    ]
    for named in (True, False):
        reading = read(*events, named=named)
        assert (reading.first_token_at, reading.usage) == (1.2, Usage(7, 1))
        assert (reading.complete, reading.terminator) == (True, "response.completed")


def test_a_stream_without_its_terminal_event_is_not_complete() -> None:
    assert not read((1.0, event("response.output_text.delta", delta="hi"))).complete


def test_a_summary_is_shown_as_a_summary() -> None:
    reading = read((1.0, event("response.reasoning_summary_text.delta", delta="hm")), (2.0, COMPLETED))
    assert reading.reasoning_shown is ReasoningShown.SUMMARY
    assert reading.first_output_at is None


def test_the_name_of_a_call_is_its_first_token() -> None:
    reading = read(
        (1.0, event("response.output_item.added", item={"type": "function_call", "name": "f"})),
        (2.0, event("response.function_call_arguments.delta", delta="{}")),
    )
    assert (reading.first_token_at, reading.n_tool, reading.first_content_event) == (1.0, 1, 1)


def test_an_error_event_fails_the_stream_in_its_old_and_its_new_shape() -> None:
    old = read((1.0, event("error", code="server_error", message="m")))
    new = read((1.0, event("error", error={"type": "server_error", "code": "x", "message": "m"})))
    assert (old.error_type, old.error_code) == ("error", "server_error")
    assert (new.error_type, new.error_code) == ("server_error", "x")


def frames(*messages: dict[str, object]) -> bytes:
    texts = [json.dumps(message).encode() for message in messages]
    return b"".join(struct.pack(">BBQ", 0x81, 127, len(text)) + text for text in texts)


def test_the_answers_of_one_websocket_add_up_and_the_time_between_them_is_no_gap() -> None:
    facts = RequestFacts(Operation.REALTIME, "m", stream=True)
    reader = dialects.open_tunnel_reader("openai", facts, "GET", "/v1/realtime?model=m", 101, [])
    for start in (1.0, 100.0):
        reader.feed(frames(event("response.created", response=response("in_progress"))), start)
        reader.feed(frames(event("response.output_audio_transcript.delta", delta="hi")), start + 1)
        reader.feed(frames(event("response.output_audio.delta", delta="AAAA")), start + 2)
        usage = {"input_tokens": 10, "output_tokens": 4, "total_tokens": 14}
        reader.feed(frames(event("response.done", response=response("completed", usage=usage))), start + 3)
    reading = reader.finish(clean=True)
    assert reading.usage == Usage(20, 8, total=28)
    assert (reading.first_token_at, reading.gaps) == (2.0, [1.0, 1.0])
    assert (reading.complete, reading.terminator, reading.streamed) == (True, "response.done", True)


def test_a_websocket_that_closes_within_an_answer_is_not_complete() -> None:
    facts = RequestFacts(Operation.REALTIME, stream=True)
    reader = dialects.open_tunnel_reader("openai", facts, "GET", "/v1/realtime", 101, [])
    reader.feed(frames(event("response.created", response=response("in_progress"))), 1.0)
    assert not reader.finish(clean=True).complete
