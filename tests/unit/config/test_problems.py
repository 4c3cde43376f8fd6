"""What a message may quote."""

from __future__ import annotations

import pytest

from sidecar.config.problems import ConfigError, FromEnvironment, Problem, closest, key_step, quoted


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "null"),
        (True, "true"),
        (False, "false"),
        (1, "1"),
        pytest.param(10**5000, "a huge number", id="huge"),
        (0.25, "0.25"),
        (float("inf"), "inf"),
        ([], "a list"),
        ({}, "a mapping"),
        ("text", "'text'"),
        ("two\nlines\u2028", "'two\\nlines\\u2028'"),
        ("x" * 100, f"'{'x' * 55}...'"),
        ("http://me:hunter2@a.example:1", "'***@a.example:1'"),
        ("http://a.example/?key=hunter2", "'http://a.example/?***'"),
        ("me:hunter2@a.example?key=hunter2", "'***@a.example?***'"),
        (FromEnvironment("hunter2"), "what the environment gave"),
    ],
)
def test_values_are_quoted_on_one_short_line_without_credentials(value: object, shown: str) -> None:
    assert quoted(value) == shown


@pytest.mark.parametrize(
    ("name", "step"),
    [("max_idle", "max_idle"), ("a b", "'a b'"), ("", "''"), ("a\nb", "'a\\nb'"), ("p@ss", "'***@ss'")],
)
def test_odd_keys_are_quoted_in_paths(name: str, step: str) -> None:
    assert key_step(name) == step


def test_an_error_is_one_problem_per_line() -> None:
    error = ConfigError([Problem("a.b", "is missing"), Problem("c", "unknown key")])
    assert str(error) == "a.b: is missing\nc: unknown key"
    assert isinstance(error, ValueError)


def test_the_closest_name_is_a_near_one_or_none() -> None:
    assert closest("max_conections", ["max_idle", "max_connections"]) == "max_connections"
    assert closest("zzz", ["max_idle"]) is None
