"""Two unequal rails between two hosts, and what checksums cost on one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from divvy.cli import bench_transfers_crew as who
from divvy.cli.bench_row import Row, figure, median
from divvy.cli.bench_transfers_crew import Move
from divvy.cli.bench_transfers_setting import MIB, Setting, contest, in_turns, missing_rows, rates, spans

_SUM_GB_PER_S: Final = 5 / 8
PEERS: Final = (who.NIXL_DEFAULT, who.NIXL_TUNED, who.NIXL_SINGLE, who.MOONCAKE)


def rail_rows(setting: Setting) -> Iterator[Row]:
    """Yield the rate over rails of 4 and 1 Gbit: Divvy through NIXL and over TCP beside the peers."""
    case, size = "two rails, 4 + 1 Gbit", 64 * MIB
    everybody = (who.DIVVY_NIXL, who.DIVVY_TCP, *PEERS)
    move = Move(0, 1, size)
    with setting.lab("4gbit,1gbit", 2) as lab, contest(lab.fabric, everybody, size) as (running, lacking):
        results = in_turns(setting, running, [move], lacking, case)
        whole = {label: running[label].whole(move) for label in results}
    found = rates(results, size)
    for label, rate in found.items():
        ends = [size / span / 1e9 for span in spans(results[label])]
        note = "64 MiB; interval is least and most" + ("" if whole[label] else "; THE BYTES ARE WRONG")
        yield figure(
            case,
            "rate",
            rate,
            "GB/s",
            contender=label,
            interval=(min(ends), max(ends)),
            n=len(ends),
            note=note,
        )
    yield from _ratios(case, found, setting.turns)
    yield from missing_rows(case, lacking)


def _ratios(case: str, found: Mapping[str, float], turns: int) -> Iterator[Row]:
    """Yield Divvy's rate over the best peer's, and over the sum of the rails."""
    peers = {c.label: found[c.label] for c in PEERS if c.label in found}
    best = max(peers, key=lambda label: peers[label], default="")
    for own in (who.DIVVY_NIXL.label, who.DIVVY_TCP.label):
        if own not in found:
            continue
        target = own == who.DIVVY_NIXL.label
        if peers:
            yield figure(
                case,
                "over the best peer",
                found[own] / peers[best],
                "",
                contender=own,
                n=turns,
                target=1.12 if target else None,
                at_least=True,
                note=f"best peer: {best}",
            )
        yield figure(
            case,
            "of the sum of the rails",
            found[own] / _SUM_GB_PER_S,
            "",
            contender=own,
            n=turns,
            target=0.9 if target else None,
            at_least=True,
            note="the sum is 0.625 GB/s with headers in it",
        )


def checksum_rows(setting: Setting) -> Iterator[Row]:
    """Yield what Divvy's checksums and accounts cost on one rail of 4 Gbit beside plain NIXL."""
    case, size = "one rail, 4 Gbit, 64 MiB", 64 * MIB
    everybody = (who.DIVVY_NIXL, who.DIVVY_TCP, who.NIXL_DEFAULT)
    with (
        setting.lab("4gbit", 2, rails=1) as lab,
        contest(lab.fabric, everybody, size) as (running, lacking),
    ):
        results = in_turns(setting, running, [Move(0, 1, size)], lacking, case)
    middle = {label: median(spans(turns)) for label, turns in results.items()}
    for label, seconds in middle.items():
        yield figure(case, "time", seconds * 1e3, "ms", contender=label, n=len(results[label]))
    plain = middle.get(who.NIXL_DEFAULT.label)
    for own in (who.DIVVY_NIXL.label, who.DIVVY_TCP.label):
        if plain and own in middle:
            yield figure(
                case,
                "longer than plain NIXL, with checksums",
                middle[own] / plain - 1,
                "fraction",
                contender=own,
                n=setting.turns,
                target=0.05 if own == who.DIVVY_NIXL.label else None,
                note="every chunk checksummed and accounted on both sides; plain NIXL has neither",
            )
    yield from missing_rows(case, lacking)
