"""ELSA (Kim, Choi, Rhu; DAC 2022), verbatim: the smallest slice with slack, else the first done."""

from __future__ import annotations

from typing import Any

from divvy.planners.queries.rule import NOWHERE, Rule

# ruff: noqa: ARG001 - every rule has the same arguments


def choose(
    now: int,
    deadline: int,
    batch: int,
    free_at: Any,
    queued: Any,
    service: Any,
    price: Any,
    params: Any,
    draw: int,
) -> int:
    """Return the slice by ELSA's steps A and B.

    T_wait is what remains of the running query and of those queued; T_est comes from the profile;
    slack = SLA_left - alpha * (T_wait + beta * T_est).
    """
    alpha, beta = params[0], params[1]
    best, least = NOWHERE, 0
    for s in range(free_at.shape[0]):
        estimate = service[s, batch]
        if estimate < 0:
            continue
        wait = max(free_at[s] - now, 0)
        slack = (deadline - now) - alpha * (wait + beta * estimate)
        if slack > 0:  # step A: slices are in ascending size
            return s
        if best == NOWHERE or wait + estimate < least:  # step B
            best, least = s, wait + estimate
    return best


RULE = Rule(
    "elsa",
    "the smallest slice with slack; else the one done first (verbatim; alpha, beta)",
    choose,
    params=(("alpha", 1.0), ("beta", 1.0)),
)
