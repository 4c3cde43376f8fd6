"""Every module has its tests where one looks for them: sidecar/a/b.py in tests/unit/a/test_b.py."""

from __future__ import annotations

import ast
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "sidecar"
UNIT = ROOT / "tests/unit"

ELSEWHERE: dict[str, str] = {
    # What a provider's bytes mean is held against recordings of them.
    "dialects/*": "tests/conformance/test_recordings.py",
    # The simulated APIs are asked as a client asks them.
    "simulator/*": "tests/e2e/test_simulator.py",
    # What sections and kinds refuse is said in the words of whole files.
    "config/*": "tests/unit/config/test_load.py",
    # A request is nothing without the connection it came on.
    "listeners/http1_exchange.py": "tests/unit/listeners/test_http1.py",
    # What is sent is seen at the upstream's end of a whole request.
    "proxy/outgoing.py": "tests/unit/proxy/test_forward.py",
    # Tables of metrics.
    "metrics/*metric*.py": "tests/unit/metrics/test_catalogue.py",
    # Runs the sidecar and the load as processes.
    "demo/__init__.py": "tests/e2e/test_demo.py",
    "demo/kinds.py": "tests/unit/demo/test_report.py",
    "__main__.py": "tests/unit/test_cli.py",
}
"""Patterns of modules without a file of their name, and where they are tested instead."""

NOT_OF_A_MODULE = {"test_imports.py", "test_mirror.py"}


def has_behaviour(path: Path) -> bool:
    """More than docstrings, imports, constants and protocols."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return True
        if isinstance(node, ast.ClassDef) and not any(ast.unparse(base) == "Protocol" for base in node.bases):
            return True
    return False


def mirror_of(module: Path) -> Path:
    relative = module.relative_to(PACKAGE)
    return UNIT / relative.parent / f"test_{relative.name}"


MODULES = sorted(path for path in PACKAGE.rglob("*.py") if has_behaviour(path) or path.name == "__main__.py")
WITHOUT = [path for path in MODULES if not mirror_of(path).exists()]


@pytest.mark.parametrize("module", WITHOUT, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_without_a_test_of_its_name_is_tested_elsewhere(module: Path) -> None:
    name = str(module.relative_to(PACKAGE))
    assert any(fnmatch(name, pattern) for pattern in ELSEWHERE), f"no {mirror_of(module).relative_to(ROOT)}"


@pytest.mark.parametrize("pattern", ELSEWHERE)
def test_the_exceptions_are_needed_and_lead_somewhere(pattern: str) -> None:
    assert any(fnmatch(str(path.relative_to(PACKAGE)), pattern) for path in WITHOUT)
    assert (ROOT / ELSEWHERE[pattern]).exists()


@pytest.mark.parametrize("test", sorted(UNIT.rglob("test_*.py")), ids=lambda path: str(path.relative_to(UNIT)))
def test_a_test_has_the_name_of_its_module(test: Path) -> None:
    if test.name in NOT_OF_A_MODULE:
        return
    folder = PACKAGE / test.parent.relative_to(UNIT)
    name = test.stem.removeprefix("test_")
    assert any(name == path.stem or name.startswith(f"{path.stem}_") for path in folder.glob("*.py")), f"of {folder}"
