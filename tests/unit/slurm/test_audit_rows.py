"""Rows of Slurm that are hard to read: nothing is lost, nothing is counted twice, everything odd is told."""

from __future__ import annotations

import gzip
import io
import json

import pytest

from divvy.adapters.slurm.accounting.clock import Clock, duration, limit
from divvy.adapters.slurm.accounting.guess import guess
from divvy.adapters.slurm.accounting.read import Form, read_accounting
from divvy.adapters.slurm.accounting.states import FATES, state_among, state_of
from divvy.adapters.slurm.accounting.submit_line import gpus_of, is_session
from divvy.control.audit.jobs import Fate
from divvy.errors import InputError
from divvy.units import DAY, HOUR, MINUTE, SECOND

HEAD = "JobID|JobIDRaw|Account|User|Partition|QOS|State|Submit|Start|End|Elapsed|Timelimit|ReqTRES|AllocTRES|NodeList|JobName"
AT = "2025-03-0"


def row(job="1", state="COMPLETED", gpus=2, name="train", start="1T10:00:00", end="1T12:00:00", **more):
    spans = {
        "submit": "1T09:00:00",
        "elapsed": "02:00:00",
        "limit": "1-00:00:00",
        "account": "vis",
        "nodes": "gpu1",
    } | more
    tres = spans.get("tres", f"cpu=8,gres/gpu={gpus},mem=64G,node=1" if gpus else "cpu=8,mem=64G,node=1")
    return "|".join([
        job, job.split("_")[0], spans["account"], "ada", "gpu", "normal", state, AT + spans["submit"],
        AT + start if start[0].isdigit() else start, AT + end if end[0].isdigit() else end,
        spans["elapsed"], spans["limit"], spans.get("req", tres), tres, spans["nodes"], name,
    ])  # fmt: skip


def read(*texts, form=Form.AUTO, zone="UTC", claims=lambda _: False):
    files = [(f"f{n}", io.BytesIO(t if isinstance(t, bytes) else t.encode())) for n, t in enumerate(texts)]
    found = read_accounting(files, form, Clock(zone), claims)
    tally = found.tally
    assert tally.read == tally.jobs + tally.steps + tally.nodes + tally.duplicates + tally.skipped
    return found


def table(*rows, head=HEAD):
    return "\n".join([head, *rows]) + "\n"


def column(found, name):
    jobs = found.jobs
    return (
        list(jobs.numbers[name]) if name in jobs.numbers else [jobs.text(name, n) for n in range(len(jobs))]
    )


def codes(found):
    return [(w.line, w.code) for w in found.warnings]


def test_columns_may_come_in_any_order_with_any_separator_and_ending():
    plain = table(row("1", name="a b"), row("2", gpus=4))
    expected = read(plain)
    assert column(expected, "gpus") == [2, 4] and codes(expected) == []
    lines = [line.split("|") for line in plain.splitlines()]
    for change in (
        lambda cells: "|".join(reversed(cells)),
        lambda cells: "|".join(cells) + "|",
        "\x1f".join,
        lambda cells: "\x1f".join(cells) + "\x1f",
        ";".join,
        lambda cells: "|".join(cells) + "\r",
    ):
        found = read("\n".join(map(change, lines)) + "\n")
        for name in ("job", "account", "gpus", "submit", "start", "end", "limit", "state", "name"):
            assert column(found, name) == column(expected, name), change(lines[0])
        assert codes(found) == []


@pytest.mark.parametrize("coding", ["utf-16", "utf-8-sig", "gzip"])
def test_files_come_in_other_codings(coding):
    text = table(row("1"))
    found = read(gzip.compress(text.encode()) if coding == "gzip" else text.encode(coding))
    assert column(found, "gpus") == [2] and codes(found) == []


