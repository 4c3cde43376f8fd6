"""The page docs/configuration.md is what the declarations say."""

from __future__ import annotations

import re
from pathlib import Path

from sidecar.config.load import Flags, load
from sidecar.config.reference import reference
from sidecar.config.schema import ListOf, Section
from sidecar.config.sections import ROOT

PAGE = Path(__file__).resolve().parents[3] / "docs" / "configuration.md"


def test_the_committed_page_is_fresh() -> None:
    assert PAGE.read_text() == reference(), "python -m sidecar.config.reference > docs/configuration.md"


def test_every_example_of_the_page_is_right(tmp_path: Path) -> None:
    examples = re.findall(r"```yaml\n(.*?)```", reference(), re.DOTALL)
    assert len(examples) == 2
    for text in examples:
        (tmp_path / "sidecar.yaml").write_text(text)
        assert load(str(tmp_path / "sidecar.yaml"), flags=Flags(), environ={}).upstreams


def test_every_key_has_a_row_with_its_meaning() -> None:
    rows = [line for line in reference().splitlines() if line.startswith("| `")]

    def keys(section: Section) -> list[str]:
        inner = [field.kind.kind if isinstance(field.kind, ListOf) else field.kind for field in section.fields]
        return [field.name for field in section.fields] + [
            name for kind in inner if isinstance(kind, Section) for name in keys(kind)
        ]

    names = [match[1] for row in rows if (match := re.match(r"\| `([a-z_]+)` \| .+ \| .* \| .{5,} \|$", row))]
    assert sorted(names) == sorted(keys(ROOT))
