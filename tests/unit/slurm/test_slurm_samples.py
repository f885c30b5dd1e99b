"""Every recorded sample: what is in it, how many GPUs that are, and why."""

from __future__ import annotations

import pytest

from divvy.adapters.slurm.accounting.clock import Clock
from divvy.adapters.slurm.accounting.read import Form, read_accounting
from divvy.errors import InputError
from slurm_samples import path

# file: jobs, GPUs of all jobs, nodes, GPUs of all nodes, rows not understood, why
SAMPLES = {
    "sacct_simple_mixed.txt": (4, 0, 0, 0, 0, "CPU jobs; names with the separator before the last column"),
    "sacct_lines_states_from_parser_tests.txt": (10, 0, 0, 0, 0, "no header: id, name, state, exit code"),
    "sacct_xdmod_accounting-logs.txt": (4, 2, 0, 0, 0, "AllocTRES gres/gpu=2 of the last, which ran 0 s"),
    "sacct_xdmod_accounting-logs-with-job-arrays.txt": (6, 0, 0, 0, 0, "CPU arrays, ranges in ids"),
    "sacct_xdmod_non-ended-job-state.txt": (2, 0, 0, 0, 0, "a run whose End is its Start, one that waits"),
    "sacct_xdmod_unknown-job-state.txt": (0, 0, 0, 0, 2, "FOO and BAR are no states of Slurm"),
    "sacct_xdmod_phillips_gpu_first200.txt": (200, 2, 0, 0, 0, "one job: AllocTRES 2, none in ReqTRES"),
    "json_25.05_slurmdb-job-gpus-completed.txt": (1, 6, 0, 0, 0, "TRES keep no GPU: sbatch --gpus 6"),
    "json_25.05_slurmdb-job-gpus-pending.txt": (1, 6, 0, 0, 0, "TRES keep no GPU: sbatch --gpus 6"),
    "json_25.05_slurmdb-job-timeout.txt": (1, 0, 0, 0, 0, "a CPU job"),
    "json_25.05_slurm-job-gpus-completed.txt": (
        1,
        6,
        0,
        0,
        0,
        "tres_per_job gres/gpu:6, none in tres_alloc_str",
    ),
    "json_25.05_slurm-job-gpus-pending.txt": (1, 6, 0, 0, 0, "tres_per_job gres/gpu:6"),
    "json_25.05_slurm-node-with-gpus-model-allocated.txt": (0, 0, 1, 6, 0, "2 H100 and 4 H200, none in tres"),
    "sinfo_json_21.08.txt": (0, 0, 4, 0, 0, "nodes without GPUs"),
    "squeue_json_21.08.txt": (2, 0, 0, 0, 0, "CPU jobs, plain and {set, infinite, number} mixed"),
    "squeue_jsonlines_reasons.txt": (6, 0, 0, 0, 2, "lines of JSON of which two hold xx for a number"),
    "squeue_job_arrays.txt": (18, 0, 0, 0, 0, "listings that tell no GPUs"),
    "squeue_O_tres_alloc.txt": (0, 0, 0, 0, 2, "TRES without the ids of their jobs, one of them cut off"),
    "scontrol_job_oneline_pending_gpu_h100.txt": (2, 5, 0, 0, 0, "4 typed and untyped, once; and 1"),
    "scontrol_show_job_gpu_l40s_pitt.txt": (1, 1, 0, 0, 0, "TRES of before 23.11"),
    "scontrol_show_job_gpu_mila.txt": (1, 1, 0, 0, 0, "AllocTRES 1; TresPerNode tells it again"),
    "scontrol_show_job_pending_qos_unknown_times.txt": (1, 0, 0, 0, 0, "20 nodes, no GPU"),
    "scontrol_show_node_a100_allocated.txt": (0, 0, 1, 4, 0, "Gres 4; CfgTRES tells it twice more"),
    "scontrol_show_nodes_gpu_mixed_empty_alloctres.txt": (0, 0, 3, 24, 0, "8 each, one of them untyped"),
    "sinfo_gres_used_idx_osc_first60.txt": (0, 0, 9, 36, 0, "9 nodes of 4, each told once per partition"),
    "scontrol_show_partition_owens.txt": (
        0,
        0,
        0,
        0,
        15,
        "partitions share nodes; their GPUs are not summed",
    ),
    "gres_tresusage_and_gresused_shards.txt": (0, 0, 0, 0, 4, "listings without the ids of jobs"),
}
REFUSED = (
    "json_25.05_slurm-qos.txt",
    "json_25.05_slurm-reservations.txt",
    "json_25.05_slurmdb-associations.txt",
    "sdiag_json_24.05.txt",
)


def read(*names):
    with_bytes = [(name, path(name).open("rb")) for name in names]
    try:
        return read_accounting(with_bytes, Form.AUTO, Clock("UTC"))
    finally:
        for _, file in with_bytes:
            file.close()


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_is_counted_right(name):
    jobs, gpus, nodes, of_nodes, skipped, why = SAMPLES[name]
    found = read(name)
    tally = found.tally
    assert (tally.jobs, sum(found.jobs.numbers["gpus"])) == (jobs, gpus), why
    assert (len(found.nodes), sum(node.gpus for node in found.nodes)) == (nodes, of_nodes), why
    assert tally.skipped == skipped, why
    assert tally.read == tally.jobs + tally.steps + tally.nodes + tally.duplicates + tally.skipped
    told = [
        w
        for w in found.warnings
        if w.code in ("state-unknown", "row-unreadable", "column-missing", "record-unused")
    ]
    assert len(told) == skipped and all(w.line > 0 for w in told)


@pytest.mark.parametrize("name", REFUSED)
def test_a_sample_without_jobs_and_nodes_is_refused(name):
    with pytest.raises(InputError, match='no list "jobs", "nodes" or "sinfo"'):
        read(name)


def test_models_come_with_the_counts():
    node = read("json_25.05_slurm-node-with-gpus-model-allocated.txt").nodes[0]
    assert (node.gpu_model, node.in_service) == ("h100+h200", True)
    jobs = read("scontrol_job_oneline_pending_gpu_h100.txt").jobs
    assert [jobs.text("gpu_model", n) for n in range(2)] == ["h100", ""]


def test_running_and_waiting_rows_have_no_end():
    jobs = read("sacct_xdmod_non-ended-job-state.txt").jobs
    assert list(jobs.numbers["end"]) == [-1, -1]
    assert jobs.numbers["seen"][0] - jobs.numbers["start"][0] == (22 * 3600 + 32 * 60 + 22) * 1000
    assert jobs.numbers["start"][1] == -1


def test_names_with_separators_are_put_back_together():
    jobs = read("sacct_simple_mixed.txt").jobs
    assert [jobs.text("name", n) for n in range(4)] == [
        "job_00001",
        "job_0||0002",
        "job_0|0003",
        "job_|00004",
    ]


def test_all_samples_in_one_go():
    names = [name for name in SAMPLES if name != "squeue_job_arrays.txt"]
    found = read(*names)
    assert sum(node.gpus for node in found.nodes) == sum(SAMPLES[name][3] for name in names)
    assert {w.file for w in found.warnings} <= set(range(len(names)))
