"""The application's side of an exchange, as the proxy sees it, whatever HTTP version it speaks."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

from sidecar.exchange import Headers
from sidecar.upstreams.http1_response import ResponseHead


class FlowObserver(Protocol):
    """Told when the application stops taking bytes, and when it goes on."""

    def client_paused(self) -> None: ...

    def client_resumed(self) -> None: ...


class TunnelPeer(Protocol):
    """Takes what the application sends after its upgrade was accepted."""

    def from_client(self, data: bytes) -> None: ...

    def client_closed(self) -> None: ...


class RequestBody(Protocol):
    """The body of a request while it arrives."""

    def whole(self) -> bytes | None:
        """The rest of the body if it has arrived completely, without waiting; else None."""

    def read(self) -> Awaitable[bytes]:
        """What has arrived, at least a byte; b"" at the end. Raises ConnectionError when the client breaks off."""


class Downstream(Protocol):
    """One request and the way back for its response."""

    method: str
    target: bytes
    headers: Headers
    chunked: bool
    """The request body is chunked."""
    upgrade: bool
    """The application asks for a WebSocket."""

    @property
    def declared_length(self) -> int | None:
        """Content-Length of the request."""

    @property
    def body(self) -> RequestBody:
        """Its body."""

    received_at: float
    """Monotonic seconds when the head had been read."""

    @property
    def writing_paused(self) -> bool:
        """The application does not take more for now."""

    def observe_flow(self, observer: FlowObserver | None) -> None:
        """Tell `observer` of pauses until it is replaced."""

    def interim(self, status: int, reason: bytes, headers: Headers) -> None:
        """Send a 1xx response."""

    def send(self, head: ResponseHead | None, extra: list[bytes], body: bytes, ended: bool, trailers: Headers) -> None:
        """Send the head (once, with the field lines `extra` added), body bytes, and the end: one write."""

    def abort(self) -> None:
        """End the response so that nobody can take it for complete."""

    def start_tunnel(self, peer: TunnelPeer) -> None:
        """A 101 was sent: bytes go to `peer` from now on."""

    def tunnel_write(self, data: bytes) -> None:
        """Send bytes of the tunnel."""

    def pause_reading(self) -> None:
        """Read no more of the tunnel for now."""

    def resume_reading(self) -> None:
        """Read on."""

    def close(self) -> None:
        """Send what was written, then close."""
