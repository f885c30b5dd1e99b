"""Every foreign format: small files made by hand from its published schema, and the samples where they are."""

import csv
from pathlib import Path

import pytest

from divvy.errors import InputError
from divvy.sim.traces import FORMATS, read_trace
from divvy.sim.traces.trace import OnError

DATA = Path(__file__).parents[3] / "shared" / "data" / "traces"

SWF = b"""; Version: 2
; UnixStartTime: 1000000000
; MaxProcs: 64
1 0 5 100 8 -1 -1 8 200 -1 1 3 1 -1 2 -1 -1 -1
2 10 0 50.5 4 -1 -1 -1 -1 -1 0 4 -1 -1 7 -1 -1 -1
3 20 0 300 2 -1 -1 2 200 -1 1 3 1 -1 2 -1 -1 -1
4 30 -1 -1 -1 -1 -1 4 100 -1 5 3 1 -1 2 -1 -1 -1
5 40 0 10 1 -1 -1 1 100 -1 2 3 1 -1 2 -1 -1 -1
"""
HELIOS = b"""job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
1425511,uXBbc,vcJkd,1,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-10 04:55:09,36848,0
1425512,uVMrF,vchbv,4,16,1,FAILED,2020-06-09 18:41:27,2020-06-09 18:41:27,2020-06-09 18:45:36,249,0
1425513,uzqls,vcpDC,0,1,1,CANCELLED,2020-06-09 18:41:28,2020-06-09 18:41:28,2020-06-17 14:15:21,675233,0
1425514,uzqls,vcpDC,2,1,1,CANCELLED,2020-06-09 18:41:29,,,0,0
"""
ACME = b"""job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time
5778432,u5907,1,8,128,Other,FAILED,2023-03-01 00:18:22+08:00,2023-03-01 00:18:54+08:00,2023-03-01 00:20:51+08:00,117,32,936.0
5778469,u5907,1,8.0,128,Pretrain,COMPLETED,2023-02-28 16:23:58+00:00,2023-03-01 00:24:11+08:00,2023-03-01 01:09:04+08:00,2693,13,21544.0
5778470,u1,1,0,128,Other,COMPLETED,2023-03-01 00:24:00+08:00,,,10,13,0
"""
KALOS = b"""job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,submit_time,start_time,end_time,fail_time,stop_time,duration,queue,gpu_time
dlctk696s0jbvitv,uf794,8,64,960,1000,100.0,Other,FAILED,2023-05-17 11:00:58+00:00,2023-05-17 11:01:08+00:00,2023-05-17 11:01:16+00:00,2023-05-17 11:01:16+00:00,,18,10.0,1152.0
"""
PAI = b"""4f057009a5d481acec67b088,tensorflow,1.0,Terminated,1739162.0,1739200.0,600.0,29.296875,50.0,MISC
job2,ps,2.0,Terminated,1739200.0,1739400.0,600.0,29.3,,
job2,worker,3.0,Failed,1739210.0,1739500.0,600.0,29.3,100.0,V100
job2,evaluator,1.0,Terminated,1739220.0,1739600.0,600.0,29.3,50.0,V100
job3,worker,1.0,Running,1739220.0,,600.0,29.3,100.0,V100
"""
PAI_JOINED = b"""user,job_name,inst_num,status,start_time,end_time,plan_gpu
ada,j1,2,Terminated,10,20,100
bob,j2,1,Terminated,12,30,25
"""
TIRESIAS = b"""job_id,num_gpu,submit_time,iterations,model_name,duration,interval
0,1,0,606,vgg19,164,30
1,8,30,133,vgg11,147,23
"""
ELASTICFLOW = b"""job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration
0,3715485,2011,cifar10,3719996,4096,1,5644
1,3717550,1548,ncf,3717583,32768,8,66
"""
FILES = {
    "swf": SWF,
    "helios": HELIOS,
    "acme": ACME,
    "pai": PAI,
    "tiresias": TIRESIAS,
    "elasticflow": ELASTICFLOW,
}


def jobs_of(data, name="auto", on_error=OnError.FAIL):
    trace = read_trace(data, name, "t", on_error)
    return {job.id: job for job in trace.jobs}, trace


@pytest.mark.parametrize(("name", "data"), [*FILES.items(), ("acme", KALOS), ("pai", PAI_JOINED)])
def test_a_format_is_known_by_its_first_line(name, data):
    assert read_trace(data, "auto", "t") == read_trace(data, name, "t")


def test_swf():
    jobs, trace = jobs_of(SWF)
    one, two, three = (jobs[name] for name in ("s1", "s2", "s3"))
    assert (one.submit, one.runtime, one.gpus, one.account, one.author) == (0, 100_000, 8, "group1", "user3")
    assert one.time_limit == 200_000
    assert (two.submit, two.runtime, two.gpus, two.account) == (10_000, 50_500, 4, "queue7")
    assert two.time_limit is None
    assert three.time_limit == 300_000
    assert len(jobs) == 3
    assert trace.origin == "2001-09-09 01:46:40"
    notes = "; ".join(trace.notes)
    assert "1 jobs ran longer than they asked for" in notes
    assert "1 row left out: it never ran (first: line 7)" in notes
    assert "1 row left out: a part of a job that has its own line (first: line 8)" in notes


