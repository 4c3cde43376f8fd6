"""Answers the simulated APIs: reads the request, lays out the timetable, and lets a player send it."""

from __future__ import annotations

from time import time

import msgspec

from sidecar.simulator.answer import Answer, Ask, Call, Event, Route, Wire
from sidecar.simulator.codings import MissingCoding
from sidecar.simulator.faults import before_head
from sidecar.simulator.pacing import Player
from sidecar.simulator.request import Request
from sidecar.simulator.responder import Link, Responder, Setting
from sidecar.simulator.timetable import timetable
from sidecar.simulator.truths import Truth

_ask = msgspec.json.Decoder(Ask)


class ApiResponder(Responder):
    """One call of a simulated API."""

    def __init__(self, link: Link, request: Request, truth: Truth, setting: Setting, route: Route) -> None:
        super().__init__(link, request, truth, setting)
        self._route = route
        self._pieces: list[bytes] = []
        self._player: Player | None = None

    def body(self, data: bytes) -> None:
        super().body(data)
        self._pieces.append(data)

    def end(self) -> None:
        super().end()
        request, truth = self.request, self.truth
        broken = before_head(request.knobs)
        if broken is not None:
            self.link.finish(broken, True)
            return
        body, self._pieces = b"".join(self._pieces), []
        kind = request.header(b"content-type")
        call = Call(truth.id, request.method, request.path, request.query, kind, body, request.knobs, time())
        try:
            answer = self._answer(call)
            table = timetable(call, answer, self._route.family, request)
        except MissingCoding as problem:
            self.refuse(call, 400, str(problem))
            return
        truth.status, truth.model, truth.streamed = answer.status, answer.model, answer.wire is not Wire.WHOLE
        truth.input_tokens, truth.output_tokens = answer.input_tokens, answer.output_tokens
        truth.reasoning_tokens = answer.reasoning_tokens
        finish = self.link.finish
        self._player = Player(
            self.link,
            table,
            truth,
            on_end=lambda: finish(table.ending, table.close),
        )
        self._player.begin()

    def refuse(self, call: Call, status: int, message: str) -> None:
        """Answer with an error in the shape of this API."""
        self.reply(status, b"application/json", self._route.family.error(call, status, message))

    def gone(self) -> None:
        if self._player is not None:
            self._player.stop()

    def pause(self) -> None:
        if self._player is not None:
            self._player.pause()

    def resume(self) -> None:
        if self._player is not None:
            self._player.resume()

    def _answer(self, call: Call) -> Answer:
        status = call.knobs.status
        if call.method not in self._route.methods:
            return self._failed(call, 405, f"{call.method} is not allowed here")
        if status >= 300:
            return self._failed(call, status, f"a simulated error with status {status}")
        if call.body and not call.content_type.startswith("multipart/"):
            try:
                call.ask = _ask.decode(call.body)
            except (msgspec.DecodeError, UnicodeDecodeError) as problem:
                return self._failed(call, 400, f"the body cannot be read: {problem}")
        answer = self._route.answer(call)
        answer.status = status or 200
        return answer

    def _failed(self, call: Call, status: int, message: str) -> Answer:
        body = self._route.family.error(call, status, message)
        return Answer([Event(-1, body)], status=status, model=call.model)
