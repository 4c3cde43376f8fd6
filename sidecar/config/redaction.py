"""The configuration as it may be shown: for GET /config, and as a hash for `config_info`."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from enum import Enum
from typing import Any

from sidecar.config.model import Address, Config, ProxyUrl, Secret, Url


def redacted(config: Config) -> dict[str, Any]:
    """The effective configuration under the keys of the file, as JSON types: seconds, bytes, `***` for secrets."""
    shown: dict[str, Any] = _shown(config)
    shown["metrics"] = {"buckets": shown.pop("buckets")}
    return shown


def fingerprint(config: Config) -> str:
    """Twelve hexadecimal digits that are equal for equal configurations. Secrets have no part in them."""
    text = json.dumps(redacted(config), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _shown(value: Any) -> Any:
    if isinstance(value, Secret):
        return "***"
    if isinstance(value, ProxyUrl):
        return str(value).replace("://", "://***@", 1) if value.username or value.password else str(value)
    if isinstance(value, (Address, Url)):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value):
        return {field.name: _shown(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {name: _shown(item) for name, item in value.items()}
    if isinstance(value, tuple):
        return [_shown(item) for item in value]
    return value
