"""Names to addresses: cached for as long as the answer says, and served stale when the name server fails."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from sidecar import log
from sidecar.exchange import Phase
from sidecar.failures import Code, ErrorReason, Failure

AddrInfo = tuple[int, int, int, str, tuple[Any, ...]]
"""As from `socket.getaddrinfo`."""

MIN_TTL_SECONDS = 1.0
MAX_TTL_SECONDS = 300.0
"""A provider that fails over by DNS must be followed within minutes, whatever its records say."""

STALE_SECONDS = 24 * 3600.0
"""How old an answer may get while the name server does not answer; an old address beats none."""

RETRY_STALE_SECONDS = 5.0
"""After a failed refresh the stale answer counts as fresh for so long, so that requests do not each wait."""

Lookup = Callable[[str, int], Awaitable[tuple[list[AddrInfo], float]]]
"""(host, port) → addresses and their time to live in seconds. Raises OSError."""


@dataclass(slots=True)
class _Answer:
    addresses: list[AddrInfo]
    expires: float
    dies: float


class Resolver:
    """Caches the answers of one `lookup`. Concurrent questions for the same name are asked once."""

    def __init__(self, lookup: Lookup, clock: Callable[[], float]) -> None:
        self._lookup = lookup
        self._clock = clock
        self._answers: dict[tuple[str, int], _Answer] = {}
        self._running: dict[tuple[str, int], asyncio.Task[list[AddrInfo]]] = {}

    async def resolve(self, host: str, port: int, timeout: float) -> tuple[list[AddrInfo], bool]:
        """Addresses of `host`, and whether they had to be asked for (a literal or a cached name was not).

        Raises Failure with phase dns when there is neither an answer nor a stale one within `timeout` seconds.
        """
        literal = literal_address(host, port)
        if literal is not None:
            return [literal], False
        key = (host, port)
        now = self._clock()
        answer = self._answers.get(key)
        if answer is not None and now < answer.expires:
            return answer.addresses, False
        task = self._running.get(key)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._ask(key))
            self._running[key] = task
            task.add_done_callback(lambda done: self._answered(key, done))
        try:
            # Shielded: one waiting request that leaves must not take the answer away from the others.
            return await asyncio.wait_for(asyncio.shield(task), timeout), True
        except (TimeoutError, OSError) as error:
            return self._stale(key, answer, error), True

    def _answered(self, key: tuple[str, int], task: asyncio.Task[list[AddrInfo]]) -> None:
        del self._running[key]
        if not task.cancelled():
            task.exception()  # When all who waited have left, nobody else takes note of it, and asyncio complains.

    async def _ask(self, key: tuple[str, int]) -> list[AddrInfo]:
        addresses, ttl = await self._lookup(*key)
        if not addresses:
            raise OSError("the name has no address")
        now = self._clock()
        fresh = min(max(ttl, MIN_TTL_SECONDS), MAX_TTL_SECONDS)
        self._answers[key] = _Answer(addresses, now + fresh, now + STALE_SECONDS)
        return addresses

    def _stale(self, key: tuple[str, int], answer: _Answer | None, error: Exception) -> list[AddrInfo]:
        host = key[0]
        now = self._clock()
        if answer is not None and now < answer.dies:
            answer.expires = now + RETRY_STALE_SECONDS
            log.warning("dns_stale", host=host, reason=str(error) or type(error).__name__)
            return answer.addresses
        if isinstance(error, TimeoutError):
            raise Failure(
                Code.DNS_TIMEOUT, f"no answer for the name {host!r} in time", Phase.DNS, ErrorReason.TIMEOUT, True
            ) from error
        raise Failure(
            Code.DNS_FAILED, f"cannot resolve {host!r}: {error}", Phase.DNS, ErrorReason.NOT_FOUND, True
        ) from error


def literal_address(host: str, port: int) -> AddrInfo | None:
    """The address of a host that is an IP literal."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    if address.version == 6:
        return (socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (str(address), port, 0, 0))
    return (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (str(address), port))


def system_lookup() -> Lookup:
    """Ask as the host is set up to (/etc/hosts, search domains, name servers), by c-ares, which tells the TTL.

    getaddrinfo of the C library would hide it and would cost a thread for each question.
    """
    import aiodns  # noqa: PLC0415 - 60 ms that a start does not need

    resolver: Any = None

    async def lookup(host: str, port: int) -> tuple[list[AddrInfo], float]:
        nonlocal resolver
        if resolver is None:
            resolver = aiodns.DNSResolver()
        try:
            result = await resolver.getaddrinfo(host, port=port, family=socket.AF_UNSPEC, type=socket.SOCK_STREAM)
        except aiodns.error.DNSError as error:
            raise OSError(error.args[1] if len(error.args) > 1 else str(error)) from error
        addresses: list[AddrInfo] = []
        ttl = MAX_TTL_SECONDS
        for node in result.nodes:
            text = node.addr[0].decode() if isinstance(node.addr[0], bytes) else node.addr[0]
            made = literal_address(text, port)
            if made is not None:
                addresses.append(made)
                ttl = min(ttl, float(node.ttl))
        return addresses, ttl

    return lookup
