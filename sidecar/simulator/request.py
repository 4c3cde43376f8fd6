"""One request as the connection hands it on."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import parse_qsl

from sidecar.simulator.knobs import Knobs


@dataclass(slots=True)
class Request:
    """A request whose head is complete. Header names are in lower case; of repeated headers the last is kept."""

    method: str
    target: str
    version: str
    headers: dict[bytes, bytes]
    knobs: Knobs
    head_at: float
    keep_alive: bool
    upgrade: bool = False
    path: str = field(init=False)
    query: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.path, mark, query = self.target.partition("?")
        self.query = dict(parse_qsl(query, keep_blank_values=True)) if mark else {}

    def header(self, name: bytes) -> str:
        """The value of a header, "" when there is none."""
        return self.headers.get(name, b"").decode("latin-1")

    @property
    def content_length(self) -> int | None:
        """The announced length of the body."""
        raw = self.headers.get(b"content-length")
        return None if raw is None else int(raw)