def test_bytes_that_are_no_utf8_are_kept_and_told():
    found = read(table(row("1", name="caf\u00e9"), row("2")).encode("latin-1"))
    assert column(found, "name") == ["caf\u00e9", "train"]
    assert codes(found) == [(2, "encoding")]
    document = json.dumps({"jobs": []}).replace(
        "[]", '[{"job_id": 7, "job_state": "PENDING", "name": "caf\u00e9"}]'
    )
    assert column(read(document.encode("latin-1")), "name") == ["caf\u00e9"]


def test_separators_and_newlines_in_names_and_commands():
    head = HEAD + "|SubmitLine|ExitCode"
    hard = [
        row("1", name="a|b||c") + "|sbatch x.sh|0:0",
        row("2", name="two\nlines|and|more") + "|sbatch --wrap=cat x | grep y\nwc -l | tee z\n\ndone|0:0",
        row("3") + "|sbatch a|0:0|1:0|b|0:0",
        row("4") + "|sbatch b.sh|0:0",
    ]
    found = read(table(*hard, head=head))
    assert column(found, "job") == ["1", "2", "3", "4"] and column(found, "gpus") == [2] * 4
    assert column(found, "name") == ["a|b||c", "two\nlines|and|more", "train", "train"]
    assert column(found, "line") == [2, 3, 8, 9] and codes(found) == []


def test_rows_that_begin_with_free_text():
    head = "|".join(reversed(HEAD.split("|")))
    names = ["a|b", "x\ny | z", "plain"]
    hard = [name + "|".join(reversed(row(str(n), name="").split("|"))) for n, name in enumerate(names)]
    found = read(table(*hard, head=head))
    assert column(found, "job") == ["0", "1", "2"] and column(found, "gpus") == [2] * 3
    assert column(found, "name") == ["a|b", "x\ny | z", "plain"] and codes(found) == [(3, "lines-joined")]


def test_more_lines_of_the_last_column_belong_to_the_row_before_them():
    found = read(table(row("1", name="first\nsecond | line\n third"), row("2")))
    assert column(found, "job") == ["1", "2"] and found.tally.read == 2


def test_a_row_that_is_cut_off_is_told_with_its_line_and_the_next_is_read():
    found = read(table(row("1"), row("2")[:40], row("3"), "rubbish", row("4")))
    assert column(found, "job") == ["1", "3", "4"]
    assert [code for _, code in codes(found)] == ["row-unreadable"] and codes(found)[0][0] == 3
    # `rubbish` may be the second line of the name before it, the last column
    found = read(table(row("1"), row("2")[:40], "x|y") + row("5")[:30])
    assert found.tally.skipped == 2 and [line for line, _ in codes(found)] == [3, 5]


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (row("1", state="FOO"), "state-unknown"),
        (row("x"), "job-id"),
        (row("1", start="1T13:00:00", end="1T12:00:00", elapsed=""), "time-order"),
        (row("1", start="1T25:00:00"), "value-unreadable"),
        (row("1", start="Unknown", end="Unknown", state="RUNNING"), "time-missing"),
        (row("1", end="Unknown", elapsed=""), "time-missing"),
        (row("1", tres="gres/gpu=-4"), "gpus-unreadable"),
        (row("1", tres="gres/gpu=4294967294"), "gpus-unreadable"),
        (row("1", limit="soon"), "value-unreadable"),
        (row("1", submit="1T09:00:99"), "value-unreadable"),
    ],
)
def test_a_row_that_makes_no_sense_is_told(bad, code):
    found = read(table(row("7"), bad, row("8")))
    assert column(found, "job") == ["7", "8"] and codes(found) == [(3, code)]


def test_times_that_nobody_can_have_run_at_are_told():
    found = read_accounting(
        [("f", io.BytesIO(table(row("1").replace("2025-03-01T12", "2099-03-01T12"), row("2")).encode()))],
        Form.AUTO,
        Clock("UTC", 1_800_000_000_000),
    )
    assert codes(found) == [(2, "value-unreadable")]