def test_helios():
    jobs, trace = jobs_of(HELIOS)
    assert list(jobs) == ["1425511", "1425512"]
    second = jobs["1425512"]
    assert (second.submit, second.runtime, second.gpus) == (26_000, 249_000, 4)
    assert (second.account, second.author) == ("vchbv", "uVMrF")
    assert "1 row left out: no GPU (first: line 4)" in trace.notes
    assert "1 row left out: it never ran (first: line 5)" in trace.notes


def test_acme_reads_zones():
    jobs, trace = jobs_of(ACME)
    assert [(job.submit, job.gpus, job.account) for job in jobs.values()] == [
        (0, 8, "Other"),
        (336_000, 8, "Pretrain"),
    ]
    assert trace.origin == "2023-02-28 16:18:22"
    assert "charged to their type of work" in trace.notes[0]
    job = jobs_of(KALOS)[0]["dlctk696s0jbvitv"]
    assert (job.runtime, job.gpus) == (18_000, 64)


def test_pai_sums_the_tasks_of_a_job():
    jobs, trace = jobs_of(PAI)
    one, two = jobs["4f057009a5d481acec67b088"], jobs["job2"]
    assert (one.submit, one.runtime, one.gpus, one.account) == (0, 38_000, 1, "MISC")
    assert (two.submit, two.runtime, two.gpus, two.account) == (48_000, 390_000, 4, "V100")
    assert "2 jobs ask for parts of a GPU" in trace.notes[0]
    assert any("it has not ended" in note for note in trace.notes)
    joined = jobs_of(PAI_JOINED)[0]
    assert [(job.account, job.author, job.gpus) for job in joined.values()] == [
        ("ada", "ada", 2),
        ("bob", "bob", 1),
    ]


def test_tiresias_and_elasticflow():
    jobs, trace = jobs_of(TIRESIAS)
    assert [(j.id, j.submit, j.runtime, j.gpus, j.account) for j in jobs.values()] == [
        ("t0", 0, 164_000, 1, "vgg19"),
        ("t1", 30_000, 147_000, 8, "vgg11"),
    ]
    assert "charged to their model_name" in trace.notes[0]
    jobs, trace = jobs_of(ELASTICFLOW)
    assert jobs["e1"].submit == 2_065_000
    assert trace.origin == "3.71548e+06 s"


BAD = [
    ("swf", b"6 50 0 10 1 -1 -1 1", "trace-fields"),
    ("swf", b"6 50 0 ten 1 -1 -1 1 100 -1 1 3 1 -1 2 -1 -1 -1", "trace-number"),
    ("swf", b"6 50 0 nan 1 -1 -1 1 100 -1 1 3 1 -1 2 -1 -1 -1", "trace-number"),
    ("swf", b"6 50 0 -7 1 -1 -1 1 100 -1 1 3 1 -1 2 -1 -1 -1", "trace-number"),
    ("swf", b"6 -1 0 10 1 -1 -1 1 100 -1 1 3 1 -1 2 -1 -1 -1", "trace-number"),
    ("swf", b"6 50 0 10 9999999 -1 -1 9999999 100 -1 1 3 1 -1 2 -1 -1 -1", "trace-gpus"),
    ("swf", b"1 50 0 10 1 -1 -1 1 100 -1 1 3 1 -1 2 -1 -1 -1", "trace-duplicate"),
    ("helios", b"9,u,vc,1,1,1,COMPLETED,2020-06-31 18:41:01,,,5,0", "trace-time"),
    ("helios", b"9,u,vc,1,1,1,COMPLETED,2020-06-09 18:41:01,,,-5,0", "trace-number"),
    ("helios", b"9,u,vc,1.5,1,1,COMPLETED,2020-06-09 18:41:01,,,5,0", "trace-gpus"),
    ("helios", b"9,u,,1,1,1,COMPLETED,2020-06-09 18:41:01,,,5,0", "trace-account"),
    ("helios", b"9,u,vc,1,1,1,COMPLETED,2020-06-09 18:41:01,,,5", "trace-fields"),
    ("helios", b"1425511,u,vc,1,1,1,COMPLETED,2020-06-09 18:41:01,,,5,0", "trace-duplicate"),
    ("acme", b"9,u,1,8,1,Other,FAILED,2023-03-01 00:18:22+08:00,,,117,32,935000.0", "trace-product"),
    ("acme", b"9,u,1,8,1,Other,FAILED,2023-03-01 00:18:22+8,,,117,32,936.0", "trace-time"),
    ("acme", b"9,u,1,-8,1,Other,FAILED,2023-03-01 00:18:22+08:00,,,117,32,936.0", "trace-gpus"),
    ("acme", b"9,u,1,8,1,Other,FAILED,2023-03-01 00:18:22+08:00,,,117,32,inf", "trace-number"),
    ("pai", b"j,worker,1.0,Terminated,200,100,600.0,29.3,100.0,V100", "trace-time"),
    ("pai", b"j,worker,0.0,Terminated,100,200,600.0,29.3,100.0,V100", "trace-number"),
    ("pai", b"j,worker,1.0,Happy,100,200,600.0,29.3,100.0,V100", "trace-state"),
    ("pai", b"j,worker,1.0,Terminated,100,200,600.0,29.3,-100.0,V100", "trace-number"),
    ("pai", b"j,worker,1e9,Terminated,100,200,600.0,29.3,100.0,V100", "trace-gpus"),
    ("pai", b"j,worker,1.0,Terminated", "trace-fields"),
    ("tiresias", b"0,1,5,606,vgg19,164,30", "trace-duplicate"),
    ("tiresias", b"7,1,5,606,vgg19,0,30", "trace-number"),
    ("tiresias", b"7,0,5,606,vgg19,10,30", "trace-gpus"),
    ("tiresias", b"7,1,-5,606,vgg19,10,30", "trace-number"),
    ("tiresias", b"7,1,5,606,,10,30", "trace-account"),
    ("elasticflow", b"7,5,1548,ncf,3717583,32768,8", "trace-fields"),
    ("elasticflow", b"7,5,1548,ncf,3717583,32768,eight,66", "trace-gpus"),
    ("elasticflow", b"7,5,1548,nc\xe9f,3717583,32768,8,66", "trace-encoding"),
    ("tiresias", b"7,1,5,606,v\0gg,10,30", "trace-nul"),
]


