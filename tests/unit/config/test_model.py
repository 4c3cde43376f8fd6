"""What never prints, whichever way one tries."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
import pprint
from collections.abc import Callable

import pytest
import yaml

from sidecar.config.model import Address, Pool, ProxyUrl, Secret, Upstream, Url

SECRET = Secret("hunter2")
UPSTREAM = Upstream("a", Url("https", "a.example", 443), proxy=ProxyUrl("proxy.example", 3128, "token-user", SECRET))


@pytest.mark.parametrize(
    "shown",
    [
        repr(SECRET),
        str(SECRET),
        f"{SECRET}",
        f"{SECRET!r:>20}",
        f"{SECRET:>20}",
        "%s %r" % (SECRET, SECRET),  # noqa: UP031 - one of the ways
        "{} {!r}".format(SECRET, SECRET),  # noqa: UP032
        pprint.pformat({"password": SECRET}),
        repr(UPSTREAM),
        str(UPSTREAM),
        str(dataclasses.asdict(UPSTREAM)["proxy"]["password"]),
        str(UPSTREAM.proxy),
        repr(dataclasses.replace(UPSTREAM, name="b")),
    ],
)
def test_a_secret_prints_as_stars(shown: str) -> None:
    assert "hunter2" not in shown
    assert "token-user" not in shown


@pytest.mark.parametrize(
    "leak",
    [
        lambda: "".join([SECRET]),  # type: ignore[list-item]
        lambda: "x" + SECRET,  # type: ignore[operator]
        lambda: json.dumps(SECRET),
        lambda: json.dumps({SECRET: 1}),
        lambda: pickle.dumps(SECRET),
        lambda: pickle.dumps(UPSTREAM),
        lambda: yaml.dump(SECRET),
        lambda: bytes(SECRET, "ascii"),  # type: ignore[call-overload]
        lambda: SECRET[0],  # type: ignore[index]
        lambda: list(SECRET),  # type: ignore[call-overload]
        lambda: vars(SECRET),
    ],
)
def test_a_secret_is_no_text(leak: Callable[[], object]) -> None:
    with pytest.raises(TypeError) as caught:
        leak()
    assert "hunter2" not in str(caught.value)


def test_yaml_does_not_represent_a_secret() -> None:
    with pytest.raises(yaml.YAMLError) as caught:
        yaml.safe_dump({"password": SECRET})
    assert "hunter2" not in str(caught.value)


def test_a_secret_reveals_itself_on_demand_only() -> None:
    assert SECRET.reveal() == "hunter2"
    assert SECRET == Secret("hunter2") != Secret("other")
    assert (SECRET == "hunter2") is False
    assert hash(SECRET) == hash(Secret("hunter2"))
    assert bool(SECRET) is True
    assert bool(Secret("")) is False


def test_copies_of_a_secret_are_the_secret() -> None:
    assert copy.copy(SECRET) is SECRET
    assert copy.deepcopy(UPSTREAM) == UPSTREAM


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Address("127.0.0.1", 80), "127.0.0.1:80"),
        (Address("::1", 80), "[::1]:80"),
        (Url("https", "a.example", 443, "/v1"), "https://a.example/v1"),
        (Url("http", "a.example", 443), "http://a.example:443"),
        (Url("http", "::1", 80), "http://[::1]"),
        (ProxyUrl("::1", 3128), "http://[::1]:3128"),
    ],
)
def test_addresses_print_as_they_are_written(value: object, text: str) -> None:
    assert str(value) == text


def test_values_do_not_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Pool().max_idle = 3  # type: ignore[misc]