def test_steps_are_counted_apart_and_tell_the_use_of_their_job():
    head = HEAD + "|TRESUsageInTot|NTasks"
    rows = [
        row("1") + "||",
        row("1.batch") + "|cpu=1,gres/gpuutil=20|1",
        row("1.0") + "|gres/gpuutil=100|2",
        row("2") + "||",
    ]
    rows += [row("3+0") + "||", row("3+0.extern") + "||", row("3+1", gpus=4) + "||"]
    found = read(table(*rows, head=head))
    assert column(found, "job") == ["1", "2", "3+0", "3+1"] and column(found, "gpus") == [2, 2, 2, 4]
    assert found.tally.steps == 3 and found.measured
    assert list(found.jobs.use)[:2] == [0.5, -1.0]  # 100% summed over two GPUs


def test_a_requeued_job_has_several_runs_and_a_row_told_twice_is_counted_once():
    rows = [
        row("1", state="PREEMPTED", end="1T11:00:00", elapsed="01:00:00"),
        row("1", submit="1T11:00:00", start="1T11:30:00", elapsed="00:30:00"),
        row("2", state="RUNNING", end="Unknown"),
        row("3", state="PENDING", start="Unknown", end="Unknown", elapsed="00:00:00"),
    ]
    later = [row("2"), row("3", start="1T10:30:00", elapsed="01:30:00")]
    found = read(table(*rows), table(*later))
    assert sorted(zip(column(found, "job"), column(found, "state"), strict=True)) == [
        ("1", "COMPLETED"), ("1", "PREEMPTED"), ("2", "COMPLETED"), ("3", "COMPLETED"),
    ]  # fmt: skip
    assert found.tally.duplicates == 2 and found.tally.read == 6
    assert [(w.file, w.line, w.code) for w in found.warnings] == [(0, 4, "duplicate")]
    assert "2 rows: lines 4-5" in found.warnings[0].text


def test_a_job_that_waits_again_is_no_run_told_twice():
    rows = [
        row("1", state="PREEMPTED", end="1T11:00:00", elapsed="01:00:00"),
        row("1", state="PENDING", start="Unknown", end="Unknown", elapsed="00:00:00"),
    ]
    found = read(table(*rows))
    assert column(found, "state") == ["PREEMPTED", "PENDING"] and found.tally.duplicates == 0
    assert read(table(rows[1]), table(rows[0])).tally.duplicates == 1, "seen while it waited, and at its end"


def test_arrays_and_what_never_started():
    rows = [
        row("5_[1-10%3]", state="PENDING", start="Unknown", end="Unknown", nodes="None assigned"),
        row("5_11"),
        row(
            "5_[1,3,7-9]",
            state="CANCELLED by 1000",
            start="1T11:00:00",
            end="1T11:00:00",
            elapsed="00:00:00",
            nodes="None assigned",
        ),
        row("6", state="CANCELLED", start="None", end="1T11:00:00", elapsed="00:00:00", nodes=""),
    ]
    found = read(table(*rows))
    assert column(found, "tasks") == [10, 1, 5, 1]
    assert [start > 0 for start in column(found, "start")] == [False, True, False, False]
    assert [end > 0 for end in column(found, "end")] == [False, True, True, True]


def test_allocated_goes_before_asked_for():
    rows = [
        row("1", gpus=8, req="cpu=8,node=1"),  # --exclusive
        row("2", tres="", req="gres/gpu=4", state="PENDING", start="Unknown", end="Unknown"),
        row("3", tres="cpu=8,node=1", req="cpu=8,node=1"),
        row("4", tres="billing=4,gres/gpu:h100=4", req="gres/gpu=4"),
    ]
    found = read(table(*rows))
    assert column(found, "gpus") == [8, 4, 0, 4] and column(found, "gpu_model") == ["", "", "", "h100"]


