"""GPUs in TRES and GRES texts: what is right, and why."""

from __future__ import annotations

import json

import pytest

from divvy.adapters.slurm.hostlist import count, expand
from divvy.adapters.slurm.tres import (
    MIG,
    ONLY_IDS,
    SHARDS,
    TRUNCATED,
    Request,
    count_entries,
    count_gpus,
    of_request,
)
from slurm_samples import sample

RIGHT = [
    ("", 0, "", "nothing is no GPU"),
    ("(null)", 0, "", "scontrol's nothing"),
    ("N/A", 0, "", "squeue %b of a job that asked by --gpus"),
    ("billing=10,cpu=10,gres/gpu=4,mem=374000M,node=2", 4, "", "AllocTRES is of the job, not per node"),
    ("gres/gpu=4,gres/gpu:a100=4", 4, "a100", "said twice, counted once (as 8 in a reported bug)"),
    ("gres/gpu:a100=4", 4, "a100", "typed only"),
    ("gres/gpu=4,gres/gpu:a100=2", 4, "a100", "two of the four have no type"),
    ("gres/gpu=6,gres/gpu:a100=4,gres/gpu:v100=2", 6, "a100+v100", "two types, one sum"),
    ("gres/gpu:a100=4,gres/gpu:v100=2", 6, "a100+v100", "two types without a sum"),
    ("GRES/GPU=2", 2, "", "case does not matter"),
    ("billing=400,cpu=4,gres/gpumem=80G,gres/gpuutil=97", 0, "", "billing, memory and use are no GPUs"),
    ("gres/shard=8", 0, "", "shards are parts of unknown size"),
    ("gres/gpu=1,gres/shard=8", 1, "", "a GPU and shards of another"),
    ("gres/gpu=2,gres/gpu:a100_1g.5gb=2", 2, "a100_1g.5gb", "MIG instances, each a GPU to Slurm"),
    ("license/gpu=5,fs/gpu=3,cpu=1", 0, "", "not GPUs, whatever their names"),
    ("gpu:a100:4(S:0-3),nsight:no_consume:1,vis:no_consume:1", 4, "a100", "GRES of a node with sockets"),
    ("gpu:h100:2(IDX:0-1),gpu:h200:4(IDX:2-5)", 6, "h100+h200", "GRES in use, with indices"),
    ("gpu:a100:3(IDX:0,2-3),tmp:0", 3, "a100", "a comma inside the indices"),
    ("gpu:tesla:2,gpu:tesla:2", 4, "tesla", "GRES lists add up"),
    ("gpu:8", 8, "", "untyped"),
    ("gpu", 1, "", "no number is one"),
    ("gpu:a100", 1, "a100", "a type without a number is one"),
    ("gres:gpu:2", 2, "", "tres_per_node up to 23.02"),
    ("gres/gpu:rtx8000:1", 1, "rtx8000", "TresPerNode of 23.11"),
    ("gres/gpu:6", 6, "", "tres_per_job of 25.05"),
    ("gpu:4,shard:20", 4, "", "a node whose GPUs are shared"),
    ("gpu:1(IDX:0),shard:8(-/5,5/5,3/5,0/5)", 1, "", "GresUsed with shards, from Slurm's documentation"),
    ("gpu:0(IDX:N/A)", 0, "", "an idle node"),
]


@pytest.mark.parametrize(("text", "gpus", "model", "why"), RIGHT, ids=[case[3] for case in RIGHT])
def test_gpus_are_counted_right(text, gpus, model, why):
    found = count_gpus(text)
    assert (found.total, found.model) == (gpus, model), why


def test_the_cases_of_another_parser_are_counted_right():
    for text, gpus in json.loads(sample("alloctres_gpu_count_cases.txt").split("\n", 1)[1]):
        assert count_gpus(text).total == gpus, text


def test_what_is_doubtful_is_noted():
    assert count_gpus("gres/shard=8").notes == (SHARDS,) and count_gpus("gres/shard=8").shards == 8
    assert count_gpus("gres/gpu:1g.10gb=3").notes == (MIG,)
    assert count_gpus("1=4,2=8000,4=1,1001=2").notes == (ONLY_IDS,), "the tables of the database"
    assert count_gpus("cpu=120,mem=515456M,").notes == (TRUNCATED,), "squeue -O cuts at 20 letters"


@pytest.mark.parametrize(
    "text",
    [
        "gres/gpu=-1",
        "gres/gpu=x",
        "gres/gpu=",
        "gres/gpu=1.5",
        "gres/gpu=18446744073709551614",
        "gres/gpu=NaN",
    ],
)
def test_what_is_no_number_of_gpus_is_refused(text):
    with pytest.raises(ValueError, match="not a number of GPUs"):
        count_gpus(text)


def test_json_entries_are_the_same_texts():
    entries = [
        {"type": "cpu", "name": None, "id": 1, "count": 8},
        {"type": "gres", "name": "gpu", "id": 1001, "count": 4},
        {"type": "gres", "name": "gpu:a100", "id": 1002, "count": 4},
        {"type": "energy", "name": "", "id": 3, "count": -2},
    ]
    found = count_entries(entries)
    assert (found.total, found.model) == (4, "a100")


def test_requests_are_multiplied_with_what_they_are_per():
    assert of_request(Request(per_node="gres:gpu:2", nodes=3)).total == 6
    assert of_request(Request(per_task="gres/gpu:1", tasks=8, nodes=2)).total == 8
    assert of_request(Request(per_socket="gres/gpu:a100:1", sockets=2, nodes=2)).total == 4
    assert of_request(Request(per_job="gres/gpu:6", per_node="gres/gpu:4", nodes=2)).total == 6
    assert of_request(Request(per_node="gres/gpu:4", nodes=0)).total == 4
    assert of_request(Request()).total == 0


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("None assigned", ()),
        ("(null)", ()),
        ("gpu1", ("gpu1",)),
        ("b[002-003]", ("b002", "b003")),
        ("d13n[03,05,07-08]", ("d13n03", "d13n05", "d13n07", "d13n08")),
        ("a-[1-2]-[01-02],b", ("a-1-01", "a-1-02", "a-2-01", "a-2-02", "b")),
        ("n[9-11]", ("n9", "n10", "n11")),
        ("r[1-2]n[1-2]", ("r1n1", "r1n2", "r2n1", "r2n2")),
    ],
)
def test_lists_of_nodes_are_expanded(text, nodes):
    assert expand(text) == nodes
    assert count(text) == len(nodes)


@pytest.mark.parametrize(
    "text", ["a[1-", "a[2-1]", "a[x]", "a,,b", "a]1[", "a[[1]]", "a[1-999999999]", "two words"]
)
def test_what_is_no_list_of_nodes_is_refused(text):
    with pytest.raises(ValueError, match=r"node|numbers|backwards"):
        expand(text)
