from __future__ import annotations

import zlib
from collections.abc import Callable

import brotli
import pytest
import zstandard

from sidecar.simulator.codings import encoder

EVENTS = [b"data: one\n\n", b"data: two\n\n", b"data: \xe6\x9d\xb1\n\n"]

DECODERS: dict[str, Callable[[], Callable[[bytes], bytes]]] = {
    "gzip": lambda: zlib.decompressobj(31).decompress,
    "deflate": lambda: zlib.decompressobj(15).decompress,
    "br": lambda: brotli.Decompressor().process,
    "zstd": lambda: zstandard.ZstdDecompressor().decompressobj().decompress,
}


@pytest.mark.parametrize("name", list(DECODERS))
def test_each_event_can_be_decoded_before_the_next_one_comes(name: str) -> None:
    coder, decode = encoder(name), DECODERS[name]()
    assert [decode(coder.add(event)) for event in EVENTS] == EVENTS
    assert decode(coder.end()) == b""
