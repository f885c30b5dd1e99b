"""Configurations of HAProxy and nginx before servers of unequal speed: as they come, and tuned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from divvy.errors import InputError

_MOST_WEIGHT: Final = 256
HAPROXY_BALANCES: Final = ("roundrobin", "leastconn", "first")
NGINX_BALANCES: Final = ("least_conn", "round_robin")


@dataclass(frozen=True, slots=True)
class Target:
    """A server behind a balancer.

    Attributes:
        name: Its name in the configuration.
        port: On loopback.
        speed: Relative speed, any unit: the weight where weights are asked for.
    """

    name: str
    port: int
    speed: float


def weights(targets: Sequence[Target]) -> list[int]:
    """Return weights of 1 to 256 in proportion to the speeds."""
    top = max(target.speed for target in targets)
    return [max(1, round(_MOST_WEIGHT * target.speed / top)) for target in targets]


def haproxy(
    port: int,
    targets: Sequence[Target],
    balance: str,
    *,
    tuned: bool = False,
    check: bool = False,
    threads: int = 1,
) -> str:
    """Return a configuration of HAProxy.

    Args:
        port: Where it listens on loopback.
        targets: The servers.
        balance: ``roundrobin``, ``leastconn`` or ``first``.
        tuned: What a good operator adds: weights by speed, and ``maxconn 1`` per server (an instance runs one
            query at a time), so that the rest waits in the balancer's queue; the fastest servers first.
        check: Whether servers are asked for their health.
        threads: Threads of the program.

    Raises:
        InputError: If the way to balance is not known, or there is no server.
    """
    _refuse(balance, HAPROXY_BALANCES, targets)
    ordered = sorted(zip(targets, weights(targets), strict=True), key=lambda pair: -pair[0].speed)
    rows = ordered if tuned else zip(targets, [1] * len(targets), strict=True)
    extra = " check inter 500ms" if check else ""
    servers = "".join(
        f"  server {target.name} 127.0.0.1:{target.port}"
        + (f" weight {weight} maxconn 1" if tuned else "")
        + f"{extra}\n"
        for target, weight in rows
    )
    health = "  option httpchk GET /v2/health/ready\n" if check else ""
    return (
        f"global\n  maxconn 4000\n  nbthread {threads}\n"
        "defaults\n  mode http\n  timeout connect 2s\n  timeout client 60s\n  timeout server 60s\n"
        "  timeout queue 60s\n  option http-keep-alive\n  http-reuse always\n"
        "  option abortonclose\n  retries 1\n  option redispatch\n"
        f"frontend f\n  bind 127.0.0.1:{port}\n  default_backend b\n"
        f"backend b\n  balance {balance}\n{health}{servers}"
    )


def nginx(port: int, targets: Sequence[Target], balance: str, home: str) -> str:
    """Return a configuration of nginx.

    Args:
        port: Where it listens on loopback.
        targets: The servers.
        balance: ``least_conn`` or ``round_robin``.
        home: Directory for its files.

    Raises:
        InputError: If the way to balance is not known, or there is no server.
    """
    _refuse(balance, NGINX_BALANCES, targets)
    method = "    least_conn;\n" if balance == "least_conn" else ""
    servers = "".join(f"    server 127.0.0.1:{target.port};\n" for target in targets)
    return _nginx_frame(
        home,
        f"  upstream u {{\n{method}{servers}    keepalive 64;\n  }}\n"
        f"  server {{\n    listen 127.0.0.1:{port};\n    client_body_buffer_size 256k;\n"
        "    location / {\n      proxy_pass http://u;\n      proxy_http_version 1.1;\n"
        '      proxy_set_header Connection "";\n      proxy_read_timeout 60s;\n    }\n  }\n',
    )


def nginx_stub(port: int, answer: str, home: str) -> str:
    """Return a configuration of nginx that answers every request at once with a fixed JSON text."""
    return _nginx_frame(
        home,
        f"  server {{\n    listen 127.0.0.1:{port};\n    default_type application/json;\n"
        f"    location / {{\n      return 200 '{answer}';\n    }}\n  }}\n",
    )


def _nginx_frame(home: str, inner: str) -> str:
    paths = "".join(
        f"  {name}_temp_path {home}/{name};\n"
        for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    return (
        f"daemon off;\nmaster_process off;\nworker_processes 1;\npid {home}/nginx.pid;\n"
        f"error_log {home}/error.log;\nevents {{ worker_connections 8192; }}\n"
        f"http {{\n  access_log off;\n  keepalive_requests 10000000;\n  keepalive_timeout 3600s;\n"
        f"{paths}{inner}}}\n"
    )


def _refuse(balance: str, known: Sequence[str], targets: Sequence[Target]) -> None:
    if balance not in known:
        raise InputError.one("balance", f"no balance {balance!r}", allowed=", ".join(known))
    if not targets:
        raise InputError.one("balance-servers", "no server to balance over")