def test_older_columns_and_squeue_tell_gpus_too():
    old = "JobID|State|Submit|Start|End|NNodes|ReqGRES|AllocGRES|NodeList"
    line = "1|COMPLETED|2019-01-01T00:00:00|2019-01-01T00:00:00|2019-01-01T01:00:00|2|gpu:4|gpu:8|n[1-2]"
    assert column(read(table(line, head=old)), "gpus") == [8]
    queue = "JOBID|ACCOUNT|USER|STATE|SUBMIT_TIME|START_TIME|TIME_LIMIT|NODES|TRES_PER_NODE"
    line = "1|vis|ada|RUNNING|2025-01-01T00:00:00|2025-01-01T00:00:00|2-00:00:00|2|gres/gpu:a100:4"
    found = read(table(line, head=queue))
    assert column(found, "gpus") == [8] and column(found, "account") == ["vis"]


def test_what_a_table_does_not_tell_is_told():
    found = read("JobID|State|Account\n1|COMPLETED|vis\n2|COMPLETED|vis\n")
    assert codes(found) == [(2, "no-gpu-column"), (2, "no-time-column")]
    queue = "JOBID|STATE|START_TIME|TRES_PER_NODE\n1|RUNNING|2025-01-01T00:00:00|N/A\n"
    assert codes(read(queue)) == [(2, "gpus-not-told")]


def test_doubtful_gpus_are_told():
    rows = [
        row("1", tres="gres/gpu=2,gres/gpu:a100_1g.5gb=2"),
        row("2", tres="gres/shard=4"),
        row("3", tres="gres/gpu=2,gres/gpu:a=4"),
    ]
    found = read(table(*rows))
    assert column(found, "gpus") == [2, 0, 4] and column(found, "shards") == [0, 4, 0]
    assert codes(found) == [(2, "mig-instances"), (3, "shards"), (4, "gpu-types-exceed")]


def test_a_header_further_down_changes_the_columns():
    other = "User|JobID|State|Submit|Start|End|AllocTRES"
    found = read(
        table(row("1"))
        + table(f"bo|2|COMPLETED|{AT}1T00:00:00|{AT}1T00:00:00|{AT}1T01:00:00|gres/gpu=3", head=other)
    )
    assert column(found, "user") == ["ada", "bo"] and column(found, "gpus") == [2, 3]


def test_columns_without_a_header_are_found_by_what_stands_in_them():
    names = [f"run-{n}" for n in range(12)]
    rows = [row(str(n), name=names[n], gpus=n % 3, account="vis" if n % 2 else "lang") for n in range(12)]
    rows.append(
        row(
            "12",
            state="PENDING",
            tres="",
            req="gres/gpu=4",
            start="Unknown",
            end="Unknown",
            elapsed="00:00:00",
        )
    )
    layout = guess(rows, "|", lambda name: name == "vis")
    assert layout is not None
    told = dict(enumerate(layout.names))
    assert {n: told[n] for n in (0, 2, 6, 7, 8, 9, 10, 11, 12, 13, 15)} == {
        0: "jobid", 2: "account", 6: "state", 7: "submit", 8: "start", 9: "end", 10: "elapsed", 11: "timelimit",
        12: "reqtres", 13: "alloctres", 15: "jobname",
    }  # fmt: skip
    found = read("\n".join(rows) + "\n", claims=lambda name: name == "vis")
    assert column(found, "gpus") == [*(n % 3 for n in range(12)), 4]
    assert codes(found) == [(1, "header-missing")]


def test_a_file_without_a_header_may_have_the_columns_of_the_one_before():
    found = read(table(row("1")), row("2") + "\n" + row("3") + "\n")
    assert column(found, "account") == ["vis"] * 3
    assert [(w.file, w.code) for w in found.warnings] == [(1, "header-missing")]


