from dataclasses import replace

import pytest

from divvy.adapters.store.reader import JobRow
from divvy.control.board import Board
from divvy.control.explain import earliest_release, explain, reason_in_queue
from divvy.control.view import AccountSight, NodeSight, SlotSight, View, WaitSight
from divvy.fleet.budget import Policy
from divvy.fleet.job import JobSpec, Phase, StopCause
from divvy.fleet.node import Node, NodeState
from divvy.fleet.reason import TEXT, Reason
from divvy.units import HOUR, MINUTE

NOW = 1_700_000_000_000
POLICY = Policy()


def job(name, account="lab.vision", author="ada", gpus=4, min_runtime=HOUR, **fields):
    asked = {key: fields.pop(key) for key in ("priority", "model", "resumable") if key in fields}
    spec = JobSpec(name, account, author, gpus, min_runtime, **asked)
    row = JobRow(
        spec, 1, False, Phase.QUEUED, NOW - HOUR, NOW - HOUR, None, None, 0, (), 0, 0, 0, None, None, "", 0
    )
    return replace(row, **fields)


def running(name, gpus, node="n1", until=0, **fields):
    return job(
        name,
        gpus=gpus,
        phase=Phase.RUNNING,
        started=NOW - HOUR,
        protected_until=until,
        placement=((node, gpus),),
        **fields,
    )


def view(waits=(), authors=None, free=2, **standings):
    accounts = {
        "lab.vision": AccountSight("lab.vision", 1, 1.2, 4.2, 8, 0, 3, 12, 100.0 * HOUR, 120.0 * HOUR, 3.0),
        "lab.language": AccountSight("lab.language", 0, 0.5, 2.8, 1, 0, 1, 4, 100.0 * HOUR, 50.0 * HOUR, 7.0),
    }
    accounts |= standings
    nodes = (NodeSight(Node("n1", 8), free), NodeSight(Node("n2", 4, "H100-80GB", state=NodeState.DOWN), 0))
    return View(7, NOW, "budget", nodes, tuple(accounts.values()), dict(waits), authors or {})


def board_of(*jobs):
    board = Board()
    for each in jobs:
        board.put(each)
    return board


def names(jobs):
    return [each.spec.id for each in jobs]


# -- the board --------------------------------------------------------------------------------------------


def test_the_queue_is_in_the_order_of_service():
    board = board_of(
        job("old", submitted=NOW - 9 * HOUR),
        job("urgent", priority=5),
        job("quick", debug=True),
        job("poor", author="bob", submitted=NOW - MINUTE),
        job("other", account="lab.language", submitted=NOW),
        job("free", account="lab.language", min_runtime=0, submitted=NOW - 99 * HOUR),
        job("freer", account="lab.vision", min_runtime=0, submitted=NOW),
        job("unseen", account="lab.new"),
    )
    seen = view(authors={"lab.vision": {"ada": 5.0}})
    assert names(board.order(seen)) == ["other", "urgent", "quick", "poor", "old", "unseen", "freer", "free"]


def test_a_position_is_the_place_in_that_order():
    jobs = [
        job(
            f"{account}-{author}-{index}",
            f"lab.{account}",
            author,
            priority=index % 3,
            submitted=NOW + index % 5,
        )
        for account in ("vision", "language", "new")
        for author in ("ada", "bob", "eve")
        for index in range(12)
    ]
    jobs += [replace(each, spec=each.spec._replace(id=f"x{each.spec.id}", min_runtime=0)) for each in jobs]
    board, seen = board_of(*jobs), view(authors={"lab.vision": {"ada": 5.0, "eve": 5.0}})
    order = names(board.order(seen))
    assert len(order) == len(jobs)
    for each in jobs:
        own, before = board.before(each, seen)
        assert order[before] == each.spec.id
        assert names(board.in_account(each, seen))[own] == each.spec.id


def test_jobs_move_and_leave_without_a_trace():
    board = board_of(job("a"), job("b"))
    board.put(running("a", 4))
    board.put(job("b", phase=Phase.FINISHED))
    assert names(board.order(view())) == []
    assert (board.waiting, [*board.running], [*board.jobs]) == (0, ["a"], ["a"])
    board.put(job("a", preemptions=1))
    assert (board.waiting, board.running, names(board.order(view()))) == (1, {}, ["a"])
    board.drop("a")
    board.drop("a")
    assert (board.jobs, board.allocated) == ({}, {})


# -- waiting ----------------------------------------------------------------------------------------------


def wait(reason, needed=4, free=2, reclaimable=1, protected=5, owed_by="lab.language"):
    return WaitSight(reason, needed, free, reclaimable, protected, owed_by)


