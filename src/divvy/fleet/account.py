"""The account tree: shares of GPU time down an organisation, and who owns which part of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from typing import Final

from divvy.errors import Fault, InputError, NotFoundError
from divvy.units import format_instant

ACCOUNT_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,62}")
NAME_HELP: Final = "letters, digits, _ and -, at most 63, not starting with -"
ROOT: Final = 0
#: A time before every date.
BEFORE_ALL: Final = -(1 << 62)


@dataclass(frozen=True, slots=True)
class AccountSpec:
    """One account as somebody wrote it.

    Attributes:
        path: Dotted path from the top, such as ``lab.vision``.
        share: Percent of the parent's share, 0 to 100.
        owners: Users who may set the shares of its children.
        aliases: Engine name to the names (with ``*`` wildcards) there that are charged here.
        members: Users who may submit here and below; empty: whoever the account above lets in.
        max_gpus: Most devices that its allocated runs may hold at once, those below included; None: no limit.
        author_max_gpus: The same for the runs of one author.
        later: Shares that hold from a date on: (ms, percent), in order of time.
    """

    path: str
    share: Decimal
    owners: tuple[str, ...] = ()
    aliases: tuple[tuple[str, tuple[str, ...]], ...] = ()
    members: tuple[str, ...] = ()
    max_gpus: int | None = None
    author_max_gpus: int | None = None
    later: tuple[tuple[int, Decimal], ...] = ()

    def share_at(self, at: int) -> Decimal:
        """Return the share that holds at an instant (ms)."""
        return next((share for since, share in reversed(self.later) if since <= at), self.share)

    def from_(self, at: int) -> AccountSpec:
        """Return the account as it is written from an instant (ms) on: what is past is no date any more."""
        later = tuple(change for change in self.later if change[0] > at)
        return replace(self, share=self.share_at(at), later=later)


@dataclass(frozen=True, slots=True)
class AccountTree:
    """The tree, compiled: one row per account in depth-first order, row 0 a virtual root.

    Parents come before their children, so a single reversed sweep sums leaves into every level.

    Attributes:
        paths: Dotted path per row; the root's is empty.
        parent: Row of the parent; the root's is -1.
        children: Rows of the children, in file order.
        depth: Levels below the root.
        share: Fraction of the whole fleet that the row is owed (product down the tree).
        specs: What was written, per row after the root.
        leaves: Rows without children; only these are charged.
        lineage: Per row, the rows from just under the root down to itself.
    """

    paths: tuple[str, ...]
    parent: tuple[int, ...]
    children: tuple[tuple[int, ...], ...]
    depth: tuple[int, ...]
    share: tuple[Fraction, ...]
    specs: tuple[AccountSpec, ...]
    leaves: tuple[int, ...]
    lineage: tuple[tuple[int, ...], ...]
    row: dict[str, int] = field(repr=False, compare=False)

    def __len__(self) -> int:
        """Return the number of rows, the root included."""
        return len(self.paths)

    def leaf(self, path: str) -> int:
        """Return the row of a leaf account.

        Raises:
            NotFoundError: If there is no such account.
            InputError: If the account has children: time is charged to leaves only.
        """
        row = self.row.get(path)
        if row is None or row == ROOT:
            names = ", ".join(self.paths[leaf] for leaf in self.leaves[:20]) or "none yet"
            raise NotFoundError.one(
                "account-unknown",
                f"no account {path!r}",
                path="account",
                allowed=names,
                fix="choose one of these",
            )
        if self.children[row]:
            names = ", ".join(self.paths[child] for child in self.children[row])
            raise InputError.one(
                "account-not-leaf",
                f"account {path!r} has children and is not charged itself",
                path="account",
                allowed=names,
                fix="choose one of its children",
            )
        return row

    def parting(self, one: int, other: int) -> tuple[int, int]:
        """Return the two rows just below the lowest common ancestor of two different leaves."""
        for a, b in zip(self.lineage[one], self.lineage[other], strict=False):
            if a != b:
                return a, b
        raise ValueError(f"rows {one} and {other} lie on one path")

    def members_of(self, path: str) -> tuple[str, ...]:
        """Return who may submit to an account: the list nearest to it; empty: nobody made one, all may."""
        rows = reversed(self.lineage[self.row[path]])
        return next((members for row in rows if (members := self.specs[row - 1].members)), ())

    def owners_over(self, path: str) -> set[str]:
        """Return the users who own an account or any account above it."""
        row = self.row[path]
        return {owner for r in self.lineage[row] for owner in self.specs[r - 1].owners}


def validate(specs: Sequence[AccountSpec], where: str = "accounts") -> list[Fault]:
    """Return every fault of a set of accounts: names, duplicates, parents, shares, sums."""
    faults: list[Fault] = []
    seen: set[str] = set()
    known = {spec.path for spec in specs}
    children: dict[str, list[AccountSpec]] = {}
    for spec in specs:
        at = f"{where}.{spec.path}"
        parent, _, name = spec.path.rpartition(".")
        if not ACCOUNT_NAME.fullmatch(name):
            faults.append(Fault("account-name", at, f"{name!r} is not a name", NAME_HELP, "rename it"))
        if spec.path in seen:
            faults.append(Fault("account-duplicate", at, "declared twice", "once", "remove one"))
            continue
        seen.add(spec.path)
        if parent and parent not in known:
            faults.append(
                Fault(
                    "account-parent",
                    at,
                    f"its parent {parent!r} is not declared",
                    "",
                    f"declare {parent!r} first",
                )
            )
        if spec.share < 0 or spec.share > 100:
            sign = "> 100" if spec.share > 100 else "< 0"
            faults.append(
                Fault(
                    "share-range",
                    f"{at}.share",
                    f"{spec.share} {sign}",
                    "0 to 100 percent of the parent",
                    "correct it",
                )
            )
        children.setdefault(parent, []).append(spec)
    for parent, siblings in children.items():
        faults += _sums(siblings, f"{where}.{parent}" if parent else where)
    return faults


def _sums(siblings: Sequence[AccountSpec], at: str) -> Iterator[Fault]:
    """Yield a fault for every date from which the shares of siblings sum to more than 100."""
    dates = sorted({since for spec in siblings for since, _ in spec.later})
    for since in (BEFORE_ALL, *dates):
        total = sum((max(spec.share_at(since), Decimal(0)) for spec in siblings), Decimal(0))
        if total > 100:
            when = f" from {format_instant(since)} on" if since != BEFORE_ALL else ""
            message = f"the shares of its children sum to {total}{when}"
            yield Fault("share-sum", at, message, "at most 100", f"lower them by {total - 100}")


def build_tree(specs: Iterable[AccountSpec], where: str = "accounts") -> AccountTree:
    """Compile accounts into a tree.

    Raises:
        InputError: With all faults at once.
    """
    listed = list(specs)
    faults = validate(listed, where)
    if not listed:
        faults.append(
            Fault(
                "accounts-empty",
                where,
                "no account is declared",
                "at least one",
                "add an account with a share",
            )
        )
    if faults:
        raise InputError("the accounts cannot be used", faults)
    order = _depth_first(listed)
    row = {"": ROOT} | {spec.path: number for number, spec in enumerate(order, start=1)}
    parent = [-1] + [row[spec.path.rpartition(".")[0]] for spec in order]
    children: list[list[int]] = [[] for _ in parent]
    share, depth = [Fraction(1)], [0]
    lineage: list[tuple[int, ...]] = [()]
    for number, spec in enumerate(order, start=1):
        above = parent[number]
        children[above].append(number)
        share.append(share[above] * Fraction(spec.share) / 100)
        depth.append(depth[above] + 1)
        lineage.append((*lineage[above], number))
    return AccountTree(
        paths=("", *(spec.path for spec in order)),
        parent=tuple(parent),
        children=tuple(map(tuple, children)),
        depth=tuple(depth),
        share=tuple(share),
        specs=tuple(order),
        leaves=tuple(number for number in range(1, len(parent)) if not children[number]),
        lineage=tuple(lineage),
        row=row,
    )


def _depth_first(specs: Sequence[AccountSpec]) -> list[AccountSpec]:
    """Return accounts with every parent before its children, siblings in file order."""
    below: dict[str, list[AccountSpec]] = {}
    for spec in specs:
        below.setdefault(spec.path.rpartition(".")[0], []).append(spec)
    order: list[AccountSpec] = []
    stack = list(reversed(below[""]))
    while stack:
        spec = stack.pop()
        order.append(spec)
        stack.extend(reversed(below.get(spec.path, [])))
    return order
