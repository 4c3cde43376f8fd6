"""Bytes that LLM APIs send: events of a stream, heads and whole answers, each built by one short function."""

from __future__ import annotations

import json

DEFAULT_BODY = b'{"model":"m1","stream":true,"messages":[{"role":"user","content":"hi"}]}'
"""A streaming chat request."""
DEFAULT_HEADERS: list[tuple[bytes, bytes]] = [
    (b"Content-Type", b"application/json"),
    (b"Authorization", b"Bearer K1"),
]


def event(payload: object, name: str | None = None, end: bytes = b"\n") -> bytes:
    """One server-sent event with `payload` as JSON; `end` ends each line, and once more the event."""
    data = payload if isinstance(payload, str) else json.dumps(payload, separators=(",", ":"), ensure_ascii=False)
    lines = [f"event: {name}"] if name else []
    return end.join([line.encode() for line in [*lines, f"data: {data}"]]) + end + end


def _chunk(**members: object) -> bytes:
    return event({"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m1", **members})


def delta(fields: dict[str, object], *, index: int = 0, finish: str | None = None, **more: object) -> bytes:
    """One chunk of an OpenAI chat stream; `more` are further members beside `choices`, such as `usage`."""
    return _chunk(choices=[{"index": index, "delta": fields, "finish_reason": finish}], **more)


ROLE = delta({"role": "assistant", "content": ""})
"""The opening chunk: a role and empty content, no token."""
FIN = delta({}, finish="stop")
DONE = b"data: [DONE]\n\n"
PING = b": ping\n\n"


def T(text: str, **more: object) -> bytes:
    """Content."""
    return delta({"content": text}, **more)  # type: ignore[arg-type]


def RSN(text: str) -> bytes:
    """Reasoning."""
    return delta({"reasoning_content": text})


def TC(arguments: str, **more: object) -> bytes:
    """A tool call."""
    call = {"index": 0, "id": "t1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    return delta({"tool_calls": [call]}, **more)  # type: ignore[arg-type]


def usage(prompt: int, completion: int, **details: object) -> dict[str, object]:
    """The member `usage` of OpenAI answers."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        **details,
    }


def USE(prompt: int, completion: int, **details: object) -> bytes:
    """The chunk of usage at the end, with no choices."""
    return _chunk(choices=[], usage=usage(prompt, completion, **details))


def MS(uncached: int, output: int, cache_read: int = 0, cache_write: int = 0) -> bytes:
    """Anthropic: message_start with the usage so far."""
    counts = {
        "input_tokens": uncached,
        "output_tokens": output,
        "cache_read_input_tokens": cache_read,
        "cache_creation_input_tokens": cache_write,
    }
    message = {"id": "a1", "type": "message", "role": "assistant", "model": "m2", "content": [], "usage": counts}
    return event({"type": "message_start", "message": message}, "message_start")


def AB(text: str = "") -> bytes:
    """Anthropic: content_block_start of a text block."""
    block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": text}}
    return event(block, "content_block_start")


def AD(text: str) -> bytes:
    """Anthropic: content."""
    return _block_delta({"type": "text_delta", "text": text})


def ATH(text: str) -> bytes:
    """Anthropic: thinking."""
    return _block_delta({"type": "thinking_delta", "thinking": text})


def _block_delta(fields: dict[str, str]) -> bytes:
    return event({"type": "content_block_delta", "index": 0, "delta": fields}, "content_block_delta")


def MD(counts: dict[str, int], stop_reason: str = "end_turn") -> bytes:
    """Anthropic: message_delta with the stop reason and the cumulative usage."""
    payload = {"type": "message_delta", "delta": {"stop_reason": stop_reason, "stop_sequence": None}, "usage": counts}
    return event(payload, "message_delta")


ME = event({"type": "message_stop"}, "message_stop")
APING = event({"type": "ping"}, "ping")
"""Anthropic's heartbeat, an event of its own."""


def head(status: str, *headers: tuple[str, str] | tuple[bytes, bytes]) -> bytes:
    """A response head, e.g. `head("204 No Content", ("X-A", "1"))`."""
    lines = [f"HTTP/1.1 {status}".encode()]
    for name, value in headers:
        name_bytes = name.encode() if isinstance(name, str) else name
        lines.append(name_bytes + b": " + (value.encode() if isinstance(value, str) else value))
    return b"\r\n".join(lines) + b"\r\n\r\n"


def sse_head(*headers: tuple[str, str]) -> bytes:
    """The head of a chunked event stream."""
    return head("200 OK", ("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked"), *headers)


def chunk(data: bytes) -> bytes:
    """`data` as one chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST_CHUNK = b"0\r\n\r\n"


def body_response(body: bytes, *headers: tuple[str, str], status: str = "200 OK") -> bytes:
    """A response with `Content-Length` and no type of its own."""
    return head(status, *headers, ("Content-Length", str(len(body)))) + body


def json_response(payload: object, *headers: tuple[str, str], status: str = "200 OK") -> bytes:
    """A JSON answer; `payload` may be bytes that are sent as they are."""
    body = payload if isinstance(payload, bytes) else json.dumps(payload, separators=(",", ":")).encode()
    return body_response(body, ("Content-Type", "application/json"), *headers, status=status)


def chat_completion(text: str = "hello", prompt: int = 9, completion: int = 2) -> bytes:
    """A whole OpenAI chat answer."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    answer = {"id": "c1", "object": "chat.completion", "created": 1, "model": "m1", "choices": [choice]}
    return json_response({**answer, "usage": usage(prompt, completion)})
