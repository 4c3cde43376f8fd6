"""MET-14, `stream_usage: inject`: tokens are counted, and the application sees what it would have seen without it."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator

import pytest

from tests.conftest import UpstreamFactory
from tests.kit import events
from tests.kit.client import request_bytes
from tests.kit.h1 import RawRequest
from tests.kit.shared import SharedSidecar, Telling, shared_sidecar, tell
from tests.kit.upstream import Connection, Script, each_request

STREAM = '"stream":true'
ASKED = f'{STREAM},"stream_options":{{"include_usage":true}}'
DECLINED = f'{STREAM},"stream_options":{{"include_usage":false}}'


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedSidecar]:
    plain = {"name": "plain", "prefix": "/plain"}
    with shared_sidecar(tmp_path_factory.mktemp("injection"), {"stream_usage": "inject"}, plain) as running:
        yield running


def chat(members: str, target: str = "/v1/chat/completions") -> tuple[bytes, bytes]:
    """A request with these members, and its body."""
    body = b'{"model":"m1",%b,"messages":[{"role":"user","content":"hi \\u00e9"}]}' % members.encode()
    return request_bytes(target=target, headers=events.DEFAULT_HEADERS, body=body), body


def asks_for_usage(request: RawRequest) -> bool:
    options = json.loads(request.body).get("stream_options") or {}
    return options.get("include_usage") is True


def obliging(*extra: bytes) -> Script:
    """An upstream that reports usage to those who ask: `usage: null` on each chunk, then a chunk of usage alone."""

    async def answer(connection: Connection, request: RawRequest) -> None:
        if asks_for_usage(request):
            parts = [events.delta({"role": "assistant", "content": ""}, usage=None), *extra,
                     events.T("a", usage=None), events.delta({}, finish="stop", usage=None),
                     events.USE(5, 1), events.DONE]  # fmt: skip
        else:
            parts = [events.ROLE, *extra, events.T("a"), events.FIN, events.DONE]
        await connection.stream(*parts)

    return each_request(answer)


PLAIN_BODY = events.ROLE + events.T("a") + events.FIN + events.DONE


@pytest.mark.parametrize("members", [STREAM, DECLINED], ids=["nothing said of usage", "declined"])
async def test_met_14_usage_that_was_not_asked_for_is_counted_and_hidden(
    sidecar: SharedSidecar, upstream: UpstreamFactory, members: str
) -> None:
    server = await upstream(obliging(), port=sidecar.upstream_port)
    request, body = chat(members)
    told = await tell(sidecar, request)
    assert told.response.body == PLAIN_BODY
    assert told.response.clean_end
    assert told.tokens() == {"input": 5, "output": 1}
    assert told.outcomes == {"ok": 1}
    sent = json.loads(server.requests[0].body)
    assert sent.pop("stream_options") == {"include_usage": True}
    expected = json.loads(body)
    expected.pop("stream_options", None)
    assert sent == expected
    assert server.requests[0].value("content-length") == str(len(server.requests[0].body)).encode()


async def test_met_14_usage_that_was_asked_for_passes(sidecar: SharedSidecar, upstream: UpstreamFactory) -> None:
    server = await upstream(obliging(), port=sidecar.upstream_port)
    request, body = chat(ASKED)
    told = await tell(sidecar, request)
    assert server.requests[0].body == body
    assert events.USE(5, 1) in told.response.body
    assert b'"usage":null' in told.response.body
    assert told.tokens() == {"input": 5, "output": 1}


@pytest.mark.parametrize(
    ("members", "target"),
    [
        ('"stream":false', "/v1/chat/completions"),
        ('"n":1', "/v1/chat/completions"),
        (STREAM, "/v1/responses"),
        (STREAM, "/plain/v1/chat/completions"),
        (f'{STREAM},"stream_options":7', "/v1/chat/completions"),
    ],
    ids=["no stream", "stream not named", "another API", "an upstream without injection", "options that are none"],
)
async def test_met_14_other_requests_reach_the_upstream_byte_for_byte(
    sidecar: SharedSidecar, upstream: UpstreamFactory, members: str, target: str
) -> None:
    server = await upstream(each_request(lambda connection, _: connection.stream(events.T("a"), events.FIN,
                                                                                 events.DONE)),
                            port=sidecar.upstream_port)  # fmt: skip
    request, body = chat(members, target)
    told = await tell(sidecar, request)
    assert server.requests[0].body == body
    assert told.response.body == events.T("a") + events.FIN + events.DONE


async def test_met_14_a_streamed_upload_is_asked_for_usage_too(
    sidecar: SharedSidecar, upstream: UpstreamFactory
) -> None:
    server = await upstream(obliging(), port=sidecar.upstream_port)
    _, body = chat(STREAM)
    pieces = b"".join(events.chunk(body[at : at + 20]) for at in range(0, len(body), 20)) + events.LAST_CHUNK
    head = [*events.DEFAULT_HEADERS, (b"Transfer-Encoding", b"chunked")]
    told = await tell(sidecar, request_bytes(headers=head, body=pieces))
    assert asks_for_usage(server.requests[0])
    assert told.response.body == PLAIN_BODY
    assert told.tokens() == {"input": 5, "output": 1}


async def test_met_14_a_request_too_long_to_be_changed_goes_as_it_is(
    sidecar: SharedSidecar, upstream: UpstreamFactory
) -> None:
    server = await upstream(obliging(), port=sidecar.upstream_port)
    request, body = chat(STREAM + ',"padding":"' + "x" * (1_200_000) + '"')
    told = await tell(sidecar, request)
    assert server.requests[0].body == body
    assert told.response.body == PLAIN_BODY
    assert told.outcomes == {"ok": 1}


@pytest.mark.parametrize("size", [1, 7, 64])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
async def test_met_14_events_cut_anywhere_come_out_as_they_were(
    sidecar: SharedSidecar, upstream: UpstreamFactory, end: bytes, size: int
) -> None:
    kept = (events.PING + events.ROLE + events.T("a") + events.FIN).replace(b"\n", end)
    usage, done = events.USE(5, 1).replace(b"\n", end), events.DONE.replace(b"\n", end)
    body = kept + usage + done
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    await upstream(Telling(*parts), port=sidecar.upstream_port)
    told = await tell(sidecar, chat(STREAM)[0])
    assert told.response.body == kept + done
    assert told.tokens() == {"input": 5, "output": 1}


TRICKY = [
    (b'data: {"usage":null,"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n',
     b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'),
    (b'data: { "choices" : [] , "prompt_filter_results" : [1] , "usage" : null }\n\n',
     b'data: { "choices" : [] , "prompt_filter_results" : [1] }\n\n'),
    (b'data: {"usage":null,"choices":[{"index":0,"delta":{"content":"a","usage":null}}]}\n\n',
     b'data: {"choices":[{"index":0,"delta":{"content":"a","usage":null}}]}\n\n'),
    (b'data: {"choices":[{"index":0,"delta":{"content":"a"},"usage":{"x":1}}],"usage":{"x":1}}\n\n',
     b'data: {"choices":[{"index":0,"delta":{"content":"a"},"usage":{"x":1}}]}\n\n'),
    (b'data: {"choices":[{"index":0,"delta":{"content":"\\"usage\\":null"}}],"usage":null}\n\n',
     b'data: {"choices":[{"index":0,"delta":{"content":"\\"usage\\":null"}}]}\n\n'),
    (b'data: {"choices":[{"index":0,"delta":{"content":"say \\"usage\\""}}]}\n\n',
     b'data: {"choices":[{"index":0,"delta":{"content":"say \\"usage\\""}}]}\n\n'),
    (b': data: a comment\n\ndata: {"choices":[{"index":0,"delta":{"content":"a"}}],"usage":null}\n\n',
     b': data: a comment\n\ndata: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'),
]  # fmt: skip


@pytest.mark.parametrize(("sent", "shown"), TRICKY, ids=["first member", "filter results", "nested after", "nested",
                                                         "quoted", "only quoted", "after a comment"])  # fmt: skip
async def test_met_14_only_the_members_that_injection_brought_are_taken_out(
    sidecar: SharedSidecar, upstream: UpstreamFactory, sent: bytes, shown: bytes
) -> None:
    await upstream(Telling(sent, events.FIN, events.USE(5, 1), events.DONE), port=sidecar.upstream_port)
    told = await tell(sidecar, chat(STREAM)[0])
    assert told.response.body == shown + events.FIN + events.DONE


async def test_met_14_an_event_is_passed_on_as_soon_as_it_is_whole(
    sidecar: SharedSidecar, upstream: UpstreamFactory
) -> None:
    script = Telling(events.ROLE, 0.25, events.T("a"), 0.25, events.FIN, events.USE(5, 1), events.DONE)
    await upstream(script, port=sidecar.upstream_port)
    told = await tell(sidecar, chat(STREAM)[0])
    assert told.arrived_at(events.ROLE) < script.written_at(events.T("a"))
    assert told.arrived_at(events.T("a")) < script.written_at(events.FIN)
    assert told.delta("ttft").sum in told.until(events.T("a"), script)


async def test_met_14_a_server_that_compresses_all_the_same_is_passed_through_at_once(
    sidecar: SharedSidecar, upstream: UpstreamFactory
) -> None:
    compressor = zlib.compressobj(wbits=31)
    events_ = (events.ROLE + events.T("a"), events.FIN, events.USE(5, 1) + events.DONE)
    first, second, third = (compressor.compress(event) + compressor.flush(zlib.Z_SYNC_FLUSH) for event in events_)
    head = events.sse_head(("Content-Encoding", "gzip"))
    script = Telling(first, 0.25, second, third, compressor.flush(), head=head)
    server = await upstream(script, port=sidecar.upstream_port)
    told = await tell(sidecar, chat(STREAM)[0])
    assert server.requests[0].value("accept-encoding") == b"identity"
    assert told.arrived_at(first) < script.written_at(second)
    assert told.response.body == script.body
    assert told.tokens() == {"input": 5, "output": 1}


async def test_met_14_an_answer_that_refuses_the_option_passes(
    sidecar: SharedSidecar, upstream: UpstreamFactory
) -> None:
    refusal = events.json_response({"error": {"message": "no such option", "usage": 1}}, status="400 Bad Request")
    await upstream(Telling(refusal, head=b"", framed=False, end=b""), port=sidecar.upstream_port)
    told = await tell(sidecar, chat(STREAM)[0])
    assert told.response.status == 400
    assert refusal.endswith(told.response.body)
    assert told.outcomes == {"client_error": 1}


async def test_met_14_a_stream_that_breaks_off_does_not_look_complete(
    sidecar: SharedSidecar, upstream: UpstreamFactory
) -> None:
    await upstream(Telling(events.ROLE, events.T("half"), b"data: {", end=b""), port=sidecar.upstream_port)
    told = await tell(sidecar, chat(STREAM)[0])
    assert told.response.body == events.ROLE + events.T("half")
    assert not told.response.clean_end
    assert told.outcomes == {"network_error": 1}
