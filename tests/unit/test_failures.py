from __future__ import annotations

from http import HTTPStatus

import pytest

from sidecar.exchange import Outcome, Phase
from sidecar.failures import ANSWERS, Code, ErrorReason, Failure


def test_every_code_has_its_answer() -> None:
    assert set(ANSWERS) == set(Code)


@pytest.mark.parametrize("code", Code)
def test_a_failure_answers_as_the_table_says(code: Code) -> None:
    failure = Failure(code, "what happened")
    assert (failure.status, failure.outcome) == ANSWERS[code]
    assert 400 <= HTTPStatus(failure.status) < 600


@pytest.mark.parametrize("code", [code for code in Code if code.endswith("_timeout")])
def test_timeouts_are_504(code: Code) -> None:
    assert ANSWERS[code] == (504, Outcome.TIMEOUT)


@pytest.mark.parametrize(("code", "answer"), ANSWERS.items())
def test_the_client_is_blamed_for_4xx_only(code: Code, answer: tuple[int, Outcome]) -> None:
    status, outcome = answer
    assert outcome is not Outcome.OK
    if status < 500:
        assert outcome is Outcome.REJECTED


def test_the_text_of_a_failure_begins_with_its_stable_code() -> None:
    failure = Failure(Code.DNS_FAILED, "no such host", Phase.DNS, ErrorReason.NOT_FOUND)
    assert str(failure) == "dns_failed: no such host"


def test_failures_are_told_apart_by_identity() -> None:
    first, second = Failure(Code.INTERNAL, "x"), Failure(Code.INTERNAL, "x")
    assert first != second
    assert len({first, second}) == 2


def test_another_try_is_safe_only_when_it_is_said_to_be() -> None:
    assert not Failure(Code.UPSTREAM_CLOSED, "x").request_untouched
