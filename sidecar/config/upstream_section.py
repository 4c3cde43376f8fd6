"""The keys of one upstream: the part of the table in `sections` that is used once for each."""

from __future__ import annotations

from sidecar.config.environment_proxy import environment_proxy
from sidecar.config.kinds import Boolean, Choice, Duration, FileName, Integer, Text
from sidecar.config.model import DialectName, Pool, StreamUsage, Timeouts, Tls, Upstream
from sidecar.config.network_kinds import HostName, PathPrefix, ProxyChoice, ProxyMode, UpstreamUrl
from sidecar.config.problems import Refused
from sidecar.config.schema import REQUIRED, Field, Place, Section, Values
from sidecar.config.tls_files import check_tls

MOST = 1_000_000
"""Bound of counts: a larger one is a mistake."""


def _finish_pool(values: Values, given: frozenset[str], place: Place) -> None:
    connections, idle = values.get("max_connections"), values.get("max_idle")
    if connections is None or idle is None or idle <= connections:
        return
    if "max_idle" in given:
        place.key("max_idle").problem(f"must not be more than max_connections ({connections})")
    else:
        values["max_idle"] = connections


def _finish_upstream(values: Values, given: frozenset[str], place: Place) -> None:
    mode = values.get("proxy")
    if mode is ProxyMode.NONE:
        values["proxy"] = None
    elif mode is ProxyMode.ENVIRONMENT:
        values["proxy"] = None
        if "url" in values:
            try:
                values["proxy"] = environment_proxy(values["url"], place.surroundings.environ)
            except Refused as refusal:
                place.key("proxy").problem(str(refusal))


POOL = Section(
    Pool,
    (
        Field("max_connections", Integer(1, MOST), 100, "Connections to this upstream, busy and idle."),
        Field(
            "max_idle",
            Integer(0, MOST),
            100,
            "Idle connections kept for reuse, never more than `max_connections` (and by default no more than it).",
        ),
        Field("idle_timeout", Duration(), "60s", "How long an idle connection is kept."),
        Field(
            "acquire_timeout",
            Duration(zero=True),
            "10s",
            "How long a request waits for a connection when all are busy; then it is answered 503. 0: not at all.",
        ),
        Field("prewarm", Integer(0, MOST), 0, "Connections kept open before they are needed.", later=True),
    ),
    finish=_finish_pool,
    doc="Connections are reused between requests.",
)

TIMEOUTS = Section(
    Timeouts,
    (
        Field("dns", Duration(), "5s", "Looking up the host."),
        Field("connect", Duration(), "5s", "The TCP connection, over all addresses, and the proxy's CONNECT."),
        Field("tls", Duration(), "5s", "The TLS handshake."),
        Field("headers", Duration(), "600s", "From the last byte of the request to the head of the response."),
        Field("idle", Duration(), "600s", "Between two reads of the response body."),
    ),
    doc="Each phase has its own; there is no total, because a stream may run for ever. None can be switched off.",
)

TLS = Section(
    Tls,
    (
        Field(
            "ca_file",
            FileName(),
            None,
            "PEM certificates to trust instead of the system's (or those of `SSL_CERT_FILE`).",
        ),
        Field("cert_file", FileName(), None, "PEM certificate chain shown to the upstream."),
        Field("key_file", FileName(), None, "Its unencrypted PEM key; not needed when `cert_file` holds it too."),
        Field("server_name", HostName(), None, "The name asked for and verified, when it is not the URL's host."),
        Field("verify", Boolean(), True, "false accepts any certificate: anyone on the way can read the traffic."),
    ),
    finish=check_tls,
    doc="Used with https:// upstreams. The files are checked when the configuration is loaded.",
)

_CREDENTIALS_LATER = ("static", "file", "oauth2", "jwt")
CREDENTIALS = Section(
    dict,
    (
        Field(
            "type",
            Choice(("passthrough",), later=_CREDENTIALS_LATER),
            "passthrough",
            "The application's own headers go to the upstream as they are.",
        ),
    ),
    doc="Where the upstream's credentials come from.",
    later_keys=(
        *("header", "value", "path", "format", "token_url", "client_id", "client_secret", "scope", "audience"),
        *("issuer", "subject", "key_file", "algorithm"),
    ),
)

UPSTREAM_CACHE = Section(
    dict,
    (Field("enabled", Boolean(), False, "Whether answers of this upstream are stored.", later=True),),
    doc="Answers from a cache.",
    later_keys=(
        *("ttl", "stale_while_revalidate", "stale_if_error", "scope", "methods", "only_deterministic", "max_entry"),
    ),
)

UPSTREAM = Section(
    Upstream,
    (
        Field(
            "name",
            Text("name of a-z, 0-9, _ and -", r"[a-z0-9_-]+", longest=64),
            REQUIRED,
            "The value of the label `upstream`. No two may be equal.",
        ),
        Field(
            "url",
            UpstreamUrl(),
            REQUIRED,
            "Scheme, host, port and a base path that is put before every path. No user, query or fragment.",
        ),
        Field(
            "prefix",
            PathPrefix(),
            "/",
            "Requests whose path begins so come here; the longest prefix wins and is removed. No two may be equal.",
        ),
        Field(
            "dialect",
            Choice(tuple(DialectName), make=DialectName),
            "auto",
            "How the copy of the answers is read; auto decides by the path of each request.",
        ),
        Field(
            "protocol",
            Choice(("auto", "http/1.1"), later=("h2",)),
            "auto",
            "The protocol spoken to the upstream.",
        ),
        Field("pool", POOL, {}, "Bounds of the connections."),
        Field("timeouts", TIMEOUTS, {}, "Bounds of each phase."),
        Field("tls", TLS, {}, "Verification and client certificate."),
        Field("proxy", ProxyChoice(), "env", "An HTTP proxy on the way, see [Proxies](#proxies)."),
        Field("credentials", CREDENTIALS, {}, "Where the credentials come from.", later=True),
        Field("cache", UPSTREAM_CACHE, {}, "Answers from a cache.", later=True),
        Field(
            "stream_usage",
            Choice(tuple(StreamUsage), make=StreamUsage),
            "passthrough",
            "inject asks the upstream to report usage in streams and hides the extra event from the application.",
        ),
    ),
    finish=_finish_upstream,
    doc="One API that requests are sent to. At least one is needed, here or by `--upstream`.",
)