def test_the_hour_that_a_clock_change_repeats_or_skips():
    spring = row("1", start="0T01:30:00", end="0T03:30:00", elapsed="01:00:00").replace(
        "2025-03-00", "2025-03-30"
    )
    autumn = row("2", start="6T01:30:00", end="6T03:30:00", elapsed="03:00:00").replace(
        "2025-03-06", "2025-10-26"
    )
    backwards = row("3", start="6T02:50:00", end="6T02:10:00", elapsed="00:20:00").replace(
        "2025-03-06", "2025-10-26"
    )
    berlin = read(table(spring, autumn, backwards), zone="Europe/Berlin")
    lengths = [
        (end - start) // MINUTE
        for start, end in zip(column(berlin, "start"), column(berlin, "end"), strict=True)
    ]
    assert lengths == [60, 180, 20]
    elsewhere = read(table(spring, autumn, backwards), zone="UTC")  # read where the clocks do not change
    lengths = [
        (e - s) // MINUTE for s, e in zip(column(elsewhere, "start"), column(elsewhere, "end"), strict=True)
    ]
    assert lengths == [60, 180, 20]
    assert codes(elsewhere) == [(2, "clock-change")]


def test_limits_and_durations():
    assert duration("1-02:03:04") == DAY + 2 * HOUR + 3 * MINUTE + 4 * SECOND
    assert duration("02:03.5") == 2 * MINUTE + 3 * SECOND
    assert [limit(word) for word in ("UNLIMITED", "Partition_Limit", "", "INVALID", "4294967295")] == [-1] * 5
    assert limit("90") == 90 * MINUTE and limit("75:00:00") == 75 * HOUR
    with pytest.raises(ValueError, match="not a duration"):
        duration("1:2:3:4")


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("CANCELLED by 1000", "CANCELLED"),
        ("CANCELLED+", "CANCELLED"),
        ("OUT_OF_ME+", "OUT_OF_MEMORY"),
        ("CA", "CANCELLED"),
        ("PD", "PENDING"),
        ("completed", "COMPLETED"),
        ("COMPLETING,CONFIGURING", "COMPLETING"),
    ],
)
def test_states_in_all_their_spellings(text, state):
    assert state_of(text) == state
    assert state_among([text, "POWER_UP_NODE"]) == state


def test_a_requeued_run_is_over_and_a_requeued_job_waits():
    assert FATES["REQUEUED"] is Fate.REQUEUED and FATES["NODE_FAIL"] is Fate.NODE_LOST
    rows = [
        row("1", state="REQUEUED"),
        row("2", state="REQUEUED", start="Unknown", end="Unknown", elapsed="00:00:00"),
    ]
    assert column(read(table(*rows)), "fate") == [Fate.REQUEUED, Fate.WAITING]


@pytest.mark.parametrize(
    ("line", "gpus", "model"),
    [
        ("sbatch --time 1 --wrap sleep 30 && true --partition ia --gpus 6", 6, ""),
        ("sbatch --gres=gpu:a100:4 -N 2 run.sh --gpus 99", 8, "a100"),
        ("srun -G h100:2 --pty bash", 2, "h100"),
        ("sbatch --gpus-per-task=1 --ntasks-per-node 4 --nodes=2 x.sh", 8, ""),
        ("sbatch --exclusive -n4 --gpus-per-node 4 x.sh", 4, ""),
        ("sbatch run.sh --gpus 4", 0, ""),
        ("salloc", 0, ""),
        ("sbatch --gpus=many x.sh", 1, "many"),
    ],
)
def test_gpus_of_the_command_that_submitted_a_job(line, gpus, model):
    found = gpus_of(line)
    assert (found.total, found.model) == (gpus, model)


def test_sessions_of_people():
    assert is_session("srun -p gpu --pty bash") and is_session("/usr/bin/salloc -G 1")
    assert not is_session("srun ./train") and not is_session("sbatch salloc_like.sh")


