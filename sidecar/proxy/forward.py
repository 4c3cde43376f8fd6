"""One request from its arrival to its end: admit, route, connect, send; then the relay has it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

from sidecar import dialects, log
from sidecar.config.model import Config
from sidecar.exchange import Exchange, Phase
from sidecar.failures import Code, ErrorReason, Failure
from sidecar.proxy.answers import error_response
from sidecar.proxy.downstream import Downstream
from sidecar.proxy.ledger import Ledger
from sidecar.proxy.meter import Meter
from sidecar.proxy.outgoing import Outgoing, body_too_large, prepare
from sidecar.proxy.relay import Relay
from sidecar.proxy.request_copy import RequestCopy
from sidecar.proxy.route import Origin, Router
from sidecar.upstreams.http1 import Http1Connection

IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE"})
"""RFC 9110 §9.2.2: these may be sent again when a reused connection closed before its answer."""

NO_UPSTREAM = ""
"""The upstream of requests that were refused before one was chosen."""


class ProxyObserver(Protocol):
    """What the proxy reports beside ended exchanges; sidecar.metrics has it."""

    def in_flight(self, upstream: str, delta: int) -> None: ...

    def retry(self, upstream: str, reason: str) -> None: ...


class Proxy:
    """Handles requests. `config` and `router` are replaced together by a reload; running exchanges keep theirs."""

    def __init__(
        self, config: Config, router: Router, ledger: Ledger, observer: ProxyObserver, clock: Callable[[], float]
    ) -> None:
        self.config = config
        self.router = router
        self.in_flight = 0
        self.last_ended = clock()
        self._ledger = ledger
        self._observer = observer
        self._clock = clock

    async def handle(self, downstream: Downstream) -> None:
        """Serve one request until its response has been handed to the application's transport, or given up."""
        exchange = Exchange(NO_UPSTREAM, "auto", downstream.method, "", downstream.received_at, time.time())
        meter = Meter(exchange)
        self.in_flight += 1
        origin: Origin | None = None
        relay: Relay | None = None
        failure: Failure | None = None
        try:
            origin, target = self._admit(downstream, exchange)
            self._observer.in_flight(exchange.upstream, 1)
            config = self.config
            relay = Relay(exchange, downstream, meter, self._clock, server_timing=config.server_timing, via=config.via)
            failure = await self._carry(origin, target, downstream, relay)
        except Failure as raised:
            failure = raised
        except asyncio.CancelledError:
            self._left(exchange, relay)
            self._ledger.end(exchange, meter)
            raise
        except Exception as error:  # a mistake of ours must not take the application's connection down silently
            failure = _our_mistake(error, exchange)
        finally:
            self.in_flight -= 1
            self.last_ended = self._clock()
            if origin is not None:
                self._observer.in_flight(exchange.upstream, -1)
        if failure is not None:
            self._answer(failure, exchange, downstream)
        self._ledger.end(exchange, meter)

    # ---- before the upstream ----

    def _admit(self, downstream: Downstream, exchange: Exchange) -> tuple[Origin, bytes]:
        """The upstream and target for a request that may go on; raises Failure for one that may not."""
        target = downstream.target
        if downstream.method == "CONNECT" or not target.startswith(b"/"):
            raise Failure(
                Code.BAD_REQUEST, "this is not an open proxy: send the path only, as to the API itself", Phase.BLOCKED
            )
        # Not before: an absolute form may hold credentials.
        exchange.target = target.decode("latin-1")
        matched = self.router.match(target)
        if matched is None:
            raise Failure(Code.NO_UPSTREAM, "no upstream has a prefix that this path begins with", Phase.BLOCKED)
        origin, upstream_target = matched
        upstream = origin.upstream
        exchange.upstream = upstream.name
        exchange.dialect = upstream.dialect
        limits = self.config.limits
        if self.in_flight > limits.max_in_flight:
            raise Failure(
                Code.OVERLOADED, f"{limits.max_in_flight} requests are running (limits.max_in_flight)", Phase.BLOCKED
            )
        return origin, upstream_target

    # ---- with the upstream ----

    async def _carry(self, origin: Origin, target: bytes, downstream: Downstream, relay: Relay) -> Failure | None:
        """Send the request and wait for the end of its response; a Failure when nothing of one was sent."""
        exchange = relay.exchange
        outgoing = await prepare(
            origin, target, downstream, relay, limit=self.config.limits.max_request_body, via=self.config.via
        )
        exchange.t_ready = self._clock()
        for last_try in (False, True):
            connection = origin.pool.take()
            exchange.connection_reused = connection is not None
            if connection is None:
                try:
                    connection = await origin.pool.acquire(exchange)
                except Failure as refused:
                    if last_try or not _dial_again(refused):
                        raise
                    self._retried(exchange, refused.reason)
                    continue
            failure = await self._send(connection, relay, downstream, outgoing)
            if failure is None or last_try or outgoing.body is None or not _send_again(failure, exchange):
                return failure
            self._retried(exchange, failure.reason)
            relay.rearm()
        raise AssertionError("the second try returns or raises")

    def _send(
        self, connection: Http1Connection, relay: Relay, downstream: Downstream, outgoing: Outgoing
    ) -> Awaitable[Failure | None]:
        """Write the request, or begin to; what is returned is ready when the exchange has ended."""
        exchange = relay.exchange
        relay.attach(connection)
        method = downstream.method.encode()
        exchange.t_conn = exchange.t_send0 = self._clock()
        if outgoing.body is None:
            connection.start(relay, method, outgoing.head)
            return self._uploaded(connection, relay, downstream, outgoing.early)
        connection.start(relay, method, outgoing.head + outgoing.body)
        exchange.t_send1 = self._clock()
        connection.request_sent(exchange.t_send1)
        return relay.done

    async def _uploaded(
        self, connection: Http1Connection, relay: Relay, downstream: Downstream, early: bytes
    ) -> Failure | None:
        """Send the body beside the response: either may end first."""
        upload = asyncio.get_running_loop().create_task(self._upload(connection, relay, downstream, early))
        try:
            return await relay.done
        finally:
            upload.cancel()

    async def _upload(self, connection: Http1Connection, relay: Relay, downstream: Downstream, data: bytes) -> None:
        """Pass the request body on, `data` and then what arrives, no faster than the upstream takes it."""
        exchange = relay.exchange
        limit = self.config.limits.max_request_body
        copy = RequestCopy()
        try:
            while data := data or await downstream.body.read():
                exchange.request_bytes += len(data)
                if exchange.request_bytes > limit:
                    raise body_too_large(limit)
                connection.write(b"%x\r\n%b\r\n" % (len(data), data) if downstream.chunked else data)
                copy.add(data)
                data = b""
                if connection.write_paused:
                    await connection.drain()
            if downstream.chunked:
                connection.write(b"0\r\n\r\n")
            if connection.write_paused:
                await connection.drain()
            exchange.t_send1 = self._clock()
            connection.request_sent(exchange.t_send1)
        except Failure as failure:
            connection.discard()
            relay.failed(failure, self._clock())
        except ConnectionError:
            relay.client_gone()
        except Exception as error:  # nobody else would end the exchange
            connection.discard()
            relay.failed(_our_mistake(error, exchange), self._clock())
        finally:
            exchange.request_copy = copy.result()

    # ---- the end ----

    def _left(self, exchange: Exchange, relay: Relay | None) -> None:
        """The application closed its connection, wherever its request was."""
        if relay is not None:
            relay.client_gone()
        exchange.client_gone = True
        exchange.t_end = exchange.t_end or self._clock()

    def _retried(self, exchange: Exchange, reason: ErrorReason) -> None:
        exchange.retried = reason
        self._observer.retry(exchange.upstream, reason)

    def _answer(self, failure: Failure, exchange: Exchange, downstream: Downstream) -> None:
        """Tell the application what went wrong, in the shape its SDK reads."""
        exchange.failure = failure
        if not exchange.request_copy:
            exchange.request_copy = _arrived(downstream)
        dialect = dialects.resolve(exchange.dialect, exchange.method, exchange.target)
        head, body = error_response(failure, dialect)
        if downstream.method == "HEAD":
            body = b""
        downstream.send(head, [], body, True, [])
        exchange.status = failure.status
        exchange.t_end = self._clock()
        log.warning(
            "request_not_carried",
            code=failure.code,
            upstream=exchange.upstream,
            phase=failure.phase,
            reason=failure.reason,
            message=failure.message,
        )


def _our_mistake(error: Exception, exchange: Exchange) -> Failure:
    log.error("request_failed", exc_info=error, upstream=exchange.upstream)
    return Failure(Code.INTERNAL, "an error in the sidecar itself; its log has the details")


def _arrived(downstream: Downstream) -> bytes:
    """The body of a request that is not carried, if it has come by now: it says which model was asked for."""
    try:
        return downstream.body.whole() or b""
    except Failure:
        return b""


def _dial_again(failure: Failure) -> bool:
    """A handshake that was reset tells of one bad server behind the name; refusals and timeouts tell of all."""
    return failure.phase in (Phase.CONNECT, Phase.TLS) and failure.reason in (ErrorReason.RESET, ErrorReason.CLOSED)


def _send_again(failure: Failure, exchange: Exchange) -> bool:
    """Nothing was accepted, or accepting it twice does no harm; and only when a kept connection turned out dead."""
    if failure.code is not Code.UPSTREAM_CLOSED or not exchange.connection_reused:
        return False
    return failure.request_untouched or exchange.method in IDEMPOTENT
