"""What is counted beside exchanges: connections, the loop, the configuration, the life of upstreams.

Names of upstreams that are not configured (any more) are ignored: what was under way when a reload removed an
upstream must not bring its series back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecar.failures import ErrorReason
from sidecar.metrics.families import Families
from sidecar.metrics.metric import ERROR_PHASES
from sidecar.metrics.series import OTHER, UpstreamSeries

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.config.model import Config

ERROR_REASONS = frozenset(ErrorReason)


class Events:
    """Families of the process, the series of its upstreams, and the events that are no exchange. Seconds everywhere."""

    def __init__(self, config: Config) -> None:
        self.families = Families(config.buckets, config.slo)
        self._upstreams: dict[str, UpstreamSeries] = {}
        histograms, gauges, counters = self.families.histograms, self.families.gauges, self.families.counters
        self._overhead_request = histograms["overhead_seconds"].child("request")
        self._overhead_response = histograms["overhead_seconds"].child("response")
        self._loop_lag = histograms["event_loop_lag_seconds"].child()
        self._draining = gauges["draining"].child()
        self._draining.set(0.0)
        self._scrape = gauges["scrape_render_seconds"].child()
        self._scrape.set(0.0)
        self._reloaded_at = gauges["config_last_reload_success_timestamp_seconds"].child()
        self._reload_failures = counters["config_reload_failures_total"].child()
        counters["label_overflow_total"].child("model")
        self.configure(config)

    def configure(self, config: Config) -> None:
        """Follow a new configuration: upstreams come and go, the ones that stay keep their counts.

        Bucket boundaries stay those of the start, also for new thresholds: counts cannot be sorted anew.
        """
        self._slo = config.slo
        thresholds = self.families.gauges["slo_threshold_seconds"]
        thresholds.child("ttft").set(config.slo.ttft)
        thresholds.child("tpot").set(config.slo.tpot)
        names = {upstream.name for upstream in config.upstreams}
        for name in set(self._upstreams) - names:
            del self._upstreams[name]
            self.families.forget("upstream", name)
        for upstream in config.upstreams:
            known = self._upstreams.get(upstream.name)
            if known is None:
                self._upstreams[upstream.name] = UpstreamSeries(self.families, upstream.name, config.models)
            else:
                known.limit_models(config.models)

    # Connections of an upstream.

    def connection_opened(self, upstream: str, dns: float | None, connect: float, tls: float | None) -> None:
        """A connection was dialled; `dns` None: no name was resolved, `tls` None: plain text."""
        series = self._upstreams.get(upstream)
        if series is None:
            return
        series.opened.inc()
        series.connected.observe(connect)
        if dns is not None:
            series.resolved.observe(dns)
        if tls is not None:
            series.handshaken.observe(tls)

    def connection_reused(self, upstream: str) -> None:
        """A request was given a connection that was there."""
        series = self._upstreams.get(upstream)
        if series is not None:
            series.reused.inc()

    def connection_error(self, upstream: str, phase: str, reason: str) -> None:
        """A connection failed. `phase` is a Phase, `reason` an ErrorReason; others are counted as `other`."""
        if upstream in self._upstreams:
            phase = phase if phase in ERROR_PHASES else OTHER
            reason = reason if reason in ERROR_REASONS else OTHER
            self.families.counters["connection_errors_total"].child(upstream, str(phase), str(reason)).inc()

    def connections(self, upstream: str, active: Callable[[], float], idle: Callable[[], float]) -> None:
        """Have the numbers of open connections read at each scrape."""
        if upstream in self._upstreams:
            gauge = self.families.gauges["connections"]
            gauge.child(upstream, "active").source = active
            gauge.child(upstream, "idle").source = idle

    def retry(self, upstream: str, reason: str) -> None:
        """A request is sent a second time."""
        if upstream in self._upstreams:
            self.families.counters["retries_total"].bounded_child(upstream, str(reason)).inc()

    # Requests.

    def in_flight(self, upstream: str, delta: int) -> None:
        """A request began (+1) or ended (-1)."""
        series = self._upstreams.get(upstream)
        if series is not None:
            series.in_flight.add(delta)

    def parse_error(self, upstream: str, reason: str, times: int = 1) -> None:
        """Part of an answer could not be read; the reason is one the program knows, never text from the answer."""
        if upstream in self._upstreams:
            self.families.counters["parse_errors_total"].bounded_child(upstream, reason).inc(times)

    # The process.

    def loop_lag(self, seconds: float) -> None:
        """A timer of the event loop fired that late."""
        self._loop_lag.observe(seconds)

    def scrape_rendered(self, seconds: float) -> None:
        """A scrape kept the event loop busy that long."""
        self._scrape.set(seconds)

    def draining(self, draining: bool) -> None:
        """A drain has begun, or none is under way."""
        self._draining.set(float(draining))

    def config_reloaded(self, ok: bool, at: float) -> None:
        """A configuration was taken at Unix time `at`, at start as well, or refused."""
        if ok:
            self._reloaded_at.set(at)
        else:
            self._reload_failures.inc()

    def build_info(self, version: str, python: str) -> None:
        """Name the build."""
        self._only("build_info", version, python)

    def config_info(self, hash: str) -> None:
        """Name the configuration in force."""
        self._only("config_info", hash)

    def upstream_info(self, upstream: str, provider: str, protocol: str, address: str) -> None:
        """Say where an upstream leads. Nothing secret: `address` is host and port."""
        if upstream in self._upstreams:
            family = self.families.gauges["upstream_info"]
            family.forget("upstream", upstream)
            family.child(upstream, provider, protocol, address).set(1.0)

    def _only(self, name: str, *labels: str) -> None:
        family = self.families.gauges[name]
        family.children.clear()
        family.child(*labels).set(1.0)
