"""The text of /metrics, rendered in slices so that no stream waits for a scrape.

Negotiation, the heads of families and all lines but those of histograms are prometheus_client's. Histograms are nine
lines in ten and cost the library 16 microseconds each, so their lines are written here from prefixes that are kept,
at an eighth of that. A test holds the result against the library's own, byte by byte.
"""

from __future__ import annotations

import asyncio
import gzip
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, choose_encoder, generate_latest, gzip_accepted

from sidecar.metrics.accumulators import Histogram
from sidecar.metrics.collector import go_number, histogram_head, library_family, process_registry, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from prometheus_client.metrics_core import Metric as LibraryMetric
    from prometheus_client.registry import Collector

    from sidecar.metrics.families import Family, Labels
    from sidecar.metrics.metric import Metric
    from sidecar.metrics.recorder import Recorder


GZIP_LEVEL = 1
"""A tenth of the size in a fifth of the time of level 6, which would save little more."""

SLICE_CHILDREN = 100
"""Histogram children, and SLICE_SAMPLES other samples, between two turns of the event loop: about a millisecond."""

SLICE_SAMPLES = 100

_END = b"# EOF\n"


class Exposition:
    """Renders the metrics of one recorder. Scrapes at the same time wait for each other: none costs another a stall."""

    def __init__(self, recorder: Recorder, clock: Callable[[], float]) -> None:
        """`clock` gives seconds that never go back."""
        self._recorder = recorder
        self._clock = clock
        self._process = process_registry()
        self._turn = asyncio.Lock()
        self._prefixes: WeakKeyDictionary[Histogram, list[str]] = WeakKeyDictionary()

    async def render(self, accept: str = "", accept_encoding: str = "") -> tuple[bytes, list[tuple[str, str]]]:
        """The body and its header fields, in the format `Accept` asks for: OpenMetrics, or text 0.0.4 for all else.

        Exemplars are in OpenMetrics only, which alone knows them. Compressed by gzip when `Accept-Encoding` has it.
        """
        encoder, content_type = _negotiate(accept)
        openmetrics = content_type.startswith("application/openmetrics-text")
        parts: list[bytes] = []
        busy = 0.0
        async with self._turn:
            slices = self._slices(encoder, openmetrics)
            while True:
                started = self._clock()
                part = next(slices, None)
                busy += self._clock() - started
                if part is None:
                    break
                parts.append(part)
                await asyncio.sleep(0)
        self._recorder.scrape_rendered(busy)
        if openmetrics:
            parts.append(_END)
        body = b"".join(parts)
        headers = [("Content-Type", content_type), ("Vary", "Accept, Accept-Encoding")]
        if gzip_accepted(accept_encoding):
            # zlib lets go of the interpreter while it compresses.
            body = await asyncio.to_thread(gzip.compress, body, GZIP_LEVEL, mtime=0)
            headers.append(("Content-Encoding", "gzip"))
        return body, headers

    def _slices(self, encoder: Callable[[Collector], bytes], openmetrics: bool) -> Iterator[bytes]:
        families = self._recorder.families
        for family in families:
            histogram = families.histograms.get(family.metric.name)
            if histogram is not None:
                yield from self._histogram(histogram, encoder, openmetrics)
            else:
                yield from _in_parts(library_family(family), encoder)
        yield _encoded(encoder, self._process.collect())

    def _histogram(
        self, family: Family[Histogram], encoder: Callable[[Collector], bytes], openmetrics: bool
    ) -> Iterator[bytes]:
        lines: list[str] = []
        children = list(visible(family))
        for index, (labels, child) in enumerate(children):
            if index % SLICE_CHILDREN == 0:
                if lines:
                    yield "".join(lines).encode()
                    lines.clear()
                else:
                    lines.append(_encoded(encoder, [histogram_head(family.metric)]).decode())
            prefixes = self._prefixes.get(child)
            if prefixes is None:
                prefixes = self._prefixes[child] = _line_prefixes(family.metric, labels, child)
            _write(lines, prefixes, child, openmetrics)
        if lines:
            yield "".join(lines).encode()


class _Given:
    """Collects families that are there already."""

    def __init__(self, families: Iterable[LibraryMetric]) -> None:
        self._families = families

    def collect(self) -> Iterable[LibraryMetric]:
        return self._families


def _encoded(encoder: Callable[[Collector], bytes], families: Iterable[LibraryMetric]) -> bytes:
    return encoder(_Given(families)).removesuffix(_END)


def _in_parts(snapshot: LibraryMetric, encoder: Callable[[Collector], bytes]) -> Iterator[bytes]:
    """The family, its head with the first part only; nothing when it has no sample."""
    samples = snapshot.samples
    for start in range(0, len(samples), SLICE_SAMPLES):
        snapshot.samples = samples[start : start + SLICE_SAMPLES]
        text = _encoded(encoder, [snapshot])
        if start:
            # HELP and TYPE are a line each: the library escapes line breaks in them.
            text = text.split(b"\n", 2)[2]
        yield text


def _negotiate(accept: str) -> tuple[Callable[[Collector], bytes], str]:
    try:
        return choose_encoder(accept)
    except (TypeError, ValueError):
        # A version that is no number: whoever asks for it gets what everybody understands.
        return generate_latest, CONTENT_TYPE_PLAIN_0_0_4


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _line_prefixes(metric: Metric, labels: Labels, child: Histogram) -> list[str]:
    """What precedes the value on each line: the buckets with +Inf, `_count`, `_sum`. Labels in alphabetical order."""
    names = [label.name for label in metric.labels]
    own = dict(zip(names, map(_escaped, labels), strict=True))
    prefixes = []
    for bound in (*child.bounds, float("inf")):
        pairs = sorted({**own, "le": go_number(bound)}.items())
        prefixes.append(f"{metric.full_name}_bucket{{{_joined(pairs)}}} ")
    joined = _joined(sorted(own.items()))
    braces = f"{{{joined}}}" if joined else ""
    return [*prefixes, f"{metric.full_name}_count{braces} ", f"{metric.full_name}_sum{braces} "]


def _joined(pairs: Iterable[tuple[str, str]]) -> str:
    return ",".join(f'{name}="{value}"' for name, value in pairs)


def _write(lines: list[str], prefixes: list[str], child: Histogram, openmetrics: bool) -> None:
    cumulative = 0
    exemplars = child.exemplars if openmetrics else None
    number = "0.0"
    for index, count in enumerate(child.counts):
        if count:
            cumulative += count
            number = go_number(cumulative)
        exemplar = exemplars[index] if exemplars is not None else None
        if exemplar is None:
            lines.append(f"{prefixes[index]}{number}\n")
        else:
            trace_id, value, at = exemplar
            lines.append(f'{prefixes[index]}{number} # {{trace_id="{trace_id}"}} {go_number(value)} {at}\n')
    lines.append(f"{prefixes[-2]}{number}\n")
    lines.append(f"{prefixes[-1]}{go_number(child.sum)}\n")
