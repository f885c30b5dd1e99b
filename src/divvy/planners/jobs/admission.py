"""Admission: may this job enter the queue at all, and does the debug rule favour it?

Pure. A submission is held against the account tree, the policy and the fleet, and every fault is reported
at once, with the codes that the command line and the HTTP API share. Admission never looks at load: a job
that merely has to wait is admitted, one that could never start is refused.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from divvy.errors import DivvyError, Fault, InputError
from divvy.fleet.budget import Budget, Policy
from divvy.fleet.job import JobSpec
from divvy.fleet.node import Node
from divvy.units import DAY, format_duration, gpu_hours

JOB_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
JOB_ID_HELP: Final = "letters, digits, _ and -, at most 63, starting with a letter or digit"
NAME_LIMIT: Final = 200
PRIORITY_LIMIT: Final = 1_000_000


def check(spec: JobSpec, budget: Budget, nodes: Sequence[Node]) -> list[Fault]:
    """Return everything that forbids a job, in the order of its fields.

    Args:
        spec: The job as asked for.
        budget: Tree and policy in force.
        nodes: All known nodes, also those that are down: what is down may come back, so a job that needs
            it waits. Where no node is known yet, nothing is said about sizes.
    """
    return [
        *_check_names(spec),
        *_check_accounts(spec, budget),
        *_check_contract(spec, budget.policy),
        *_check_place(spec, nodes),
    ]


def admit(spec: JobSpec, budget: Budget, nodes: Sequence[Node]) -> None:
    """Refuse a job that could never run.

    Raises:
        InputError: With every fault.
    """
    faults = check(spec, budget, nodes)
    if faults:
        raise InputError("the job cannot be admitted", faults)


def printable(text: str) -> bool:
    """Return whether a text holds no control character, line break or lone surrogate."""
    return all(char.isprintable() for char in text)


def _check_names(spec: JobSpec) -> Iterable[Fault]:
    if not JOB_ID.fullmatch(spec.id):
        yield Fault("job-id", "id", f"{spec.id[:80]!r} is not a job id", JOB_ID_HELP, "choose another id")
    for path, text in (("name", spec.name), ("author", spec.author)):
        if len(text) > NAME_LIMIT:
            yield Fault("text-long", path, f"{len(text)} characters", f"at most {NAME_LIMIT}", "shorten it")
        elif not printable(text):
            yield Fault(
                "text-control", path, f"{text!r} holds a control character", "printable text", "remove it"
            )


def _check_accounts(spec: JobSpec, budget: Budget) -> Iterable[Fault]:
    accounts = spec.budgets or (spec.account,)
    for path in dict.fromkeys(accounts):
        if accounts.count(path) > 1:
            yield Fault("account-twice", "account", f"{path!r} is named twice", "once", "leave one away")
        yield from _check_account(spec._replace(account=path), budget)


def _check_account(spec: JobSpec, budget: Budget) -> Iterable[Fault]:
    tree = budget.tree
    try:
        leaf = tree.leaf(spec.account)
    except DivvyError as error:
        yield from error.faults
        return
    members = tree.members_of(spec.account)
    if members and spec.author not in members and spec.author not in tree.owners_over(spec.account):
        yield Fault(
            "account-member",
            "account",
            f"{spec.author} is no member of {spec.account}",
            f"{', '.join(members[:20])}, or an owner",
            "choose an account of yours, or ask an owner of the budget to add you",
        )
    if not spec.allocated:
        return
    for row in tree.lineage[leaf]:
        limits = (tree.specs[row - 1].max_gpus, tree.specs[row - 1].author_max_gpus)
        least = min((limit for limit in limits if limit is not None), default=spec.gpus)
        if least < spec.gpus:
            yield Fault(
                "gpus-limit",
                "gpus",
                f"{spec.gpus} devices, a limit of {tree.paths[row]} is {least}",
                f"at most {least} devices at once",
                "ask for fewer",
            )


def _check_contract(spec: JobSpec, policy: Policy) -> Iterable[Fault]:
    if spec.min_runtime < 0:
        yield Fault("min-runtime-range", "min_runtime", f"{spec.min_runtime} ms < 0", "0 or more")
    elif spec.min_runtime > policy.max_min_runtime:
        yield Fault(
            "min-runtime-cap",
            "min_runtime",
            f"{format_duration(spec.min_runtime)} > {format_duration(policy.max_min_runtime)}",
            f"0 to {format_duration(policy.max_min_runtime)}",
            "declare less; a job goes on after its minimum and is then interruptible",
        )
    if spec.time_limit < 0:
        yield Fault("time-limit-range", "time_limit", f"{spec.time_limit} ms < 0", "0 (none) or more")
    elif 0 < spec.time_limit < spec.min_runtime:
        yield Fault(
            "time-limit-short",
            "time_limit",
            f"{format_duration(spec.time_limit)} is less than the minimum runtime "
            f"{format_duration(spec.min_runtime)}",
            f"0 (none) or at least {format_duration(spec.min_runtime)}",
            "raise the limit or declare less",
        )
    if abs(spec.priority) > PRIORITY_LIMIT:
        yield Fault(
            "priority-range",
            "priority",
            f"{spec.priority} is out of range",
            f"-{PRIORITY_LIMIT} to {PRIORITY_LIMIT}",
        )


def _check_place(spec: JobSpec, nodes: Sequence[Node]) -> Iterable[Fault]:
    """Yield what is wrong with the clusters and the shape; a gang has to fit one of its clusters."""
    known = sorted({node.cluster for node in nodes})
    strangers = [name for name in spec.clusters if nodes and name not in known]
    for name in strangers:
        allowed = ", ".join(filter(None, known)) or "none: the fleet is one cluster without a name"
        yield Fault("cluster-unknown", "clusters", f"no node is in cluster {name!r}", allowed)
    if strangers:
        return
    tried = [
        list(_check_shape(spec, [node for node in nodes if node.cluster == name]))
        for name in (spec.clusters or known)
    ]
    if not tried or not all(tried):
        yield from () if tried else _check_shape(spec, nodes)
    else:
        yield from min(tried, key=len)


def _check_shape(spec: JobSpec, nodes: Sequence[Node]) -> Iterable[Fault]:
    if spec.gpus < 1:
        yield Fault("gpus-range", "gpus", f"{spec.gpus} < 1", "1 or more", "ask for at least one device")
        return
    if spec.per_node < 0:
        yield Fault("per-node-range", "per_node", f"{spec.per_node} < 0", "0 (any) or more")
        return
    if spec.per_node and spec.gpus % spec.per_node:
        yield Fault(
            "per-node-uneven",
            "per_node",
            f"{spec.gpus} devices do not divide into nodes of {spec.per_node}",
            f"a divisor of {spec.gpus}, or 0 to let the planner choose",
        )
        return
    if not nodes:
        return
    models = sorted({node.model for node in nodes})
    if spec.model and spec.model not in models:
        yield Fault(
            "model-unknown", "model", f"no node has {spec.model!r}", ", ".join(models), "choose one of these"
        )
        return
    of_model = f" of model {spec.model}" if spec.model else ""
    fitting = [node.gpus for node in nodes if spec.model in ("", node.model)]
    if spec.gpus > sum(fitting):
        yield Fault(
            "gpus-fleet",
            "gpus",
            f"{spec.gpus} devices{of_model}, the fleet has {sum(fitting)}",
            f"at most {sum(fitting)}",
            "ask for fewer",
        )
        return
    places = sum(1 for gpus in fitting if gpus >= spec.per_node)
    if spec.per_node and places * spec.per_node < spec.gpus:
        yield Fault(
            "per-node-fleet",
            "per_node",
            f"{spec.gpus // spec.per_node} nodes of {spec.per_node} devices{of_model}, "
            f"{places} nodes are that large",
            f"nodes of at most {max(fitting)} devices",
            "ask for fewer devices per node, or 0 to let the planner choose",
        )


class DebugAllowance:
    """The debug rule's memory: declared GPU-time favoured per author in the last 24 hours.

    Favoured are jobs that declare few devices and a short minimum runtime (but not zero: unallocated
    work is free already). What counts is the declaration, since the rule answers before the job has run;
    a declaration of 15 minutes that runs for hours is interruptible after its 15 minutes. The day slides,
    so that no midnight brings a burst.
    """

    def __init__(self) -> None:
        self._granted: dict[str, deque[tuple[int, int]]] = {}
        self._sum: dict[str, int] = {}

    def allows(self, at: int, spec: JobSpec, policy: Policy) -> bool:
        """Return whether the debug rule favours a job submitted at ``at`` (ms)."""
        if not 0 < spec.min_runtime <= policy.debug_max_min_runtime or spec.gpus > policy.debug_max_gpus:
            return False
        asked = spec.gpus * spec.min_runtime
        return self.used(at, spec.author) + asked <= policy.debug_gpu_time_per_day

    def grant(self, at: int, spec: JobSpec, policy: Policy) -> bool:
        """Return whether the debug rule favours a job submitted at ``at`` (ms), and remember a yes."""
        allowed = self.allows(at, spec, policy)
        if allowed:
            self.remember(at, spec.author, spec.gpus * spec.min_runtime)
        return allowed

    def remember(self, at: int, author: str, gpu_time: int) -> None:
        """Count a grant made at ``at`` (ms), such as one read back after a restart; times may not fall."""
        self._granted.setdefault(author, deque()).append((at, gpu_time))
        self._sum[author] = self._sum.get(author, 0) + gpu_time

    def used(self, at: int, author: str) -> int:
        """Return the GPU-milliseconds favoured in the 24 hours up to ``at``."""
        granted = self._granted.get(author)
        if granted is None:
            return 0
        while granted and granted[0][0] <= at - DAY:
            self._sum[author] -= granted.popleft()[1]
        if not granted:
            del self._granted[author], self._sum[author]
            return 0
        return self._sum[author]

    def explain(self, at: int, author: str, policy: Policy) -> str:
        """Return one sentence on what is left of an author's allowance."""
        used = gpu_hours(self.used(at, author))
        allowed = gpu_hours(policy.debug_gpu_time_per_day)
        return f"{used:.1f} of {allowed:.1f} GPU-hours per day of the debug rule are used by {author}"
