"""The request head as the upstream gets it: the application's own, less what ends at this hop."""

from __future__ import annotations

from sidecar.exchange import Exchange
from sidecar.failures import Code, Failure
from sidecar.http_fields import HOP_BY_HOP, USUAL_OPTIONS, FieldKinds, connection_options, lower
from sidecar.proxy.downstream import Downstream
from sidecar.proxy.route import Origin

_HANDLED = FieldKinds(dict.fromkeys(HOP_BY_HOP | {b"host", b"trailer", b"traceparent"}, 1))
_TRACEPARENT_LENGTH = 55

VIA = b"Via: 1.1 sidecar"
"""RFC 9110 §7.6.3; off by default, since some servers stop compressing when they see it."""


def with_new_body(head: bytes, length: int) -> bytes:
    """The head for a body that was changed: its new length, and no content coding, since the answer must be read."""
    lines = head.split(b"\r\n")[:-2]
    dropped = (b"content-length", b"transfer-encoding", b"accept-encoding")
    kept = [line for line in lines if line.split(b":", 1)[0].lower() not in dropped]
    return b"\r\n".join([*kept, b"Content-Length: %d" % length, b"Accept-Encoding: identity", b"\r\n"])


def request_head(downstream: Downstream, origin: Origin, target: bytes, exchange: Exchange, *, via: bool) -> bytes:
    """Request line and fields, ending with the empty line; order, spelling and repetition are kept.

    Raises Failure bad_request for a repeated Host, on which servers disagree (RFC 9112 §3.2).
    """
    lines = [b"%b %b HTTP/1.1" % (downstream.method.encode(), target)]
    handled: list[tuple[bytes, bytes]] = []
    for field in downstream.headers:
        name, value = field
        if not _HANDLED[name]:
            lines.append(b": ".join(field))
            continue
        low = lower(name)
        handled.append((low, value))
        if low == b"host":
            lines.append(origin.host_line)
        elif low == b"traceparent":
            lines.append(b": ".join(field))
            if len(value) >= _TRACEPARENT_LENGTH:
                exchange.trace_id = value[3:35].decode("latin-1")
    _apply(handled, lines, origin)
    if downstream.chunked:
        lines.append(b"Transfer-Encoding: chunked")
    if downstream.upgrade:
        lines.append(b"Connection: Upgrade\r\nUpgrade: websocket")
    elif len(handled) > 1 and any(low == b"te" and b"trailers" in value.lower() for low, value in handled):
        lines.append(b"Connection: TE\r\nTE: trailers")
    if via:
        lines.append(VIA)
    lines.append(b"\r\n")
    return b"\r\n".join(lines)


def _apply(handled: list[tuple[bytes, bytes]], lines: list[bytes], origin: Origin) -> None:
    """What the fields that end here, and Host, mean for the others."""
    hosts = 0
    for low, value in handled:
        if low == b"host":
            hosts += 1
        elif low == b"connection":
            options = connection_options(value)
            if not options <= USUAL_OPTIONS:
                lines[1:] = [line for line in lines[1:] if line.split(b":", 1)[0].lower() not in options]
    if hosts > 1:
        raise Failure(Code.BAD_REQUEST, "the request has more than one Host header")
    if not hosts:
        lines.insert(1, origin.host_line)
    if origin.proxy_line:
        lines.append(origin.proxy_line)
