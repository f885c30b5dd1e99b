import pytest

from divvy.cli import bench_slurm, bench_slurm_trace
from divvy.cli.bench_slurm_cost import _CALL


def test_where_no_slurm_can_be_started_every_part_says_why(monkeypatch):
    monkeypatch.setattr(bench_slurm.sandbox, "missing", lambda: "no slurmctld")
    rows = list(bench_slurm.rows(quick=True, announce=print))
    assert [row["case"] for row in rows] == list(bench_slurm.PARTS)
    assert all(row["value"] is None and row["note"] == "no slurmctld" for row in rows)
    assert len(list(bench_slurm.rows(quick=True, announce=print, parts=("cost",)))) == 1


def test_the_sample_asks_for_twice_what_there_is_and_shrinks_all_times_alike():
    made = bench_slurm_trace.sample(100, 60.0)
    if made is None:
        pytest.skip("no ../shared/data/traces/philly beside the checkout")
    jobs = made.trace.jobs
    work = sum(job.runtime * job.gpus for job in jobs) / 512 / 1000
    assert 50 < work < 90  # of 60 s: runtimes are rounded to whole seconds
    assert max(job.submit for job in jobs) == 30_000
    assert made.budget.policy.lookback == round(7 * 86_400_000 / made.factor)
    assert all(
        bench_slurm_trace._submission(spec, 5_000)[0] == "sbatch"
        for spec in bench_slurm_trace._scenario(made).workload(0).spec
    )


def test_agreement_is_of_jobs_that_were_contended_in_either_world():
    live = {"a": 10.0, "b": 20.0, "c": 30.0, "d": 0.0}
    told = {"a": 11.0, "b": 19.0, "c": 35.0, "d": 1.0}
    rows = list(
        bench_slurm_trace._agreement(
            "x", live, told, {"fifo": {"a": 3.0, "b": 2.0, "c": 1.0}}, "", target=0.9
        )
    )
    found = {(row["contender"], row["measure"]): row["value"] for row in rows}
    measure = "rank correlation of waits, contended jobs"
    assert found["divvy", measure] == 1.0 and found["fifo as null", measure] == -1.0
    assert found["divvy", "median absolute error"] == 1.0
    assert rows[0]["n"] == 3 and rows[0]["met"]


def test_requests_are_read_from_sdiag():
    text = "\tREQUEST_JOB_INFO      ( 2003) count:12     ave_time:300    total_time:3600\nPending RPC statistics\n"
    assert _CALL.findall(text) == [("REQUEST_JOB_INFO", "12")]
