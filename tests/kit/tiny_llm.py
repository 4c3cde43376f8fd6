"""A real llama.cpp server with a random model of half a megabyte: real framing, usage and timings, nonsense for text.

`python -m tests.kit.tiny_llm MODEL PORT` is that server. Needs the extra `llm`.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from tests.kit.client import RawClient
from tests.kit.process import ROOT, free_port

MODEL_NAME = "tiny"

WIDTH, LAYERS, HEADS, FEED_FORWARD, CONTEXT = 64, 2, 4, 128, 512
WORDS = ("the", "a", "of", "to", "and", "in", "is", "cat", "dog", "sun", "code", "test", "token", "cache", "proxy")
TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"


def write_model(path: Path) -> None:
    """Write a LLaMA with random weights: 256 byte tokens, three special ones and a few words it prefers to say."""
    import gguf  # type: ignore[import-untyped, import-not-found, unused-ignore]
    import numpy

    random = numpy.random.default_rng(0)
    special = [(b"<unk>", gguf.TokenType.UNKNOWN), (b"<s>", gguf.TokenType.CONTROL), (b"</s>", gguf.TokenType.CONTROL)]
    single = [(b"<0x%02X>" % byte, gguf.TokenType.BYTE) for byte in range(256)]
    # llama's tokenizer writes the space before a word as U+2581.
    words = [("\u2581" + word).encode() for word in WORDS]
    vocabulary = special + single + [(word, gguf.TokenType.NORMAL) for word in words]
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_name("tiny-random")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_file_type(0)
    writer.add_vocab_size(len(vocabulary))
    writer.add_tokenizer_model("llama")
    writer.add_token_list([token for token, _ in vocabulary])
    writer.add_token_scores([-float(rank) for rank in range(len(vocabulary))])
    writer.add_token_types([kind for _, kind in vocabulary])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template(TEMPLATE)
    _add_weights(writer, random, len(vocabulary))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_weights(writer: Any, random: Any, size: int) -> None:
    import numpy

    def weights(name: str, *shape: int, scale: float = 0.2) -> Any:
        values = (random.standard_normal(shape) * scale).astype(numpy.float32)
        writer.add_tensor(name + ".weight", values)
        return values

    def norm(name: str) -> None:
        writer.add_tensor(name + ".weight", numpy.ones(WIDTH, numpy.float32))

    weights("token_embd", size, WIDTH)
    norm("output_norm")
    output = (random.standard_normal((size, WIDTH)) * 0.5).astype(numpy.float32)
    # Bytes and special tokens are made unlikely, so that a stream does not end at once.
    output[: size - len(WORDS)] *= 0.01
    writer.add_tensor("output.weight", output)
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        norm(block + "attn_norm")
        norm(block + "ffn_norm")
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            weights(block + part, WIDTH, WIDTH)
        weights(block + "ffn_gate", FEED_FORWARD, WIDTH)
        weights(block + "ffn_up", FEED_FORWARD, WIDTH)
        weights(block + "ffn_down", WIDTH, FEED_FORWARD)


def serve(model: str, port: int) -> None:
    """Run the server in this process until its standard input ends."""
    import xllamacpp  # type: ignore[import-untyped, import-not-found, unused-ignore]

    parameters = xllamacpp.CommonParams()
    parameters.model.path = model
    parameters.model_alias = {MODEL_NAME}
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = port
    parameters.n_parallel = 2
    parameters.n_ctx = CONTEXT
    parameters.cpuparams.n_threads = 1
    parameters.cpuparams_batch.n_threads = 1
    parameters.warmup = False
    server = xllamacpp.Server(parameters)
    print(server.listening_address, flush=True)
    sys.stdin.read()


class TinyLlm:
    """The server as a process of its own; `url` is its base, without `/v1`."""

    def __init__(self, directory: Path) -> None:
        self._model = directory / "tiny.gguf"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(write_model, self._model)
        command = [sys.executable, "-m", "tests.kit.tiny_llm", str(self._model), str(self.port)]
        # It ends when its standard input does, so that it never outlives the test.
        self._process = await asyncio.to_thread(
            subprocess.Popen, command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        until = time.monotonic() + 30
        while True:
            with suppress(OSError):
                async with await RawClient.connect(("127.0.0.1", self.port)) as client:
                    if (await client.request("GET", "/health")).status == 200:
                        return self
            if self._process.poll() is not None or time.monotonic() > until:
                await self.__aexit__()
                raise RuntimeError("the tiny model's server did not start")
            await asyncio.sleep(0.05)

    async def __aexit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.kill()
        await asyncio.to_thread(self._process.wait)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
