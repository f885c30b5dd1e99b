"""Which of the rails to a peer a transfer takes: the set of them that is predicted to end it first.

A set of rails costs start-up, time per descriptor and time per byte like a single route does, and is learned
like one (`divvy.perf.transfer.Learned`); before it has been timed its rate is the sum of its rails. Small
transfers end first on one rail, large ones on all that are worth it. Within the set each chunk goes to the
rail on which it ends first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from divvy.perf.transfer import Learned, Prediction

#: Sets of more rails than this are prefixes of the fastest ones only.
_ALL_SETS: Final = 3
#: A smaller set must be this much better than a larger one: within a set no chunk goes to a rail on which it
#: would end late, so a rail too many costs little, and one that is not used is not measured.
_MARGIN: Final = 0.9
#: What several rails take at their achieved rates, start-up and end included.
_HOPE: Final = 1.1


class Choice(NamedTuple):
    """Rails for a transfer.

    Attributes:
        rails: Names, the fastest first.
        prediction: How long it should take on them alone.
        rejected: Other sets with their predicted seconds, for people.
    """

    rails: tuple[str, ...]
    prediction: Prediction
    rejected: tuple[tuple[tuple[str, ...], float], ...]


def sets_of(rates: Mapping[str, float]) -> list[tuple[str, ...]]:
    """Return the sets of rails that are considered, smaller and faster ones first.

    Args:
        rates: Bytes per second of each rail that lives.
    """
    order = sorted(rates, key=lambda name: (-rates[name], name))
    singles = [(name,) for name in order[:_ALL_SETS]]
    return singles + [tuple(order[:count]) for count in range(2, len(order) + 1)]


def choose(
    rates: Mapping[str, float],
    known: Mapping[tuple[str, ...], Learned],
    size_bytes: int,
    descriptors: int,
    startup_s: float,
    most: int = 1 << 30,
) -> Choice | None:
    """Return the rails that a transfer takes; None where none lives.

    Args:
        rates: Bytes per second of each rail that lives.
        known: What was learned of sets of rails.
        size_bytes: Bytes of the transfer.
        descriptors: Pieces on the wire.
        startup_s: Start-up of a set that was never timed.
        most: Rails that it can fill at once.
    """
    found = [
        (names, predicted(names, rates, known, size_bytes, descriptors, startup_s))
        for names in sets_of(rates)
        if len(names) <= max(1, most)
    ]
    if not found:
        return None
    hoped = {
        names: _HOPE * (startup_s + size_bytes / max(sum(rates[name] for name in names), 1.0))
        for names, _ in found
    }
    best = found[-1]
    for names, prediction in reversed(found[:-1]):
        # A set is not given up for what it once took, if its rails have been faster since.
        present = min(best[1].seconds, hoped[best[0]]) if len(best[0]) > 1 else best[1].seconds
        margin = _MARGIN if len(names) < len(best[0]) else 1.0
        if prediction.seconds < present * margin:
            best = (names, prediction)
    rejected = tuple((names, p.seconds) for names, p in found if names != best[0])
    return Choice(best[0], best[1], rejected)


def predicted(
    names: Sequence[str],
    rates: Mapping[str, float],
    known: Mapping[tuple[str, ...], Learned],
    size_bytes: int,
    descriptors: int,
    startup_s: float,
) -> Prediction:
    """Return how long a transfer takes on a set of rails, with error bars."""
    model = known.get(tuple(names))
    if model is not None and model.count:
        return model.predict(size_bytes, descriptors)
    seconds = startup_s + size_bytes / max(sum(rates[name] for name in names), 1.0)
    return Prediction(seconds, seconds / 2, seconds * 2)
