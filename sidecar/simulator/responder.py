"""One way of answering a request; the connection drives it with what happens on the socket."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic, time

from sidecar.simulator.head import LAST_CHUNK, chunk, framing_of, head
from sidecar.simulator.knobs import Knobs
from sidecar.simulator.outlet import Dribble
from sidecar.simulator.request import Request
from sidecar.simulator.truths import Ending, Ledger, Truth


@dataclass(slots=True)
class Setting:
    """What all connections of one simulator share."""

    defaults: Knobs
    ledger: Ledger
    ca_pem: str = ""


@dataclass(slots=True)
class Link:
    """What a responder may do with its connection. `finish(ending, close)` is called once, when all has been sent."""

    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport
    dribble: Dribble | None
    finish: Callable[[Ending, bool], None]
    pause_reading: Callable[[], None]
    resume_reading: Callable[[], None]

    def write(self, data: bytes, then: Callable[[], None] | None = None) -> None:
        """Send bytes; `then` is called when the last of them has been handed to the socket."""
        if self.dribble is not None:
            self.dribble.write(data, then)
            return
        self.transport.write(data)
        if then is not None:
            then()


class Responder:
    """The base of all ways: takes the request's body and notes it; subclasses answer."""

    def __init__(self, link: Link, request: Request, truth: Truth, setting: Setting) -> None:
        self.link, self.request, self.truth, self.setting = link, request, truth, setting
        self._hash = hashlib.sha256()

    def begin(self) -> None:
        """The request's head is complete and no other answer is under way."""

    def body(self, data: bytes) -> None:
        """The next bytes of the request's body."""
        self._hash.update(data)
        self.truth.body_bytes += len(data)

    def end(self) -> None:
        """The request is complete."""
        self.truth.received_at = monotonic()
        self.truth.body_sha256 = self._hash.hexdigest()

    def gone(self) -> None:
        """The client has left: stop at once."""

    def pause(self) -> None:
        """The socket takes no more for now."""

    def resume(self) -> None:
        """The socket takes bytes again."""

    def reply(self, status: int, content_type: bytes, body: bytes, more: bytes = b"") -> None:
        """Answer at once and in one piece."""
        close = self.request.knobs.close or not self.request.keep_alive
        framing = framing_of(self.request, self.request.knobs.framing or "length")
        first = head(status, time(), content_type, more, framing=framing, length=len(body), close=close)
        self.truth.status, self.truth.head_at = status, monotonic()
        if self.request.method == "HEAD":
            body = b""
        elif framing == "chunked":
            body = chunk(body) + LAST_CHUNK
        self.truth.sent_bytes += len(first) + len(body)
        self.link.write(first + body, lambda: self.link.finish(Ending.CLEAN, close or framing == "close"))


class Refusal(Responder):
    """Says no, with a status and a message."""

    def __init__(  # noqa: PLR0917
        self, link: Link, request: Request, truth: Truth, setting: Setting, status: int, body: bytes, more: bytes = b""
    ) -> None:
        super().__init__(link, request, truth, setting)
        self._status, self._body, self._more = status, body, more

    def end(self) -> None:
        super().end()
        self.reply(self._status, b"application/json", self._body, self._more)