def test_a_waiting_job_is_told_who_is_ahead_what_they_hold_and_what_blocks():
    mine = job("mine", submitted=NOW - 10)
    board = board_of(
        mine,
        job("before", submitted=NOW - HOUR),
        job("urgent", priority=2),
        job("theirs", account="lab.language"),
        running("holder", 6, until=NOW + 20 * MINUTE, account="lab.other"),
    )
    found = explain(mine, view({"mine": wait(Reason.WAIT_PROTECTED)}), board, POLICY, [], NOW)
    assert found.headline.code == "wait-protected"
    assert "it needs 4, 2 are free, 1 more may be taken back, 5 are protected" in found.headline.text
    assert [(a.job, a.why) for a in found.ahead] == [
        ("urgent", "priority 2 against 0"),
        ("before", "submitted earlier"),
        ("theirs", "its account goes first, holds 1, balance 0.500"),
        ("holder", "holds devices, protected for another 20m"),
    ]
    assert found.ahead_count == 3
    assert found.account.path == "lab.vision"
    assert found.numbers["position"] == 4
    assert found.numbers["earliest_release_seconds"] == 20 * 60
    assert any("at most 3 devices could start now" in text for text in found.remedies)
    assert any("at the earliest (in 20m)" in text for text in found.remedies)
    assert any("a higher --priority passes them" in text for text in found.remedies)
    assert "number 2 to be served" in found.reasons[-1].text


@pytest.mark.parametrize(
    ("reason", "advice"),
    [
        (Reason.WAIT_MODEL, "ask for another model (gpu)"),
        (Reason.WAIT_TOO_LARGE, "at most 8 devices"),
        (Reason.WAIT_SHAPE, "at most 2 devices are free on one node"),
        (Reason.WAIT_FLOORS, "a gang of at most 7 can come together"),
        (Reason.WAIT_OVERSERVED, "20.0 GPU-hours over"),
        (Reason.WAIT_LIMIT, "a run of its account or author ends"),
        (Reason.WAIT_SLOT, "a shorter --min-runtime"),
    ],
)
def test_each_reason_has_its_own_advice(reason, advice):
    mine = job("mine")
    found = explain(mine, view({"mine": wait(reason)}), board_of(mine), POLICY, [], NOW)
    assert found.headline.code == reason.name.lower().replace("_", "-")
    assert TEXT[reason] in found.headline.text
    assert advice in " ".join(found.remedies)


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason.name.startswith("WAIT")])
def test_every_reason_can_be_told(reason):
    mine = job("mine")
    found = explain(mine, view({"mine": wait(reason)}), board_of(mine), POLICY, [], NOW)
    assert found.headline.text
    assert found.state == "queued"


def test_what_can_never_run_now_is_not_told_to_run_unallocated():
    mine = job("mine", gpus=64)
    found = explain(mine, view({"mine": wait(Reason.WAIT_TOO_LARGE, 64)}), board_of(mine), POLICY, [], NOW)
    assert not any("--min-runtime 0" in text for text in found.remedies)
    assert found.numbers["earliest_release_seconds"] is None


def test_a_gang_with_a_dated_slot_is_told_when_and_where():
    mine = job("mine", gpus=8)
    seen = replace(
        view({"mine": wait(Reason.WAIT_PROTECTED)}), slots={"mine": SlotSight(NOW + HOUR, (("n1", 8),))}
    )
    found = explain(mine, seen, board_of(mine), POLICY, [], NOW)
    assert found.reasons[1] == ("slot-held", "a dated slot is held for it, due in 1h: 8 on n1")
    assert found.numbers["slot_seconds"] == 3600


def test_patience_says_how_much_of_it_is_left():
    mine = job("mine", queued=NOW - POLICY.patience + MINUTE)
    found = explain(mine, view({"mine": wait(Reason.WAIT_PATIENCE)}), board_of(mine), POLICY, [], NOW)
    assert "it may take devices back in 1m" in found.remedies


def test_a_job_that_was_not_tried_waits_behind_its_account():
    first, second = job("first", submitted=NOW - 9), job("second", submitted=NOW - 3)
    assert reason_in_queue(second, view(), first=False).code == "wait-behind"
    assert reason_in_queue(first, view(), first=True).code == "wait-next"
    assert reason_in_queue(job("x", phase=None), view(), first=True).code == "accepted"
    spare = job("spare", min_runtime=0)
    assert reason_in_queue(spare, view(free=0), first=True).code == "wait-capacity"
    assert reason_in_queue(spare, view(free=1), first=True).code == "wait-next"
    found = explain(second, view(), board_of(first, second), POLICY, [], NOW)
    assert (found.headline.code, found.ahead[0].job) == ("wait-behind", "first")


def test_the_debug_rule_is_offered_where_it_would_help():
    long, short = job("long", gpus=2), job("short", gpus=2, min_runtime=15 * MINUTE)
    assert any("at most 15m puts it first" in t for t in explained(long).remedies)
    assert any("has used the 16 GPU-hours" in t for t in explained(short).remedies)
    assert not any("debug" in t for t in explained(job("large", gpus=9)).remedies)


