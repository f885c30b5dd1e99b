"""Time and memory of an audit of a million rows, and of files that are hard to read."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple, TextIO

from divvy.cli.bench_row import Row, figure, median

ROWS: Final = 1_000_000
_QUICK_ROWS: Final = 50_000
_REPEATS: Final = 3
COLUMNS: Final = (
    "JobID|JobIDRaw|Cluster|Partition|QOS|Account|Group|User|UID|Submit|Eligible|Start|End|Elapsed|State|ExitCode"
    "|NNodes|NCPUS|ReqMem|ReqTRES|AllocTRES|Timelimit|NodeList|JobName|SubmitLine|TRESUsageInTot"
)
_ACCOUNTS: Final = 40
_USERS: Final = 600
_MODELS: Final = ("a100", "h100", "l40s")
_STATES: Final = (
    "COMPLETED",
    "FAILED",
    "TIMEOUT",
    "CANCELLED by 10017",
    "PREEMPTED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
)
_WEIGHTS: Final = (62, 12, 8, 10, 5, 1, 2)
_BEGIN: Final = datetime(2025, 1, 6, tzinfo=UTC)
_DAYS: Final = 120


def write_accounting(out: TextIO, rows: int, seed: int = 0) -> int:
    """Write what ``sacct --parsable2 -X`` might say of a busy cluster; return the GPUs of all jobs together.

    Of the rows 85% are jobs with GPUs, 2% have separators in their names, 1% submit lines of several lines;
    half of the last 3% wait or run. Ids, arrays and times are as Slurm writes them.
    """
    draw = random.Random(seed)  # noqa: S311 - test data, repeatable on purpose
    out.write(f"{COLUMNS}\n")
    total = 0
    for number in range(rows):
        line, gpus = _job(draw, number, rows)
        total += gpus
        out.write(line)
    return total


def _job(draw: random.Random, number: int, rows: int) -> tuple[str, int]:
    """Return one row and its GPUs."""
    submit = _BEGIN + timedelta(seconds=number * _DAYS * 86_400 // rows)
    wait = min(int(draw.expovariate(1 / 1_800)), 7 * 86_400)
    length = min(int(draw.lognormvariate(8.2, 1.6)) + 5, 3 * 86_400)
    start, end = submit + timedelta(seconds=wait), submit + timedelta(seconds=wait + length)
    gpus = draw.choice((1, 1, 1, 2, 4, 8, 8, 16)) if draw.random() < 0.85 else 0
    nodes = max(1, gpus // 8)
    model = draw.choice(_MODELS)
    tres = f"billing={8 * max(gpus, 1)},cpu={8 * max(gpus, 1)},"
    tres += f"gres/gpu:{model}={gpus},gres/gpu={gpus}," if gpus else ""
    tres += f"mem={64 * max(gpus, 1)}G,node={nodes}"
    state = draw.choices(_STATES, _WEIGHTS)[0]
    odd = draw.random()
    name = f"train|lr=1e-{number % 7}|v{number % 13}" if odd < 0.02 else f"job_{number % 5_000}"
    command = f"sbatch --gres=gpu:{min(gpus, 8)} run_{number % 97}.sh" if gpus else "sbatch cpu.sh"
    if 0.02 <= odd < 0.03:
        command = "sbatch --wrap=set -e\npython train.py | tee log\nexit 0"
    job = f"{4_000_000 + number // 10}_{number % 10}" if number % 4 else str(4_000_000 + number // 10)
    began, ended, spent, held = _iso(start), _iso(end), _span(length), tres
    if number > 0.97 * rows and odd > 0.5:
        state, ended = ("RUNNING", "Unknown") if odd > 0.75 else ("PENDING", "Unknown")
        if state == "PENDING":
            began, spent, held = "Unknown", "00:00:00", ""
    user = number * 7919 % _USERS
    where = f"gpu[{number % 90 + 1:03d}-{number % 90 + nodes:03d}]" if held else "None assigned"
    columns = (
        f"{job}|{5_000_000 + number}|sim|{model}|normal|acc{user % _ACCOUNTS:02d}|staff|user{user:03d}",
        f"{10_000 + user}|{_iso(submit)}|{_iso(submit)}|{began}|{ended}|{spent}|{state}|0:0|{nodes}",
        f"{8 * max(gpus, 1)}|64G|{tres}|{held}|{'UNLIMITED' if number % 50 == 0 else '2-00:00:00'}",
        f"{where}|{name}|{command}|\n",
    )
    return "|".join(columns), gpus


def _iso(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S")


def _span(seconds: int) -> str:
    days, rest = divmod(seconds, 86_400)
    text = f"{rest // 3_600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    return f"{days}-{text}" if days else text


class _Run(NamedTuple):
    """One audit: wall clock and processor time in s, peak memory in MiB, and what it found."""

    wall: float
    used: float
    peak: float
    read: int
    skipped: int
    gpus: int


def rows(*, quick: bool, announce: Callable[[str], None]) -> Iterator[Row]:
    """Yield time, memory and correctness of audits of a generated file."""
    size = _QUICK_ROWS if quick else ROWS
    case = f"audit of {size:,} rows, {len(COLUMNS.split('|'))} columns, {_ACCOUNTS} accounts"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sacct.txt"
        announce(f"writing {size:,} rows")
        with path.open("w", encoding="utf-8") as out:
            gpus = write_accounting(out, size)
        runs = []
        for number in range(1 if quick else _REPEATS):
            announce(f"audit {number + 1} of {_REPEATS}")
            runs.append(_audit(path, Path(folder)))
    note = (
        f"--json --jobs, {path.name} with wrong widths, arrays and open jobs; load {os.getloadavg()[0]:.1f}"
    )
    whole = not quick
    walls, peaks = [run.wall for run in runs], [run.peak for run in runs]
    used = [run.used for run in runs]
    yield figure(case, "wall clock", median(walls), "s", n=len(runs), target=30 if whole else None, note=note)
    yield figure(case, "processor time", median(used), "s", n=len(runs), note="of the same runs")
    yield figure(case, "peak memory", max(peaks), "MiB", n=len(runs), target=2_048 if whole else None)
    yield figure(case, "rows read", runs[0].read, "rows", target=size, at_least=True)
    yield figure(case, "rows not understood", runs[0].skipped, "rows", target=0)
    yield figure(case, "GPUs counted less those written", abs(runs[0].gpus - gpus), "GPUs", target=0)


def _audit(path: Path, folder: Path) -> _Run:
    """Run the verb on a file, as people do."""
    report, jobs = folder / "report.json", folder / "jobs.jsonl"
    command = [
        sys.executable,
        "-m",
        "divvy",
        "audit",
        str(path),
        "--json",
        "--jobs",
        str(jobs),
        "--tz",
        "UTC",
    ]
    begin = time.perf_counter()
    with report.open("wb") as out:
        process = subprocess.Popen(command, stdout=out)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.perf_counter() - begin
    if process.returncode:
        raise RuntimeError(f"the audit failed with {process.returncode}")
    found = json.loads(report.read_text(encoding="utf-8"))
    with jobs.open(encoding="utf-8") as lines:
        gpus = sum(int(line.partition('"gpus": ')[2].partition(",")[0]) for line in lines)
    used = usage.ru_utime + usage.ru_stime
    return _Run(wall, used, usage.ru_maxrss / 1024, found["rows_read"], found["rows_skipped"], gpus)
