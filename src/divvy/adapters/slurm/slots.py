"""Dated slots of gangs as reservations in Slurm: ``divvy_JOB``, from the date of the slot on.

The reservation is FLEX: a job that names it may start before it, run past it and use other nodes, too. So the
gang of the slot and the work that fills its nodes until then name it, and everybody else is kept off from the
date on. It ends by itself half an hour after the date, whatever becomes of Divvy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from divvy.adapters.slurm.identity import base_id, ids
from divvy.adapters.slurm.record import MARK, SlurmJob, View
from divvy.adapters.slurm.text import chunks
from divvy.fleet.job import Phase
from divvy.fleet.snapshot import Snapshot
from divvy.units import MINUTE, SECOND

Command = tuple[str, ...]
_LENGTH: Final = 30 * MINUTE
_LEAST_AHEAD: Final = 5 * SECOND
_PREFIX: Final = f"{MARK}_"


def reservation_name(job: str) -> str:
    """Return the name of the reservation that holds the slot of a job."""
    return f"{_PREFIX}{job}"


class Slots:
    """Keeps the reservations equal to the slots of the state.

    Args:
        snapshot: The state, read only.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def commands(
        self, view: View, now: int, live: Mapping[str, int], managed: Mapping[str, SlurmJob]
    ) -> tuple[list[Command], dict[str, str]]:
        """Return what to run, and which reservation each released job is to name first.

        Args:
            view: What Slurm shows.
            now: ms.
            live: Rows of live jobs by Slurm's id.
            managed: Managed jobs of the view.
        """
        jobs, nodes = self._snapshot.jobs, self._snapshot.nodes.node
        found: list[Command] = []
        kept: set[str] = set()
        names: dict[str, str] = {}
        for row, slot in jobs.slot.items():
            gang = base_id(jobs.spec[row].id)
            name = reservation_name(gang)
            kept.add(name)
            places = {node for node, _ in slot.placement}
            inside = [
                other
                for other, place in live.items()
                if jobs.phase[place] is Phase.PLACED
                and any(node in places for node, _ in jobs.placement[place])
            ]
            names |= dict.fromkeys(inside, name)
            users = _users(managed, (gang, *inside))
            where = sorted({nodes[node].name.partition(":")[0] for node in places})
            if name in view.reservations or slot.due > now + _LEAST_AHEAD:
                found += _reserve(view, name, where, users, slot.due)
        for name in self._gangs_that_start(view, live):
            kept.add(name)
            names[name.removeprefix(_PREFIX)] = name
        found += (
            ("scontrol", "delete", f"ReservationName={name}")
            for name in sorted(view.reservations)
            if name.startswith(_PREFIX) and name not in kept and not _used(view, name)
        )
        return found, names

    def _gangs_that_start(self, view: View, live: Mapping[str, int]) -> Iterable[str]:
        """Yield the reservations of gangs whose slot has come."""
        for name, row in live.items():
            if self._snapshot.jobs.phase[row] is Phase.PLACED and reservation_name(name) in view.reservations:
                yield reservation_name(name)


def _users(managed: Mapping[str, SlurmJob], jobs: Iterable[str]) -> list[str]:
    return sorted({managed[job].user for job in jobs if job in managed and managed[job].user})


def _used(view: View, name: str) -> bool:
    """Return whether a job that runs names a reservation: Slurm does not delete it then."""
    return any(job.reservation == name and job.holds for job in view.jobs.values())


def _reserve(view: View, name: str, where: list[str], users: list[str], due: int) -> Iterable[Command]:
    """Yield what makes a reservation as it should be; it starts on whole seconds."""
    start = -(-due // SECOND)
    end = start + _LENGTH // SECOND
    there = view.reservations.get(name)
    if there is None:
        if users:
            yield (
                "scontrol",
                "create",
                "reservation",
                f"ReservationName={name}",
                f"StartTime={_stamp(start, view.at)}",
                f"EndTime={_stamp(end, view.at)}",
                f"Nodes={','.join(where)}",
                f"Users={','.join(users)}",
                "Flags=FLEX,IGNORE_JOBS",
            )
        return
    if sorted(there.nodes) != where and not there.active:
        yield ("scontrol", "update", f"ReservationName={name}", f"Nodes={','.join(where)}")
    if users and not set(users) <= set(there.users):
        everybody = ",".join(sorted({*users, *there.users}))
        yield ("scontrol", "update", f"ReservationName={name}", f"Users={everybody}")


def _stamp(at_seconds: int, now: int) -> str:
    """Return a time as scontrol takes it whatever the time zone: so many seconds from now."""
    return f"now+{max(at_seconds - now // SECOND, 1)}"


def naming(names: Mapping[str, str], managed: Mapping[str, SlurmJob]) -> list[Command]:
    """Return the commands by which waiting jobs name the reservation that they should.

    A job that names one of ours without having to (its slot is gone) names none any more.
    """
    change: dict[str, dict[str, None]] = {}
    for name, job in managed.items():
        wanted = names.get(name, "")
        if job.waits and job.reservation != wanted and (wanted or job.reservation.startswith(_PREFIX)):
            change.setdefault(wanted, {})[name] = None
    return [
        ("scontrol", "update", f"JobId={','.join(part)}", f"ReservationName={reservation}")
        for reservation, jobs in sorted(change.items())
        for part in chunks(ids(jobs))
    ]