def explained(one, history=()):
    return explain(one, view(), board_of(one), POLICY, list(history), NOW)


def test_the_earliest_release_counts_only_devices_of_the_model_asked_for():
    seen = view(free=0)
    board = board_of(running("a", 8, until=NOW + HOUR))
    assert earliest_release(job("x", gpus=8), board, seen, NOW) == NOW + HOUR
    assert earliest_release(job("x", gpus=8, model="H100-80GB"), board, seen, NOW) is None
    board.put(replace(running("a", 8, until=NOW + HOUR), phase=Phase.STOPPING))
    assert earliest_release(job("x", gpus=8), board, seen, NOW) is None, "those are promised to somebody"


# -- preempted, running, over -----------------------------------------------------------------------------

PREEMPTION = {
    "cause": int(StopCause.PREEMPTED),
    "reason": int(Reason.PREEMPTED_RECLAIM),
    "by": "j9",
    "victim_balance": 1.25,
    "balance": 0.75,
}


def test_a_preempted_job_is_told_by_whom_both_balances_and_what_would_have_avoided_it():
    mine = job("mine", preemptions=1, attempt=1)
    history = [
        (NOW - 5, "submitted", {"debug": False}, 1),
        (NOW - 4, "placed", {"placement": [["n1", 4]], "protected": True}, 2),
        (NOW - 3, "started", {}, 3),
        (NOW - 2, "stopping", PREEMPTION, 4),
        (NOW - 1, "stopped", {"cause": 3, "requeue": True, "exit_code": None}, 5),
    ]
    found = explained(mine, history)
    assert found.state == "preempted(1)"
    why = found.reasons[-1]
    assert why.code == "preempted-reclaim"
    assert "j9 took the devices" in why.text
    assert "balance 1.250 against 0.750" in why.text
    assert "longer declared minimum runtime" in why.text
    assert (found.numbers["preempted_by"], found.numbers["victim_balance"]) == ("j9", 1.25)
    assert [line.event for line in found.history] == ["submitted", "placed", "started", "stopping", "stopped"]
    assert found.history[1].text == "given 4 on n1, protected"
    assert found.history[3].text.startswith("told to leave for j9")
    assert found.history[4].text == "ended: preempted; back in the queue"


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason.name.startswith("PREEMPTED")])
def test_every_preemption_says_what_would_have_avoided_it(reason):
    told = explained(
        job("mine", preemptions=1), [(NOW, "stopping", {**PREEMPTION, "reason": reason.name}, 1)]
    )
    assert "what would have avoided it: " in told.reasons[-1].text


def test_a_drain_is_nobodys_gain():
    detail = {"cause": 6, "reason": int(Reason.PREEMPTED_DRAIN), "by": ""}
    found = explained(job("mine", preemptions=1), [(NOW, "stopping", detail, 1)])
    assert found.reasons[-1].text.startswith("its node is being drained; what would have avoided it: nothing")


@pytest.mark.parametrize(
    ("row", "code", "text"),
    [
        (running("r", 4, until=NOW + MINUTE), "protected", "for another 1m"),
        (running("r", 4), "interruptible", "may be preempted"),
        (running("r", 4, min_runtime=0), "unallocated", "gives way"),
        (running("r", 4, stop_cause=StopCause.PREEMPTED), "interruptible", "runs on 4 on n1"),
        (job("r", phase=Phase.STOPPING, stop_cause=StopCause.DRAINED), "stopping", "drained"),
        (job("r", phase=Phase.PLACED, placement=(("n1", 4),)), "wait-victims", "4 on n1"),
        (job("r", phase=Phase.FINISHED, stopped=NOW, exit_code=0), "finished", "exit code 0"),
        (job("r", phase=Phase.FAILED, stopped=NOW, exit_code=3), "failed", "exit code 3"),
        (job("r", phase=Phase.FAILED, stopped=NOW, stop_cause=StopCause.NODE_LOST), "failed", "node lost"),
        (job("r", phase=Phase.CANCELLED, stopped=NOW), "cancelled", "over: cancelled"),
        (job("r", phase=Phase.FAILED, note="account gone"), "refused", "account gone"),
    ],
)
def test_every_state_has_a_headline(row, code, text):
    found = explain(row, view(), board_of(row), POLICY, [], NOW)
    assert found.headline.code == code
    assert text in found.headline.text


def test_an_owed_account_is_told_that_it_is_safe():
    row = running("r", 1, account="lab.language", resumable=False)
    assert explained(row).remedies == [
        "its account is still owed time, so others do not preempt it for theirs",
        "it is not resumable: a preemption would lose its work; checkpoints and --resumable keep it",
    ]
