from __future__ import annotations

import pytest

from sidecar.dialects.headers import fields_of, read_headers
from sidecar.dialects.reading import Reading


def read(**headers: str) -> Reading:
    reading = Reading()
    read_headers(
        reading, fields_of([(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()])
    )
    return reading


@pytest.mark.parametrize(
    ("name", "value", "seconds"),
    [
        ("OpenAI_Processing_Ms", "346", 0.346),
        ("x_envoy_upstream_service_time", "1082", 1.082),
        ("server_timing", "gfet4t7; dur=465", 0.465),
        ("Server_Timing", "cfRequestDuration;dur=9, x-originResponse;dur=2765", 2.765),
        ("x_kong_upstream_latency", "525", 0.525),
        ("fireworks_server_processing_time", "0.25", 0.25),
        ("ms_azureml_model_time", "315", 0.315),
        ("x_amzn_bedrock_invocation_latency", "604", 0.604),
        ("x_litellm_response_duration_ms", "611.3", 0.6113),
    ],
)
def test_the_time_until_the_headers_is_in_seconds(name: str, value: str, seconds: float) -> None:
    assert read(**{name: value}).provider.until_headers == pytest.approx(seconds)


def test_what_is_nearest_to_the_model_wins() -> None:
    reading = read(server_timing="proxy;dur=30", x_envoy_upstream_service_time="20", openai_processing_ms="10")
    assert reading.provider.until_headers == 0.01


@pytest.mark.parametrize("value", ["", "fast", "-1", "nan", "inf", "1e99"])
def test_a_time_that_is_none_is_left_out(value: str) -> None:
    assert read(openai_processing_ms=value).provider.until_headers is None


def test_timings_of_a_cdn_are_not_the_providers() -> None:
    assert read(server_timing="cfL4;dur=1, cache;dur=3").provider.until_headers is None


def test_xai_tells_first_token_and_the_rest_apart() -> None:
    times = read(x_metrics_e2e_ms="1021.9", x_metrics_ttft_ms="396.2").provider
    assert (times.total, times.prompt) == (1.0219, 0.3962)
    assert times.generation == pytest.approx(0.6257)


def test_text_generation_inference_names_its_phases() -> None:
    times = read(x_total_time="2484", x_queue_time="3", x_inference_time="2480", x_compute_time="2.4").provider
    assert (times.total, times.queue, times.generation) == (2.484, 0.003, 2.48)


@pytest.mark.parametrize(
    ("headers", "left"),
    [
        (
            {"x_ratelimit_remaining_requests": "9", "X_RateLimit_Remaining_Tokens": "800"},
            {"requests": 9, "tokens": 800},
        ),
        (
            {"x_ratelimit_remaining_req_minute": "96", "x_ratelimit_remaining_tokens_minute": "7"},
            {"requests": 96, "tokens": 7},
        ),
        ({"x_ratelimit_remaining_tokens_minute": "7", "x_ratelimit_remaining_tokens_month": "5"}, {"tokens": 5}),
        (
            {"anthropic_ratelimit_tokens_remaining": "50", "anthropic_ratelimit_output_tokens_remaining": "4"},
            {"tokens": 50},
        ),
        (
            {"anthropic_ratelimit_input_tokens_remaining": "9", "anthropic_ratelimit_output_tokens_remaining": "4"},
            {"tokens": 4},
        ),
        ({"anthropic_ratelimit_requests_remaining": "3"}, {"requests": 3}),
        ({"x_ratelimit_remaining": "1", "x_ratelimit": "false"}, {"requests": 1}),
        ({"ratelimit": '"api";r=999;t=295'}, {"requests": 999}),
        ({"x_trial_endpoint_call_remaining": "19"}, {"requests": 19}),
        ({"x_ratelimit_remaining_requests": "-1", "x_ratelimit_remaining_tokens": "none"}, {}),
        ({"x_days_remaining": "3"}, {}),
    ],
)
def test_rate_limits_of_every_family_give_what_is_left(headers: dict[str, str], left: dict[str, float]) -> None:
    assert read(**headers).ratelimit_remaining == left
