"""Declarations of what is measured on requests and their answers."""

from __future__ import annotations

from sidecar.dialects.reading import Operation
from sidecar.exchange import Outcome
from sidecar.metrics.metric import (
    CACHE,
    COMPONENTS,
    DIAL_PHASES,
    MODEL,
    NO_TOKEN_REASONS,
    OUTPUT_SIZES,
    PROVIDER_PHASES,
    REQUEST_PHASES,
    STREAM,
    TOKEN_TYPES,
    UPSTREAM,
    Label,
    counter,
    gauge,
    histogram,
)

REQUESTS = (
    counter(
        "requests_total",
        UPSTREAM,
        MODEL,
        Label("operation", tuple(Operation)),
        Label("code", note="HTTP status the application received, 0 when it received none"),
        Label("outcome", tuple(Outcome)),
        STREAM,
        CACHE,
        help="Requests that ended, by how they ended. A 200 whose body carries an error or breaks off is not ok.",
        reason="Traffic and error ratio.",
    ),
    gauge(
        "requests_in_flight",
        UPSTREAM,
        help="Requests received from the application that have not ended, streams until their last byte.",
        reason="Saturation, and what a drain still waits for.",
    ),
    histogram(
        "request_duration_seconds",
        "RQ",
        UPSTREAM,
        MODEL,
        STREAM,
        CACHE,
        help="From the request head received to the last byte of the response, time of a slow client included.",
        reason="What the application waits for in all; the only duration that cache hits enter.",
    ),
    histogram(
        "connection_phase_seconds",
        "PH",
        UPSTREAM,
        Label("phase", DIAL_PHASES),
        help="Time to resolve, to connect (TCP) and to complete the TLS handshake, once for each new connection.",
        reason="Network faults that reused connections hide.",
    ),
    histogram(
        "request_phase_seconds",
        "RQ",
        UPSTREAM,
        MODEL,
        Label("phase", REQUEST_PHASES),
        help=(
            "Phases of one request, each at most once: blocked (waiting for a place or a connection), send (connection "
            "in hand to last request byte), wait (to the response head), receive (to the last byte). With the dialling "
            "of the same request they add up to its duration."
        ),
        reason="Where the time of a request goes.",
    ),
)

TOKENS_IN_TIME = (
    histogram(
        "time_to_first_token_seconds",
        "TT",
        UPSTREAM,
        MODEL,
        Label("connection", ("new", "reused")),
        help=(
            "Streams only: request head received to the first event with content, reasoning, refusal or tool-call "
            "text. Dialling is included when the request dialled. Role-only events, pings and comments do not count."
        ),
        reason="What a user of a chat feels first.",
    ),
    histogram(
        "time_to_first_output_token_seconds",
        "TT",
        UPSTREAM,
        MODEL,
        help="Streams only: as time_to_first_token_seconds, but reasoning does not count.",
        reason="How long a model thinks aloud before it answers.",
    ),
    histogram(
        "time_per_output_token_seconds",
        "TP",
        UPSTREAM,
        MODEL,
        help=(
            "Streams only, one sample each: time from the first to the last token event over the output tokens after "
            "the first event. No sample for fewer than two tokens, for token events at one instant (a burst), and for "
            "streams that show only a summary of the reasoning."
        ),
        reason="Speed of generation, as load generators define inter-token latency.",
    ),
    histogram(
        "inter_chunk_seconds",
        "TP",
        UPSTREAM,
        MODEL,
        help="Gap between consecutive token events of a stream, per chunk and not per token: a chunk may hold many.",
        reason="Stalls inside a stream, which a mean per token hides.",
    ),
    histogram(
        "output_tokens_per_second",
        "TS",
        UPSTREAM,
        MODEL,
        help="Streams only: 1 / time_per_output_token_seconds, one sample per stream. Not the rate of the whole fleet.",
        reason="The same speed in the unit providers advertise.",
    ),
    histogram(
        "generation_seconds",
        "RQ",
        UPSTREAM,
        Label("output_size", OUTPUT_SIZES, "output tokens, or token events where no usage was reported"),
        help="Complete streams: first token event to last, by the size of the output.",
        reason="Long texts compared with long texts.",
        shown=False,
    ),
    counter(
        "streams_without_token_total",
        UPSTREAM,
        Label("reason", NO_TOKEN_REASONS),
        help="Streams that ended without a token event, and so without a time to first token.",
        reason="What the histogram of first tokens cannot show.",
    ),
)

TOKENS = (
    histogram(
        "request_tokens",
        "TK",
        UPSTREAM,
        MODEL,
        Label("type", ("input", "output")),
        help="Tokens of one request as the provider's usage reports them; input includes cached input.",
        reason="Whether requests became slower or only longer.",
    ),
    counter(
        "tokens_total",
        UPSTREAM,
        MODEL,
        Label("type", TOKEN_TYPES),
        help=(
            "Tokens as the provider's usage reports them, never estimated. Cached and cache-creation tokens are part "
            "of input, reasoning is part of output: do not add the types up."
        ),
        reason="Throughput and cost.",
    ),
    counter(
        "token_count_source_total",
        UPSTREAM,
        Label("source", ("usage", "events", "none")),
        help="Successful answers of models by where their token count came from. Events are not tokens.",
        reason="How far token speeds can be trusted, and who does not ask for usage.",
    ),
)

ATTRIBUTION = (
    histogram(
        "network_ratio",
        "RA",
        UPSTREAM,
        Label("basis", ("reported", "estimated")),
        help=(
            "Share of a request's duration spent in the network. reported: dialling + sending + the wait for the "
            "response head less the provider's own time for it. estimated: dialling + sending + one round trip. The "
            "round trip ends where TLS ends: what lies behind a CDN or an HTTP proxy counts as provider."
        ),
        reason="Whether the network or the provider is to be called.",
        shown=False,
    ),
    counter(
        "time_seconds_total",
        UPSTREAM,
        Label("component", COMPONENTS),
        help=(
            "Seconds of requests by who held them: network (as in network_ratio), sidecar (waiting for a place, and "
            "overhead), client (a slow reader), provider (all the rest). One request's parts add up to its duration."
        ),
        reason="Attribution as a ratio of sums, in which long requests weigh what they cost.",
    ),
    histogram(
        "provider_phase_seconds",
        "RQ",
        UPSTREAM,
        Label("phase", PROVIDER_PHASES),
        help="Times the provider reports of itself, as it reports them; definitions differ between providers.",
        reason="A look behind the provider's edge.",
        shown=False,
    ),
    histogram(
        "tcp_rtt_seconds",
        "RT",
        UPSTREAM,
        help="Smoothed TCP round-trip time of the connection when the response head came, one sample per request.",
        reason="Distance to the provider's edge, without sending a probe.",
    ),
    counter(
        "tcp_retransmits_total",
        UPSTREAM,
        help="TCP segments sent again on the connections of the upstream while requests used them.",
        reason="Loss on the way.",
    ),
)
