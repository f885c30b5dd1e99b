"""Rules that act by themselves, over a real store: versions, causes, surcharges, and restarts."""

from divvy.control.codec import canonical, state_document
from divvy.fleet.job import Phase, StopCause

DATE = 1_200  # seconds: the world begins at 1,000


def budget(**policy):
    return {
        "policy": policy,
        "accounts": {
            "lab": {
                "share": 100,
                "vision": {"share": 60, "shares": [{"from": DATE, "share": 20}]},
                "language": {"share": 33.3, "max_gpus": 6},
            }
        },
        "order": ["lab", "lab.vision", "lab.language"],
    }


def document(world):
    return canonical(state_document(world.state.snapshot))


def test_a_dated_share_is_a_version_with_its_reason_and_the_next_change_is_made_from_it(make_world):
    world = make_world(budget=budget())
    world.step()
    assert [spec.path for spec in world.state.snapshot.tree.specs] == ["lab", "lab.vision", "lab.language"]
    assert world.loop.wake_at(world.step()) == DATE * 1_000
    world.time = DATE * 1_000
    world.step()
    row = world.reader.budget()
    assert (row.version, row.at, row.author, row.reason) == (
        2,
        DATE * 1_000,
        "divvy",
        "dated share of lab.vision",
    )
    assert {change["path"] for change in row.changes} == {
        "accounts.lab.vision.share",
        "accounts.lab.vision.shares",
    }
    world.intake.change_budget(row.document, "again", 2, "root")
    world.step()
    assert world.reader.budget().version == 3
    before = document(world)
    world.start()
    assert document(world) == before
    assert [spec.path for spec in world.state.snapshot.tree.specs] == ["lab", "lab.vision", "lab.language"]


def test_who_pays_and_where_it_may_run_survive_the_store(make_world):
    world = make_world(budget=budget())
    first = world.submit("one", gpus=4, min_runtime=3_600_000)
    world.step(2)
    world.time += 200 * 3_600_000
    wishes = {"budgets": ("lab.vision", "lab.language"), "clusters": ("",)}
    world.submit("other", gpus=4)
    world.step(2)
    job = world.submit("two", gpus=4, **wishes)
    assert world.reader.job(job).spec.budgets == wishes["budgets"]
    world.step(2)
    world.engine.end(first, 1)
    world.step(2)
    row = world.reader.job(job)
    assert (row.spec.account, row.spec.clusters) == ("lab.language", ("",))
    assert world.submit("two", gpus=4, **wishes) == "two", "the same submission again is no other job"
    before = document(world)
    world.start()
    assert document(world) == before


def test_old_unallocated_work_is_ended_with_its_cause_running_or_waiting(make_world):
    world = make_world(budget=budget(unallocated_lifetime="1m"))
    running = world.submit(gpus=4, min_runtime=0)
    world.submit(gpus=4, min_runtime=3_600_000)
    waiting = world.submit(gpus=4, min_runtime=0)
    world.step(2)
    world.time += 60_000
    world.step(3)
    rows = {row.id: row for row in world.reader.jobs()}
    for name in (running, waiting):
        assert rows[name].phase is Phase.CANCELLED
        assert rows[name].stop_cause is StopCause.LIFETIME
    assert world.reader.history(waiting)[-1].detail["cause"] == "lifetime"
    before = document(world)
    world.start()
    assert document(world) == before


def test_a_surcharge_survives_a_restart_and_is_settled_in_the_ledger(make_world):
    world = make_world(budget=budget(protection_price=2))
    job = world.submit(gpus=2, min_runtime=4 * 3_600_000)
    world.step(2)
    world.start()
    world.step()
    world.time += 3 * 3_600_000
    world.engine.end(job, 1)
    world.step(2)
    lines = {entry.cause: entry for entry in world.reader.ledger()}
    ran = lines["occupancy"].ended - lines["occupancy"].started
    assert lines["protection-price"].charge == 2 * (ran - 3_600_000)
    leaf = world.state.snapshot.tree.row["lab.vision"]
    assert world.state.snapshot.usage[leaf].total(world.time) == sum(e.charge for e in lines.values())
