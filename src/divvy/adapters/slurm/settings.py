"""How Divvy treats one Slurm: the file given by ``divvy up --engine slurm --slurm-config FILE``."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from divvy.adapters.slurm.contract import Contract, signal_name, with_flag
from divvy.errors import Fault, InputError
from divvy.fleet.device import DEVICE_MODELS, GENERIC
from divvy.units import HOUR, MINUTE, SECOND, parse_duration

APIS: Final = ("cli", "v0.0.38")


@dataclass(frozen=True, slots=True)
class SlurmSettings:
    """What the file says; every member has the name that it has there.

    Attributes:
        api: Who tells what Slurm does: its commands, or a version of slurmrestd.
        rest_socket: Unix socket of slurmrestd.
        conf: Path of slurm.conf, as ``SLURM_CONF``; empty: where Slurm's commands find it.
        partitions: Partitions that are managed; none: all with GPUs.
        poll: Time between two looks, ms.
        timeout: Longest time a command may take, ms.
        warn: Between the warning and the end of a preempted run, ms.
        warn_signal: The warning.
        start_patience: How long a released job may wait for Slurm before it is taken back, ms.
        requeues_per_minute: Most runs that are ended in a minute; the others go on until their turn.
        unfunded: Account of jobs whose Slurm account nobody claims.
        heartbeat: File whose age tells ``divvy slurm fail-open`` and job_submit.lua whether Divvy lives.
        fail_open_after: Age at which they stop holding jobs back, ms.
        nice_step: Priority points between two places of the order in mode advise.
        weights: Charge per GPU-ms by GPU type; others by the price list.
        default: Contract of jobs that declare none.
        partition: The same by partition.
    """

    api: str = "cli"
    rest_socket: str = ""
    conf: str = ""
    partitions: tuple[str, ...] = ()
    poll: int = 5 * SECOND
    timeout: int = 30 * SECOND
    warn: int = 60 * SECOND
    warn_signal: str = "USR1"
    start_patience: int = 2 * MINUTE
    requeues_per_minute: int = 60
    unfunded: str = "unfunded"
    heartbeat: str = ""
    fail_open_after: int = 15 * MINUTE
    nice_step: int = 1_000
    weights: Mapping[str, int] = field(default_factory=dict)
    default: Contract = field(default_factory=lambda: Contract(min_runtime=HOUR, restart=True))
    partition: Mapping[str, Contract] = field(default_factory=dict)

    def contract_of(self, partition: str) -> Contract:
        """Return the contract of a job that declares none; of several partitions, the first that has one."""
        for name in partition.split(","):
            if name in self.partition:
                return self.partition[name]
        return self.default

    def weight_of(self, model: str) -> int:
        """Return what a GPU of a Slurm type weighs: as configured, else by the price list, else 1."""
        if model in self.weights:
            return self.weights[model]
        word = model.lower().removeprefix("nvidia_")
        known = (
            entry.weight
            for name, entry in DEVICE_MODELS.items()
            if word
            and (name.lower() == word or name.lower().split("-")[0] == word.replace("-", "_").split("_")[0])
        )
        return next(known, GENERIC.weight)


def read_settings(path: str) -> SlurmSettings:
    """Read the file; an empty path gives the defaults.

    Raises:
        InputError: With every fault of the file.
    """
    if not path:
        return SlurmSettings()
    try:
        document = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:  # also lists nested too deep and numbers too long
        raise InputError.one(
            "slurm-config", f"cannot read {path} ({error})", path="--slurm-config", fix="name a TOML file"
        ) from error
    return settings_of(document, path)


def settings_of(document: Mapping[str, Any], source: str = "slurm") -> SlurmSettings:
    """Return the settings of a parsed file.

    Raises:
        InputError: With every fault and its path.
    """
    faults: list[Fault] = []
    found: dict[str, Any] = {}
    for key, value in document.items():
        reader = _READERS.get(key)
        if reader is None:
            allowed = ", ".join(_READERS)
            faults.append(
                Fault("slurm-key", f"{source}.{key}", "unknown setting", allowed, "remove or rename it")
            )
            continue
        try:
            found[key] = reader(value)
        except ValueError as error:
            faults.append(Fault("slurm-value", f"{source}.{key}", str(error)))
    if found.get("api", "cli") != "cli" and not found.get("rest_socket"):
        faults.append(
            Fault("slurm-value", f"{source}.rest_socket", "missing", "path of slurmrestd's Unix socket")
        )
    if faults:
        raise InputError(f"{source} has {len(faults)} fault{'s' if len(faults) > 1 else ''}", faults)
    return SlurmSettings(**found)


def _time(least: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if not isinstance(value, str):
            raise ValueError(f'{value!r} has no unit; write "30s"')
        duration = parse_duration(value)
        if duration < least:
            raise ValueError(f"{value} is too short; at least {least} ms")
        return duration

    return read


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{value!r} is not a whole number above 0")
    return value


def _word(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a text")
    return value


def _api(value: Any) -> str:
    if value not in APIS:
        raise ValueError(f"{value!r}; known: {', '.join(APIS)}")
    return str(value)


def _words(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise ValueError(f'{value!r} is not a list of names, such as ["gpu"]')
    return tuple(value)


def _weights(value: Any) -> dict[str, int]:
    if not isinstance(value, Mapping):
        raise ValueError("is not a table, such as h100 = 989")
    return {str(name): _whole(weight) for name, weight in value.items()}


def _contract(value: Any) -> Contract:
    if not isinstance(value, Mapping):
        raise ValueError('is not a table, such as min_runtime = "1h"')
    contract = Contract(restart=True)
    for key, item in value.items():
        if key == "min_runtime":
            contract = replace(contract, min_runtime=_time(0)(item))
        elif key in ("resumable", "restart", "interactive"):
            if not isinstance(item, bool):
                raise ValueError(f"{key}: {item!r} is not true or false")
            contract = with_flag(contract, key, value=item)
        elif key == "warn":
            contract = replace(contract, warn=_time(0)(item))
        elif key == "signal":
            contract = replace(contract, signal=signal_name(_word(item)))
        else:
            raise ValueError(f"{key}: unknown; min_runtime, resumable, restart, interactive, warn, signal")
    return contract if contract.min_runtime is not None else replace(contract, min_runtime=HOUR)


def _contracts(value: Any) -> dict[str, Contract]:
    if not isinstance(value, Mapping):
        raise ValueError("is not a table of partitions")
    return {str(name): _contract(item) for name, item in value.items()}


_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    "api": _api,
    "rest_socket": _word,
    "conf": _word,
    "partitions": _words,
    "poll": _time(200),
    "timeout": _time(1_000),
    "warn": _time(0),
    "warn_signal": lambda value: signal_name(_word(value)),
    "start_patience": _time(1_000),
    "requeues_per_minute": _whole,
    "unfunded": _word,
    "heartbeat": _word,
    "fail_open_after": _time(1_000),
    "nice_step": _whole,
    "weights": _weights,
    "default": _contract,
    "partition": _contracts,
}
