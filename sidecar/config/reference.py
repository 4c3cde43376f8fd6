"""Writes docs/configuration.md from the declarations: `python -m sidecar.config.reference > docs/configuration.md`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

from sidecar.config.kinds import Choice
from sidecar.config.schema import REQUIRED, Field, ListOf, Section
from sidecar.config.sections import ROOT

_HEAD = """\
# Configuration

One YAML file, `sidecar serve --config FILE`. `sidecar check --config FILE` prints every mistake in it, one per line as
`path.to.key: what is wrong`, and exits 2; it prints nothing and exits 0 when the file is right.

```yaml
upstreams:
  - name: openai
    url: https://api.openai.com
```

This is a whole configuration: every other key has a default. So is `sidecar serve --upstream https://api.openai.com`
without a file. A larger one:

```yaml
listen: 127.0.0.1:8080
admin: 0.0.0.0:9464
upstreams:
  - name: openai
    url: https://api.openai.com
    prefix: /openai
    timeouts: {connect: 2s, idle: 2m}
  - name: llama
    url: http://llama.internal:8000/v1
    prefix: /llama
    dialect: openai
    proxy: none
models: {limit: 8, allow: [gpt-5, gpt-5-mini]}
slo: {ttft: 2s}
metrics:
  buckets:
    time_to_first_token_seconds: [0.1, 0.25, 0.5, 1, 2, 5, 10, 30]
```

## Flags and environment variables

A flag beats its environment variable, which beats the file. An empty variable counts as unset. What the file says must
be right even where it is overridden.

| flag | variable | overrides |
|---|---|---|
| `--config FILE` | `SIDECAR_CONFIG` | which file is read |
| `--upstream URL` | `SIDECAR_UPSTREAM` | `upstreams`: one, named `default`, with the prefix `/` |
| `--listen HOST:PORT` | `SIDECAR_LISTEN` | `listen` |
| `--admin HOST:PORT` | `SIDECAR_ADMIN` | `admin` |
| | `SIDECAR_LOG_LEVEL` | `log.level` |

## Values

- **Durations** are a number and a unit: `250ms`, `1.5s`, `2m`, `1h`; from `1ms` to `720h`. A plain `0` is taken where
  it says *or 0*.
- **Sizes** are a whole number of bytes, or one with a unit: `512B`, `64KiB`, `1MiB`, `2GiB`.
- **Addresses** are `HOST:PORT`, an IPv6 address in brackets: `[::1]:8080`. There is no default host.
- **Files** are named from the directory of the configuration file unless the name is absolute.
- `${NAME}` inside a value is replaced by that environment variable; an unset one is an error. `$${` stands for `${`.
  What came from the environment is never quoted in a message. Inside `{...}` YAML wants it in quotes:
  `{ca_file: "${CA_FILE}"}`.
- `null` for a mapping or a list is an empty one. Anchors and `<<` work; tags, equal keys and unknown keys are errors.
- A key or word that is *not in this version* is known, and an error unless it has its default.

## Proxies

`proxy: http://user:password@host:port` sends the requests of an upstream through that proxy, whatever its host;
`proxy: none` through none. `proxy: env` looks at the environment when the configuration is loaded:

- `HTTPS_PROXY` for https:// upstreams, `HTTP_PROXY` for http:// ones, `ALL_PROXY` when the first is unset. The same
  names in lower case win. A value without a scheme is an HTTP proxy, one without a port is at port 80.
- `NO_PROXY` lists hosts that are reached directly, divided by commas or spaces: `*` for all; `example.com` or
  `.example.com` for that domain and everything below it; an address; a network such as `10.0.0.0/8`, for hosts that are
  written as addresses (no name is looked up); any but a network with `:port` for that port alone.
- `localhost`, `127.0.0.0/8` and `::1` are always reached directly.

Proxies reached over TLS (`https://`) and SOCKS proxies are errors, not ignored.

## Keys
"""


def reference() -> str:
    """The whole page, Markdown."""
    return "\n".join([_HEAD, *_section("", ROOT)]).rstrip() + "\n"


def _section(path: str, section: Section) -> Iterator[str]:
    if path:
        yield f"### `{path}`\n"
    if section.doc:
        yield f"{section.doc}\n"
    yield "| key | value | default | meaning |"
    yield "|---|---|---|---|"
    yield from map(_row, section.fields)
    if section.later_keys:
        yield f"\nNot in this version: {', '.join(f'`{name}`' for name in section.later_keys)}."
    yield ""
    for field in section.fields:
        at = f"{path}.{field.name}" if path else field.name
        if isinstance(field.kind, Section):
            yield from _section(at, field.kind)
        elif isinstance(field.kind, ListOf) and isinstance(field.kind.kind, Section):
            yield from _section(f"{at}[]", field.kind.kind)


def _row(field: Field) -> str:
    meaning = f"{field.doc} *Not in this version.*" if field.later else field.doc
    if isinstance(field.kind, Choice) and field.kind.later:
        meaning += f" *Not in this version: {', '.join(field.kind.later)}.*"
    cells = [f"`{field.name}`", field.kind.label, _default(field), meaning]
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def _default(field: Field) -> str:
    if field.default is REQUIRED:
        return "required"
    if field.default in ({}, []):
        return "empty" if isinstance(field.kind, ListOf) else ""
    return f"`{field.default}`" if isinstance(field.default, str) else f"`{json.dumps(field.default)}`"


if __name__ == "__main__":
    sys.stdout.write(reference())
