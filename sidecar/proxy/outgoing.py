"""The request as it goes to the upstream: its head, and its body when that has arrived or is to be changed."""

from __future__ import annotations

from dataclasses import dataclass

from sidecar.exchange import Exchange, Phase
from sidecar.failures import Code, Failure
from sidecar.proxy.downstream import Downstream, RequestBody
from sidecar.proxy.relay import Relay
from sidecar.proxy.request_head import request_head, with_new_body
from sidecar.proxy.route import Origin
from sidecar.proxy.usage_injection import MAX_BODY_BYTES, with_usage_asked


@dataclass(slots=True)
class Outgoing:
    """A request as it goes to the upstream: `body` None while it still arrives, `early` what has come of it then."""

    head: bytes
    body: bytes | None
    early: bytes = b""


async def prepare(
    origin: Origin, target: bytes, downstream: Downstream, relay: Relay, *, limit: int, via: bool
) -> Outgoing:
    """Make a request ready, without waiting for its body unless that may have to be changed.

    Raises Failure body_too_large above `limit` bytes, bad_request, and what reading the body raises.
    """
    exchange = relay.exchange
    changes = origin.injects_usage and _asks_chat(exchange)
    body, early = downstream.body.whole(), b""
    if body is None:
        declared = downstream.declared_length
        if declared is not None and declared > limit:
            raise body_too_large(limit)
        if changes:
            body, early = await _collect(downstream.body)
    head = request_head(downstream, origin, target, exchange, via=via)
    if body is None:
        return Outgoing(head, None, early)
    if len(body) > limit:
        raise body_too_large(limit)
    exchange.request_copy = body
    exchange.request_bytes = len(body)
    if changes and (asked := with_usage_asked(body)) is not None:
        head, body = with_new_body(head, len(asked)), asked
        relay.hide_usage()
    elif downstream.chunked:
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"
    return Outgoing(head, body)


def _asks_chat(exchange: Exchange) -> bool:
    """The request goes to an operation that takes `stream_options`."""
    path = exchange.target.split("?", 1)[0]
    return exchange.method == "POST" and path.endswith(("/chat/completions", "/completions"))


async def _collect(source: RequestBody) -> tuple[bytes | None, bytes]:
    """The whole body while it is short enough to be changed, else None and its beginning."""
    parts: list[bytes] = []
    size = 0
    while size <= MAX_BODY_BYTES:
        data = await source.read()
        if not data:
            return b"".join(parts), b""
        parts.append(data)
        size += len(data)
    return None, b"".join(parts)


def body_too_large(limit: int) -> Failure:
    """The failure of a body above `limit` bytes."""
    return Failure(
        Code.BODY_TOO_LARGE, f"the request body is larger than {limit} bytes (limits.max_request_body)", Phase.SEND
    )
