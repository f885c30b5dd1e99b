"""GPUs in Slurm's texts: TRES (``gres/gpu=4,gres/gpu:a100=4``), GRES (``gpu:a100:4(S:0-3)``), requests.

Slurm states one allocation several times: in all (``gres/gpu=4``) and per type (``gres/gpu:a100=4``). It is
counted once. Which text holds the truth depends on what there is; `of_job` has the order.

A MIG instance is a GPU here, as it is for Slurm, which counts instances in nodes and jobs alike; the note
`MIG` says so. A shard is a part of a GPU of unknown size: it is counted apart and is no GPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from divvy.adapters.slurm.hostlist import NOBODY

#: Notes on a count, stable words.
MIG: Final = "mig-instances"
SHARDS: Final = "shards"
TRUNCATED: Final = "tres-truncated"
TYPES_EXCEED: Final = "gpu-types-exceed"
ONLY_IDS: Final = "tres-ids"

#: More GPUs than one job or node can hold; Slurm's own marks for "no value" are far above it.
MOST_GPUS: Final = 1_000_000

_BRACKETS: Final = re.compile(r"\([^()]*\)")
_NUMBER: Final = re.compile(r"(\d+)(?:\.0+)?([kmgtKMGT]?)", re.ASCII)
_SUFFIX: Final = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_MIG_PROFILE: Final = re.compile(r"\d+g\.\d+gb", re.IGNORECASE)
_PARTS: Final = ("shard", "mps")
#: TRES by the numbers of one cluster's database, as its tables hold them; sacct writes names.
_IDS: Final = re.compile(r"\d+=\d+(?:,\d+=\d+)*", re.ASCII)


class Gpus(NamedTuple):
    """GPUs of a job or node.

    Attributes:
        total: GPUs, each once.
        models: Type and its GPUs, where Slurm knows types; sorted.
        shards: Parts of shared GPUs (``shard``, ``mps``).
        notes: What to know about the count: words of this module.
    """

    total: int = 0
    models: tuple[tuple[str, int], ...] = ()
    shards: int = 0
    notes: tuple[str, ...] = ()

    @property
    def model(self) -> str:
        """Return the type; several are joined by ``+``; empty where Slurm does not say."""
        return _joined(self.models) if self.models else ""

    def times(self, factor: int) -> Gpus:
        """Return the GPUs of so many nodes or tasks."""
        models = tuple((name, count * factor) for name, count in self.models)
        return Gpus(self.total * factor, models, self.shards * factor, self.notes)


@lru_cache(maxsize=4096)
def _joined(models: tuple[tuple[str, int], ...]) -> str:
    return "+".join(name for name, _ in models)


NO_GPUS: Final = Gpus()


class Request(NamedTuple):
    """The texts that say what a job asked for, and what they are multiplied with."""

    per_job: str = ""
    per_node: str = ""
    per_socket: str = ""
    per_task: str = ""
    nodes: int = 1
    sockets: int = 1
    tasks: int = 1


@lru_cache(maxsize=65_536)
def count_gpus(text: str) -> Gpus:
    """Return the GPUs that a TRES or GRES text names.

    Args:
        text: Such as ``cpu=4,gres/gpu:a100=2``, ``gpu:a100:4(S:0-3),nsight:1``, ``gres:gpu:2``; ``(null)``,
            ``N/A`` and nothing are no GPUs.

    Raises:
        ValueError: If a number of GPUs in it cannot be one.
    """
    plain = text.strip()
    if plain in NOBODY:
        return NO_GPUS
    if _IDS.fullmatch(plain):
        return Gpus(notes=(ONLY_IDS,))
    while (bare := _BRACKETS.sub("", plain)) != plain:
        plain = bare
    totals, typed, shards = [0], dict[str, int](), 0
    stated = 0
    for item in plain.split(","):
        kind, model, number, equals = _item(item)
        if kind == "gpu" and equals and not model:
            stated = max(stated, number)
        elif kind == "gpu" and model:
            typed[model] = max(typed.get(model, 0), number) if equals else typed.get(model, 0) + number
        elif kind == "gpu":
            totals.append(number)
        elif kind in _PARTS and not model:
            shards += number
    return _sum(max(stated, sum(totals)), typed, shards, truncated=plain.endswith(","), adds=not stated)


def count_entries(entries: Iterable[Mapping[str, Any]]) -> Gpus:
    """Return the GPUs of a list ``[{"type": "gres", "name": "gpu:a100", "count": 4}]`` of Slurm's JSON.

    Raises:
        ValueError: If a number of GPUs in it cannot be one.
    """
    words = []
    for entry in entries:
        kind, name = str(entry.get("type") or ""), str(entry.get("name") or "")
        if kind == "gres" and name:
            words.append(f"gres/{name}={entry.get('count')}")
    return count_gpus(",".join(words))


def of_request(request: Request) -> Gpus:
    """Return the GPUs of a request: of the job, else per node, task or socket times their number.

    Raises:
        ValueError: If a number of GPUs in it cannot be one.
    """
    for text, factor in (
        (request.per_job, 1),
        (request.per_node, request.nodes),
        (request.per_task, request.tasks),
        (request.per_socket, request.sockets * request.nodes),
    ):
        found = count_gpus(text)
        if found.total or found.shards:
            return found.times(max(factor, 1))
    return NO_GPUS


def _item(item: str) -> tuple[str, str, int, bool]:
    """Return kind, type, number and whether it was ``name=number``; an item that is no GPU has no number."""
    name, equals, value = item.strip().partition("=")
    name = name.strip()
    if name.lower().startswith(("gres/", "gres:")):
        name = name[5:]
    elif "/" in name:
        return "", "", 0, False
    kind, *rest = name.split(":")
    kind = kind.lower()
    if kind != "gpu" and kind not in _PARTS:
        return "", "", 0, False
    rest = [part for part in rest if part != "no_consume"]
    if not equals:
        value = rest.pop() if rest and _NUMBER.fullmatch(rest[-1]) else "1"
    return kind, ":".join(rest), _number(value, item), bool(equals)


def _number(value: str, item: str) -> int:
    found = _NUMBER.fullmatch(value.strip())
    number = int(found.group(1)) * _SUFFIX[found.group(2).lower()] if found else -1
    if not 0 <= number <= MOST_GPUS:
        raise ValueError(f"{item.strip()!r} is not a number of GPUs")
    return number


def _sum(stated: int, typed: dict[str, int], shards: int, *, truncated: bool, adds: bool) -> Gpus:
    """Return the count: what is stated in all covers the types; without it (or in GRES) the types add up."""
    of_types = sum(typed.values())
    notes = [
        word
        for word, holds in (
            (MIG, any(_MIG_PROFILE.search(model) for model in typed)),
            (SHARDS, shards > 0),
            (TRUNCATED, truncated),
            (TYPES_EXCEED, not adds and of_types > stated),
        )
        if holds
    ]
    total = stated + of_types if adds else max(stated, of_types)
    return Gpus(total, tuple(sorted((m, n) for m, n in typed.items() if n)), shards, tuple(notes))
