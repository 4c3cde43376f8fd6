from __future__ import annotations

from collections.abc import Callable

import pytest

from sidecar.config.model import Url
from sidecar.proxy.route import Origin
from tests.kit.fakes import make_upstream
from tests.kit.pooled import Pooled


@pytest.fixture
def origin() -> Callable[..., Origin]:
    """Makes an origin that needs no connection."""

    def make(prefix: str = "/", base_path: str = "", proxy_line: bytes = b"", name: str = "api") -> Origin:
        upstream = make_upstream(Url("https", "api.example", 443, base_path), prefix=prefix, name=name)
        return Origin(upstream, Pooled().pool, b"Host: api.example", base_path.encode(), proxy_line)

    return make
