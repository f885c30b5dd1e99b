import pytest

from divvy.adapters.store import archive
from divvy.control.codec import canonical, state_document
from divvy.control.journal import case_document, replay, run_case, walk
from divvy.errors import ConflictError
from divvy.fleet.job import Phase, StopCause


def document(state):
    found = state_document(state.snapshot)
    return canonical(found)


def life(world):
    """Starts, a finish, a preemption, a cancellation, a budget change, a drain."""
    first, second = world.submit(), world.submit(account="lab.language", author="bob")
    spare = world.submit(gpus=4, min_runtime=0, author="eve")
    world.step(2)
    world.engine.end(first, 1, code=0)
    world.step(2)
    urgent = world.submit(gpus=4)
    world.step(4)
    world.intake.cancel(second, "bob")
    world.intake.drain("n2", "fan", "root")
    document = dict(world.reader.budget().document)
    document["accounts"] = {"lab": {"share": 100, "vision": {"share": 50}, "language": {"share": 33.3}}}
    world.intake.change_budget(document, "less", 1, "root")
    world.step(3)
    return first, second, spare, urgent


def test_the_read_model_the_ledger_and_the_history_tell_the_same_story(world):
    first, second, spare, urgent = life(world)
    rows = {row.id: row for row in world.reader.jobs()}
    assert rows[first].phase is Phase.FINISHED
    assert rows[first].exit_code == 0
    assert rows[second].phase is Phase.CANCELLED
    assert (rows[spare].label(0), rows[spare].preemptions, rows[spare].attempt) == ("unallocated", 1, 2)
    assert rows[urgent].phase is Phase.RUNNING
    assert rows[urgent].rate == 4
    runs = {(e.job, e.attempt): e for e in world.reader.ledger()}
    assert set(runs) == {(first, 1), (second, 1), (spare, 1)}
    for key, entry in runs.items():
        spec, started, ended, _, _ = world.engine.runs[key]
        assert (entry.started, entry.ended, entry.gpus) == (started, ended, spec.gpus)
        assert entry.charge == (ended - started) * spec.gpus
        assert entry.author == spec.author
    events = [line.event for line in world.reader.history(spare)]
    assert events == ["submitted", "placed", "started", "stopping", "stopped", "placed", "started"]
    taken = world.reader.history(spare)[3].detail
    assert (taken["by"], taken["reason"], taken["victim_balance"]) == (urgent, "preempted_unallocated", 1.5)
    assert world.reader.budget().version == 2
    assert world.reader.budget().changes == [{"path": "accounts.lab.vision.share", "from": 60, "to": 50}]
    assert {row.gpus for row in world.reader.capacity(0, 1 << 60)} == {8}
    assert world.state.snapshot.nodes.node[1].cause == "drained by root: fan"


def test_a_restart_gives_the_same_state_and_repeats_no_run(world):
    life(world)
    before = document(world.state)
    world.start()
    world.step()
    world.step()
    assert max(world.engine.begun.values()) == 1
    # the drain outlasts the engine's own report that the node is up
    assert world.state.snapshot.nodes.node[1].state.name == "DRAINING"
    reloaded = archive.load(world.database).state
    assert document(reloaded) == document(world.state)
    assert len(before) > 500


def test_every_pass_can_be_re_run_byte_for_byte_over_compactions(world, tiny):
    life(world)
    world.journal.checkpoint(world.state, world.now())
    world.step()
    life(world)
    oldest, newest = archive.bounds(world.database)
    assert oldest == 1
    state, at = archive.state_before(world.database, 1)
    verdicts = list(replay(state, archive.steps(world.database, after=at), tiny, lambda _seq: True))
    assert len(verdicts) > 8
    assert [v.differences() for v in verdicts if not v.same] == []
    assert verdicts[-1].seq == newest
    # from the newest base as well
    state, at = archive.state_before(world.database, newest)
    assert at > 0
    last = list(replay(state, archive.steps(world.database, after=at), tiny, lambda seq: seq == newest))
    assert [v.same for v in last] == [True]


