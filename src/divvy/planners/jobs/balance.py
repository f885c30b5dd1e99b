"""What each account has had against what it is entitled to, at every level of the tree."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from divvy.fleet.snapshot import Snapshot
from divvy.planners.jobs.window import UsageWindow

#: Balance of an account without entitlement that has used something: behind everybody.
UNFUNDED: Final = float("inf")
_TICKS_PER_WINDOW: Final = 2_016


def tick_of(now: int, lookback: int) -> int:
    """Return the last full tick: balances stand still in between, 5 minutes for a window of 7 days."""
    return now - now % tick_length(lookback)


def tick_length(lookback: int) -> int:
    """Return how long balances stand still, ms."""
    return max(lookback // _TICKS_PER_WINDOW, 1)


class Balances:
    """What every tree row has had against what it is entitled to.

    Usage is the exact tapered charge in the lookback; entitlement is the larger of the same integral of
    share x healthy capacity and of share x 24 h (or the lookback, if shorter) of present capacity, so that
    a new fleet, a new account or a halved one behaves sanely on day one. The balance of a row is usage
    over entitlement: 1 is exactly served, less is owed.

    Usage is read at the last full tick, and every run that began since counts with its whole minimum
    runtime (its entry charge) for as long as it holds devices. So the first account cannot take everything
    between two ticks, and the numbers stand still for a moment: what could not start a second ago cannot
    start now unless something else changed. Entry charges are kept apart, as whole numbers, so that the
    order in which runs came and went leaves no trace in the last bit.

    Args:
        base: Charge per tree row at the tick, GPU-ms x weight.
        entitlement: Per tree row, the same unit.

    With a horizon of forgiveness, what a leaf had beyond its share before the horizon does not count; what it
    is owed from that time still does.

    Attributes:
        of: Balance per tree row.
    """

    __slots__ = ("_base", "_entered", "entitlement", "of")

    def __init__(self, base: list[float], entitlement: list[float]) -> None:
        self._base = base
        self._entered = [0] * len(base)
        self.entitlement = entitlement
        self.of = [_balance(*row) for row in zip(base, entitlement, strict=True)]

    def usage(self, row: int) -> float:
        """Return the charge of a row, entry charges included, GPU-ms x weight."""
        return self._base[row] + self._entered[row]

    def enter(self, rows: Iterable[int], charge: int) -> None:
        """Add an entry charge to rows, or take it out again (negative)."""
        base, entered, entitlement = self._base, self._entered, self.entitlement
        for row in rows:
            entered[row] += charge
            self.of[row] = _balance(base[row] + entered[row], entitlement[row])

    def with_entry(self, row: int, charge: float) -> float:
        """Return the balance of a row if a charge entered, capped at what the row is still owed."""
        entitlement, usage = self.entitlement[row], self.usage(row)
        if entitlement <= 0:
            return UNFUNDED
        return (usage + min(charge, max(entitlement - usage, 0.0))) / entitlement


class UsageAtTick:
    """Window usage per leaf at a tick, read again only when the tick or a leaf's past changes."""

    def __init__(self) -> None:
        self._tick = -1
        self._known: dict[int, tuple[tuple[int, int], float]] = {}

    def catch_up(self, snapshot: Snapshot, tick: int, shares: list[float]) -> bool:
        """Bring the figures to a tick and to the snapshot; return whether any of them changed."""
        changed = tick != self._tick
        if changed:
            self._tick = tick
            self._known.clear()
        window, known, usage = UsageWindow(snapshot.policy), self._known, snapshot.usage
        older = window.before_horizon(snapshot.capacity, tick) if window.horizon else 0.0
        for leaf in snapshot.tree.leaves:
            history = usage[leaf]
            before = known.get(leaf)
            mark = history.mark(tick)
            if before is None or before[0] != mark:
                used = window.of(history, tick)
                if window.horizon and used:
                    used -= max(window.before_horizon(history, tick) - shares[leaf] * older, 0.0)
                known[leaf] = mark, used
                changed = changed or before is None or used != before[1]
        return changed

    def per_row(self, snapshot: Snapshot) -> list[float]:
        """Return the charge per tree row, every level, GPU-ms x weight."""
        tree = snapshot.tree
        usage = [0.0] * len(tree)
        for leaf in tree.leaves:
            used = self._known[leaf][1]
            if used:
                for row in tree.lineage[leaf]:
                    usage[row] += used
        return usage


