"""Declarations of what is measured on connections and on the sidecar itself."""

from __future__ import annotations

from sidecar.failures import ErrorReason
from sidecar.metrics.metric import ERROR_PHASES, MODEL, RATELIMIT_KINDS, UPSTREAM, Label, counter, gauge, histogram

CONNECTIONS = (
    gauge(
        "connections",
        UPSTREAM,
        Label("state", ("active", "idle")),
        help="Open connections of the pool.",
        reason="Saturation of the pool.",
    ),
    counter(
        "connections_opened_total",
        UPSTREAM,
        help="Connections dialled with success.",
        reason="Churn; the denominator of dialling errors.",
    ),
    counter(
        "connections_reused_total",
        UPSTREAM,
        help="Requests that were sent on a connection that was there.",
        reason="Whether keep-alive works.",
    ),
    counter(
        "connection_errors_total",
        UPSTREAM,
        Label("phase", (*ERROR_PHASES, "other")),
        Label("reason", tuple(ErrorReason)),
        help="Connections that failed, by the phase in which they did and why.",
        reason="Which part of the way is broken.",
    ),
    counter(
        "retries_total",
        UPSTREAM,
        Label("reason", note="why the first try may be repeated, from a set the program knows"),
        help="Requests sent a second time, because the upstream cannot have accepted a byte of the first try.",
        reason="Faults that retries hide from the application.",
    ),
    gauge(
        "ratelimit_remaining",
        UPSTREAM,
        Label("kind", RATELIMIT_KINDS),
        help="What the provider's last answer says is left of the rate limit. Absent until one says so.",
        reason="A warning before the first 429.",
    ),
)

SELF = (
    histogram(
        "overhead_seconds",
        "OV",
        Label("direction", ("request", "response")),
        help=(
            "Time the sidecar itself held bytes. request: head received to first byte written upstream, without "
            "waiting for a place and dialling. response: read from the upstream to written to the app, for each chunk."
        ),
        reason="The price of the sidecar.",
    ),
    histogram(
        "event_loop_lag_seconds",
        "OV",
        help="How late a timer of the event loop fires.",
        reason="Whether the sidecar's own measurements can be trusted.",
    ),
    counter(
        "slo_requests_total",
        UPSTREAM,
        MODEL,
        Label("result", ("good", "bad")),
        help=(
            "Requests that met the objectives (good: outcome ok, and within the thresholds for first token and time "
            "per token where these exist) or did not. Client errors, cancelled and rejected requests are in neither."
        ),
        reason="Error budget without PromQL acrobatics.",
    ),
    gauge(
        "slo_threshold_seconds",
        Label("objective", ("ttft", "tpot")),
        help="Thresholds of slo_requests_total, from the configuration; those of the start are bucket boundaries.",
        reason="Rules and dashboards read the threshold from here.",
    ),
    counter(
        "label_overflow_total",
        Label("label", ("model",)),
        help="Requests recorded under model=other: the limit is reached, or the model never answered with success.",
        reason="Tells when per-model numbers are no longer complete.",
    ),
    counter(
        "parse_errors_total",
        UPSTREAM,
        Label("reason", note="from a set the program knows"),
        help="Answers, or parts of them, that could not be read. Their bytes went through all the same.",
        reason="Missing token metrics have a cause.",
    ),
    gauge(
        "scrape_render_seconds",
        help="Time the last scrape kept the event loop busy, all its slices together.",
        reason="Measuring must not disturb what is measured.",
    ),
    gauge(
        "draining", help="1 from the start of a drain, else 0.", reason="Explains refused keep-alives and readiness."
    ),
    gauge(
        "build_info",
        Label("version"),
        Label("python"),
        help="Always 1; the labels name the build.",
        reason="Versions across a fleet.",
    ),
    gauge(
        "config_info",
        Label("hash"),
        help="Always 1; hash of the configuration in force.",
        reason="Pods that run another configuration.",
    ),
    gauge(
        "upstream_info",
        UPSTREAM,
        Label("provider"),
        Label("protocol"),
        Label("address"),
        help="Always 1; where an upstream's name leads.",
        reason="Joins provider and address to any series.",
    ),
    gauge(
        "config_last_reload_success_timestamp_seconds",
        help="Unix time at which the configuration in force was loaded.",
        reason="Whether a change has arrived.",
    ),
    counter(
        "config_reload_failures_total",
        help="Configurations that were refused at a reload; the one before stays in force.",
        reason="A bad change that nobody noticed.",
    ),
)
