"""The kinds of traffic the demo drives, each with delays of its own, so that no two truths look alike."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """One API under steady load. `ttft`, `itl` and `tls_delay` are the simulated seconds; `rate` requests/s."""

    name: str
    path: str
    body: str
    dialect: str
    ttft: float
    itl: float
    tokens: int
    tls_delay: float
    rate: float
    streamed: bool = True


_ASK = '"messages":[{"role":"user","content":"why is it slow?"}]'

KINDS = (
    Kind(
        "chat",
        "/v1/chat/completions",
        f'{{"model":"sim-chat","stream":true,"stream_options":{{"include_usage":true}},{_ASK}}}',
        "openai",
        ttft=0.300,
        itl=0.020,
        tokens=40,
        tls_delay=0.030,
        rate=3.0,
    ),
    Kind(
        "responses",
        "/v1/responses",
        '{"model":"sim-responses","stream":true,"input":"why is it slow?"}',
        "openai",
        ttft=0.450,
        itl=0.015,
        tokens=60,
        tls_delay=0.045,
        rate=2.0,
    ),
    Kind(
        "messages",
        "/v1/messages",
        f'{{"model":"sim-messages","max_tokens":512,"stream":true,{_ASK}}}',
        "anthropic",
        ttft=0.600,
        itl=0.030,
        tokens=30,
        tls_delay=0.060,
        rate=2.0,
    ),
    Kind(
        "ollama",
        "/api/chat",
        f'{{"model":"sim-ollama","stream":true,{_ASK}}}',
        "ollama",
        ttft=0.150,
        itl=0.010,
        tokens=80,
        tls_delay=0.020,
        rate=2.0,
    ),
    Kind(
        "embeddings",
        "/v1/embeddings",
        '{"model":"sim-embeddings","input":"why is it slow?"}',
        "openai",
        ttft=0.080,
        itl=0.0,
        tokens=1,
        tls_delay=0.015,
        rate=4.0,
        streamed=False,
    ),
)