def test_json_of_all_versions_tells_the_same():
    base = {
        "account": "vis",
        "user": "ada",
        "partition": "gpu",
        "qos": "normal",
        "name": "x",
        "nodes": "n1",
        "cluster": "c",
    }
    tres = [
        {"type": "gres", "name": "gpu", "id": 1001, "count": 4},
        {"type": "gres", "name": "gpu:a100", "id": 1002, "count": 4},
    ]
    times = {
        "submission": 1747754676,
        "eligible": 1747754676,
        "start": 1747754679,
        "end": 1747758279,
        "elapsed": 3600,
    }
    number = {"set": True, "infinite": False, "number": 60}
    old = {
        "job_id": 9,
        "state": {"current": "COMPLETED"},
        "time": times | {"limit": 60},
        "array": {"job_id": 0, "task_id": None, "task": None},
        "het": {"job_id": 0, "job_offset": None},
    }
    new = {
        "job_id": 9,
        "state": {"current": ["COMPLETED"]},
        "time": times | {"limit": number},
        "array": {"job_id": 0, "task_id": {"set": False, "number": 0}, "task": ""},
        "het": {"job_id": 0, "job_offset": {"set": False, "number": 0}},
    }
    array = new | {
        "job_id": 11,
        "array": {"job_id": 10, "task_id": {"set": True, "infinite": False, "number": 3}},
    }
    het = new | {
        "job_id": 13,
        "het": {"job_id": 12, "job_offset": {"set": True, "infinite": False, "number": 1}},
    }
    unlimited = new | {"job_id": 14, "time": times | {"limit": {"set": False, "infinite": True, "number": 0}}}
    listed = [
        item | base | {"tres": {"allocated": tres, "requested": tres}}
        for item in (old, new | {"job_id": 8}, array, het, unlimited)
    ]
    found = read(json.dumps({"meta": {}, "jobs": listed, "errors": []}, indent=1))
    assert column(found, "job") == ["9", "8", "10_3", "12+1", "14"] and column(found, "gpus") == [4] * 5
    assert column(found, "limit") == [HOUR] * 4 + [-1] and set(column(found, "gpu_model")) == {"a100"}
    assert [end - start for start, end in zip(column(found, "start"), column(found, "end"), strict=True)] == [
        HOUR
    ] * 5
    assert column(found, "line")[0] == 4 and codes(found) == []


def test_json_that_breaks_off_gives_what_is_whole_of_it():
    jobs = [{"job_id": n, "job_state": "PENDING", "submit_time": 1747754676} for n in range(1, 4)]
    text = json.dumps({"jobs": jobs}, indent=1)
    found = read(text[: text.rindex('"job_id"')])
    assert column(found, "job") == ["1", "2"] and [code for _, code in codes(found)] == ["json-broken"]
    odd = read(
        json.dumps({"jobs": [jobs[0], {"job_state": "PENDING"}, 7, {"job_id": 5, "job_state": ["WEIRD"]}]})
    )
    assert [code for _, code in codes(odd)] == ["job-id", "row-unreadable", "state-unknown"]


def test_nodes_in_all_forms():
    json_old = {
        "nodes": [
            {"name": "a1", "gres": "gpu:a100:4", "state": "idle", "state_flags": ["DRAIN"], "tres": "cpu=1"}
        ]
    }
    json_sinfo = {
        "sinfo": [
            {
                "nodes": {"total": 2, "nodes": ["b1", "b2"]},
                "gres": {"total": "gpu:h100:8"},
                "node": {"state": ["MIXED"]},
            }
        ]
    }
    text = "NodeName=c1 Gres=gpu:8\n   State=DOWN*+DRAIN\n   CfgTRES=cpu=4,gres/gpu=8\nNodeName=d[1-2] Gres=gpu:2 State=IDLE\n"
    listing = (
        "NODELIST GRES STATE\ne[1-2] gpu:a100:4(S:0-1) mixed\ne1 gpu:a100:4(S:0-1) mixed\nf1 (null) idle\n"
    )
    found = read(json.dumps(json_old), json.dumps(json_sinfo), text, listing)
    assert {node.name: (node.gpus, node.in_service) for node in found.nodes} == {
        "a1": (4, False), "b1": (8, True), "b2": (8, True), "c1": (8, False), "d1": (2, True), "d2": (2, True),
        "e1": (4, True), "e2": (4, True), "f1": (0, True),
    }  # fmt: skip
    assert found.tally.duplicates == 1


