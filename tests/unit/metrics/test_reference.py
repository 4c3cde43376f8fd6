from __future__ import annotations

from pathlib import Path

from sidecar.metrics.catalogue import CATALOGUE
from sidecar.metrics.reference import reference

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"


def test_the_page_is_fresh() -> None:
    assert PAGE.read_text() == reference(), "run: python -m sidecar.metrics.reference > docs/metrics.md"


def test_the_page_has_every_metric_with_its_labels() -> None:
    page = reference()
    for metric in CATALOGUE:
        part = page.split(f"### `{metric.full_name}`\n")[1].split("### ")[0]
        assert metric.help in part
        for label in metric.labels:
            assert f"- `{label.name}`" in part
            for value in label.values or ():
                assert f"`{value}`" in part
