from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.kit.pooled import Pooled


@pytest.fixture
def pooled() -> Iterator[Callable[..., Pooled]]:
    made: list[Pooled] = []

    def make(**settings: Any) -> Pooled:
        made.append(Pooled(**settings))
        return made[-1]

    yield make
    for each in made:
        each.close()
