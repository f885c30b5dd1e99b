"""Figures of an audit, computed by hand from a few rows."""

from __future__ import annotations

import io

import numpy as np
import pytest

from divvy.adapters.slurm.accounting.clock import Clock
from divvy.adapters.slurm.accounting.read import Form, read_accounting
from divvy.control.audit.attribute import By
from divvy.control.audit.audit import Period, audit
from divvy.control.audit.document import document, job_lines
from divvy.control.audit.figures import size_labels
from divvy.control.facts import Capacity, Demand, Epoch, Occupancy
from divvy.control.statement import HourSums, make_statement
from divvy.errors import InputError
from divvy.fleet.budget import parse_budget
from divvy.units import HOUR

BUDGET = """
[accounts.lab]
share = 100
[accounts.lab.vision]
share = 50
slurm = ["vis", "vis-*"]
[accounts.lab.language]
share = 25
slurm = ["nlp"]
"""
HEAD = "JobID|Account|User|QOS|Partition|JobName|State|Submit|Eligible|Start|End|Timelimit|AllocTRES"
ALL = Period()
NODES = "NodeName=n[1-2] Gres=gpu:a100:8 State=IDLE\n"


def job(number, account, gpus, submit, start, end, state="COMPLETED", **more):
    """One row; times are hours of one day."""
    at = [f"2025-03-01T{t:02d}:00:00" if t is not None else "Unknown" for t in (submit, start, end)]
    name, user = more.get("name", "train"), more.get("user", "ada")
    return (
        f"{number}|{account}|{user}|high|gpu|{name}|{state}|{at[0]}|{at[0]}|{at[1]}|{at[2]}"
        f"|{more.get('limit', '10:00:00')}|gres/gpu:a100={gpus},gres/gpu={gpus}"
    )


def audited(*rows, budget=BUDGET, by=By.ACCOUNT, nodes=NODES, period=ALL, head=HEAD):
    texts = ["\n".join([head, *rows]) + "\n", *([nodes] if nodes else [])]
    files = [(f"f{n}", io.BytesIO(text.encode())) for n, text in enumerate(texts)]
    read = read_accounting(files, Form.AUTO, Clock("UTC"))
    return audit(read, None if budget is None else parse_budget(budget).tree, by, period)


def report(*rows, **options):
    return document(audited(*rows, **options), "UTC")


def accounts(document):
    return {account["account"]: account for account in document["accounts"]}


def test_owed_and_delivered_hour_by_hour():
    found = report(
        job(1, "vis", 16, 0, 0, 4),  # 16 GPUs for 4 h; entitled to 8
        job(2, "nlp", 4, 0, 4, 6),  # waits 4 h for 4 GPUs, entitled to 4
        job(3, "other", 2, 4, 4, 5),
    )
    assert (found["rows_read"], found["rows_skipped"], found["gpu_hours"]) == (5, 0, 74)
    assert found["capacity"] | {"text": ""} == {
        "gpus": 16, "source": "nodes", "text": "", "gpu_hours": 96, "nodes": 2, "gpus_out_of_service": 0,
        "most_held_at_once": 16,
    }  # fmt: skip
    by_name = accounts(found)
    assert list(by_name) == ["lab", "lab.vision", "lab.language", "unfunded"]
    vision, language, unfunded = (by_name[n] for n in ("lab.vision", "lab.language", "unfunded"))
    assert [vision[k] for k in ("share", "capacity", "demand", "owed", "delivered", "unfunded")] == [
        0.5,
        96,
        64,
        32,
        64,
        32,
    ]
    assert [language[k] for k in ("share", "demand", "owed", "delivered", "unfunded")] == [0.25, 24, 24, 8, 0]
    assert [unfunded[k] for k in ("share", "demand", "owed", "delivered", "unfunded")] == [0, 2, 0, 2, 2]
    assert language["delivered_over_owed"] == pytest.approx(1 / 3) and unfunded["delivered_over_owed"] is None
    assert language["hours"][4] == {
        "at": found["from_at"] + 4 * 3600, "share": 0.25, "capacity": 16, "demand": 4, "owed": 4, "delivered": 4, "unfunded": 0,
    }  # fmt: skip
    for name, account in by_name.items():
        for key in ("capacity", "demand", "owed", "delivered", "unfunded"):
            assert sum(hour[key] for hour in account["hours"]) == pytest.approx(account[key]), (name, key)
    assert by_name["lab"]["owed"] == 32 + 24  # the sum of its children
    assert by_name["lab"]["owed_as_one"] == 16 * 4 + 4 * 2 and vision["owed_as_one"] == 32
    assert [(u["name"], u["jobs"], u["gpu_hours"], u["rows"]["lines"]) for u in found["unclaimed"]] == [
        ("other", 1, 2, ["f0:4"])
    ]


