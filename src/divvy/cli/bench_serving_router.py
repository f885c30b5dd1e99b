"""The router alone: latency that it adds, requests per second on one core, what a killed back end costs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import numpy as np

from divvy.adapters.balancers.config import Target, haproxy, nginx_stub
from divvy.adapters.balancers.run import Program, find_program, free_port, haproxy_command, nginx_command
from divvy.adapters.front.config import backends_document
from divvy.adapters.lab.lab import Lab
from divvy.adapters.load.openloop import fire_now
from divvy.adapters.load.volley import Plan, infer_body
from divvy.cli.bench_row import Row, figure, median
from divvy.cli.bench_serving_contenders import Place
from divvy.cli.bench_serving_divvy import served, write_place
from divvy.cli.bench_serving_search import make_plan
from divvy.cli.bench_serving_stage import FIRST_SEED, Stage
from divvy.cli.lab_slices import make_specs

_STUBS: Final = 4
_RATE: Final = 500
_ANSWER: Final = '{"model_name":"m","outputs":[{"name":"y","datatype":"FP32","shape":[1,1],"data":[0.0]}]}'
_PATH: Final = "/v2/models/m/infer"
_CASE: Final = "stub back ends (nginx)"


def _stubs(stack: ExitStack, home: Path, prefix: tuple[str, ...] = ()) -> list[int]:
    """Start servers that answer at once, and return their ports."""
    ports = []
    for number in range(_STUBS):
        port, place = free_port(), home / f"stub{number}"
        config = nginx_stub(port, _ANSWER, str(place))
        stack.enter_context(Program(lambda path: [*prefix, *nginx_command(path)], config, place, port))
        ports.append(port)
    return ports


def _backends(home: Path, ports: list[int]) -> Path:
    profile = home / "m.csv"
    profile.write_text("model,slice,batch,latency_ms\nm,1,1,0.2\nm,1,8,1\n", encoding="utf-8")
    rows = [{"name": f"s{port}", "url": f"http://127.0.0.1:{port}", "gpcs": 1} for port in ports]
    file = home / "backends.json"
    document = backends_document("m", str(profile), 50.0, "divvy", rows)
    file.write_text(json.dumps(document), encoding="utf-8")
    return file


def added_rows(*, quick: bool) -> Iterator[Row]:
    """Yield the latency that a router adds at 500 requests a second: with it minus without it, paired."""
    rounds, count = (1, 1_000) if quick else (5, 3_000)
    seen: dict[str, list[tuple[float, float]]] = {"direct": [], "divvy serve": [], "haproxy leastconn": []}
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ports = _stubs(stack, home)
        url, _ = stack.enter_context(served(_backends(home, ports)))
        port = free_port()
        config = haproxy(port, [Target(f"s{p}", p, 1.0) for p in ports], "leastconn")
        balancer = stack.enter_context(Program(haproxy_command, config, home / "haproxy", port))
        places = {
            "direct": f"http://127.0.0.1:{ports[0]}",
            "divvy serve": url,
            "haproxy leastconn": balancer.url,
        }
        generator = np.random.Generator(np.random.PCG64(7))
        for _ in range(rounds):
            due = np.cumsum(generator.exponential(1e6 / _RATE, count)).astype(np.int64)
            plan = Plan(due, np.ones(count, np.int64), _PATH)
            for name, place in places.items():
                volley = fire_now(place, plan)
                latency = (
                    volley.latency_us - volley.late_us
                )  # the generator's own lateness is not the router's
                low, high = np.percentile(latency, (50, 99))
                seen[name].append((float(low) / 1e3, float(high) / 1e3))
    for name in ("divvy serve", "haproxy leastconn"):
        for index, (percent, target) in enumerate((("p50", 1.0), ("p99", 5.0))):
            added = [mine[index] - bare[index] for mine, bare in zip(seen[name], seen["direct"], strict=True)]
            yield figure(
                _CASE,
                f"added latency at {_RATE} requests/s, {percent}",
                median(added),
                "ms",
                contender=name,
                interval=(min(added), max(added)),
                n=len(added),
                target=target if name == "divvy serve" else None,
                note=f"rounds of {count} Poisson arrivals, from sent to answered, minus the same direct",
            )


def pinned_row(*, quick: bool) -> Row:
    """Return the requests per second of the router on one core, stubs and generator (wrk) on the other."""
    measure, seconds = "requests per second, router on one core", 3 if quick else 10
    if (os.cpu_count() or 1) < 2 or not shutil.which("taskset"):
        return figure(
            _CASE, measure, None, "requests/s", n=0, target=2_000, note="needs two cores and taskset"
        )
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ports = _stubs(stack, home, ("taskset", "-c", "1"))
        url, _ = stack.enter_context(served(_backends(home, ports), ("taskset", "-c", "0")))
        script = home / "post.lua"
        body = infer_body(1).decode()
        script.write_text(
            f"wrk.method = 'POST'\nwrk.body = '{body}'\nwrk.headers['Content-Type'] = 'application/json'\n",
            encoding="utf-8",
        )
        command = [
            "taskset",
            "-c",
            "1",
            find_program("wrk"),
            "-t1",
            "-c16",
            f"-d{seconds}s",
            "-s",
            str(script),
        ]
        runs = []
        for _ in range(1 if quick else 3):
            done = subprocess.run([*command, url + _PATH], capture_output=True, text=True, check=True)
            speed = re.search(r"Requests/sec:\s+([\d.]+)", done.stdout)
            bad = re.search(r"Non-2xx or 3xx responses: (\d+)", done.stdout)
            runs.append(float(speed[1]) if speed and not bad else 0.0)
    return figure(
        _CASE,
        measure,
        median(runs),
        "requests/s",
        interval=(min(runs), max(runs)),
        n=len(runs),
        target=2_000,
        at_least=True,
        contender="divvy serve",
        note=f"wrk, 16 connections, {seconds} s each, {_STUBS} stubs; runs with any error count 0",
    )


def kill_rows(stage: Stage, *, quick: bool) -> Iterator[Row]:
    """Yield what becomes of queries when a back end is killed at two thirds of the expected rate."""
    deployed = stage.deploy("divvy", equal=False)
    count, lost, hung, total = (80 if quick else 600), 0, 0, 0
    rounds = 1 if quick else 3
    for number in range(rounds):
        with ExitStack() as stack:
            home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            lab = stack.enter_context(Lab())
            specs = make_specs(stage.request.sku, deployed.layouts, stage.profile, largest=32)
            running = lab.start(specs, apart=True)
            url, _ = stack.enter_context(served(write_place(Place(stage, deployed, running, home))))
            rate = deployed.expected_qps * 2 / 3
            plan = make_plan(stage, rate, FIRST_SEED + number, count, whole=True)
            victim = running[-1 - number % len(running)].spec.name

            def kill(lab: Lab = lab, victim: str = victim) -> None:
                lab.stop([victim], at_once=True)

            timer = threading.Timer(count / rate / 3, kill)
            timer.start()
            volley = fire_now(url, plan, patience_seconds=15)
            timer.join()
        lost += int(((volley.status != 200) & (volley.status != -1)).sum())
        hung += int((volley.status == -1).sum())
        total += count
    note = f"{rounds} rounds of {count} queries at 2/3 of the expected rate, one of {deployed.text} killed"
    for measure, value in (("queries lost", lost), ("queries hung", hung)):
        yield figure(
            f"{stage.case.name}, a back end killed under load",
            measure,
            float(value),
            "queries",
            contender="divvy serve, divvy",
            n=total,
            target=0,
            note=note,
        )
