"""The file itself: what YAML is taken, and how environment variables come into it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sidecar.config.document import read_document
from sidecar.config.load import Flags, load
from sidecar.config.problems import ConfigError, Problems


def read(tmp_path: Path, text: str | bytes, **environ: str) -> dict[str, object]:
    """The mapping in `text`, which must be right."""
    file = tmp_path / "sidecar.yaml"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    problems: Problems = {}
    document = read_document(str(file), environ, problems)
    assert problems == {}
    return document


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("text", "text"),
        ("'12'", "12"),
        ("12", 12),
        ("-1_000", -1000),
        ("1.5", 1.5),
        ("yes", True),
        ("off", False),
        ("~", None),
        ("", None),
        ("2024-08-06", "2024-08-06"),
        ("1:30", "1:30"),
        ("1:30.5", "1:30.5"),
        ("=", "="),
        ("!!str 12", "12"),
        ("!!int twelve", "twelve"),
        ("!!float twelve", "twelve"),
        ("!!bool twelve", "twelve"),
        ("0x_", "0x_"),
        ("9" * 5000, "9" * 5000),
        ("127.0.0.1:8080", "127.0.0.1:8080"),
        ("[1, [2]]", [1, [2]]),
        ("{a: {b: 1}}", {"a": {"b": 1}}),
    ],
)
def test_values_are_those_of_yaml_without_its_traps(tmp_path: Path, written: str, value: object) -> None:
    assert read(tmp_path, f"key: {written}\n") == {"key": value}


def test_keys_are_text_whatever_they_look_like(tmp_path: Path) -> None:
    assert read(tmp_path, "1: a\non: b\n~: c\n") == {"1": "a", "on": "b", "~": "c"}


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    assert read(tmp_path, b"\xef\xbb\xbfa: 1\n") == {"a": 1}


def test_anchors_and_merges_work_and_own_keys_win(tmp_path: Path) -> None:
    text = """
base: &base {a: 1, b: {c: 2}}
more: &more {<<: *base, a: 3}
all: {<<: [*more, {a: 4, d: 5}], e: 6}
same: *base
"""
    document = read(tmp_path, text)
    assert document["all"] == {"e": 6, "a": 3, "b": {"c": 2}, "d": 5}
    assert document["same"] == {"a": 1, "b": {"c": 2}}


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("${A}", "one"),
        ("x${A}y${B}z", "xoney2z"),
        ('"${A}"', "one"),
        ("$${A}", "${A}"),
        ("$A $ {A}", "$A $ {A}"),
        ("${LOOP}", "${A}"),
        ("[x, '${A}']", ["x", "one"]),
    ],
)
def test_environment_variables_are_put_in_once(tmp_path: Path, written: str, value: object) -> None:
    assert read(tmp_path, f"key: {written}\n", A="one", B="2", LOOP="${A}") == {"key": value}


def test_keys_and_comments_are_not_substituted(tmp_path: Path) -> None:
    assert read(tmp_path, "'${A}': 1 # ${A}\n") == {"${A}": 1}


def test_numbers_and_words_may_come_from_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "sidecar.yaml"
    file.write_text("""
upstreams:
  - name: ${NAME}
    url: ${URL}
    pool: {max_connections: "${COUNT}"}
    timeouts: {connect: "${COUNT}ms"}
    tls: {verify: "${VERIFY}"}