class BalanceBook:
    """Keeps balances up to date between passes, to the bit what reading everything anew would give."""

    def __init__(self, rows: int) -> None:
        self.balances = Balances([0.0] * rows, [0.0] * rows)
        self.tick = -1
        self._usage = UsageAtTick()
        self._entered: dict[int, _Entry] = {}

    def begin(self, job: int, rows: tuple[int, ...], started: int, charge: int) -> None:
        """Enter a run's whole minimum runtime until the usage of a tick contains what it really cost."""
        if started >= self.tick:
            self._entered[job] = _Entry(started, charge, rows)
            self.balances.enter(rows, charge)

    def end(self, job: int) -> None:
        """Take the entry charge of a run out again."""
        entry = self._entered.pop(job, None)
        if entry is not None:
            self.balances.enter(entry.rows, -entry.charge)

    def forget(self) -> None:
        """Read everything again next time: the terms or the capacity changed."""
        self._usage = UsageAtTick()

    def catch_up(self, snapshot: Snapshot, tick: int, capacity: int, shares: list[float]) -> bool:
        """Bring the balances to a tick, not before the last; return whether they were read anew."""
        if not self._usage.catch_up(snapshot, tick, shares):
            return False
        self.tick = tick
        entitled = entitlements(snapshot, tick, capacity, shares)
        self.balances = Balances(self._usage.per_row(snapshot), entitled)
        self._entered = {job: entry for job, entry in self._entered.items() if entry.started >= tick}
        for entry in self._entered.values():
            self.balances.enter(entry.rows, entry.charge)
        return True


class _Entry(NamedTuple):
    started: int
    charge: int
    rows: tuple[int, ...]


def balances_at(snapshot: Snapshot, now: int, capacity: int, shares: list[float]) -> Balances:
    """Return the balances at a time, without the entry charges of what began since."""
    usage = UsageAtTick()
    usage.catch_up(snapshot, now, shares)
    return Balances(usage.per_row(snapshot), entitlements(snapshot, now, capacity, shares))


def entitlements(snapshot: Snapshot, now: int, capacity: int, shares: list[float]) -> list[float]:
    """Return what every tree row is entitled to at a time, GPU-ms x weight."""
    lookback, window = snapshot.policy.lookback, UsageWindow(snapshot.policy)
    day = window.first_day() * capacity
    if len(snapshot.epochs) == 1 or snapshot.epochs[-1].since <= now - lookback:
        base = max(window.of(snapshot.capacity, now), day)
        return [share * base for share in shares]
    nominal = map(float, snapshot.tree.share)
    return [
        max(past * share / whole if whole else past, share * day)
        for past, share, whole in zip(_past_shares(snapshot, now), shares, nominal, strict=True)
    ]


def _balance(usage: float, entitlement: float) -> float:
    if entitlement > 0:
        return usage / entitlement
    return UNFUNDED if usage > 0 else 1.0


def _past_shares(snapshot: Snapshot, now: int) -> list[float]:
    """Return share x capacity over the window per row, where shares changed inside the window."""
    policy, tree = snapshot.policy, snapshot.tree
    window = UsageWindow(policy)
    owed = [0.0] * len(tree)
    epochs = snapshot.epochs
    for number, epoch in enumerate(epochs):
        since = epoch.since if number else now - policy.lookback
        until = epochs[number + 1].since if number + 1 < len(epochs) else now
        part = window.part(snapshot.capacity, now, since, until)
        for path, share in zip(epoch.tree.paths, epoch.tree.share, strict=True):
            row = tree.row.get(path)
            if row is not None:
                owed[row] += float(share) * part
    return owed