def test_the_rows_behind_the_figures():
    found = accounts(
        report(
            job(1, "vis", 1, 0, 1, 2),
            job(2, "vis", 1, 0, 3, 5),
            job(3, "nlp", 1, 0, 0, 1),
            job(4, "vis", 8, 0, 0, 1),
        )
    )
    vision = found["lab.vision"]
    assert vision["rows"]["gpu_hours"] == {"count": 3, "lines": ["f0:2-3", "f0:5"]}
    assert [(w["gpus"], w["jobs"], w["p50_s"], w["p90_s"], w["rows"]["lines"]) for w in vision["waits"]] == [
        ("1", 2, 3600, 10800, ["f0:2-3"]),
        ("5-8", 1, 0, 0, ["f0:5"]),
    ]
    assert size_labels() == ("1", "2-4", "5-8", "9-16", "17-32", "33-64", "65+")


def test_capacity_is_estimated_where_no_file_has_nodes():
    found = report(job(1, "vis", 4, 0, 0, 2), job(2, "vis", 4, 0, 2, 3), job(3, "nlp", 3, 0, 1, 2), nodes="")
    assert (found["capacity"]["gpus"], found["capacity"]["source"]) == (7, "estimated")
    assert "at least" in found["capacity"]["text"]


def test_capacity_of_nodes_that_are_out_of_service():
    nodes = "NodeName=n1 Gres=gpu:8 State=IDLE\nNodeName=n2 Gres=gpu:8 State=DOWN\n"
    found = report(job(1, "vis", 4, 0, 0, 2), nodes=nodes)
    assert (found["capacity"]["gpus"], found["capacity"]["gpus_out_of_service"]) == (8, 8)
    found = report(job(1, "vis", 12, 0, 0, 2), nodes=nodes)
    assert found["capacity"]["gpus"] == 12 and "because jobs held them" in found["capacity"]["text"]
    found = report(job(1, "vis", 20, 0, 0, 2), nodes=nodes)
    assert [w["code"] for w in found["warnings"]] == ["capacity-exceeded"]


def test_without_a_budget_all_names_have_the_same_share():
    found = report(job(1, "vis", 4, 0, 0, 2), job(2, "n l p", 4, 0, 0, 2), budget=None)
    assert found["shares"] == "equal" and {a: x["share"] for a, x in accounts(found).items()} == {
        "vis": 0.5,
        "n_l_p": 0.5,
    }


@pytest.mark.parametrize(("by", "name"), [(By.USER, "ada"), (By.QOS, "high"), (By.PARTITION, "gpu")])
def test_names_may_be_those_of_users_qos_and_partitions(by, name):
    budget = f'[accounts.a]\nshare = 100\nslurm = ["{name}"]\n'
    found = report(job(1, "vis", 4, 0, 0, 2), budget=budget, by=by)
    assert found["unclaimed"] == [] and accounts(found)["a"]["delivered"] == 8


def test_a_job_that_waits_may_name_several_partitions():
    found = report(
        job(1, "vis", 4, 0, 0, 2).replace("|gpu|", "|gpu,debug|"),
        budget='[accounts.a]\nshare = 100\nslurm = ["gpu"]\n',
        by=By.PARTITION,
    )
    assert found["unclaimed"] == []


def test_account_names_of_slurm_are_in_lower_case():
    found = report(job(1, "vis", 4, 0, 0, 2), budget='[accounts.a]\nshare = 100\nslurm = ["VIS"]\n')
    assert found["unclaimed"] == []


def test_an_account_above_others_may_be_charged_itself():
    budget = BUDGET + '[accounts.lab.vision.maps]\nshare = 50\nslurm = ["vis-maps"]\n'
    found = accounts(report(job(1, "vis", 2, 0, 0, 2), job(2, "vis-maps", 4, 0, 0, 2), budget=budget))
    assert (found["lab.vision"]["delivered"], found["lab.vision.maps"]["delivered"]) == (12, 8)
    assert found["lab.vision"]["rows"]["gpu_hours"]["count"] == 2


def test_an_account_above_others_may_have_a_child_called_rest():
    budget = BUDGET + "[accounts.lab.vision.rest]\nshare = 50\nslurm = []\n"
    found = accounts(report(job(1, "vis", 2, 0, 0, 2), budget=budget))
    assert (found["lab.vision.rest"]["delivered"], found["lab.vision.rest1"]["delivered"]) == (0, 4)
    assert found["lab.vision.rest1"]["share"] == 0.25


