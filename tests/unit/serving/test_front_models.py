"""Several models in one router: what the file may say, whose queries are whose, one exposition of all figures."""

from __future__ import annotations

import asyncio
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from divvy.adapters.front.config import SCHEMA, Declared, read_setup
from divvy.adapters.front.models import Model, Models, joined
from divvy.adapters.front.router import Router
from divvy.adapters.front.server import Client
from divvy.errors import InputError
from divvy.perf.latency import Cell, LatencyProfile
from divvy.planners.queries.desk import Desk, Slot
from divvy.planners.queries.registry import find_rule

SLICE = {"url": "http://127.0.0.1:9", "gpcs": 1}


def document(**more):
    words = {"schema": SCHEMA, "model": "a", "profile": "a.csv", "slo_ms": 7, "slices": []}
    return json.dumps({**words, **more})


def two():
    slices = [{**SLICE, "name": "s0"}, {**SLICE, "name": "s1", "model": "b"}]
    return document(models={"b": {"profile": "b.csv", "slo_ms": 9, "rule": "elsa"}}, slices=slices)


def test_slices_go_to_the_model_that_they_name():
    a, b = read_setup(two(), "f").all
    assert (a.model, list(a.slices), a.slo_us, a.rule) == ("a", ["s0"], 7_000, "divvy")
    assert (b.model, list(b.slices), b.slo_us, b.rule) == ("b", ["s1"], 9_000, "elsa")


def test_every_fault_of_further_models_is_named():
    models = {"a": {}, "b": {"slo_ms": -1}, "c": [], "d": {"profile": "d", "slo_ms": 1, "port": 2}}
    slices = [{**SLICE, "name": "s", "model": "x"}, {**SLICE, "name": "t", "model": 1}]
    with pytest.raises(InputError) as caught:
        read_setup(document(models=models, slices=slices), "f")
    paths = {fault.path for fault in caught.value.faults}
    wanted = {"models.a", "models.c", "models.d", "models.b.profile", "models.b.slo_ms"}
    assert paths == wanted | {"slices s.model", "slices[1].model"}
    with pytest.raises(InputError, match="models"):
        read_setup(document(models=[]), "f")


def make(name):
    rule, params = find_rule("elsa")
    profile = LatencyProfile(name, (Cell(1, 1, 1, 10_000),))
    router = Router(Desk(profile, 1, rule, params), name, 10, "elsa")
    router.declare({f"{name}0": Declared(Slot(1), "127.0.0.1", 9, "", name)})
    return router


class Wire:
    def __init__(self):
        self.out = b""

    def write(self, data):
        self.out += data

    def resume_reading(self):
        """Nothing was held back."""


def ask(models, *targets, verb="GET"):
    wire = Wire()

    async def run():
        client = Client(models.routers[0], 1, 1000, lambda _: None, None, models)
        client.connection_made(wire)
        for target in targets:
            client.data_received(f"{verb} {target} HTTP/1.1\r\n\r\n".encode())
            await asyncio.sleep(0)
        client.connection_lost(None)

    asyncio.run(run())
    return wire.out.decode()


def both():
    return Models({name: Model(make(name), 1) for name in "ab"})


def test_readiness_is_of_the_model_and_an_unknown_one_is_told_which_there_are():
    models = both()
    assert ask(models, "/divvy/v1/backends/b0/drain", verb="POST").count("200 OK") == 1
    said = ask(models, "/v2/models/a/ready", "/v2/models/b/ready", "/v2/health/ready", "/v2/models/c/ready")
    assert re.findall(r"HTTP/1.1 (\d+)", said) == ["200", "503", "200", "404"]
    assert "this is 'a', 'b'" in said
    assert "a0, b0" in ask(models, "/divvy/v1/backends/x/admit", verb="POST")


def test_a_file_read_again_moves_slices_but_brings_no_new_model():
    models = both()
    models.replace(read_setup(two(), "f"))
    assert models.slices() == ["s0", "s1"]
    models.replace(read_setup(document(), "f"))
    assert models.slices() == []
    new = document(models={"z": {"profile": "z", "slo_ms": 1}})
    with pytest.raises(InputError, match="new: z"):
        models.replace(read_setup(new, "f"))


@given(st.lists(st.text(min_size=1), min_size=2, max_size=4, unique=True))
def test_every_sample_is_kept_once_and_families_stay_together(names):
    text = '# TYPE n counter\nn 1\n# TYPE m counter\nm{slice="s"} 2\nm{slice="t"} 3\n'
    shared = "# TYPE divvy_serve_charges_x counter\ndivvy_serve_charges_x 5\n"
    lines = joined(dict.fromkeys(names, text + shared)).split("\n")
    families = [line.split("{")[0].split(" ")[0] for line in lines if line and line[0] != "#"]
    count = len(names)
    assert families == ["n"] * count + ["m"] * 2 * count + ["divvy_serve_charges_x"]
    assert sum(line.startswith("#") for line in lines) == 3
    assert len(set(lines)) == len(lines)
