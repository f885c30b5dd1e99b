"""Whatever stands in names and commands, and however columns are ordered, jobs and GPUs are those written."""

from __future__ import annotations

import io

from hypothesis import given, settings
from hypothesis import strategies as st

from divvy.adapters.slurm.accounting.clock import Clock
from divvy.adapters.slurm.accounting.read import Form, read_accounting
from divvy.errors import InputError

TYPED = ("JobID", "Account", "State", "Submit", "Start", "End", "Elapsed", "AllocTRES", "NodeList")
FREE = st.text(alphabet=st.sampled_from(list("ab |\n:=,.é'\"\\[]()-_/")), max_size=30)
JOB = st.fixed_dictionaries(
    {"gpus": st.integers(0, 64), "name": FREE, "comment": FREE, "hour": st.integers(0, 20)}
)


def cells(number, job):
    start = f"2025-03-01T{job['hour']:02d}:00:00"
    end = f"2025-03-01T{job['hour'] + 1:02d}:30:00"
    tres = (
        f"cpu=8,gres/gpu:a100={job['gpus']},gres/gpu={job['gpus']},mem=8G,node=1"
        if job["gpus"]
        else "cpu=8,mem=8G,node=1"
    )
    return {
        "JobID": str(number), "Account": "vis", "State": "COMPLETED", "Submit": start, "Start": start, "End": end,
        "Elapsed": "01:30:00", "AllocTRES": tres, "NodeList": "gpu[1-2]", "JobName": job["name"], "Comment": job["comment"],
    }  # fmt: skip


@given(
    jobs=st.lists(JOB, min_size=1, max_size=6),
    order=st.permutations([*TYPED[1:], "JobName", "Comment"]),
    separator=st.sampled_from(["|", "\x1f"]),
    trailing=st.booleans(),
)
@settings(max_examples=100, deadline=None)
def test_jobs_and_gpus_survive_any_names(jobs, order, separator, trailing):
    columns = ["JobID", *order]
    end = (separator if trailing else "") + "\n"
    rows = [cells(100 + n, job) for n, job in enumerate(jobs)]
    text = (
        separator.join(columns) + end + "".join(separator.join(row[c] for c in columns) + end for row in rows)
    )
    found = read_accounting([("f", io.BytesIO(text.encode()))], Form.AUTO, Clock("UTC"))
    told = [found.jobs.text("job", n) for n in range(len(found.jobs))]
    assert told == [row["JobID"] for row in rows], found.warnings
    assert list(found.jobs.numbers["gpus"]) == [job["gpus"] for job in jobs]
    starts = found.jobs.numbers["start"]
    assert [
        (end - start) // 60_000 for start, end in zip(starts, found.jobs.numbers["end"], strict=True)
    ] == [90] * len(jobs)
    assert found.tally.jobs == len(jobs)  # an end of a name may be told as a row of its own, never a job lost


@given(
    text=st.text(alphabet=st.sampled_from(list('JobID|State\n1234.[]_+\x1f{}":,=gpu/PENDING ')), max_size=300)
)
@settings(max_examples=1000, deadline=None)
def test_rubbish_is_refused_or_counted(text):
    for head in ("", "JobID|State|AllocTRES\n"):
        try:
            found = read_accounting([("f", io.BytesIO((head + text).encode()))], Form.AUTO, Clock("UTC"))
        except InputError:
            continue
        tally = found.tally
        assert tally.read == tally.jobs + tally.steps + tally.nodes + tally.duplicates + tally.skipped
        assert all(w.line >= 1 for w in found.warnings)
