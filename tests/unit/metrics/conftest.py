"""Hand-made exchanges and a look into the recorder, for the tests of sidecar.metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sidecar.config.model import Config, Upstream, Url
from sidecar.dialects.reading import Operation, Reading, RequestFacts, Usage
from sidecar.exchange import Exchange
from sidecar.metrics.accumulators import Counter, Gauge, Histogram
from sidecar.metrics.recorder import Recorder

CHAT = RequestFacts(Operation.CHAT, "gpt", stream=True)


def make_config(*names: str, **changes: Any) -> Config:
    upstreams = tuple(Upstream(name, Url("https", "api.example.com", 443), f"/{name}") for name in names or ("api",))
    return Config(upstreams, **changes)


def make_reading(**changes: Any) -> Reading:
    """A stream with token events at 101.0, 101.5 and 102.0 s and 21 output tokens."""
    values: dict[str, Any] = {
        "dialect": "openai",
        "operation": Operation.CHAT,
        "streamed": True,
        "usage": Usage(input=10, output=21),
        "token_events": 3,
        "first_token_at": 101.0,
        "first_output_at": 101.0,
        "last_token_at": 102.0,
        "gaps": [0.5, 0.5],
        "complete": True,
    }
    return Reading(**{**values, **changes})


def make_exchange(**changes: Any) -> Exchange:
    """Start 100.0, connected after 0.5 s of which dialling took 0.25, sent at 100.625, head at 101.0, end at 102.5."""
    values: dict[str, Any] = {
        "upstream": "api",
        "dialect": "openai",
        "method": "POST",
        "target": "/v1/chat/completions",
        "t0": 100.0,
        "started_at": 1_700_000_000.0,
        "t_conn": 100.5,
        "dns": 0.0625,
        "connect": 0.0625,
        "tls": 0.125,
        "t_send0": 100.5625,
        "t_send1": 100.625,
        "status": 200,
        "t_hdr": 101.0,
        "t_end": 102.5,
        "reading": make_reading(),
    }
    return Exchange(**{**values, **changes})


class Look:
    """Reads single values of a recorder."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def _child(self, name: str, labels: dict[str, str]) -> Counter | Gauge | Histogram:
        for family in self.recorder.families:
            if family.metric.name == name:
                wanted = tuple(labels[label.name] for label in family.metric.labels)
                return family.children[wanted]
        raise KeyError(name)

    def value(self, name: str, **labels: str) -> float:
        child = self._child(name, {"upstream": "api", "model": "gpt", **labels})
        assert not isinstance(child, Histogram)
        assert child.value is not None
        return child.value

    def samples(self, name: str, **labels: str) -> tuple[int, float]:
        """Count and sum."""
        child = self._child(name, {"upstream": "api", "model": "gpt", **labels})
        assert isinstance(child, Histogram)
        return child.count, child.sum

    def total(self, name: str) -> float:
        """The sum over all children of a counter, or the number of observations of a histogram."""
        families = self.recorder.families
        if name in families.counters:
            return sum(child.value for child in families.counters[name].children.values())
        return sum(child.count for child in families.histograms[name].children.values())


@pytest.fixture
def config() -> Callable[..., Config]:
    return make_config


@pytest.fixture
def reading() -> Callable[..., Reading]:
    return make_reading


@pytest.fixture
def exchange() -> Callable[..., Exchange]:
    return make_exchange


@pytest.fixture
def chat() -> RequestFacts:
    return CHAT


@pytest.fixture
def recorder() -> Recorder:
    return Recorder(make_config())


@pytest.fixture
def look(recorder: Recorder) -> Look:
    return Look(recorder)


@pytest.fixture
def measure(recorder: Recorder, look: Look) -> Callable[..., Look]:
    """Record one exchange with changes to it and to its reading, and look at the recorder."""

    def record(changes: dict[str, Any], read: dict[str, Any], facts: RequestFacts = CHAT) -> Look:
        recorder.record(make_exchange(**{"reading": make_reading(**read), **changes}), facts)
        return look

    return record
