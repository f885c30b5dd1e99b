"""Which account of the budget pays for which name of the engine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import StrEnum
from typing import Final

from divvy.errors import InputError
from divvy.fleet.account import BEFORE_ALL, AccountSpec, AccountTree, build_tree
from divvy.fleet.claims import UNFUNDED, claimant_in, share_out

ENGINE: Final = "slurm"
#: The leaf for what an account with children claims itself.
REST: Final = "rest"


class By(StrEnum):
    """What of a job the budget's names are compared with."""

    ACCOUNT = "account"
    USER = "user"
    QOS = "qos"
    PARTITION = "partition"


@dataclass(frozen=True, slots=True)
class Attribution:
    """Who pays.

    Attributes:
        tree: Accounts; with the unfunded one at the end where names are unclaimed.
        row: Row of the tree per name.
        unclaimed: Names that no account claims.
        given: Whether the shares come from a budget, not from dividing equally.
    """

    tree: AccountTree
    row: dict[str, int]
    unclaimed: tuple[str, ...]
    given: bool


def attribute(names: Iterable[str], tree: AccountTree | None, by: By) -> Attribution:
    """Return who pays for each name; without a tree every name is an account, all of the same share.

    Raises:
        InputError: If two accounts claim a name, or the unfunded account cannot be added.
    """
    found = list(dict.fromkeys(names))
    if tree is None:
        equal, paid_by = share_out({name or "none": Decimal(1) for name in found or [""]})
        return Attribution(
            equal, {name: equal.row[paid_by[name or "none"]] for name in found}, (), given=False
        )
    lower = _lowered(tree) if by is By.ACCOUNT else None
    paths = {name: _claimant(_first(name, by), tree, lower) for name in found}
    unclaimed = tuple(name for name, path in paths.items() if path is None)
    if unclaimed:
        tree = _with_unfunded(tree, unclaimed)
    tree, rest = _with_rest(tree, {path for path in paths.values() if path is not None})
    rows = {name: tree.row[rest.get(path or UNFUNDED, path or UNFUNDED)] for name, path in paths.items()}
    return Attribution(tree, rows, unclaimed, given=True)


def _first(name: str, by: By) -> str:
    """Return the name to look for: a job that waits may name several partitions, the preferred one first."""
    return name.partition(",")[0] if by is By.PARTITION else name


def _with_unfunded(tree: AccountTree, unclaimed: tuple[str, ...]) -> AccountTree:
    """Return a tree with an account of share 0 for unclaimed names; the budget may have it itself."""
    row = tree.row.get(UNFUNDED)
    if row is None:
        return build_tree([*tree.specs, AccountSpec(UNFUNDED, Decimal(0))])
    if tree.share[row] or tree.children[row]:
        raise InputError.one(
            "account-unfunded",
            f"the budget gives a share or children to {UNFUNDED!r}, which is where unclaimed names go: "
            f"{', '.join(unclaimed[:20])}",
            path=f"accounts.{UNFUNDED}",
            fix="set its share to 0, rename it, or claim these names",
        )
    return tree


def _with_rest(tree: AccountTree, claimed: set[str]) -> tuple[AccountTree, dict[str, str]]:
    """Return a tree in which accounts that have children and claims have a leaf for these claims.

    Only leaves are charged. The leaf is owed what the children leave of the account's share.
    """
    inner = [path for path in tree.paths[1:] if path in claimed and tree.children[tree.row[path]]]
    if not inner:
        return tree, {}
    rest: dict[str, str] = {}
    specs = list(tree.specs)
    for path in inner:
        rest[path] = next(
            name for n in range(len(tree)) if (name := f"{path}.{REST}{n or ''}") not in tree.row
        )
        children = [tree.specs[row - 1] for row in tree.children[tree.row[path]]]
        dates = sorted({at for child in children for at, _ in child.later})
        left = [
            100 - sum((child.share_at(at) for child in children), Decimal(0)) for at in (BEFORE_ALL, *dates)
        ]
        specs.append(AccountSpec(rest[path], left[0], later=tuple(zip(dates, left[1:], strict=True))))
    return build_tree(specs), rest


def _claimant(name: str, tree: AccountTree, lower: AccountTree | None) -> str | None:
    """Return who claims a name; Slurm keeps account names in lower case, budgets need not."""
    path = claimant_in(ENGINE, name, tree)
    if path is not None or lower is None:
        return path
    found = claimant_in(ENGINE, name.lower(), lower)
    return found if found is None else tree.paths[lower.row[found]]


def _lowered(tree: AccountTree) -> AccountTree:
    """Return a tree whose lists of names are in lower case."""
    return build_tree(
        replace(
            spec,
            aliases=tuple((engine, tuple(name.lower() for name in names)) for engine, names in spec.aliases),
        )
        for spec in tree.specs
    )
