"""Who pays for a name of an existing engine: the lists of names in the budget, and how they match."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import ROUND_DOWN, Decimal
from fnmatch import fnmatchcase
from typing import Final

from divvy.errors import InputError
from divvy.fleet.account import AccountSpec, AccountTree, build_tree

#: The account of share 0 that pays for names that nobody claims.
UNFUNDED: Final = "unfunded"

_STEP: Final = Decimal("0.000000001")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]")
_NAME_LENGTH: Final = 63


def claimant(name: str, tree: AccountTree) -> str | None:
    """Return the leaf that claims a name in whichever engine, None where none does.

    A leaf claims what its lists match, then its own path, then its last part where that is unique.

    Raises:
        InputError: If several do.
    """
    leaves = tree.leaves
    listed = [row for row in leaves if any(_matches(name, names) for _, names in tree.specs[row - 1].aliases)]
    return _only(name, tree, (listed, *_by_path(name, tree, leaves)))


def claimant_in(engine: str, name: str, tree: AccountTree) -> str | None:
    """Return the account, leaf or not, that claims a name of one engine, None where none does.

    A list that has the very name goes before patterns, an account before those above it. An account without
    a list for this engine claims its own path, then its last part where that is unique.

    Raises:
        InputError: If several accounts that do not lie on one path do.
    """
    rows = range(1, len(tree))
    lists = {row: dict(tree.specs[row - 1].aliases).get(engine) for row in rows}
    exact = [row for row in rows if name in (lists[row] or ())]
    listed = [row for row in rows if _matches(name, lists[row] or ())]
    own = _by_path(name, tree, [row for row in rows if lists[row] is None])
    return _only(name, tree, (_deepest(exact, tree), _deepest(listed, tree), *own))


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _by_path(name: str, tree: AccountTree, rows: Iterable[int]) -> tuple[list[int], list[int]]:
    """Return the rows whose path is the name, and those whose last part is."""
    some = list(rows)
    exact = [row for row in some if tree.paths[row] == name]
    last = [row for row in some if tree.paths[row].rpartition(".")[2] == name]
    return exact, last


def _deepest(rows: Sequence[int], tree: AccountTree) -> list[int]:
    """Return the rows that have none of the others below them."""
    return [row for row in rows if not any(row != other and row in tree.lineage[other] for other in rows)]


def _only(name: str, tree: AccountTree, attempts: Iterable[Sequence[int]]) -> str | None:
    """Return the path of the only row of the first attempt that has any."""
    for found in attempts:
        if len(found) > 1:
            raise InputError.one(
                "account-claim",
                f"{name!r} is claimed by {', '.join(tree.paths[row] for row in found)}",
                path="accounts",
                allowed="one claimant",
                fix="make the lists of engine names disjoint",
            )
        if found:
            return tree.paths[found[0]]
    return None


def share_out(weights: Mapping[str, Decimal]) -> tuple[AccountTree, dict[str, str]]:
    """Return accounts for names that have none, with shares in proportion to weights, and who pays for whom.

    Shares are rounded down; letters that an account may not bear become ``_``.
    """
    total = sum(weights.values(), Decimal(0))
    paid_by: dict[str, str] = {}
    specs: list[AccountSpec] = []
    taken: set[str] = set()
    for name, weight in weights.items():
        paid_by[name] = safe = _safe(name, taken)
        taken.add(safe)
        specs.append(AccountSpec(safe, (100 * weight / total).quantize(_STEP, ROUND_DOWN)))
    return build_tree(specs), paid_by


def _safe(name: str, taken: set[str]) -> str:
    """Return a name as accounts may bear it, different from those taken."""
    base = _UNSAFE.sub("_", name)[: _NAME_LENGTH - 4].lstrip("-") or "_"
    safe, number = base, 1
    while safe in taken:
        number += 1
        safe = f"{base}_{number}"
    return safe
