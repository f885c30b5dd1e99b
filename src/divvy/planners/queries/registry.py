"""The dispatch rules by name: a new rule is one file and one line here."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from divvy.errors import NotFoundError
from divvy.planners.queries import divvy, elsa, fifs, jsq, least_gpc, pow2
from divvy.planners.queries.rule import Rule

RULES: Final = MappingProxyType(
    {rule.name: rule for rule in (elsa.RULE, fifs.RULE, jsq.RULE, pow2.RULE, least_gpc.RULE, divvy.RULE)}
)


def find_rule(text: str) -> tuple[Rule, tuple[float, ...]]:
    """Return a rule and its parameters from a text such as ``elsa`` or ``elsa:alpha=1.5,beta=1``.

    Raises:
        NotFoundError: If there is no such rule or parameter; the fault lists those that there are.
    """
    name, _, rest = text.partition(":")
    rule = RULES.get(name)
    if rule is None:
        raise NotFoundError.one(
            "unknown-dispatcher", f"no dispatcher {name!r}", path="--dispatcher", allowed=", ".join(RULES)
        )
    given: dict[str, float] = {}
    for part in filter(None, rest.split(",")):
        key, _, value = part.partition("=")
        try:
            given[key] = float(value)
        except ValueError:
            given[key] = float("nan")
        if key not in dict(rule.params) or not -1e9 < given[key] < 1e9:
            raise NotFoundError.one(
                "unknown-dispatcher-parameter",
                f"{name} has no parameter {part!r}",
                path="--dispatcher",
                allowed=", ".join(f"{key}={value:g}" for key, value in rule.params) or "none",
            )
    return rule, rule.values(given)
