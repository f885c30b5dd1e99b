"""The price of protection: protected time past the first hour may be charged more than it delivers."""

from __future__ import annotations

from typing import Final

from divvy.units import HOUR

#: Protected time that has the ordinary price.
ORDINARY: Final = HOUR
_PER_MILLE: Final = 1_000


def surcharge(price: float, protected: int, weight: int) -> int:
    """Return what protection for so long (ms) costs beyond its occupancy, as charge.

    Args:
        price: What a protected hour past the first costs, in ordinary hours; 1 is no price.
        protected: Length of the protection, ms.
        weight: Charge per ms of the run.
    """
    if price <= 1:
        return 0
    extra = round((price - 1) * _PER_MILLE)
    return max(protected - ORDINARY, 0) * weight * extra // _PER_MILLE


def entry_charge(price: float, min_runtime: int, weight: int) -> int:
    """Return what a run costs at least, its surcharge included: it counts when the run begins."""
    return min_runtime * weight + surcharge(price, min_runtime, weight)


def used_surcharge(whole: int, declared: int, used: int) -> int:
    """Return what of a surcharge remains where less of the protection was used than declared (ms)."""
    past = declared - ORDINARY
    return whole * min(max(used - ORDINARY, 0), past) // past if past > 0 else 0
