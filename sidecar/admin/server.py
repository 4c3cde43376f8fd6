"""Requests to the admin port. Plain aiohttp responses: a scrape a second is no hot path."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from aiohttp import web

DEFAULT_EXCHANGES = 200

_LIMIT_DIGITS = 9
"""Python refuses to read numbers of thousands of digits."""


class Subject(Protocol):
    """What the admin port shows; the application has it."""

    @property
    def ready(self) -> bool: ...

    @property
    def started(self) -> bool: ...

    async def metrics(self, accept: str, accept_encoding: str) -> tuple[bytes, list[tuple[str, str]]]: ...

    def exchanges(self, limit: int) -> list[dict[str, Any]]: ...

    def effective_config(self) -> dict[str, Any]: ...


class Admin:
    """Routes of the admin port."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._routes: dict[str, Callable[[web.BaseRequest], Awaitable[web.Response]]] = {
            "/metrics": self._metrics,
            "/livez": self._livez,
            "/startupz": self._startupz,
            "/readyz": self._readyz,
            "/exchanges": self._exchanges,
            "/config": self._config,
        }

    async def handle(self, request: web.BaseRequest) -> web.Response:
        """Answer one request."""
        route = self._routes.get(request.path)
        if route is None:
            return _json({"error": "not found", "paths": sorted(self._routes)}, 404)
        if request.method not in ("GET", "HEAD"):
            return _json({"error": f"{request.path} takes GET"}, 405, {"Allow": "GET, HEAD"})
        return await route(request)

    async def _metrics(self, request: web.BaseRequest) -> web.Response:
        body, headers = await self._subject.metrics(
            request.headers.get("Accept", ""), request.headers.get("Accept-Encoding", "")
        )
        return web.Response(body=body, headers=dict(headers))

    async def _livez(self, request: web.BaseRequest) -> web.Response:
        return web.Response(text="alive\n")

    async def _startupz(self, request: web.BaseRequest) -> web.Response:
        return _state(self._subject.started, "started", "starting")

    async def _readyz(self, request: web.BaseRequest) -> web.Response:
        # The provider's health is no part of this: an unready sidecar would take the whole pod out of service.
        return _state(self._subject.ready, "ready", "draining" if self._subject.started else "starting")

    async def _exchanges(self, request: web.BaseRequest) -> web.Response:
        form = request.query.get("format", "json")
        if form != "json":
            return _json({"error": f"format={form!r} is not known; take json"}, 400)
        text = request.query.get("limit", str(DEFAULT_EXCHANGES))
        if not text.isdecimal() or len(text) > _LIMIT_DIGITS:
            return _json({"error": "limit takes a number of exchanges"}, 400)
        return _json({"exchanges": self._subject.exchanges(int(text))})

    async def _config(self, request: web.BaseRequest) -> web.Response:
        return _json(self._subject.effective_config())


def _state(good: bool, yes: str, no: str) -> web.Response:
    return web.Response(text=f"{yes if good else no}\n", status=200 if good else 503)


def _json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(
        body=json.dumps(value, indent=1).encode() + b"\n",
        status=status,
        headers=headers,
        content_type="application/json",
    )
