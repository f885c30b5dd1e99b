"""Random batches of transfers: ``random:n=16,seed=1``."""

from __future__ import annotations

import math
import re
from typing import Final

import numpy as np

from divvy.errors import InputError
from divvy.fleet.topology.graph import Kind, Topology
from divvy.planners.transfers.plan import MOST_BYTES, Transfer
from divvy.units import parse_bytes

_FORM: Final = re.compile(r"random(?::(.*))?", re.ASCII)
_ALLOWED: Final = "random:n=16,seed=1[,min=16MB,max=4GB,spread=50ms,descriptors=1]"


def is_random(text: str) -> bool:
    """Return whether a text asks for a random batch."""
    return text == "random" or text.startswith("random:")


def random_batch(topo: Topology, text: str) -> list[Transfer]:
    """Return transfers between random pairs of GPUs (of nodes, where there is no GPU); sizes are log-uniform.

    Raises:
        InputError: If the text is not understood, or the topology has fewer than two places.
    """
    options = _options(text)
    count, seed, least, most = (int(options[key]) for key in ("n", "seed", "min", "max"))
    places = [v.id for v in topo.of_kind(Kind.GPU)] or [v.id for v in topo.of_kind(Kind.NODE)]
    if len(places) < 2:
        raise InputError.one(
            "too-few-places",
            f"{topo.name} has {len(places)} GPU{'' if len(places) == 1 else 's'}: no pair to move "
            "bytes between",
            fix="give a topology with at least two GPUs",
        )
    rng = np.random.default_rng(seed)
    out: list[Transfer] = []
    for i in range(count):
        a, b = rng.choice(len(places), size=2, replace=False)
        size = int(least * (most / least) ** rng.random())
        release = float(rng.random() * options["spread"]) if options["spread"] else 0.0
        out.append(Transfer(f"t{i}", places[a], places[b], size, release, None, int(options["descriptors"])))
    return out


def _options(text: str) -> dict[str, float]:
    """Return the options of a random batch with their defaults."""
    options = {"n": 16.0, "seed": 1.0, "min": 16e6, "max": 4e9, "spread": 0.0, "descriptors": 1.0}
    match = _FORM.fullmatch(text.strip())
    body = match.group(1) if match else ""
    for part in (body or "").split(","):
        key, _, value = part.strip().partition("=")
        if not part.strip():
            continue
        try:
            if key not in options:
                raise ValueError(f"{key!r} is no option")  # noqa: TRY301 - one way to report it
            options[key] = (
                float(parse_bytes(value))
                if key in ("min", "max") and not value.isdigit()
                else _number(key, value)
            )
        except ValueError as error:
            raise InputError.one(
                "random-batch", f"{text}: {error}", path="--transfers", allowed=_ALLOWED
            ) from error
    whole = all(float(options[key]).is_integer() for key in ("n", "seed", "min", "max", "descriptors"))
    if not (
        whole
        and 1 <= options["n"] <= 100_000
        and 0 < options["min"] <= options["max"] <= MOST_BYTES
        and 1 <= options["descriptors"] <= MOST_BYTES
        and 0 <= options["seed"] <= MOST_BYTES
        and 0 <= options["spread"] < math.inf
    ):
        raise InputError.one(
            "random-batch",
            f"{text}: n, seed, min, max, spread or descriptors out of range",
            path="--transfers",
            allowed=_ALLOWED,
        )
    return options


def _number(key: str, value: str) -> float:
    """Return a number; the spread may be a duration in milliseconds (``50ms``)."""
    if key == "spread" and value.endswith("ms"):
        return float(value[:-2]) / 1000.0
    return float(value.removesuffix("s") if key == "spread" else value)