limits: {max_header_bytes: "${SIZE}"}
drain_timeout: ${ZERO}
""")
    environ = {"NAME": "a", "URL": "https://a.example", "COUNT": "7", "VERIFY": "false", "SIZE": "2048", "ZERO": "0"}

    config = load(str(file), flags=Flags(), environ=environ)

    (upstream,) = config.upstreams
    assert (upstream.name, str(upstream.url)) == ("a", "https://a.example")
    assert type(upstream.name) is str
    assert (upstream.pool.max_connections, upstream.timeouts.connect, upstream.tls.verify) == (7, 0.007, False)
    assert (config.limits.max_header_bytes, config.drain_timeout) == (2048, 0.0)


def test_a_quoted_number_of_the_file_stays_text(tmp_path: Path) -> None:
    file = tmp_path / "sidecar.yaml"
    file.write_text("models: {limit: '7'}\nupstreams: [{name: a, url: https://a.example}]")
    with pytest.raises(ConfigError, match="limit: must be a whole number"):
        load(str(file), flags=Flags(), environ={})


def problem_of(path: str | Path) -> str:
    """What is wrong with the file as a whole, without its name."""
    with pytest.raises(ConfigError) as caught:
        read_document(str(path), {}, {})
    (problem,) = caught.value.problems
    assert "\n" not in str(problem)
    return problem.message


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    assert problem_of(tmp_path / "none.yaml") == "cannot be read: No such file or directory"
    assert problem_of(tmp_path) == "cannot be read: Is a directory"
    assert problem_of("a\0b") == "is not a file name"
    assert problem_of(os.fsdecode(b"/none/\xff\n")) == "cannot be read: No such file or directory"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a: 1\n#" + b"x" * 256 * 1024, "is larger than 256 KiB"),
        (b"[" * 20_000, "is nested too deeply, or an alias contains itself"),
        (b"a: " + b"{a: " * 40 + b"1" + b"}" * 40, "is nested too deeply, or an alias contains itself"),
        (b"a: [" + b"1, " * 10_000 + b"]", "has more than 10000 values, its aliases included"),
        (b"\xff\xfea\x00:\x00", "is not UTF-8 text (byte 0)"),
        (b"12", "must have keys at its top, such as 'upstreams:'"),
        (b"a: 'x", "line 1, column 6: found unexpected end of stream"),
        (b"a: %x", "line 1, column 4: found character '%' that cannot start any token"),
        (b"a: !hunter2!x y", "line 1, column 4: found undefined tag handle"),
        (b"a: &hunter2 1\nb: *hunter3", "line 2, column 4: found undefined alias"),
        (
            b"a: &hunter2 1\nb: &hunter2 2",
            "line 2, column 4: found duplicate anchor; first occurrence, second occurrence",
        ),
    ],
)
def test_files_that_are_no_mapping_are_refused_as_a_whole(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "sidecar.yaml"
    file.write_bytes(content)
    assert problem_of(file) == message


_KEYS = st.sampled_from(
    [
        *("upstreams", "name", "url", "prefix", "pool", "max_idle", "max_connections", "timeouts", "dns", "tls"),
        *("ca_file", "verify", "proxy", "credentials", "type", "cache", "log", "level", "models", "allow", "limit"),
        *("metrics", "buckets", "limits", "slo", "listen", "admin", "drain_timeout"),
    ]
)
_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(
        ["5s", "0", "1KiB", "https://a.example", "${X}", "${", "/", "none", "env", "127.0.0.1:1", "[::1]:1"]
    ),
)
_TREES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.one_of(_KEYS, st.text(max_size=5)), inner, max_size=6)
    ),
    max_leaves=25,
)
_FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@_FUZZ
@given(tree=st.one_of(_TREES, st.dictionaries(_KEYS, _TREES, max_size=8)))
def test_any_tree_is_a_configuration_or_a_list_of_problems(tmp_path: Path, tree: object) -> None:
    _load_or_refuse(tmp_path, yaml.safe_dump(tree, allow_unicode=True).encode("utf-8", "surrogatepass"))


@_FUZZ
@given(content=st.one_of(st.binary(max_size=60), st.text(max_size=60).map(lambda text: text.encode())))
def test_any_bytes_are_a_configuration_or_a_list_of_problems(tmp_path: Path, content: bytes) -> None:
    _load_or_refuse(tmp_path, content)


def _load_or_refuse(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "sidecar.yaml"
    file.write_bytes(content)
    problems = None
    try:
        load(str(file), flags=Flags(), environ={"X": "a value"})
    except ConfigError as error:
        problems = error.problems
    if problems is not None:
        assert problems
        assert all(problem.path and problem.message for problem in problems)
        assert all(len(str(problem).splitlines()) == 1 for problem in problems)
