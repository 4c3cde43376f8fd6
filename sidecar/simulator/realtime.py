"""The realtime API over a WebSocket: each text message but a session update is answered with a response."""

from __future__ import annotations

from time import monotonic

import msgspec

from sidecar.simulator.answer import Kind
from sidecar.simulator.apis.outline import Outline, outline
from sidecar.simulator.faults import Step, before_head, broken_off, ending_of, stalled
from sidecar.simulator.pacing import Player
from sidecar.simulator.responder import Responder
from sidecar.simulator.timetable import Timetable
from sidecar.simulator.truths import Ending, Truth
from sidecar.simulator.websocket import CLOSE, PING, PONG, TEXT, Frames, ProtocolError, accept_key, frame


class Realtime(Responder):
    """One session. Messages that come while a response is running are answered after it."""

    _player: Player | None = None
    _running: Truth | None = None
    _open = False

    def end(self) -> None:
        super().end()
        broken = before_head(self.request.knobs)
        if broken is not None:
            self.link.finish(broken, True)
            return
        key = self.request.headers.get(b"sec-websocket-key", b"")
        self.truth.status, self.truth.head_at, self.truth.streamed = 101, monotonic(), True
        self.truth.model = self.request.knobs.model or self.request.query.get("model", "sim-1")
        self._frames, self._asked, self._open = Frames(), 0, True
        self._sent_id = 0
        self.link.write(
            b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
            b"sec-websocket-accept: %b\r\nx-sim-id: %d\r\n\r\n" % (accept_key(key), self.truth.id)
        )
        self.link.write(self._event(b"session.created", b'"session":{"type":"realtime","model":%b}' % self._model()))

    def receive(self, data: bytes) -> None:
        """Bytes of the client after the upgrade."""
        if not self._open:
            return
        try:
            messages = self._frames.feed(data)
        except ProtocolError as problem:
            self._close(problem.code)
            return
        for opcode, payload in messages:
            if opcode == PING:
                self.link.write(frame(PONG, payload))
            elif opcode == CLOSE:
                self._close(int.from_bytes(payload[:2], "big") if len(payload) >= 2 else 1000)
                return
            elif opcode == TEXT:
                self._text(payload)

    def gone(self) -> None:
        self._open = False
        if self._player is not None and self._running is not None:
            self._player.stop()
            self._running.ended_at, self._running.ending = monotonic(), Ending.CANCELLED

    def pause(self) -> None:
        if self._player is not None:
            self._player.pause()

    def resume(self) -> None:
        if self._player is not None:
            self._player.resume()

    def _text(self, payload: bytes) -> None:
        try:
            message = msgspec.json.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError):
            message = None
        if isinstance(message, dict) and message.get("type") == "session.update":
            session = b'"session":{"type":"realtime","model":%b}' % self._model()
            self.link.write(self._event(b"session.updated", session))
            return
        self._asked += 1
        if self._player is None:
            self._respond()

    def _respond(self) -> None:
        knobs = self.request.knobs
        line = outline(knobs.tokens, knobs.tokens_per_event, 0, 0)
        steps = self._steps(line)
        if knobs.stall is not None:
            steps = stalled(steps, *knobs.stall)
        broken, ending = ending_of(knobs), Ending.CLEAN
        kept = broken_off(steps, broken[0], whole=False) if broken else None
        if broken and kept is not None:
            steps, ending = kept, broken[1]
        # Each response gets a truth of its own, as if it had been a request.
        truth = self.setting.ledger.open_request(
            self.truth.connection, "openai.realtime.response", "WS", self.request.target, monotonic()
        )
        truth.received_at = truth.head_received_at
        truth.status, truth.streamed, truth.model = 101, True, self.truth.model
        truth.output_tokens = line.tokens
        table = Timetable(b"", b"", 0.0, steps, b"", ending, ending is not Ending.CLEAN)
        self._player = Player(
            self.link,
            table,
            truth,
            on_end=lambda: self._responded(truth, ending),
        )
        self._running = truth
        self._player.begin()

    def _responded(self, truth: Truth, ending: Ending) -> None:
        self._player = self._running = None
        truth.ended_at, truth.ending = monotonic(), ending
        self._asked -= 1
        if ending is not Ending.CLEAN:
            self._open = False
            self.link.finish(ending, True)
        elif self._asked:
            self._respond()

    def _steps(self, line: Outline) -> list[Step]:
        knobs = self.request.knobs
        opened = b'"response":{"id":"resp_sim%d","object":"realtime.response","status":"%b"%b}'
        place = b'"response_id":"resp_sim%d","item_id":"item_sim","output_index":0,"content_index":0' % self.truth.id
        steps = [Step(0.0, self._event(b"response.created", opened % (self.truth.id, b"in_progress", b"")))]
        for step, words, tokens in line.texts:
            data = self._event(b"response.output_text.delta", place + b',"delta":"%b"' % words)
            steps.append(Step(knobs.ttft + step * knobs.itl, data, tokens, Kind.OUTPUT))
        due = knobs.ttft + line.last * knobs.itl
        steps.append(Step(due, self._event(b"response.output_text.done", place + b',"text":"%b"' % line.said)))
        usage = b',"usage":{"total_tokens":%d,"input_tokens":8,"output_tokens":%d}' % (8 + line.tokens, line.tokens)
        done = opened % (self.truth.id, b"completed", b"" if knobs.no_usage else usage)
        if not knobs.no_done:
            steps.append(Step(due, self._event(b"response.done", done)))
        return steps

    def _event(self, name: bytes, members: bytes) -> bytes:
        self._sent_id += 1
        return frame(TEXT, b'{"type":"%b","event_id":"event_sim%d",%b}' % (name, self._sent_id, members))

    def _model(self) -> bytes:
        return msgspec.json.encode(self.truth.model)

    def _close(self, code: int) -> None:
        self.gone()
        self.link.write(frame(CLOSE, code.to_bytes(2, "big")), lambda: self.link.finish(Ending.CLEAN, True))
