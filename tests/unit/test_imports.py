"""Imports point one way, and each outside library has one home."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "sidecar"

TIERS: tuple[tuple[str, ...], ...] = (
    ("__main__", "cli"),
    ("serve", "demo"),
    ("app",),
    ("origins", "ticker"),
    ("listeners", "proxy", "admin", "simulator"),
    ("upstreams", "cache", "credentials", "dialects", "metrics"),
    ("config",),
    ("exchange", "failures", "http_fields", "log"),
)
"""A part may import what stands in the tiers below its own. Within one tier it may as long as there is no circle."""

HOMES: dict[str, tuple[str, ...]] = {
    "prometheus_client": ("metrics",),
    "aiohttp": ("listeners", "admin", "app"),
    "httptools": ("upstreams", "simulator"),
    "aiohappyeyeballs": ("upstreams",),
    "aiodns": ("upstreams",),
    "pycares": ("upstreams",),
    "yaml": ("config",),
    "brotli": ("dialects", "simulator"),
    "zstandard": ("dialects", "simulator"),
    "cryptography": ("simulator",),
    "uvloop": ("serve", "demo", "simulator"),
}
"""Outside libraries and the only parts that may import them."""

NOT_IN_DIALECTS = {"asyncio", "socket", "ssl", "time", "datetime", "os", "pathlib", "threading", "subprocess", "random"}
"""Dialects do no I/O and read no clock."""

Import = tuple[str, int]
"""Dotted name and line."""


def part_of(path: Path) -> str:
    """`sidecar/a/b.py` and `sidecar/a.py` are of the part `a`."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports_of(path: Path) -> Iterator[Import]:
    """What a module imports when it runs, late imports included, and those for type checkers not."""

    def walk(node: ast.AST) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports relatively"
            assert node.module is not None
            # `from sidecar import app` names a module, `from sidecar.app import App` does not.
            names = (
                [f"{node.module}.{alias.name}" for alias in node.names] if node.module == "sidecar" else [node.module]
            )
            yield from ((name, node.lineno) for name in names)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for otherwise in node.orelse:
                yield from walk(otherwise)
        else:
            for child in ast.iter_child_nodes(node):
                yield from walk(child)

    return walk(ast.parse(path.read_text()))


MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")
RANK = {part: rank for rank, tier in enumerate(TIERS) for part in tier}


def inner_imports(path: Path) -> Iterator[Import]:
    """The parts of the package that a module imports from."""
    for name, line in imports_of(path):
        parts = name.split(".")
        if parts[0] == "sidecar" and len(parts) > 1 and parts[1] != "__version__":
            yield parts[1], line


def test_every_part_has_its_tier() -> None:
    assert {part_of(path) for path in MODULES} <= RANK.keys()


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    own = part_of(path)
    upward = [f"{path}:{line} imports {part}" for part, line in inner_imports(path) if RANK[part] < RANK[own]]
    assert not upward


def test_parts_do_not_import_in_a_circle() -> None:
    graph: dict[str, set[str]] = {}
    for path in MODULES:
        own = part_of(path)
        graph.setdefault(own, set()).update(part for part, _ in inner_imports(path) if part != own)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"a circle of imports: {' -> '.join(error.args[1])}")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_outside_libraries_stay_in_their_homes(path: Path) -> None:
    own = part_of(path)
    astray = [
        f"{path}:{line} imports {name}"
        for name, line in imports_of(path)
        if own not in HOMES.get(name.split(".")[0], (own,))
    ]
    assert not astray


@pytest.mark.parametrize(
    "path", [path for path in MODULES if part_of(path) == "dialects"], ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_dialects_do_no_io_and_read_no_clock(path: Path) -> None:
    found = [
        f"{path}:{line} imports {name}" for name, line in imports_of(path) if name.split(".")[0] in NOT_IN_DIALECTS
    ]
    assert not found


def test_what_is_read_here_is_what_python_would_import(tmp_path: Path) -> None:
    module = tmp_path / "sample.py"
    module.write_text(
        "import a.b\nif TYPE_CHECKING:\n    import never\nelse:\n    import other\n"
        "def f():\n    from sidecar import app\n    from sidecar.proxy import x\n"
    )
    assert [name for name, _ in imports_of(module)] == ["a.b", "other", "sidecar.app", "sidecar.proxy"]
