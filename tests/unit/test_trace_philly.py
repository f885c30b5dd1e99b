import pytest

from divvy.errors import InputError
from divvy.sim.traces import FORMATS, read_trace
from divvy.sim.traces.trace import OnError

HEADER = b"timestamp,duration,num_gpus,gpu_time,cluster\n"
GOOD = b"2017-09-04 10:30:41,100.0,8,800.0,aaa\n"


def philly(data, on_error=OnError.FAIL):
    return read_trace(data, "philly", "t.csv", on_error)


def faults(data):
    with pytest.raises(InputError) as caught:
        philly(data)
    return [(fault.code, fault.path) for fault in caught.value.faults]


def test_rows_become_jobs_relative_to_the_first_submission():
    trace = philly(HEADER + GOOD + b"2017-09-04 10:31:41,1.5,1,1.5,bbb\n")
    first, second = trace.jobs
    assert (first.id, first.submit, first.runtime, first.gpus, first.account) == ("p2", 0, 100_000, 8, "aaa")
    assert (second.id, second.submit, second.runtime, second.gpus) == ("p3", 60_000, 1_500, 1)
    assert first.author is None and first.min_runtime is None
    assert trace.origin == "2017-09-04 10:30:41"
    assert not trace.notes and not trace.skipped


def test_columns_are_found_by_name_and_extra_ones_do_no_harm():
    data = b"cluster,extra,timestamp,num_gpus,gpu_time,duration\nvc,x,2017-09-04 00:00:00,2,20,10\n"
    assert philly(data).jobs[0].gpus == 2


def test_a_byte_order_mark_and_carriage_returns_are_taken_off():
    trace = philly(b"\xef\xbb\xbf" + (HEADER + GOOD).replace(b"\n", b"\r\n"))
    assert trace.jobs[0].account == "aaa"


def test_quoted_fields_are_read():
    assert philly(HEADER + b'"2017-09-04 10:30:41","100.0",8,800.0,"a,b"\n').jobs[0].account == "a,b"


@pytest.mark.parametrize(
    ("row", "code"),
    [
        (b"2017-09-04 10:30:41,100.0,8,800.0", "trace-fields"),
        (b"2017-09-04 10:30:41,100.0,8,800.0,aaa,more", "trace-fields"),
        (b"yesterday,100.0,8,800.0,aaa", "trace-time"),
        (b"2017-02-30 10:30:41,100.0,8,800.0,aaa", "trace-time"),
        (b"2017-09-04 10:30,100.0,8,800.0,aaa", "trace-time"),
        (b"2017-09-04 10:30:41,-100.0,8,-800.0,aaa", "trace-number"),
        (b"2017-09-04 10:30:41,0,8,0,aaa", "trace-number"),
        (b"2017-09-04 10:30:41,nan,8,800.0,aaa", "trace-number"),
        (b"2017-09-04 10:30:41,inf,8,inf,aaa", "trace-number"),
        (b"2017-09-04 10:30:41,1e300,8,8e300,aaa", "trace-number"),
        (b"2017-09-04 10:30:41,ten,8,80,aaa", "trace-number"),
        (b"2017-09-04 10:30:41,100.0,0,0.0,aaa", "trace-gpus"),
        (b"2017-09-04 10:30:41,100.0,-8,800.0,aaa", "trace-gpus"),
        (b"2017-09-04 10:30:41,100.0,1.5,150.0,aaa", "trace-gpus"),
        (b"2017-09-04 10:30:41,100.0,99999999,9999999900,aaa", "trace-gpus"),
        (b"2017-09-04 10:30:41,100.0,8,100.0,aaa", "trace-product"),
        (b"2017-09-04 10:30:41,100.0,8,800.0,", "trace-account"),
        (b"2017-09-04 10:30:41,100.0,8,800.0,a\0a", "trace-nul"),
        (b"2017-09-04 10:30:41,100.0,8,800.0,caf\xe9", "trace-encoding"),
    ],
)
def test_a_malformed_row_is_named_with_its_line_and_can_be_left_out(row, code):
    data = HEADER + GOOD + row + b"\n" + GOOD
    with pytest.raises(InputError) as caught:
        philly(data)
    assert code in {fault.code for fault in caught.value.faults}
    assert {fault.path for fault in caught.value.faults} == {"t.csv:3"}
    trace = philly(data, OnError.SKIP)
    assert [job.id for job in trace.jobs] == ["p2", "p4"]
    assert code in {fault.code for fault in trace.skipped}


def test_all_malformed_rows_are_reported_at_once():
    assert faults(HEADER + b"x,1,1,1,a\n" + GOOD + b"y,1,1,1,a\n") == [
        ("trace-time", "t.csv:2"),
        ("trace-time", "t.csv:4"),
    ]


def test_a_file_of_nothing_but_malformed_rows_does_not_drown_the_terminal():
    found = faults(HEADER + b"x,1,1,1,a\n" * 5000)
    assert len(found) == 101
    assert found[-1] == ("trace-rows", "t.csv")


def test_a_cut_off_last_row_is_a_fault_or_at_least_a_note():
    assert faults(HEADER + GOOD + GOOD[:20]) == [("trace-fields", "t.csv:3")]
    assert "does not end with a newline" in philly(HEADER + GOOD + GOOD[:-2]).notes[0]


def test_rows_out_of_order_are_sorted_and_noted():
    trace = philly(HEADER + GOOD + b"2017-09-04 10:30:01,5,1,5,b\n")
    assert [job.id for job in trace.jobs] == ["p3", "p2"]
    assert [job.submit for job in trace.jobs] == [0, 40_000]
    assert "line 3" in trace.notes[0]


def test_repeated_rows_are_kept_and_noted():
    trace = philly(HEADER + GOOD + GOOD)
    assert len(trace.jobs) == 2
    assert "1 rows repeat" in trace.notes[0]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "trace-empty"),
        (b"\n\n", "trace-empty"),
        (HEADER, "trace-empty"),
        (b"timestamp,duration,num_gpus,cluster\n" + GOOD, "trace-header"),
        (b"timestamp,duration,duration,num_gpus,gpu_time,cluster\n", "trace-header"),
        (GOOD, "trace-header"),
        ((HEADER + GOOD).decode().encode("utf-16"), "trace-encoding"),
        ((HEADER + GOOD).decode().encode("utf-32"), "trace-encoding"),
    ],
)
def test_a_file_that_is_no_trace_is_refused_even_when_rows_may_be_skipped(data, code):
    with pytest.raises(InputError) as caught:
        philly(data, OnError.SKIP)
    assert caught.value.code == code


def test_an_unknown_format_lists_the_known_ones():
    with pytest.raises(InputError, match="unknown trace format") as caught:
        read_trace(HEADER, "excel", "t.xls")
    assert caught.value.faults[0].allowed == ", ".join((*FORMATS, "auto"))