def test_blocks_of_scontrol():
    text = (
        "JobId=77 ArrayJobId=70 ArrayTaskId=7 JobName=a name = with blanks\n   UserId=ada(1000) Account=vis QOS=n\n"
        "   JobState=RUNNING Reason=None\n   RunTime=01:00:00 TimeLimit=UNLIMITED\n   SubmitTime=2025-03-01T09:00:00\n"
        "   StartTime=2025-03-01T10:00:00 EndTime=Unknown\n   NumNodes=2 TresPerNode=gres/gpu:4\n\n"
        "JobId=78 HetJobId=78 HetJobOffset=0 JobName=b UserId=bo(1) JobState=PENDING TRES=cpu=1,gres/gpu=2\n"
    )
    found = read(text)
    assert column(found, "job") == ["70_7", "78+0"] and column(found, "gpus") == [8, 2]
    assert column(found, "name")[0] == "a name = with blanks" and column(found, "user") == ["ada", "bo"]


@pytest.mark.parametrize(
    "text",
    ["", "\n\n", "# only a comment\n", "hello\nworld\n", '{"qos": []}', "[]", "{", b"\x1f\x8b\x08\x00broken"],
)
def test_what_is_nothing_of_slurm_is_refused(text):
    if text == "[]":
        assert read(text).tally.read == 0
        return
    with pytest.raises(InputError, match="cannot be audited"):
        read(text)


def test_all_files_that_cannot_be_read_are_told_at_once():
    with pytest.raises(InputError) as error:
        read(table(row("1")), "hello\n", "")
    assert [fault.path for fault in error.value.faults] == ["f1", "f2"]


def test_rows_are_not_merged_into_one_that_happens_to_fit():
    found = read(table(row("1", elapsed="-1:00:00"), row("-5"), row("2")))
    assert column(found, "job") == ["2"]
    assert codes(found) == [(2, "value-unreadable"), (3, "job-id")]


def test_line_ends_of_old_and_documents_that_are_too_deep():
    assert column(read(table(row("1"), row("2")).replace("\n", "\r")), "job") == ["1", "2"]
    with pytest.raises(InputError, match="cannot be audited"):
        read("[" * 100_000)
    broken = read('{"jobs": [{"job_id": 1, "job_state": "PENDING"}, ' + "[" * 100_000)
    assert column(broken, "job") == ["1"] and codes(broken) == [(1, "json-broken")]


def test_records_of_json_with_values_of_the_wrong_kind():
    odd = [
        {"job_id": [1], "job_state": "PENDING"},
        {"job_id": 2, "job_state": {"a": 1}},
        {"job_id": 3, "job_state": "PENDING", "submit_time": "x"},
        {"job_id": 4, "time": {"start": -5, "end": 3}, "state": {"current": ["COMPLETED"]}},
        {"job_id": 5, "time": {"start": 1e400}, "state": {"current": ["RUNNING"]}},
        {
            "job_id": 6,
            "time": {"submission": 1747754676},
            "state": {"current": ["PENDING"]},
            "tres": 7,
            "steps": {},
            "array": [],
        },
    ]
    found = read(json.dumps({"jobs": odd}))
    assert column(found, "job") == ["6"]
    assert [code for _, code in codes(found)] == [
        "value-unreadable",
        "state-unknown",
        *["value-unreadable"] * 3,
    ]


def test_many_rows_of_the_same_fault_keep_their_lines():
    found = read(table(*[row("1", state="FOO")] * 10_050))
    assert found.tally.skipped == 10_050 and len(found.warnings) == 10_001
    assert "50 more rows like this: lines 10002-10051" in next(
        w.text for w in found.warnings if "more rows" in w.text
    )
