"""Flags beat environment, which beats the file; and everything wrong is told at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from sidecar.config.load import ConfigSource, Flags, admin_address, load
from sidecar.config.model import Address, Config, Secret, Upstream, Url
from sidecar.config.problems import ConfigError

FILE = """
listen: 127.0.0.1:1001
admin: 127.0.0.1:1002
log: {level: debug, format: console}
upstreams:
  - {name: file, url: https://file.example, prefix: /file}
  - {name: other, url: https://other.example}
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A configuration file that is right."""
    path = tmp_path / "sidecar.yaml"
    path.write_text(FILE)
    return str(path)


def problems_of(
    path: str | None, flags: Flags | None = None, known: frozenset[str] = frozenset(), **environ: str
) -> list[str]:
    """What is wrong, a line for each."""
    with pytest.raises(ConfigError) as caught:
        load(path, flags=flags or Flags(), environ=environ, known_metrics=known)
    assert str(caught.value).split("\n") == [str(problem) for problem in caught.value.problems]
    return [str(problem) for problem in caught.value.problems]


def test_an_upstream_url_alone_is_a_full_configuration() -> None:
    whole = Config((Upstream("default", Url("https", "api.openai.com", 443, "/v1")),))
    assert load(None, flags=Flags(upstream="https://api.openai.com/v1"), environ={}) == whole
    assert load(None, flags=Flags(), environ={"SIDECAR_UPSTREAM": "https://api.openai.com/v1"}) == whole


def test_nothing_at_all_is_not_enough() -> None:
    assert problems_of(None) == ["upstreams: at least one is needed, here or as --upstream URL"]


def test_the_file_is_named_by_the_flag_or_else_by_the_environment(file: str) -> None:
    assert load(None, flags=Flags(), environ={"SIDECAR_CONFIG": file}) == load(file, flags=Flags(), environ={})
    assert load(file, flags=Flags(), environ={"SIDECAR_CONFIG": "/none"}).upstreams[0].name == "file"
    assert problems_of(None, SIDECAR_CONFIG="/none") == ["/none: cannot be read: No such file or directory"]


def test_the_environment_beats_the_file(file: str) -> None:
    environ = {
        "SIDECAR_LISTEN": "0.0.0.0:2001",
        "SIDECAR_ADMIN": "0.0.0.0:2002",
        "SIDECAR_UPSTREAM": "http://env.example",
        "SIDECAR_LOG_LEVEL": "warning",
    }

    config = load(file, flags=Flags(), environ=environ)

    assert (str(config.listen), str(config.admin)) == ("0.0.0.0:2001", "0.0.0.0:2002")
    assert config.upstreams == (Upstream("default", Url("http", "env.example", 80)),)
    assert (config.log.level, config.log.format) == ("warning", "console")


def test_flags_beat_the_environment(file: str) -> None:
    flags = Flags(upstream="http://flag.example", listen="127.0.0.1:3001", admin="127.0.0.1:3002")
    environ = {"SIDECAR_LISTEN": "bad", "SIDECAR_ADMIN": "bad", "SIDECAR_UPSTREAM": "bad"}

    config = load(file, flags=flags, environ=environ)

    assert (config.listen.port, config.admin.port) == (3001, 3002)
    assert [str(upstream.url) for upstream in config.upstreams] == ["http://flag.example"]


def test_an_empty_variable_counts_as_unset(file: str) -> None:
    empty = dict.fromkeys(("CONFIG", "LISTEN", "ADMIN", "UPSTREAM", "LOG_LEVEL"), "")
    environ = {f"SIDECAR_{name}": value for name, value in empty.items()}
    assert load(file, flags=Flags(), environ=environ) == load(file, flags=Flags(), environ={})
    assert problems_of(None, None, frozenset(), **environ) == [
        "upstreams: at least one is needed, here or as --upstream URL"
    ]


def test_mistakes_in_flags_and_environment_are_told_together(file: str) -> None:
    assert problems_of(
        file, Flags(upstream="https://me:hunter2@a.example", listen="8080"), SIDECAR_ADMIN="x", SIDECAR_LOG_LEVEL="loud"
    ) == [
        "--listen: needs a host: 127.0.0.1:8080, or 0.0.0.0:8080 to be reached from outside",
        "SIDECAR_ADMIN: must be HOST:PORT such as 127.0.0.1:8080, not 'x'",
        "--upstream: must not hold a user or a password; the application's own headers carry the credentials",
        "SIDECAR_LOG_LEVEL: must be one of debug, info, warning, error, not 'loud'",
    ]


def test_an_empty_flag_is_a_mistake() -> None:
    assert problems_of(None, Flags(upstream="")) == [
        "--upstream: must be a URL with its scheme, such as https://api.openai.com"
    ]


def test_what_is_overridden_must_be_right_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "sidecar.yaml"
    path.write_text("listen: nowhere\nupstreams: [{name: a, url: nothing}]")
    flags = Flags(upstream="https://a.example", listen="127.0.0.1:1")
    assert [line.partition(":")[0] for line in problems_of(str(path), flags)] == ["listen", "upstreams[0].url"]


def test_flags_can_bring_listen_and_admin_together(file: str) -> None:
    assert problems_of(file, Flags(listen="0.0.0.0:1002")) == [
        "admin: 127.0.0.1:1002 is taken by listen (0.0.0.0:1002)"
    ]


@pytest.mark.parametrize(
    ("listen", "admin"),
    [
        ("127.0.0.1:0", "127.0.0.1:0"),
        ("127.0.0.1:80", "127.0.0.2:80"),
        ("0.0.0.0:80", "0.0.0.0:81"),
        ("[::1]:80", "127.0.0.1:80"),
    ],
)
def test_different_addresses_do_not_collide(listen: str, admin: str) -> None:
    load(None, flags=Flags(upstream="https://a.example", listen=listen, admin=admin), environ={})


def test_the_environments_proxy_is_settled_for_each_upstream(file: str) -> None:
    environ = {"HTTPS_PROXY": "http://me:hunter2@proxy.example:3128", "NO_PROXY": "other.example"}

    upstreams = load(file, flags=Flags(), environ=environ).upstreams

    assert upstreams[0].proxy is not None
    assert (str(upstreams[0].proxy), upstreams[0].proxy.username) == ("http://proxy.example:3128", "me")
    assert upstreams[0].proxy.password == Secret("hunter2")
    assert upstreams[1].proxy is None


def test_a_proxy_in_the_file_serves_loopback_too(tmp_path: Path) -> None:
    path = tmp_path / "sidecar.yaml"
    path.write_text("""
upstreams:
  - {name: a, prefix: /a, url: "http://127.0.0.1:1", proxy: "http://p.example:3128"}
  - {name: b, prefix: /b, url: "http://b.example", proxy: none}
  - {name: c, prefix: /c, url: "http://127.0.0.1:1"}
  - {name: d, prefix: /d, url: "http://d.example", proxy: "http://me:${PASSWORD}@p.example:3128"}
""")
    environ = {"HTTP_PROXY": "http://env.example:1", "NO_PROXY": "*", "PASSWORD": "hunter2"}

    proxies = [upstream.proxy for upstream in load(str(path), flags=Flags(), environ=environ).upstreams]

    assert [str(proxy) for proxy in proxies] == ["http://p.example:3128", "None", "None", "http://p.example:3128"]
    assert proxies[3] is not None
    assert proxies[3].password.reveal() == "hunter2"


def test_a_wrong_proxy_of_the_environment_is_a_problem_of_the_upstreams_it_serves(file: str) -> None:
    lines = problems_of(file, HTTPS_PROXY="https://me:hunter2@proxy.example", NO_PROXY="other.example")
    assert lines == [
        "upstreams[0].proxy: HTTPS_PROXY in the environment: a proxy that is reached over TLS (https://) is not "
        "supported, use http://"
    ]


def test_metrics_may_be_known_with_or_without_their_prefix(tmp_path: Path) -> None:
    path = tmp_path / "sidecar.yaml"
    path.write_text("upstreams: [{name: a, url: https://a.example}]\nmetrics: {buckets: {llm_sidecar_x: [1]}}")
    for known in ("x", "llm_sidecar_x"):
        assert load(str(path), flags=Flags(), environ={}, known_metrics=frozenset({known})).buckets == {"x": (1.0,)}
    assert problems_of(str(path), known=frozenset({"something"})) == [
        "metrics.buckets.llm_sidecar_x: no histogram has this name"
    ]


def test_a_source_loads_again_what_has_changed(file: str) -> None:
    source = ConfigSource(None, Flags(listen="127.0.0.1:9"), {"SIDECAR_CONFIG": file})
    assert source.file == file
    assert (source.load().listen.port, source.load().admin.port) == (9, 1002)
    Path(file).write_text(FILE.replace("1002", "1003"))
    assert source.load().admin.port == 1003
    Path(file).write_text(FILE.replace("1002", "port"))
    with pytest.raises(ConfigError):
        source.load()


def test_a_source_without_a_file_watches_none() -> None:
    source = ConfigSource(None, Flags(upstream="https://a.example"))
    assert source.file is None
    assert source.load().upstreams[0].name == "default"


def test_a_source_prints_neither_environment_nor_urls() -> None:
    source = ConfigSource(None, Flags(upstream="https://me:hunter2@a.example"), {"TOKEN": "hunter2"})
    assert "hunter2" not in repr(source)


@pytest.mark.parametrize(
    ("content", "flag", "variable", "address"),
    [
        (FILE, "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:1"),
        (FILE, None, "127.0.0.1:2", "127.0.0.1:2"),
        (FILE, None, "", "127.0.0.1:1002"),
        ("admin: 0.0.0.0:7\nupstreams: nonsense", None, "", "0.0.0.0:7"),
        ("admin: nonsense", None, "", "127.0.0.1:9464"),
        ("a: [", None, "", "127.0.0.1:9464"),
        (None, None, "", "127.0.0.1:9464"),
    ],
)
def test_the_admin_port_is_found_even_in_a_file_with_mistakes(
    tmp_path: Path, content: str | None, flag: str | None, variable: str, address: str
) -> None:
    environ = {"SIDECAR_ADMIN": variable}
    if content is not None:
        (tmp_path / "sidecar.yaml").write_text(content)
        environ["SIDECAR_CONFIG"] = str(tmp_path / "sidecar.yaml")
    assert str(admin_address(flag, environ)) == address


def test_a_wrong_admin_flag_is_told() -> None:
    with pytest.raises(ConfigError, match="--admin: needs a host"):
        admin_address("80", {})
    assert admin_address("[::1]:80", {}) == Address("::1", 80)
