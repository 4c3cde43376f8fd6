"""Every key of the configuration file: its kind, its default and what it means.

The table is what the reader follows and what docs/configuration.md is written from. A field with `later=True` and the
words and schemes listed as `later` are known and refused; taking the mark away makes them part of this version.
"""

from __future__ import annotations

from typing import Any

from sidecar.config.kinds import Boolean, Buckets, Choice, Duration, Integer, Size, Text
from sidecar.config.model import Config, Limits, Log, Models, Slo
from sidecar.config.network_kinds import ListenAddress
from sidecar.config.schema import Field, ListOf, Place, Section, Values
from sidecar.config.upstream_section import MOST, UPSTREAM


def _finish_models(values: Values, given: frozenset[str], place: Place) -> None:
    allowed, limit = values.get("allow", []), values.get("limit")
    if len(set(allowed)) < len(allowed):
        place.key("allow").problem("names a model twice")
    elif limit is not None and len(allowed) > limit:
        place.key("allow").problem(f"has {len(allowed)} names, more than models.limit ({limit})")


LOG = Section(
    Log,
    (
        Field("level", Choice(("debug", "info", "warning", "error")), "info", "The least important messages written."),
        Field("format", Choice(("json", "console")), "json", "One JSON object per line, or lines for people."),
    ),
    doc="Messages go to standard error.",
)

MODELS = Section(
    Models,
    (
        Field("limit", Integer(0, 1000), 4, "Distinct values of the label `model`; the rest is `other`."),
        Field("allow", ListOf(Text("model name")), [], "Models that have their place before any request came."),
    ),
    finish=_finish_models,
    doc="Bounds of the label `model`.",
)

_CACHE_MEMORY = Section(
    dict, (Field("max_bytes", Size(), "128MiB", "Bound of the store in memory.", later=True),), doc="In this process."
)
_CACHE_REDIS = Section(
    dict,
    (
        Field("url", Text("URL", optional=True), None, "A store shared by all pods.", later=True),
        Field("timeout", Duration(), "50ms", "The longest a request waits for it.", later=True),
    ),
    doc="Redis or Valkey.",
)
CACHE = Section(
    dict,
    (
        Field("memory", _CACHE_MEMORY, {}, "The store in memory."),
        Field("redis", _CACHE_REDIS, {}, "The shared store."),
    ),
    doc="Where the answers are stored.",
)

LIMITS = Section(
    Limits,
    (
        Field("max_in_flight", Integer(1, MOST), 1024, "Requests at once; more are answered 503."),
        Field("max_request_body", Size(), "64MiB", "A larger request body is answered 413."),
        Field("max_header_bytes", Size(1024), "64KiB", "A larger request head is answered 431."),
    ),
    doc="What the application may ask for at once.",
)

SLO = Section(
    Slo,
    (
        Field("ttft", Duration(), "3s", "Time to first token that still counts as good."),
        Field("tpot", Duration(), "100ms", "Time per output token that still counts as good."),
    ),
    doc="Thresholds of `llm_sidecar_slo_requests_total`.",
)

METRICS = Section(
    dict,
    (
        Field(
            "buckets",
            Buckets(),
            {},
            "Other bucket bounds for a histogram, in its own unit: `time_to_first_token_seconds: [0.1, 0.5, 1, 3]`.",
        ),
    ),
    doc="What the histograms look like.",
)


def _finish_root(values: Values, given: frozenset[str], place: Place) -> None:
    """No two upstreams with one name or one prefix."""
    for key in ("name", "prefix"):
        seen: dict[str, int] = {}
        for index, upstream in enumerate(values.get("upstreams", [])):
            value = upstream.get(key)
            first = seen.setdefault(value, index) if value is not None else index
            if first != index:
                at = place.key("upstreams").item(index).key(key)
                at.problem(f"{value} is the {key} of upstreams[{first}] already")


def _config(metrics: dict[str, Any], **sections: Any) -> Config:
    return Config(buckets=metrics["buckets"], **sections)


ROOT = Section(
    _config,
    (
        Field("listen", ListenAddress(), "127.0.0.1:8080", "Where the application connects. Port 0: any free one."),
        Field("admin", ListenAddress(), "127.0.0.1:9464", "Metrics, health and the live page; 0.0.0.0 in a pod."),
        Field("log", LOG, {}, "Messages."),
        Field("upstreams", ListOf(UPSTREAM), [], "The APIs that requests are sent to."),
        Field("models", MODELS, {}, "Bounds of the label `model`."),
        Field("cache", CACHE, {}, "Where answers are stored.", later=True),
        Field("limits", LIMITS, {}, "What may be asked for at once."),
        Field(
            "drain_timeout",
            Duration(zero=True),
            "120s",
            "How long running requests may take to end after SIGTERM. 0: they are cut.",
        ),
        Field("slo", SLO, {}, "Thresholds."),
        Field("metrics", METRICS, {}, "Histograms."),
        Field("server_timing", Boolean(), True, "Adds `Server-Timing` to responses."),
        Field("via", Boolean(), False, "Adds `Via`; some servers stop compressing when they see it."),
        Field("debug", Boolean(), False, "Profiles of the running process on the admin port.", later=True),
    ),
    finish=_finish_root,
)
