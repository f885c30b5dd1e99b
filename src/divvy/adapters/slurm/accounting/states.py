"""The states of Slurm's jobs, in all their spellings, and what they mean for an audit."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from divvy.control.audit.jobs import Fate

_W, _R, _E = Fate.WAITING, Fate.RUNNING, Fate.ENDED

#: Name, short form and meaning. REQUEUED is a run that ended; its job waits again in a row of its own.
_STATES: Final = (
    ("PENDING", "PD", _W),
    ("RUNNING", "R", _R),
    ("SUSPENDED", "S", _R),
    ("COMPLETED", "CD", _E),
    ("CANCELLED", "CA", _E),
    ("FAILED", "F", _E),
    ("TIMEOUT", "TO", _E),
    ("NODE_FAIL", "NF", Fate.NODE_LOST),
    ("PREEMPTED", "PR", Fate.PREEMPTED),
    ("BOOT_FAIL", "BF", Fate.NODE_LOST),
    ("LAUNCH_FAILED", "LF", Fate.NODE_LOST),
    ("DEADLINE", "DL", _E),
    ("OUT_OF_MEMORY", "OOM", _E),
    ("REVOKED", "RV", _E),
    ("SPECIAL_EXIT", "SE", _E),
    ("REQUEUED", "RQ", Fate.REQUEUED),
    ("REQUEUE_HOLD", "RH", _W),
    ("REQUEUE_FED", "RF", _W),
    ("RESV_DEL_HOLD", "RD", _W),
    ("RECONFIG_FAIL", "", Fate.NODE_LOST),
    ("CONFIGURING", "CF", _R),
    ("COMPLETING", "CG", _R),
    ("RESIZING", "RS", _E),
    ("SIGNALING", "SI", _R),
    ("STOPPED", "ST", _R),
    ("STAGE_OUT", "SO", _R),
    ("POWER_UP_NODE", "", _R),
    ("EXPEDITING", "", _W),
    ("UPDATE_DB", "", _R),
)
FATES: Final = {name: fate for name, _, fate in _STATES}
_SHORT: Final = {short: name for name, short, _ in _STATES if short}


@lru_cache(maxsize=4096)
def state_of(text: str) -> str:
    """Return the name of a state; ``CANCELLED by 1000``, ``CANCELLED+`` and ``CA`` are all CANCELLED.

    Raises:
        ValueError: If Slurm has no such state.
    """
    word = text.strip().partition(" ")[0].upper().rstrip("+")
    for candidate in (word, word.partition(",")[0]):
        if candidate in FATES:
            return candidate
        if candidate in _SHORT:
            return _SHORT[candidate]
    longer = [name for name in FATES if len(word) >= 5 and name.startswith(word)]
    if len(longer) == 1 and text.strip().endswith("+"):
        return longer[0]
    raise ValueError(f"{text!r} is no state of Slurm")


def state_among(names: Any) -> str:
    """Return the state of a job in JSON: a word up to 23.02, later a list with flags behind it.

    Raises:
        ValueError: If it names none.
    """
    if isinstance(names, str):
        return state_of(names)
    if not isinstance(names, list) or not names:
        raise ValueError(f"{names!r} is no state of Slurm")
    return state_of(str(names[0]))
