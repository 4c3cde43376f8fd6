"""From an answer and the knobs to a timetable: which bytes go out when, and how it ends."""

from __future__ import annotations

from dataclasses import dataclass

from sidecar.simulator.answer import OPENING, Answer, Call, Event, Family, Wire
from sidecar.simulator.codings import encoder
from sidecar.simulator.faults import Step, broken_off, ending_of, stalled
from sidecar.simulator.framing import ARRAY_END, comment, frame
from sidecar.simulator.head import LAST_CHUNK, LAST_CHUNK_WITH_TRAILERS, TRAILERS, chunk, framing_of, head, status_line
from sidecar.simulator.knobs import Knobs
from sidecar.simulator.request import Request
from sidecar.simulator.truths import Ending


@dataclass(slots=True)
class Timetable:
    """One answer on its way out. Dues are seconds after the complete request."""

    interim: bytes
    head: bytes
    head_due: float
    steps: list[Step]
    last: bytes
    """What ends the body; sent with the last step's due unless the answer breaks off."""
    ending: Ending
    close: bool


def timetable(call: Call, answer: Answer, family: Family, request: Request) -> Timetable:
    """Lay out the answer. Raises MissingCoding."""
    knobs = call.knobs
    streamed = answer.wire is not Wire.WHOLE
    head_due = _head_due(call, answer, streamed)
    steps = _steps(call, answer, head_due)
    if knobs.stall is not None:
        steps = stalled(steps, *knobs.stall)
    ending, close_array = Ending.CLEAN, answer.wire is Wire.ARRAY and not knobs.no_done and not _fails(answer, knobs)
    broken = ending_of(knobs)
    kept = broken_off(steps, broken[0], whole=not streamed) if broken else None
    body_end = ARRAY_END if close_array else b""
    full_length = sum(len(step.data) for step in steps) + len(body_end)
    if broken and kept is not None:
        steps, ending, body_end = kept, broken[1], b""
    if knobs.encoding:
        steps, body_end, full_length = _coded(steps, knobs.encoding, body_end, ending)
    framing = framing_of(request, knobs.framing or ("chunked" if streamed or knobs.trailers else "length"))
    last = body_end
    if framing == "chunked":
        steps = [Step(due, chunk(data), tokens, kind, counted) for due, data, tokens, kind, counted in steps]
        closing = LAST_CHUNK_WITH_TRAILERS if knobs.trailers else LAST_CHUNK
        last = chunk(body_end) + (closing if ending is Ending.CLEAN else b"")
    close = knobs.close or not request.keep_alive or framing == "close" or ending is not Ending.CLEAN
    announced = knobs.close or not request.keep_alive
    lines = _lines(call, answer, family, head_due)
    if _bodiless(call.method, answer.status):
        steps, last = [], b""
        framing = "none" if answer.status in (204, 304) else framing
    first = head(
        answer.status, call.wall, answer.content_type, lines, framing=framing, length=full_length, close=announced
    )
    interim = b"" if not knobs.interim else _interim(knobs.interim)
    return Timetable(interim, first, head_due, steps, last, ending, close)


def _bodiless(method: str, status: int) -> bool:
    return method == "HEAD" or status in (204, 304)


def _head_due(call: Call, answer: Answer, streamed: bool) -> float:
    if call.knobs.headers_delay is not None:
        return call.knobs.headers_delay
    if streamed or call.knobs.comments or answer.events[0].step == OPENING:
        return 0.0
    return call.due(answer.events[-1].step)


def _steps(call: Call, answer: Answer, head_due: float) -> list[Step]:
    knobs = call.knobs
    events = answer.events
    if knobs.no_done and answer.terminal:
        events = events[: -answer.terminal]
    line_end = knobs.line_end or answer.line_end
    failure = _fails(answer, knobs)
    if failure is not None and knobs.error_event is not None:
        failed_at = events[knobs.error_event].step
        events = [*events[: knobs.error_event], failure._replace(step=failed_at)]
    blocks = frame(events, answer.wire, line_end, knobs.pad)
    ttft, itl = knobs.ttft, knobs.itl
    steps = []
    for event, data in zip(events, blocks, strict=True):
        due = head_due if event.step == OPENING else max(head_due, ttft + event.step * itl)
        steps.append(Step(due, data, event.tokens, event.kind))
    if knobs.comments:
        steps = _with_comments(steps, events, comment(answer.wire, line_end), head_due, knobs)
    return steps


def _fails(answer: Answer, knobs: Knobs) -> Event | None:
    """The error event that comes instead of the rest, if the stream is long enough for it."""
    length = len(answer.events) - (answer.terminal if knobs.no_done else 0)
    return answer.error if knobs.error_event is not None and knobs.error_event < length else None


def _with_comments(steps: list[Step], events: list[Event], said: bytes, head_due: float, knobs: Knobs) -> list[Step]:
    """Comments spread evenly over the wait between the head and the first due step."""
    place = next((index for index, event in enumerate(events) if event.step != OPENING), len(events))
    until = max(steps[place].due if place < len(steps) else knobs.ttft, head_due)
    gap = (until - head_due) / (knobs.comments + 1)
    waits = [Step(head_due + gap * (number + 1), said, counted=False) for number in range(knobs.comments)]
    return [*steps[:place], *waits, *steps[place:]]


def _coded(steps: list[Step], name: str, body_end: bytes, ending: Ending) -> tuple[list[Step], bytes, int]:
    """The steps under a content coding, what closes it, and the length of all."""
    coder = encoder(name)
    coded = [step._replace(data=coder.add(step.data)) for step in steps]
    last = b""
    if ending is Ending.CLEAN:
        last = (coder.add(body_end) if body_end else b"") + coder.end()
    length = sum(len(step.data) for step in coded) + len(last)
    # A broken-off answer must announce more than it sends, or it would be whole.
    return coded, last, length if ending is Ending.CLEAN else length + 1


def _lines(call: Call, answer: Answer, family: Family, head_due: float) -> bytes:
    knobs = call.knobs
    lines = family.headers(call, round(head_due * 1000)) + b"x-sim-id: %d\r\n" % call.id
    if answer.status in (429, 503, 529):
        lines += b"retry-after: 1\r\n"
    if 300 <= answer.status < 400 and answer.status != 304:
        lines += b"location: /x-sim/moved\r\n"
    if knobs.encoding:
        lines += b"content-encoding: %b\r\nvary: accept-encoding\r\n" % knobs.encoding.encode()
    if knobs.trailers:
        lines += b"trailer: %b\r\n" % TRAILERS.split(b":")[0]
    return lines


def _interim(status: int) -> bytes:
    hint = b"link: </style.css>; rel=preload; as=style\r\n" if status == 103 else b""
    return status_line(status) + hint + b"\r\n"
