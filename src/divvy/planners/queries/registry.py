"""The dispatch rules by name: a new rule is one file and one line here."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from divvy.errors import InputError, NotFoundError
from divvy.planners.queries import divvy, elsa, fifs, jsq, least_gpc, pow2
from divvy.planners.queries.rule import Rule

RULES: Final = MappingProxyType(
    {rule.name: rule for rule in (elsa.RULE, fifs.RULE, jsq.RULE, pow2.RULE, least_gpc.RULE, divvy.RULE)}
)


def find_rule(text: str) -> tuple[Rule, tuple[float, ...]]:
    """Return a rule and its parameters from a text such as ``elsa`` or ``elsa:alpha=1.5,beta=1``.

    Raises:
        NotFoundError: If there is no such rule; the fault lists those that there are.
        InputError: If a parameter is unknown, or its value is no number from 0 on.
    """
    name, _, rest = text.partition(":")
    rule = RULES.get(name)
    if rule is None:
        raise NotFoundError.one(
            "unknown-dispatcher", f"no dispatcher {name!r}", path="--dispatcher", allowed=", ".join(RULES)
        )
    try:
        return rule, rule.read(rest)
    except ValueError as error:
        raise InputError.one(
            "dispatcher-parameter",
            str(error),
            path="--dispatcher",
            allowed=", ".join(f"{key}={value:g}" for key, value in rule.params) or "none",
        ) from error
