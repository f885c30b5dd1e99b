"""The journal as a reader knows it: entries, how a state is rebuilt from them, and how a pass is re-run.

An entry holds what happened before a pass, the plan of the pass, and the events that carried it out.
Applied in order to a base snapshot they give every state that ever was; the planner, made anew, must give
every plan again, byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from divvy.control.codec import canonical, plan_document, restore, state_document
from divvy.control.compact import compact
from divvy.control.state import FleetState
from divvy.errors import DivvyError, InputError, UnavailableError
from divvy.fleet.event import Event, from_document, to_document
from divvy.planners.base import Context, JobPlanner

CASE: Final = "divvy.case/1"

#: Makes a planner from the name that the journal holds.
Planners = Callable[[str], JobPlanner]


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry.

    Attributes:
        seq: Number, without gaps.
        at: Time of the pass, or of the last event where there was none, ms.
        version: Version of the state after the entry.
        planner: Name of the planner; empty where no plan was made.
        seed: What the planner was given.
        happened: Events before the pass, in the order in which they were applied.
        plan: `codec.plan_document`; None where no plan was made.
        carried_out: Events that the decisions made.
    """

    seq: int
    at: int
    version: int
    planner: str
    seed: int
    happened: tuple[Event, ...]
    plan: dict[str, Any] | None
    carried_out: tuple[Event, ...]

    def body(self) -> bytes:
        """Return what is stored besides the numbers, as canonical bytes."""
        return canonical(
            {
                "happened": [to_document(event) for event in self.happened],
                "plan": self.plan,
                "carried_out": [to_document(event) for event in self.carried_out],
            }
        )


class Compaction(NamedTuple):
    """The moment after entry ``seq`` at which the state forgot the jobs that were over."""

    seq: int
    at: int


#: What the journal leads a state through, in order.
Step = Entry | Compaction


@dataclass(frozen=True, slots=True)
class Verdict:
    """What re-running a pass gave.

    Attributes:
        seq: Entry; 0 for a case file.
        at: Time of the pass, ms.
        planner: Name of the planner.
        same: Whether the plans are byte-equal.
        recorded: The plan that was recorded.
        replayed: The plan that came out now.
    """

    seq: int
    at: int
    planner: str
    same: bool
    recorded: dict[str, Any]
    replayed: dict[str, Any]

    def differences(self) -> list[str]:
        """Return where the two plans part, one line each; empty when they are equal."""
        return list(_differences("", self.recorded, self.replayed))


def read_events(documents: Iterable[dict[str, Any]]) -> tuple[Event, ...]:
    """Return events from their documents.

    Raises:
        UnavailableError: If one is damaged.
    """
    try:
        return tuple(from_document(document) for document in documents)
    except ValueError as error:
        raise UnavailableError.one("journal-damaged", f"damaged journal entry: {error}") from error


def advance(state: FleetState, events: Iterable[Event], seq: int) -> None:
    """Apply recorded events.

    Raises:
        UnavailableError: If the state refuses one: the journal does not fit its base snapshot.
    """
    for event in events:
        try:
            state.apply(event)
        except DivvyError as error:
            raise UnavailableError.one(
                "journal-damaged", f"journal entry {seq} does not fit what came before it: {error}"
            ) from error


def walk(state: FleetState, step: Step) -> None:
    """Bring a state over one step.

    Raises:
        UnavailableError: If the step does not fit the state.
    """
    if isinstance(step, Compaction):
        compact(state, step.at)
        return
    advance(state, step.happened, step.seq)
    _carry_out(state, step)


def replay(
    state: FleetState, steps: Iterable[Step], planners: Planners, wanted: Callable[[int], bool]
) -> Iterator[Verdict]:
    """Yield the verdict on every wanted pass; the other steps only bring the state forward.

    Raises:
        UnavailableError: If a step does not fit the state.
    """
    for step in steps:
        if isinstance(step, Entry) and step.plan is not None and wanted(step.seq):
            advance(state, step.happened, step.seq)
            yield judge(state, step, planners)
            _carry_out(state, step)
        else:
            walk(state, step)


def _carry_out(state: FleetState, entry: Entry) -> None:
    advance(state, entry.carried_out, entry.seq)
    if state.snapshot.version != entry.version:
        raise UnavailableError.one(
            "journal-damaged",
            f"after journal entry {entry.seq} the state has version {state.snapshot.version}",
            allowed=str(entry.version),
        )


def judge(state: FleetState, entry: Entry, planners: Planners) -> Verdict:
    """Return the verdict on one pass, given the state just before its plan."""
    recorded = entry.plan or {}
    plan = planners(entry.planner).plan(state.snapshot, Context(int(recorded["now"]), entry.seed))
    replayed = plan_document(plan, state.snapshot)
    same = canonical(replayed) == canonical(recorded)
    return Verdict(entry.seq, entry.at, entry.planner, same, recorded, replayed)


# -- one pass in one file ------------------------------------------------------------------------------


def case_document(state: FleetState, entry: Entry, note: str = "") -> dict[str, Any]:
    """Return one pass with everything it needs to be run again, given the state just before its plan."""
    return {
        "schema": CASE,
        "note": note,
        "seq": entry.seq,
        "at": entry.at,
        "planner": entry.planner,
        "seed": entry.seed,
        "state": state_document(state.snapshot),
        "plan": entry.plan,
    }


def run_case(document: Mapping[str, Any], planners: Planners) -> Verdict:
    """Run the pass of a case file again.

    Raises:
        InputError: If the document is not a case file.
    """
    if document.get("schema") != CASE:
        raise InputError.one(
            "case-schema",
            f"not a case file: schema {document.get('schema')!r}",
            allowed=CASE,
            fix="write one with `divvy replay SEQ --export FILE`",
        )
    state = restore(document["state"])
    entry = Entry(
        int(document["seq"]),
        int(document["at"]),
        state.snapshot.version,
        str(document["planner"]),
        int(document["seed"]),
        (),
        document["plan"],
        (),
    )
    return judge(state, entry, planners)


def _differences(at: str, one: Any, other: Any) -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            yield from _differences(f"{at}.{key}" if at else key, one.get(key), other.get(key))
    elif isinstance(one, list) and isinstance(other, list):
        for place in range(max(len(one), len(other))):
            yield from _differences(
                f"{at}[{place}]",
                one[place] if place < len(one) else None,
                other[place] if place < len(other) else None,
            )
    elif one != other:
        yield f"{at}: {one!r} was recorded, {other!r} came out"