@pytest.mark.parametrize(("name", "row", "code"), BAD)
def test_a_malformed_row_is_named_with_its_line_and_can_be_left_out(name, row, code):
    data = FILES[name] + row + b"\n"
    line = len(data.splitlines())
    with pytest.raises(InputError) as caught:
        read_trace(data, name, "t")
    assert code in {fault.code for fault in caught.value.faults}
    assert {fault.path for fault in caught.value.faults} == {f"t:{line}"}
    kept = read_trace(data, name, "t", OnError.SKIP)
    assert kept.jobs == read_trace(FILES[name], name, "t").jobs
    assert code in {fault.code for fault in kept.skipped}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    "data", [b"", b"\n\n", b"a,b,c\n1,2,3\n", b"\xff\xfea\0", b"\x89PNG\r\n", b"<html>\n"]
)
def test_what_is_no_trace_is_refused_without_a_traceback(name, data):
    for form in (name, "auto"):
        with pytest.raises(InputError):
            read_trace(data, form, "t", OnError.SKIP)


def test_a_first_line_that_looks_like_nothing_lists_the_formats():
    with pytest.raises(InputError) as caught:
        read_trace(b"ip,DSW,PSW\n1,2,3\n", "auto", "topo.csv")
    assert caught.value.code == "trace-format"
    assert caught.value.faults[0].allowed == ", ".join(FORMATS)


def test_a_byte_order_mark_and_carriage_returns_are_taken_off():
    for name, data in FILES.items():
        assert read_trace(b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n"), "auto", "t") == read_trace(
            data, name, "t"
        )


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("tiresias/60_job.csv", "tiresias"),
        ("elasticflow/elasticVpollux_e.csv", "elasticflow"),
        ("elasticflow/philly_103959.csv", "elasticflow"),
    ],
)
def test_the_published_samples(path, name):
    file = DATA / path
    if not file.is_file():
        pytest.skip(f"{file} is not here")
    rows = list(csv.DictReader(file.read_text().splitlines()))
    trace = read_trace(file.read_bytes(), "auto", path)
    assert trace == read_trace(file.read_bytes(), name, path)
    assert len(trace.jobs) == len(rows)
    assert sum(job.gpus for job in trace.jobs) == sum(int(row["num_gpu"]) for row in rows)
    seconds = sum(float(row["num_gpu"]) * float(row["duration"]) for row in rows)
    assert sum(trace.gpu_time().values()) == round(seconds * 1000)
    assert not trace.skipped


def test_a_published_sample_with_an_id_twice_is_malformed_there():
    file = DATA / "tiresias" / "tf_job.csv"
    if not file.is_file():
        pytest.skip(f"{file} is not here")
    with pytest.raises(InputError) as caught:
        read_trace(file.read_bytes(), "tiresias", "tf_job.csv")
    assert [fault.path for fault in caught.value.faults] == ["tf_job.csv:3"]
    assert len(read_trace(file.read_bytes(), "tiresias", "tf_job.csv", OnError.SKIP).jobs) == 1