def test_shares_that_change_at_a_date():
    budget = BUDGET.replace(
        "share = 50", 'share = 50\nshares = [{ from = "2025-03-01T02:00:00Z", share = 25 }]'
    )
    vision = accounts(report(job(1, "vis", 16, 0, 0, 4), budget=budget))["lab.vision"]
    assert [hour["share"] for hour in vision["hours"]] == [0.5, 0.5, 0.25, 0.25]
    assert vision["owed"] == 8 + 8 + 4 + 4 and vision["share"] == 0.375


def test_preempted_and_lost():
    found = accounts(
        report(
            job(1, "vis", 2, 0, 0, 2, "PREEMPTED"),
            job(1, "vis", 2, 2, 3, 4),  # came back: nothing is known to be lost
            job(2, "vis", 4, 0, 0, 1, "PREEMPTED"),  # never came back
            job(3, "vis", 8, 0, 0, 1, "NODE_FAIL"),
            job(4, "vis", 1, 0, 0, 1, "FAILED"),
        )
    )["lab.vision"]
    assert (found["preempted_gpu_hours"], found["lost_gpu_hours"]) == (8, 12)
    assert (found["gpu_hours"], found["delivered"]) == (19, 7)
    assert found["rows"]["lost"]["lines"] == ["f0:4-5"] and found["rows"]["preempted"]["lines"] == [
        "f0:2",
        "f0:4",
    ]


def test_limits_against_used_time():
    found = accounts(
        report(
            job(1, "vis", 2, 0, 0, 1, limit="10:00:00"),
            job(2, "vis", 1, 0, 0, 5, limit="10:00:00"),
            job(3, "vis", 1, 0, 0, 5, limit="UNLIMITED"),
            job(4, "vis", 1, 0, 0, None, "RUNNING"),
        )
    )["lab.vision"]["limits"]
    assert (
        found["runs"],
        found["declared_gpu_hours"],
        found["used_gpu_hours"],
        found["runs_without_limit"],
    ) == (2, 30, 7, 1)
    assert (found["used_over_limit_p50"], found["used_over_limit_p90"]) == (0.1, 0.5)


def test_squatting_without_a_column_of_use_goes_by_names():
    found = accounts(
        report(
            job(1, "vis", 2, 0, 0, 5, name="jupyter-lab"),  # long and interactive-like: 10
            job(2, "vis", 8, 0, 0, 2, name="bash"),  # short
            job(3, "vis", 8, 0, 0, 9, name="train"),  # long and batch
            *(
                job(4 + n, "nlp", 1, n * 2, n * 2, n * 2 + 2, name="interactive", user="bo") for n in range(3)
            ),  # a chain: 6
        )
    )
    assert found["lab.vision"]["squatting_gpu_hours"] == 10 and found["lab.vision"]["squatting"]["rows"][
        "lines"
    ] == ["f0:2"]
    language = found["lab.language"]
    assert language["squatting_gpu_hours"] == 6
    assert language["squatting"]["users"] == [{"user": "bo", "gpu_hours": 6, "runs": 3}]
    assert language["squatting"]["signals"] == {
        "long_gpu_hours": 6, "interactive_like_gpu_hours": 6, "repeated_gpu_hours": 6, "low_use_gpu_hours": 0,
    }  # fmt: skip


def test_squatting_with_a_column_of_use_goes_by_use():
    head = HEAD + "|GPUUtil"
    found = report(
        job(1, "vis", 2, 0, 0, 5, name="bash") + "|80",  # a session that computes
        job(2, "vis", 2, 0, 0, 10) + "|5",  # a batch job that does not: 20 x 0.95
        job(3, "vis", 2, 0, 0, 2) + "|0",  # short
        head=head,
    )
    assert found["squatting_rule"]["basis"] == "use"
    vision = accounts(found)["lab.vision"]["squatting"]
    assert accounts(found)["lab.vision"]["squatting_gpu_hours"] == 19 and vision["rows"]["lines"] == ["f0:3"]


def test_open_runs_and_what_waits():
    found = audited(
        job(1, "vis", 2, 0, 0, 10),
        job(2, "vis", 4, 0, 2, None, "RUNNING", limit="20:00:00"),
        job("3_[1-4]", "vis", 1, 6, None, None, "PENDING"),
        job(4, "vis", 8, 4, None, 5, "CANCELLED"),
    )
    vision = accounts(document(found, "UTC"))["lab.vision"]
    assert vision["gpu_hours"] == 20 + 32 and vision["demand"] == 20 + 40 + 16 + 8
    assert vision["rows"]["demand"]["lines"] == ["f0:2-5"] and vision["rows"]["gpu_hours"]["lines"] == [
        "f0:2-3"
    ]
    assert [(w["gpus"], w["waiting"], w["never_started"]) for w in vision["waits"]] == [
        ("1", 1, 0),
        ("2-4", 0, 0),
        ("5-8", 0, 1),
    ]


