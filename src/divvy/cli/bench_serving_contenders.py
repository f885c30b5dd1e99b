"""Who is compared: what people put before model servers today, as it comes and tuned, and Divvy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from divvy.adapters.balancers.config import Target, haproxy, nginx
from divvy.adapters.balancers.run import Program, free_port, haproxy_command, nginx_command
from divvy.adapters.lab.lab import Running
from divvy.cli.bench_serving_stage import Deployed, Stage
from divvy.sim.queries.strict import ROUND_ROBIN

DEFAULT, TUNED, OURS = "default", "tuned", "divvy"
#: Batch by which speeds are compared for weights: the middle of the traffic.
_WEIGH_BATCH: Final = 8


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


#: Starts a contender and yields its URL.
Start = Callable[[Place], Iterator[str]]


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
    def serving(self, place: Place) -> Iterator[str]:
        """Run the contender before the servers of a place; yield its URL."""
        yield from self.start(place)


def _haproxy(balance: str, *, tuned: bool = False) -> Start:
    def start(place: Place) -> Iterator[str]:
        port = free_port()
        config = haproxy(port, place.targets(), balance, tuned=tuned)
        with Program(haproxy_command, config, place.home, port) as program:
            yield program.url

    return start


def _nginx(place: Place) -> Iterator[str]:
    port = free_port()
    config = nginx(port, place.targets(), "least_conn", str(place.home))
    with Program(nginx_command, config, place.home, port) as program:
        yield program.url


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
