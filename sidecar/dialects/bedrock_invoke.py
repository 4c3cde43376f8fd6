"""InvokeModel of AWS Bedrock, which passes on the formats of the models' vendors.

With a stream, frames `chunk` hold the vendor's own event in base64; the last one carries Bedrock's metrics beside it.
"""

from __future__ import annotations

import msgspec

from sidecar.dialects.anthropic import InvocationMetrics
from sidecar.dialects.reading import Usage
from sidecar.dialects.recognise import Recogniser
from sidecar.dialects.semantics import Semantics
from sidecar.dialects.tally import Tally
from sidecar.dialects.typed import Typed


class Chunk(msgspec.Struct, gc=False):
    """A frame of InvokeModelWithResponseStream. msgspec reads base64 where the type is bytes."""

    event: bytes | None = msgspec.field(name="bytes", default=None)


class Last(msgspec.Struct, gc=False):
    """What Bedrock adds to the vendor's last event."""

    metrics: InvocationMetrics | None = msgspec.field(name="amazon-bedrock-invocationMetrics", default=None)


_CHUNK = Typed(Chunk)
_LAST = Typed(Last)


class Invoke(Semantics):
    """InvokeModel: the vendor's format is recognised by its shape."""

    __slots__ = ("_inner", "_last")

    members = Recogniser.members

    def __init__(self, tally: Tally) -> None:
        super().__init__(tally)
        self._inner = Recogniser(tally)
        self._last = False

    def on_event(self, name: bytes, data: bytes, at: float) -> None:
        chunk = _CHUNK.read(data, self.reading)
        if chunk is None or chunk.event is None:
            return
        self._inner.on_event(b"", chunk.event, at)
        if b"invocationMetrics" in chunk.event:
            self._metrics(chunk.event)

    def on_document(self, data: bytes) -> None:
        self._inner.on_document(data)

    def complete(self, *, clean: bool) -> bool:
        return self._last or self._inner.complete(clean=clean)

    def _metrics(self, event: bytes) -> None:
        last = _LAST.forgiving(event)
        if last is None or last.metrics is None:
            return
        self._last = True
        last.metrics.note_times(self.reading.provider)
        if self.reading.usage is None:
            self.tally.usage(Usage(input=last.metrics.input_token_count, output=last.metrics.output_token_count))
