from __future__ import annotations

from collections.abc import Callable

import pytest

from sidecar.proxy.route import Origin, Router

MakeOrigin = Callable[..., Origin]


@pytest.mark.parametrize(
    ("target", "name", "sent"),
    [
        (b"/openai/v1/models", "openai", b"/v1/models"),
        (b"/openai", "openai", b"/"),
        (b"/openai?key=1", "openai", b"/?key=1"),
        (b"/openai/", "openai", b"/"),
        (b"/openai/azure/x", "azure", b"/base/x"),
        (b"/openai/azure", "azure", b"/base"),
        (b"/openai/azure?x=1", "azure", b"/base?x=1"),
        (b"/openai/azurex", "openai", b"/azurex"),
        (b"/openaix/y", "rest", b"/openaix/y"),
        (b"/", "rest", b"/"),
        (b"/OPENAI/v1", "rest", b"/OPENAI/v1"),
    ],
)
def test_the_longest_prefix_wins_at_the_end_of_a_segment(
    target: bytes, name: str, sent: bytes, origin: MakeOrigin
) -> None:
    router = Router(
        [
            origin("/", name="rest"),
            origin("/openai", name="openai"),
            origin("/openai/azure/", "/base", name="azure"),
        ]
    )
    matched = router.match(target)
    assert matched is not None
    assert (matched[0].upstream.name, matched[1]) == (name, sent)


@pytest.mark.parametrize("target", [b"/other", b"/ap", b"/apix"])
def test_without_a_catch_all_some_targets_have_no_upstream(target: bytes, origin: MakeOrigin) -> None:
    assert Router([origin("/api")]).match(target) is None


@pytest.mark.parametrize(
    "rest", [b"/a%2Fb", b"//twice", b"/../up", b"/x?q=%3A&q=2#f", b"/\xc3\xbc", b"/a;b=c", b"/a b"]
)
def test_what_follows_the_prefix_is_not_touched(rest: bytes, origin: MakeOrigin) -> None:
    for prefix, base in (("/", ""), ("/api", ""), ("/api", "/v1")):
        matched = Router([origin(prefix, base)]).match(prefix.rstrip("/").encode() + rest)
        assert matched is not None
        assert matched[1] == base.encode() + rest


def test_a_credential_of_the_proxy_does_not_print(origin: MakeOrigin) -> None:
    assert "c2VjcmV0" not in repr(origin(proxy_line=b"Proxy-Authorization: Basic c2VjcmV0"))
