import json

import pytest

from divvy.errors import InputError
from divvy.fleet.job import JobKind
from divvy.fleet.node import NodeState
from divvy.sim.traces import read_trace
from divvy.sim.traces.trace import OnError

GOOD = {"submit": 0, "runtime": 60, "gpus": 1, "account": "lab"}


def lines(*documents):
    return "".join(d if isinstance(d, str) else json.dumps(d) + "\n" for d in documents).encode()


def divvy(data, on_error=OnError.FAIL):
    return read_trace(data, "divvy", "t.jsonl", on_error)


def test_every_field_is_read():
    trace = divvy(
        lines(
            {
                "submit": 1000.5,
                "runtime": "1h30m",
                "gpus": 16,
                "account": "lab.vision",
                "author": "ada",
                "id": "a-1",
                "min_runtime": "15m",
                "resumable": False,
                "restart": True,
                "priority": -3,
                "kind": "interactive",
                "model": "H100-80GB",
                "per_node": 8,
                "time_limit": 7200,
                "name": "großer Lauf",
            }
        )
    )
    (job,) = trace.jobs
    assert (job.id, job.submit, job.runtime, job.gpus, job.author) == ("a-1", 0, 5_400_000, 16, "ada")
    assert (job.min_runtime, job.resumable, job.restart, job.priority) == (900_000, False, True, -3)
    assert (job.kind, job.model, job.per_node) == (JobKind.INTERACTIVE, "H100-80GB", 8)
    assert (job.time_limit, job.name, trace.origin) == (7_200_000, "großer Lauf", "1000.5 s")


def test_what_is_left_out_stays_open_for_the_contract_generator():
    (job,) = divvy(lines(GOOD)).jobs
    assert (job.id, job.author, job.min_runtime, job.resumable, job.time_limit) == (
        "d1",
        None,
        None,
        None,
        None,
    )


def test_changes_of_the_fleet_are_read_on_the_same_clock():
    trace = divvy(
        lines(
            GOOD | {"submit": 100},
            {"event": "capacity", "at": 400, "node": "n1", "gpus": 8, "state": "down", "cause": "XID 79"},
            {"event": "capacity", "at": 50, "node": "n2", "gpus": 4, "model": "A100-80GB", "domain": "r1"},
        )
    )
    early, late = trace.capacity
    assert (early.at, early.node.name, early.node.weight, early.node.domain) == (0, "n2", 312, "r1")
    assert (late.at, late.node.state, late.node.cause) == (300_000, NodeState.DOWN, "XID 79")


@pytest.mark.parametrize(
    ("row", "code", "says"),
    [
        ("{\n", "trace-json", "not JSON"),
        ('{"submit": 0, "runtime": 1, "gpus": 1, "acc\n', "trace-json", "cut off"),
        ("[1, 2]\n", "trace-json", "not an object"),
        ("[" * 100_000 + "\n", "trace-json", "nested too deeply"),
        ('{"submit":0,"submit":1,"runtime":1,"gpus":1,"account":"a"}\n', "trace-json", "there twice"),
        ('{"submit":NaN,"runtime":1,"gpus":1,"account":"a"}\n', "trace-json", "NaN"),
        ({"submit": 0, "runtime": 1, "gpus": 1}, "trace-field", "account is missing"),
        (GOOD | {"gpu": 3}, "trace-field", "unknown field 'gpu'"),
        (GOOD | {"submit": "now"}, "trace-value", "submit"),
        (GOOD | {"submit": 10**15}, "trace-value", "milliseconds"),
        (GOOD | {"submit": True}, "trace-value", "submit"),
        (GOOD | {"runtime": 0}, "trace-value", "longer than 0"),
        (GOOD | {"runtime": -5}, "trace-value", "out of range"),
        (GOOD | {"runtime": "5"}, "trace-value", "not a duration"),
        (GOOD | {"runtime": 1e300}, "trace-value", "out of range"),
        ('{"submit":0,"runtime":1e999,"gpus":1,"account":"a"}\n', "trace-value", "not a duration"),
        (GOOD | {"gpus": 0}, "trace-value", "gpus"),
        (GOOD | {"gpus": 1.0}, "trace-value", "gpus"),
        (GOOD | {"gpus": True}, "trace-value", "gpus"),
        (GOOD | {"gpus": 12, "per_node": 8}, "trace-value", "do not divide"),
        (GOOD | {"account": ""}, "trace-value", "account"),
        (GOOD | {"account": "a\u001b[2J"}, "trace-value", "printable"),
        (GOOD | {"resumable": "yes"}, "trace-value", "true or false"),
        (GOOD | {"kind": "service"}, "trace-value", "batch, interactive"),
        (GOOD | {"min_runtime": -1}, "trace-value", "min_runtime"),
        ({"event": "party"}, "trace-event", "unknown event"),
        ({"event": "capacity", "at": 0, "node": "n"}, "trace-field", "gpus is missing"),
        ({"event": "capacity", "at": 0, "node": "n", "gpus": -1}, "trace-value", "gpus"),
        (
            {"event": "capacity", "at": 0, "node": "n", "gpus": 1, "state": "sick"},
            "trace-value",
            "up, draining",
        ),
    ],
)
def test_a_malformed_row_is_named_with_its_line_and_can_be_left_out(row, code, says):
    data = lines(GOOD, row, GOOD)
    with pytest.raises(InputError) as caught:
        divvy(data)
    (fault,) = caught.value.faults
    assert (fault.code, fault.path) == (code, "t.jsonl:2")
    assert says in str(fault)
    trace = divvy(data, OnError.SKIP)
    assert [job.id for job in trace.jobs] == ["d1", "d3"]
    assert trace.skipped == (fault,)


def test_all_faults_of_a_row_are_reported_together():
    with pytest.raises(InputError) as caught:
        divvy(lines({"submit": "x", "gpus": 0}))
    assert [fault.code for fault in caught.value.faults] == [
        "trace-field",
        "trace-field",
        "trace-value",
        "trace-value",
    ]


def test_an_id_may_be_used_once():
    with pytest.raises(InputError, match="malformed") as caught:
        divvy(lines(GOOD | {"id": "x"}, GOOD, GOOD | {"id": "x"}))
    assert "was used in line 1" in caught.value.faults[0].message


def test_a_given_id_cannot_hide_a_drawn_one():
    with pytest.raises(InputError):
        divvy(lines(GOOD | {"id": "d2"}, GOOD))


def test_blank_lines_a_byte_order_mark_and_carriage_returns_do_no_harm():
    data = b"\xef\xbb\xbf" + lines(GOOD, "\n", "   \n", GOOD).replace(b"\n", b"\r\n")
    assert len(divvy(data).jobs) == 2


def test_rows_out_of_order_are_sorted_and_noted():
    trace = divvy(lines(GOOD | {"submit": 9}, GOOD | {"submit": 4}, GOOD | {"submit": 4}))
    assert [(job.id, job.submit) for job in trace.jobs] == [("d2", 0), ("d3", 0), ("d1", 5_000)]
    assert "1 rows are earlier" in trace.notes[0]
