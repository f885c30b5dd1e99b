"""Many transfers at once over four hosts: makespan against the bound, incast, and the fluid simulator."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from divvy.adapters.rails.fabric import Fabric, topology_of
from divvy.cli import bench_transfers_crew as who
from divvy.cli.bench_row import Row, figure, median, quantile
from divvy.cli.bench_transfers_crew import Move
from divvy.cli.bench_transfers_setting import MIB, Results, Setting, contest, in_turns, missing_rows, spans
from divvy.cli.bench_transfers_two import PEERS
from divvy.planners.transfers.bound import bound
from divvy.planners.transfers.candidates import Finder
from divvy.planners.transfers.plan import Transfer
from divvy.planners.transfers.roads import roads
from divvy.sim.flows.compare import run

_RATES: Final = "400mbit,100mbit"
_HOSTS: Final = 4
_ROOM: Final = 64 * MIB
_OWN: Final = (who.DIVVY_NIXL, who.DIVVY_TCP)


class _Fluid(NamedTuple):
    """What theory says of a batch, in seconds."""

    bound_s: float
    simulated_s: float


def many_rows(setting: Setting) -> Iterator[Row]:
    """Yield makespans of 12 transfers and of an incast, beside bound, fair share and simulator."""
    twelve, incast, single = (
        _twelve(quick=setting.quick),
        _incast(quick=setting.quick),
        [Move(0, 1, 32 * MIB)],
    )
    with (
        setting.lab(_RATES, _HOSTS) as lab,
        contest(lab.fabric, (*_OWN, *PEERS), _ROOM) as (running, lacking),
    ):
        own = {label: crew for label, crew in running.items() if label in {c.label for c in _OWN}}
        many = in_turns(setting, running, twelve, lacking, "12 transfers")
        crowd = in_turns(setting, running, incast, lacking, "incast")
        alone = in_turns(setting, own, single, lacking, "one transfer")
        fabric = lab.fabric
    yield from _makespans(many, _theory(fabric, twelve))
    yield from _incast_rows(crowd, incast)
    for case, results, moves in (
        ("12 transfers", many, twelve),
        ("incast 3 to 1", crowd, incast),
        ("one transfer", alone, single),
    ):
        yield from _fluid_rows(case, results, _theory(fabric, moves))
    yield from missing_rows("four hosts, 400 + 100 Mbit", lacking)


def _twelve(*, quick: bool) -> list[Move]:
    """Return a transfer between each ordered pair of hosts, of 4 to 16 MiB."""
    rng = random.Random(8)  # noqa: S311 - sizes
    room = dict.fromkeys(range(_HOSTS), 0)
    out = []
    for a in range(_HOSTS):
        for b in range(_HOSTS):
            if a != b:
                size = rng.randint(4, 16) * MIB // (4 if quick else 1)
                out.append(Move(a, b, size, offset=room[b]))
                room[b] += size
    return out


def _incast(*, quick: bool) -> list[Move]:
    """Return three equal transfers into the first host."""
    size = (4 if quick else 8) * MIB
    return [Move(host, 0, size, offset=(host - 1) * size) for host in (1, 2, 3)]


def _theory(fabric: Fabric, moves: Sequence[Move]) -> _Fluid:
    """Return the bound of a batch, and the end of Divvy's plan in the fluid simulator."""
    ways = roads(topology_of(fabric))
    finder = Finder(ways)
    batch = [
        Transfer(f"t{i}", f"h{m.source}", f"h{m.target}", m.size_bytes, descriptors=m.pieces)
        for i, m in enumerate(moves)
    ]
    _, outcome, split = run(ways, finder, batch, "divvy")
    return _Fluid(bound(ways, finder, batch, split), outcome.makespan_s)


def _makespans(results: Results, theory: _Fluid) -> Iterator[Row]:
    case = "12 transfers, 4 hosts, 400 + 100 Mbit"
    yield figure(case, "bound", theory.bound_s, "s", contender="linear program")
    for label, turns in results.items():
        ends = spans(turns)
        own = label in {c.label for c in _OWN}
        yield figure(
            case,
            "makespan over bound",
            median(ends) / theory.bound_s,
            "",
            contender=label,
            interval=(min(ends) / theory.bound_s, max(ends) / theory.bound_s),
            n=len(ends),
            target=1.15 if own else None,
            note="interval is least and most",
        )


def _incast_rows(results: Results, moves: Sequence[Move]) -> Iterator[Row]:
    case = "incast 3 to 1, 400 + 100 Mbit"
    fair = sum(m.size_bytes for m in moves) / (500e6 / 8)
    for label, turns in results.items():
        times = [moved.seconds / fair for turn in turns for moved in turn]
        yield figure(
            case,
            "p99 over fair share",
            quantile(times, 0.99),
            "",
            contender=label,
            interval=(min(times), max(times)),
            n=len(times),
            target=1.2 if label in {c.label for c in _OWN} else None,
            note=f"fair share of both rails: {fair:.3f} s; interval is least and most",
        )


def _fluid_rows(case: str, results: Results, theory: _Fluid) -> Iterator[Row]:
    for label in (c.label for c in _OWN):
        if label in results:
            off = median(spans(results[label])) / theory.simulated_s - 1
            yield figure(
                f"fluid simulator, {case}",
                "run over simulation, off by",
                abs(off),
                "fraction",
                contender=label,
                n=len(results[label]),
                target=0.10,
                note=f"the run took {1 + off:.3f} of the simulated {theory.simulated_s:.3f} s",
            )
