"""Reads the sidecar's own /metrics as Prometheus would; sums and counts give means without any bucket's width."""

from __future__ import annotations

import asyncio
import re

from sidecar.config.model import Address

_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


class Sample:
    """All series of one scrape."""

    def __init__(self, text: str) -> None:
        self._series = [
            (name, dict(_LABEL.findall(labels)), float(value)) for name, labels, value in _SAMPLE.findall(text)
        ]

    def total(self, name: str, **labels: str) -> float:
        """The sum over the series of `llm_sidecar_<name>` that carry these labels."""
        full = f"llm_sidecar_{name}"
        wanted = labels.items()
        return sum(value for series, has, value in self._series if series == full and wanted <= has.items())

    def mean(self, name: str, before: Sample | None = None, **labels: str) -> float | None:
        """The mean of a histogram, of what came after `before`; None without samples."""
        count = self.total(f"{name}_count", **labels)
        total = self.total(f"{name}_sum", **labels)
        if before is not None:
            count -= before.total(f"{name}_count", **labels)
            total -= before.total(f"{name}_sum", **labels)
        return total / count if count else None


async def scrape(admin: Address) -> Sample:
    """Fetch /metrics. Raises OSError when nobody answers."""
    reader, writer = await asyncio.open_connection(admin.host, admin.port)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: demo\r\nConnection: close\r\n\r\n")
    answer = await reader.read(-1)
    writer.close()
    return Sample(answer.split(b"\r\n\r\n", 1)[-1].decode())
