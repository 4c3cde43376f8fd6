from __future__ import annotations

import asyncio
import socket

import pytest

from sidecar.config.model import Address
from sidecar.demo.scrape import Sample, scrape

TEXT = """\
# HELP llm_sidecar_requests_total Requests.
# TYPE llm_sidecar_requests_total counter
llm_sidecar_requests_total{upstream="chat",code="200"} 3.0
llm_sidecar_requests_total{upstream="chat",code="502"} 1.0
llm_sidecar_requests_total{upstream="other",code="200"} 5.0
llm_sidecar_requests_total_other{upstream="chat"} 100.0
llm_sidecar_wait_seconds_bucket{upstream="chat",le="+Inf"} 4.0
llm_sidecar_wait_seconds_sum{upstream="chat"} 2.0
llm_sidecar_wait_seconds_count{upstream="chat"} 4.0
llm_sidecar_wait_seconds_sum{upstream="other"} 1e-3
llm_sidecar_wait_seconds_count{upstream="other"} 1.0
process_open_fds 7.0
"""


def test_series_are_summed_by_the_labels_that_are_asked_for() -> None:
    sample = Sample(TEXT)
    assert sample.total("requests_total") == 9
    assert sample.total("requests_total", upstream="chat") == 4
    assert sample.total("requests_total", upstream="chat", code="502") == 1
    assert sample.total("requests_total", code="404") == 0
    assert sample.total("process_open_fds") == 0, "not of this program"


def test_a_mean_is_sum_over_count() -> None:
    sample = Sample(TEXT)
    assert sample.mean("wait_seconds", upstream="chat") == 0.5
    assert sample.mean("wait_seconds") == pytest.approx(0.4002)
    assert sample.mean("wait_seconds", upstream="nobody") is None
    assert Sample("").mean("wait_seconds") is None


def test_the_mean_of_what_came_after_another_sample() -> None:
    later = Sample(TEXT.replace('sum{upstream="chat"} 2.0', 'sum{upstream="chat"} 5.0').replace("} 4.0", "} 6.0"))
    assert later.mean("wait_seconds", Sample(TEXT), upstream="chat") == 1.5
    assert later.mean("wait_seconds", later, upstream="chat") is None


async def test_a_scrape_reads_what_an_admin_port_answers() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"GET /metrics HTTP/1.1\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + TEXT.encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    sample = await scrape(Address(host, port))
    server.close()
    await server.wait_closed()
    assert sample.total("requests_total") == 9


async def test_nobody_answering_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(OSError, match="refused"):
        await scrape(Address("127.0.0.1", port))
