"""For tests from end to end: sidecars in the test's own process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.kit.local import LocalSidecars


@pytest.fixture
async def sidecars(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> AsyncIterator[LocalSidecars]:
    """Starts sidecars in the test's own process (see LocalSidecars)."""
    async with LocalSidecars(tmp_path, caplog) as start:
        yield start
