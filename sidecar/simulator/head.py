"""Response heads, and the three ways HTTP/1.1 tells where a body ends (RFC 9112 §6.3)."""

from __future__ import annotations

from functools import lru_cache
from http import HTTPStatus
from time import gmtime, strftime

from sidecar.simulator.request import Request

TRAILERS = b"x-sim-trailer: the end\r\n"
LAST_CHUNK = b"0\r\n\r\n"
LAST_CHUNK_WITH_TRAILERS = b"0\r\n" + TRAILERS + b"\r\n"


@lru_cache(maxsize=64)
def status_line(status: int) -> bytes:
    """The first line of a response."""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Overloaded" if status == 529 else "Unknown"
    return f"HTTP/1.1 {status} {phrase}\r\n".encode()


@lru_cache(maxsize=2)
def date_line(second: int) -> bytes:
    """The header `date`, made once a second."""
    return strftime("date: %a, %d %b %Y %H:%M:%S GMT\r\n", gmtime(second)).encode()


def framing_of(request: Request, wished: str) -> str:
    """`chunked`, `close` or `length`: as wished, but never chunked to an HTTP/1.0 client (RFC 9112 §6.1)."""
    return "close" if wished == "chunked" and request.version == "1.0" else wished


def head(
    status: int, wall: float, content_type: bytes, more: bytes, *, framing: str, length: int | None, close: bool
) -> bytes:
    """A response head. `more` are whole lines; `length` is used with the framing `length` only."""
    lines = [status_line(status), date_line(int(wall)), b"server: llm-simulator\r\n"]
    if content_type:
        lines.append(b"content-type: %b\r\n" % content_type)
    lines.append(more)
    if framing == "chunked":
        lines.append(b"transfer-encoding: chunked\r\n")
    elif framing == "length":
        lines.append(b"content-length: %d\r\n" % (length or 0))
    if close or framing == "close":
        lines.append(b"connection: close\r\n")
    lines.append(b"\r\n")
    return b"".join(lines)


def chunk(data: bytes) -> bytes:
    """One chunk; nothing for no data, as an empty chunk would end the body."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""
