import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from divvy.control.changes import budget_changes
from divvy.control.codec import canonical, number, restore, state_document
from divvy.control.compact import compact
from divvy.control.state import FleetState
from divvy.errors import DivvyError, UnavailableError
from divvy.fleet.budget import read_budget
from divvy.fleet.event import (
    Adjusted,
    BudgetChanged,
    NodeChanged,
    Placed,
    SlotHeld,
    Started,
    Stopped,
    Stopping,
    Submitted,
    Withdrawn,
    from_document,
    to_document,
)
from divvy.fleet.job import JobKind, JobSpec, StopCause
from divvy.fleet.node import Node, NodeState

BUDGET = {
    "policy": {"floor": 0.55, "lookback": "3d"},
    "accounts": {
        "lab": {"share": 99.5, "owners": ["ada"], "a": {"share": 33.3, "slurm": ["a-*"]}, "b": {"share": 60}}
    },
}
OTHER = {"accounts": {"lab": {"share": 50, "a": {"share": 10}, "b": {"share": 60}, "c": {"share": 1}}}}

JOBS = st.sampled_from([f"j{n}" for n in range(6)])
CAUSES = st.sampled_from(list(StopCause))
STEPS = st.lists(
    st.one_of(
        st.builds(
            lambda job, account, gpus, minimum, kind: (
                lambda at: Submitted(
                    at, JobSpec(job, account, f"by-{job}", gpus, minimum, kind=kind), gpus == 1
                )
            ),
            JOBS,
            st.sampled_from(["lab.a", "lab.b"]),
            st.integers(1, 4),
            st.sampled_from([0, 5, 1000]),
            st.sampled_from(list(JobKind)),
        ),
        st.builds(
            lambda job, gpus: lambda at: Placed(at, job, (("n1", gpus),), protected=True),
            JOBS,
            st.integers(1, 4),
        ),
        st.builds(lambda job: lambda at: Started(at, job), JOBS),
        st.builds(lambda job, cause: lambda at: Stopping(at, job, cause), JOBS, CAUSES),
        st.builds(
            lambda job, cause, back: lambda at: Stopped(at, job, cause, back, 3, "said"),
            JOBS,
            CAUSES,
            st.booleans(),
        ),
        st.builds(lambda job: lambda at: Withdrawn(at, job), JOBS),
        st.builds(lambda job: lambda at: SlotHeld(at, job, (("n1", 2), ("n2", 1)), at + 9), JOBS),
        st.builds(
            lambda name, gpus, state: (
                lambda at: NodeChanged(at, Node(name, gpus, weight=3, state=state, cause="x"))
            ),
            st.sampled_from(["n1", "n2"]),
            st.integers(4, 8),
            st.sampled_from(list(NodeState)),
        ),
        st.sampled_from(
            [lambda at: BudgetChanged(at, OTHER, "ada", "why"), lambda at: BudgetChanged(at, BUDGET, "b", "")]
        ),
        st.builds(lambda charge: lambda at: Adjusted(at, "lab.a", charge, "refund"), st.integers(-50, 50)),
    ),
    max_size=40,
)


def apply(state, events):
    """Apply what the state accepts, on both sides alike; return what was accepted."""
    accepted = []
    for event in events:
        try:
            state.apply(event)
        except DivvyError:
            continue
        accepted.append(event)
    return accepted


@given(STEPS, STEPS, st.integers(1, 400))
def test_a_restored_state_is_the_same_state_and_goes_on_alike(steps, more, pace):
    state = FleetState(read_budget(BUDGET), epoch=7)
    apply(state, [NodeChanged(1, Node("n1", 8)), NodeChanged(1, Node("n2", 8))])
    apply(state, [step(10 + pace * place) for place, step in enumerate(steps)])
    if pace % 2:
        compact(state, 10 + pace * 40)
    document = json.loads(canonical(state_document(state.snapshot)))
    again = restore(document)
    assert canonical(state_document(again.snapshot)) == canonical(state_document(state.snapshot))
    assert again.snapshot.tree.share == state.snapshot.tree.share
    later = [step(20_000 + pace * place) for place, step in enumerate(more)]
    dead = state.snapshot.jobs.row.keys() - again.snapshot.jobs.row.keys()  # the store keeps their ids taken
    later = [event for event in later if not isinstance(event, Submitted) or event.spec.id not in dead]
    assert apply(again, later) == apply(state, later)
    assert canonical(state_document(again.snapshot)) == canonical(state_document(state.snapshot))


@given(STEPS)
def test_every_event_survives_its_document(steps):
    for place, step in enumerate(steps):
        event = step(place)
        assert from_document(json.loads(canonical(to_document(event)))) == event


@pytest.mark.parametrize("part", ["version", "epochs", "jobs", "nodes", "capacity", "format", "usage"])
def test_a_damaged_document_is_refused(part):
    state = FleetState(read_budget(BUDGET))
    document = state_document(state.snapshot)
    del document[part]
    with pytest.raises(UnavailableError):
        restore(document)


def test_numbers_that_json_has_not_are_words():
    assert [number(value) for value in (1.5, float("inf"), float("-inf"))] == [1.5, "inf", "-inf"]
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical({"x": float("inf")})


def test_changes_between_budgets_name_every_path_once():
    assert budget_changes(BUDGET, OTHER) == [
        {"path": "policy.floor", "from": 0.55, "to": None},
        {"path": "policy.lookback", "from": "3d", "to": None},
        {"path": "accounts.lab.share", "from": 99.5, "to": 50},
        {"path": "accounts.lab.owners", "from": ["ada"], "to": None},
        {"path": "accounts.lab.a.share", "from": 33.3, "to": 10},
        {"path": "accounts.lab.a.slurm", "from": ["a-*"], "to": None},
        {"path": "accounts.lab.c.share", "from": None, "to": 1},
    ]
