"""Who is compared: what people put before model servers today, as it comes and tuned, and Divvy."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from divvy.adapters.balancers.config import Target, haproxy, nginx
from divvy.adapters.balancers.run import Program, free_port, haproxy_command, nginx_command
from divvy.adapters.lab.lab import Running
from divvy.adapters.load.volley import Plan, Volley, from_lists
from divvy.adapters.rayserve.setting import table_of
from divvy.adapters.rayserve.stand import Stand
from divvy.bootstrap.ray_stand import plan_to_json
from divvy.cli.bench_serving_search import Fire, sender
from divvy.cli.bench_serving_stage import Deployed, Stage
from divvy.sim.queries.strict import ROUND_ROBIN

DEFAULT, TUNED, OURS, OURS_IN_RAY = "default", "tuned", "divvy", "divvy in Ray Serve"
#: Batch by which speeds are compared for weights: the middle of the traffic.
_WEIGH_BATCH: Final = 8
#: Before each trial: Ray has no answer to "is anybody still waiting?" that costs nothing.
_RAY_REST_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Place:
    """Where a contender serves: the case, the layout, the servers, and a directory for its files."""

    stage: Stage
    deployed: Deployed
    running: Sequence[Running]
    home: Path

    def targets(self) -> list[Target]:
        """Return the servers as balancers know them."""
        return [
            Target(one.spec.name.replace(".", "_"), one.port, 1e6 / max(one.spec.times_us[_WEIGH_BATCH], 1))
            for one in self.running
        ]


#: Starts a contender and yields what sends a plan to it.
Start = Callable[[Place], Iterator[Fire]]


@dataclass(frozen=True, slots=True)
class Contender:
    """A balancer or router.

    Attributes:
        name: In reports.
        kind: ``default``, ``tuned`` or ``divvy``.
        rule: The rule of the replay that is nearest: it chooses the layout and where the search begins.
        start: Starts it.
        note: What it is, in a few words.
    """

    name: str
    kind: str
    rule: str
    start: Start
    note: str

    @contextmanager
    def serving(self, place: Place) -> Iterator[Fire]:
        """Run the contender before the servers of a place; yield what sends a plan to it."""
        yield from self.start(place)


def _haproxy(balance: str, *, tuned: bool = False) -> Start:
    def start(place: Place) -> Iterator[Fire]:
        port = free_port()
        config = haproxy(port, place.targets(), balance, tuned=tuned)
        with Program(haproxy_command, config, place.home, port) as program:
            yield sender(program.url, place.running)

    return start


def _nginx(place: Place) -> Iterator[Fire]:
    port = free_port()
    config = nginx(port, place.targets(), "least_conn", str(place.home))
    with Program(nginx_command, config, place.home, port) as program:
        yield sender(program.url, place.running)


_WEIGHTED: Final = "weights by speed at batch 8, maxconn 1, queue in the balancer"

BALANCERS: Final = (
    Contender("haproxy roundrobin", DEFAULT, ROUND_ROBIN, _haproxy("roundrobin"), "as it comes"),
    Contender("haproxy leastconn", DEFAULT, "jsq", _haproxy("leastconn"), "as it comes"),
    Contender("nginx least_conn", DEFAULT, "jsq", _nginx, "as it comes"),
    Contender("haproxy tuned", TUNED, "fifs", _haproxy("leastconn", tuned=True), f"leastconn, {_WEIGHTED}"),
    Contender(
        "haproxy tuned, fastest first",
        TUNED,
        "fifs",
        _haproxy("first", tuned=True),
        f"balance first, {_WEIGHTED}",
    ),
)


def _ray(*, elsa: bool) -> Start:
    """Return what starts a Ray Serve whose replicas are the slices (they sleep the same times themselves)."""

    def start(place: Place) -> Iterator[Fire]:
        request = place.stage.request
        sizes = sorted({one.spec.gpcs for one in place.running})
        table = table_of(request.profile, sizes, request.batches.largest)
        router = {
            "request_router_class": "divvy.rayserve:ElsaRouter",
            "request_routing_stats_period_s": 0.5,
            "request_router_kwargs": {"profile": table, "slo_ms": request.slo_us / 1e3, "rule": "elsa"},
        }
        order = {
            "name": request.profile.model,
            "slices": [one.spec.profile for one in place.running],
            "times_us": {one.spec.profile: one.spec.times_us for one in place.running},
            "router": router if elsa else {},
            "max_ongoing_requests": 64 if elsa else 0,
        }

        with Stand(order) as stand:

            def fire(plan: Plan) -> Volley:
                time.sleep(_RAY_REST_SECONDS)
                return from_lists(stand.ask(plan_to_json(plan)))

            yield fire

    return start


RAYS: Final = (
    Contender("Ray Serve", DEFAULT, "pow2", _ray(elsa=False), "its own router (power of two), as it comes"),
    Contender("Ray Serve with ElsaRouter", OURS_IN_RAY, "elsa", _ray(elsa=True), "divvy.rayserve"),
)
