"""OpenAI audio transcriptions: the multipart form is read for its few small fields, its file is only counted."""

from __future__ import annotations

import re

from sidecar.simulator.answer import Answer, Call, Event, Kind, Route, Wire
from sidecar.simulator.apis.openai import FAMILY, plan, stream_error, whole

_FIELD = re.compile(rb'name="(stream|model)"\r\n(?:[^\r\n]+\r\n)*\r\n([^\r\n]{0,200})\r\n')


def _transcription(call: Call) -> Answer:
    fields = {match[1]: match[2] for match in _FIELD.finditer(call.body)}
    call.ask.model = call.ask.model or fields.get(b"model", b"").decode("utf-8", "replace")
    line = plan(call)
    usage = b"" if call.knobs.no_usage else (
        b',"usage":{"type":"tokens","total_tokens":%d,"input_tokens":%d,'
        b'"input_token_details":{"text_tokens":0,"audio_tokens":%d},"output_tokens":%d}'
    ) % (call.input_tokens + line.tokens, call.input_tokens, call.input_tokens, line.tokens)  # fmt: skip
    if fields.get(b"stream", b"").lower() not in (b"true", b"1"):
        return whole(call, b'{"text":"' + line.said + b'"' + usage + b"}", line.tokens, 0, line.last)
    start = b'{"type":"transcript.text.delta","delta":"'
    events = [Event(step, start + words + b'"}', b"", tokens, Kind.OUTPUT) for step, words, tokens in line.texts]
    events.append(Event(line.last, b'{"type":"transcript.text.done","text":"' + line.said + b'"' + usage + b"}"))
    events.append(Event(line.last, b"[DONE]"))
    return Answer(
        events,
        Wire.SSE,
        content_type=b"text/event-stream; charset=utf-8",
        error=stream_error(),
        terminal=1,
        model=call.model,
        input_tokens=call.input_tokens,
        output_tokens=line.tokens,
    )


ROUTES = (
    Route("openai.transcriptions", "/audio/transcriptions", ("POST",), FAMILY, _transcription),
    Route("openai.translations", "/audio/translations", ("POST",), FAMILY, _transcription),
)
