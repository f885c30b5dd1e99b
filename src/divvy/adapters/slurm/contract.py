"""The contract of a Slurm job: what its comment says, else what its partition declares.

    sbatch --comment "divvy: min_runtime=2h resumable" ...

The words after ``divvy:`` run to the end of the comment or to the next semicolon, so that other tools can use
the same field.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from divvy.units import MINUTE, SECOND, parse_duration

#: Words of a contract, for messages.
WORDS: Final = (
    "min_runtime=DURATION, free, resumable, restart, once, interactive, priority=N, "
    "warn=DURATION, signal=NAME, account=PATH"
)
LONGEST_WARN: Final = 60 * MINUTE

_START: Final = re.compile(r"(?:^|[\s;])divvy:", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Contract:
    """What a job and the scheduler owe each other.

    Attributes:
        min_runtime: Protected for so long, ms; 0: free of charge and never protected; None: not declared.
        resumable: After a preemption it goes on where it was.
        restart: After a preemption it starts again from zero.
        interactive: Somebody sits in front of it.
        priority: Order among the jobs of one account.
        warn: Between the warning and the end of a preempted run, ms; None: as configured.
        signal: The warning; empty: as configured.
        account: Path of the account that pays; empty: as its Slurm account says.
        faults: Words that could not be understood, one text each; they change nothing.
    """

    min_runtime: int | None = None
    resumable: bool = False
    restart: bool = False
    interactive: bool = False
    priority: int = 0
    warn: int | None = None
    signal: str = ""
    account: str = ""
    faults: tuple[str, ...] = ()


def read_contract(comment: str, default: Contract) -> Contract:
    """Return the contract that a comment declares, over the one that holds where it says nothing.

    Declaring ``resumable``, ``restart`` or ``once`` replaces what the default says about the three.
    """
    found = _START.search(comment)
    if found is None:
        return default
    text = comment[found.end() :].partition(";")[0]
    contract = default
    faults: list[str] = []
    for word in text.replace(",", " ").split():
        try:
            contract = _apply(contract, word)
        except ValueError as error:
            faults.append(f"{word!r}: {error}")
    return replace(contract, faults=tuple(faults))


def _apply(contract: Contract, word: str) -> Contract:
    name, equals, value = word.partition("=")
    name = name.lower().replace("-", "_")
    if not equals:
        return _flag(contract, name)
    setter = _VALUES.get(name)
    if setter is not None:
        return setter(contract, value)
    if value.lower() in ("yes", "no", "true", "false"):
        return with_flag(contract, name, value=value.lower() in ("yes", "true"))
    raise ValueError(f"not a word of a contract ({WORDS})")


def with_flag(contract: Contract, name: str, *, value: bool) -> Contract:
    """Return a contract with one of its yes-or-no members set; what is resumable does not start from zero.

    Raises:
        ValueError: If there is no such member.
    """
    if name == "resumable":
        return replace(contract, resumable=value, restart=contract.restart and not value)
    if name == "restart":
        return replace(contract, restart=value, resumable=contract.resumable and not value)
    if name == "interactive":
        return replace(contract, interactive=value)
    raise ValueError(f"not a word of a contract ({WORDS})")


def _flag(contract: Contract, name: str) -> Contract:
    if name == "once":
        return replace(contract, resumable=False, restart=False)
    if name in ("free", "unallocated"):
        return replace(contract, min_runtime=0)
    return with_flag(contract, name, value=True)


def _duration(text: str) -> int:
    if text.isdecimal() and int(text):
        raise ValueError("has no unit; write 90s, 15m, 2h")
    return parse_duration(text)


def _number(text: str) -> int:
    try:
        return max(-1_000_000, min(int(text), 1_000_000))
    except ValueError:
        raise ValueError("is not a whole number") from None


def signal_name(text: str) -> str:
    """Return a signal as scancel takes it, such as ``USR1``.

    Raises:
        ValueError: If there is no such signal.
    """
    name = text.upper().removeprefix("SIG")
    if f"SIG{name}" not in signal.Signals.__members__ or name in ("KILL", "STOP"):
        raise ValueError("is not a signal that can warn; write USR1, USR2, TERM, INT")
    return name


_VALUES: Final[dict[str, Callable[[Contract, str], Contract]]] = {
    "min_runtime": lambda contract, value: replace(contract, min_runtime=_duration(value)),
    "warn": lambda contract, value: replace(contract, warn=min(_duration(value), LONGEST_WARN)),
    "priority": lambda contract, value: replace(contract, priority=_number(value)),
    "signal": lambda contract, value: replace(contract, signal=signal_name(value)),
    "account": lambda contract, value: replace(contract, account=value),
}


def write_contract(contract: Contract) -> str:
    """Return the comment that declares a contract."""
    words = ["divvy:"]
    if contract.min_runtime is not None:
        seconds, rest = divmod(contract.min_runtime, SECOND)
        words.append(f"min_runtime={seconds}s" if not rest else f"min_runtime={contract.min_runtime}ms")
    words += [word for word in ("resumable", "restart", "interactive") if getattr(contract, word)]
    if not contract.resumable and not contract.restart:
        words.append("once")
    if contract.priority:
        words.append(f"priority={contract.priority}")
    if contract.warn is not None:
        words.append(f"warn={contract.warn // SECOND}s")
    if contract.signal:
        words.append(f"signal={contract.signal}")
    if contract.account:
        words.append(f"account={contract.account}")
    return " ".join(words)
