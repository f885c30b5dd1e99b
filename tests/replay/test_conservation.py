"""Nothing is lost or made up: device-time, work, charge."""

from collections import defaultdict
from itertools import pairwise

import pytest
from workloads import scenario

from divvy.control.loop import Loop
from divvy.control.state import FleetState
from divvy.fleet.job import StopCause
from divvy.planners.jobs.registry import create
from divvy.sim.engine import SimulatedEngine, TraceIntake, VirtualClock
from divvy.sim.recorder import Recorder
from divvy.sim.replay import replay

POLICIES = ["budget", "fairshare", "fifo"]


@pytest.fixture(scope="module", params=POLICIES)
def done(request):
    return replay(scenario(3), create(request.param), seed=3)


def runs(done):
    r = done.record
    columns = (r.job, r.start, r.end, r.restore, r.lost, r.cause, r.requeued)
    return list(zip(*columns, strict=True))


def test_the_state_refused_nothing(done):
    assert done.refused == ()


def test_every_second_of_a_run_is_work_that_counts_or_restoring_or_lost(done):
    for _, start, end, restore, lost, _, _ in runs(done):
        assert 0 <= restore <= end - start
        assert 0 <= lost <= end - start - restore


def test_the_work_that_counts_adds_up_to_the_true_runtime(done):
    useful = defaultdict(int)
    for job, start, end, restore, lost, _, _ in runs(done):
        useful[job] += end - start - restore - lost
    ended = {job: cause for job, _, _, _, _, cause, requeued in runs(done) if not requeued}
    finished = 0
    for job, cause in ended.items():
        runtime, limit = done.workload.runtime[job], done.workload.spec[job].time_limit
        if cause is StopCause.FINISHED:
            assert useful[job] == runtime
            finished += 1
        elif cause is StopCause.TIME_LIMIT:
            assert useful[job] >= limit
        else:
            assert not done.workload.spec[job].resumable
            assert useful[job] == 0
    assert finished > 250


def test_every_job_ends_and_ends_once(done):
    last = [job for job, _, _, _, _, _, requeued in runs(done) if not requeued]
    assert sorted(last) == list(range(len(done.workload)))


def test_no_run_overlaps_another_of_its_job_and_none_begins_before_submission(done):
    by_job = defaultdict(list)
    for job, start, end, *_ in runs(done):
        by_job[job].append((start, end))
    for job, spans in by_job.items():
        spans.sort()
        assert spans[0][0] >= done.workload.submit[job]
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))


def test_no_node_ever_holds_more_than_it_has(done):
    record = done.record
    sizes = [(capacity.at, dict(capacity.nodes)) for capacity in record.capacity]
    moments = sorted({*record.start, *(at for at, _ in sizes)})
    for moment in moments:
        present = [nodes for at, nodes in sizes if at <= moment][-1]
        held = defaultdict(int)
        for row, start in enumerate(record.start):
            if start <= moment < record.end[row]:
                for node, gpus in record.placement[row]:
                    held[node] += gpus
        assert all(gpus <= present.get(node, 0) for node, gpus in held.items())


def test_the_ledger_is_the_occupancy_to_the_millisecond():
    plan = scenario(5)
    workload = plan.workload(5)
    clock = VirtualClock()
    engine = SimulatedEngine(clock, workload, plan.capacity(), plan.pace)
    intake = TraceIntake(clock, workload)
    record = Recorder(workload, engine)
    entries = []
    loop = Loop(FleetState(plan.budget, entries.append), create("budget"), clock, engine, intake, record)
    while (
        now := min((t for t in (engine.next_at(), intake.next_at()) if t is not None), default=None)
    ) is not None:
        clock.time = now
        loop.step()
    charged, held = defaultdict(int), defaultdict(int)
    for entry in entries:
        charged[entry.account, entry.allocated] += entry.charge
    for row, job in enumerate(record.job):
        spec = workload.spec[job]
        if record.end[row] >= 0:
            held[spec.account, spec.min_runtime > 0] += (record.end[row] - record.start[row]) * spec.gpus
    assert charged == held
    assert len(charged) > 3