def test_a_damaged_base_costs_time_and_not_state(world):
    life(world)
    world.journal.checkpoint(world.state, world.now())
    world.submit()
    world.step(2)
    with world.database.write() as connection:
        newest = connection.exec_driver_sql("SELECT sha FROM base ORDER BY seq DESC LIMIT 1").scalar_one()
        connection.exec_driver_sql("UPDATE blob SET body = x'00' WHERE sha = ?", (newest,))
    assert document(archive.load(world.database).state) == document(world.state)


def test_a_case_file_holds_one_pass_and_shows_what_a_changed_planner_does(world, tiny):
    life(world)
    seq = next(row.seq for row in world.reader.passes() if row.preemptions)
    state, at = archive.state_before(world.database, seq)
    for step in archive.steps(world.database, after=at, until=seq):
        if step.seq == seq:
            for event in step.happened:
                state.apply(event)
            case = case_document(state, step)
        else:
            walk(state, step)
    assert run_case(case, tiny).same
    case["plan"]["decisions"][0]["balance"] = 0.25
    verdict = run_case(case, tiny)
    assert verdict.differences() == ["decisions[0].balance: 0.25 was recorded, 0.5 came out"]


def test_compaction_forgets_the_dead_and_makes_planners_rebuild(world):
    life(world)
    snapshot = world.state.snapshot
    live = [snapshot.jobs.spec[row].id for row in snapshot.jobs.live]
    seen = snapshot.version
    forgotten = world.journal.checkpoint(world.state, world.now())
    assert forgotten == 2
    assert [snapshot.jobs.spec[row].id for row in snapshot.jobs.live] == live
    assert len(snapshot.jobs) == len(live)
    assert snapshot.changes_since(seen) is None
    assert snapshot.changes_since(snapshot.version) == []
    assert world.journal.checkpoint(world.state, world.now()) == 0


def test_a_loop_that_was_superseded_may_not_append(world):
    world.step()
    archive.take_over(world.database, "another")
    world.submit()
    with pytest.raises(ConflictError) as caught:
        world.step()
    assert caught.value.code == "loop-superseded"


def test_refusals_reach_who_asked(world):
    job = world.submit()
    world.step()
    world.engine.end(job, 1, StopCause.FINISHED)
    world.step()
    late = world.intake.cancel(job, "ada")
    stale = world.intake.change_budget({"accounts": {"lab": {"share": 1}}}, "x", 7, "ada")
    wrong = world.intake.change_budget({"accounts": {"lab": {"share": 101}}}, "x", 1, "ada")
    lost = world.intake.drain("n9", "gone", "ada")
    nowhere = world.submit(account="lab.nobody")
    world.step()
    codes = [world.intake.outcome(seq).fault.code for seq in (late, stale, wrong, lost)]
    assert codes == ["job-over", "budget-stale", "share-range", "node-unknown"]
    assert world.reader.job(nowhere).phase is Phase.FAILED
    assert "no account 'lab.nobody'" in world.reader.job(nowhere).note
    assert world.reader.budget().version == 1
    right = world.intake.change_budget({"accounts": {"lab": {"share": 9}, "x": {"share": 1}}}, "x", 1, "ada")
    world.step()
    assert world.intake.outcome(right).fault is None
    assert world.intake.outcome(right).result == {"version": 2}


def test_a_job_cancelled_while_it_is_being_preempted_does_not_come_back(world):
    spare = world.submit(gpus=4, min_runtime=0)
    other = world.submit(gpus=4, min_runtime=60_000)
    world.step(2)
    urgent = world.submit(gpus=4)
    end, world.engine.end = world.engine.end, lambda *_: None  # it takes its time to leave
    world.step()
    assert world.reader.job(spare).phase is Phase.STOPPING
    asked = world.intake.cancel(spare, "ada")
    world.step()
    assert world.intake.outcome(asked) is None
    world.engine.end = end
    end(spare, 1, StopCause.PREEMPTED)
    world.step()
    assert world.intake.outcome(asked).fault is None
    assert world.reader.job(spare).phase is Phase.CANCELLED
    assert {world.reader.job(name).phase for name in (other, urgent)} == {Phase.RUNNING}