def test_a_run_that_the_database_forgot_ends_at_its_limit():
    head = "2025-03-01T00:00:00|2025-03-01T00:00:00|2025-03-01T00:00:00|Unknown|01:00:00|gres/gpu=2"
    old = f"1|vis|ada|high|gpu|x|RUNNING|{head}"
    new = job(2, "vis", 1, 0, 0, 1).replace("2025-03-01", "2025-03-09")
    found = report(old, new)
    assert [(w["line"], w["code"]) for w in found["warnings"]] == [(2, "runaway")]
    assert found["gpu_hours"] == 3


def test_a_period_cuts_runs():
    begin = 1_740_787_200_000  # 2025-03-01 00:00
    rows = (job(1, "vis", 2, 0, 1, 9), job(2, "vis", 2, 0, 0, 1))
    found = report(*rows, period=Period(begin + 2 * HOUR, begin + 4 * HOUR))
    assert found["gpu_hours"] == 4 and accounts(found)["lab.vision"]["rows"]["gpu_hours"]["lines"] == ["f0:2"]
    with pytest.raises(InputError, match="ends before it begins"):
        report(*rows, period=Period(begin + 4 * HOUR, begin))
    with pytest.raises(InputError, match="days"):
        report(*rows, period=Period(0, begin))


def test_nothing_but_nodes_and_jobs_without_gpus():
    found = report(job(1, "vis", 0, 0, 0, 1).replace("gres/gpu:a100=0,gres/gpu=0", "cpu=4"))
    assert [w["code"] for w in found["warnings"]] == ["no-gpus"] and found["gpu_hours"] == 0


def test_an_unfunded_account_of_ones_own_is_refused():
    with pytest.raises(InputError, match="'unfunded'"):
        report(job(1, "x", 1, 0, 0, 1), budget='[accounts.unfunded]\nshare = 10\nslurm = ["y"]\n')


def test_an_unfunded_account_of_share_0_may_be_declared():
    found = report(job(1, "x", 1, 0, 0, 1), budget=BUDGET + "[accounts.unfunded]\nshare = 0\n")
    assert accounts(found)["unfunded"]["delivered"] == 1


def test_lines_of_jobs():
    found = audited(
        job(1, "vis", 2, 0, 0, 1),
        job("5+1", 'a"\\b', 1, 0, None, None, "PENDING", limit="UNLIMITED"),
        nodes="",
    )
    lines = list(job_lines(found.read.jobs, found.read.files))
    assert lines[0] == (
        '{"job": "1", "account": "vis", "user": "ada", "gpus": 2, "gpu_model": "a100", "submit": 1740787200, '
        '"start": 1740787200, "end": 1740790800, "state": "COMPLETED", "limit_s": 36000, "line": 2}\n'
    )
    assert '"account": "a\\"\\\\b"' in lines[1] and '"start": null, "end": null' in lines[1]


def test_many_at_once_are_stated_as_one_by_one():
    found = audited(
        *(
            job(n, ("vis", "nlp", "zzz")[n % 3], n % 5 + 1, n % 7, n % 7 + n % 3, n % 7 + n % 3 + n % 11)
            for n in range(60)
        )
    )
    runs, tree, span = found.runs, found.attribution.tree, found.statement
    columns = (runs.payer, runs.number["submit"], runs.number["start"], runs.stop, runs.number["gpus"])
    rows = [tuple(map(int, row)) for row in zip(*columns, strict=True)]
    single = make_statement(
        span.start,
        span.end,
        [Epoch(span.start, tree)],
        [Capacity(span.start, found.supply.gpus)],
        [Demand(tree.paths[payer], submit, stop, gpus) for payer, submit, _, stop, gpus in rows],
        [
            Occupancy(tree.paths[payer], start, stop, gpus, gpus, True, False, 0)
            for payer, _, start, stop, gpus in rows
        ],
    )
    for one, other in zip(single.rows, span.rows, strict=True):
        for name in ("capacity", "entitled", "demand", "delivered"):
            assert getattr(one, name).tolist() == getattr(other, name).tolist()


def test_sums_of_many_steps_are_the_sums_of_each():
    draw = np.random.default_rng(7)
    start = draw.integers(-HOUR, 9 * HOUR, 400)
    end = start + draw.integers(0, 5 * HOUR, 400)
    rate = draw.integers(1, 9, 400)
    many, each = HourSums(HOUR // 3, 7 * HOUR + 11), HourSums(HOUR // 3, 7 * HOUR + 11)
    many.add_many(start, end, rate)
    for row in zip(start.tolist(), end.tolist(), rate.tolist(), strict=True):
        each.add(*row)
    assert many.hours().tolist() == each.hours().tolist()
