"""What the pages on Slurm say is what the code takes."""

import re
import tomllib
from pathlib import Path

import pytest

from divvy.adapters.slurm.contract import WORDS, Contract, read_contract
from divvy.adapters.slurm.lua import job_submit_lua
from divvy.adapters.slurm.settings import _READERS, SlurmSettings, settings_of
from divvy.fleet.budget import parse_budget

DOCS = Path(__file__).resolve().parents[3] / "docs"
HOWTO = (DOCS / "howto/run-on-slurm.md").read_text(encoding="utf-8")
REFERENCE = (DOCS / "reference/slurm.md").read_text(encoding="utf-8")


def blocks(text):
    return [
        re.sub("^    ", "", block, flags=re.MULTILINE)
        for block in re.findall(r"(?:^    .*\n)+", text, re.MULTILINE)
    ]


def test_the_files_of_the_how_to_are_accepted():
    budget = next(block for block in blocks(HOWTO) if "[accounts.lab.vision]" in block)
    assert parse_budget(budget).tree.leaf("lab.vision")
    settings = next(block for block in blocks(HOWTO) if "[partition.debug]" in block)
    assert settings_of(tomllib.loads(settings)).partitions == ("gpu",)


def test_the_reference_names_every_setting():
    table = REFERENCE.split("## The file `slurm.toml`")[1].split("\n## ")[0]
    told = set(re.findall(r"`\[?([a-z_]+)(?:\.NAME)?\]?`", table))
    assert set(_READERS) <= told


@pytest.mark.parametrize("text", [HOWTO, REFERENCE])
def test_contracts_in_the_pages_are_understood(text):
    comments = re.findall(r'--comment "(divvy: [^"]+)"', text)
    assert all(not read_contract(comment, Contract()).faults for comment in comments)


def test_the_reference_names_every_word_of_a_contract():
    table = REFERENCE.split("## The contract of a job")[1].split("\n## ")[0]
    assert all(f"`{word.partition('=')[0]}" in table for word in WORDS.split(", "))


def test_the_lua_script_has_the_settings_of_the_site():
    script = job_submit_lua(
        SlurmSettings(heartbeat='/a "b"', fail_open_after=60_000, partitions=("gpu", "h-1"))
    )
    assert 'HEARTBEAT = "/a \\"b\\""' in script and "AFTER_SECONDS = 60\n" in script
    assert '{ ["gpu"] = true, ["h-1"] = true }' in script and "@" not in script
