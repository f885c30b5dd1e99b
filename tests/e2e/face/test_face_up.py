"""The command line and the page against a real `divvy up` with real jobs: nothing here is fake."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import jsonschema
import pytest
from browser import Visit, launch
from playwright.sync_api import expect, sync_playwright
from test_face_docs import examples

import divvy
from divvy.cli.client import Client, find_target
from divvy.errors import DivvyError

pytestmark = pytest.mark.e2e

SCHEMAS = Path(__file__).parents[3] / "docs" / "reference" / "schemas"
Divvy = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A control plane with the sample organisation, on a free port; stopped, with its jobs, at the end."""
    home = tmp_path_factory.mktemp("up")
    command = [
        sys.executable,
        "-m",
        "divvy",
        "up",
        "--sample",
        "--port",
        "0",
        "--home",
        str(home),
        "--no-browser",
    ]
    with (home / "up.err").open("w+") as said, subprocess.Popen(command, stderr=said, stdout=said) as process:
        try:
            deadline = time.monotonic() + 60
            while "Divvy is up" not in (home / "up.err").read_text():
                assert process.poll() is None, (home / "up.err").read_text()
                assert time.monotonic() < deadline, (home / "up.err").read_text()
                time.sleep(0.1)
            yield home
            client = Client(find_target(f"unix:{home / 'socket'}"))
            for _ in range(60):  # what still ran would go on after the end of the control plane
                live = client.get("jobs", state="live", limit=1_000)["jobs"]
                if not live:
                    break
                for job in live:
                    with suppress(DivvyError):  # it has ended meanwhile
                        client.delete("jobs", job["id"])
                time.sleep(0.2)
        finally:
            process.terminate()
            process.wait(30)


def _runner(home: Path) -> Divvy:
    env = os.environ | {"DIVVY_HOME": str(home), "PYTHONPATH": str(Path(divvy.__file__).parents[1])}
    env.pop("DIVVY_SERVER", None)

    def run(*args: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "divvy", *args]
        return subprocess.run(
            command, env=env, cwd=cwd, capture_output=True, text=True, timeout=60, check=False
        )

    return run


@pytest.fixture
def real(up: Path) -> Divvy:
    return _runner(up)


# First, while the sample's jobs run: later tests cancel them.
def test_the_page_of_a_real_control_plane(real):
    link = real("page", "-q").stdout.strip()
    with sync_playwright() as playwright:
        browser = launch(playwright)
        one = Visit(browser, link.partition("/#")[0])
        page = one.page
        page.goto(link)
        expect(page.locator(".node")).to_have_count(2)
        one.shoot("live-fleet")
        page = one.go("queue?state=running")
        expect(page.locator(".chip", has_text="example").first).to_be_visible()
        one.shoot("live-running")
        page.locator("tbody tr").first.click()
        expect(page.locator("#drawer[open] .headline")).to_be_visible()
        one.shoot("live-job", whole=False)
        page = one.go("budgets?days=1")
        page.get_by_label("Change the share of product.assistant").click()
        box = page.locator("#box[open]")
        box.get_by_label("New share").fill("35")
        box.get_by_label("Reason").fill("a test of the page")
        box.get_by_role("button", name="Save").click()
        expect(page.get_by_label("History of the budget")).to_contain_text("a test of the page")
        expect(page.locator('tr[data-key="product.assistant"]')).to_contain_text("35%")
        one.shoot("live-budgets")
        page = one.go("fleet")
        page.locator(".node .name").first.click()
        page.get_by_label("Reason of the drain").fill("a test of the page")
        page.get_by_role("button", name="Drain", exact=True).click()
        expect(page.locator("#drawer[open] .chip").first).to_have_text("draining")
        page.get_by_role("button", name="Bring back").click()
        expect(page.locator("#drawer[open] .chip").first).to_have_text("up")
        assert one.faults == []
        browser.close()


def test_every_answer_follows_its_published_schema(real, up):
    some = real("queue", "--state", "all", "-q").stdout.split()[0]
    for args in (
        ["status"],
        ["status", some],
        ["queue"],
        ["queue", "--state", "running"],
        ["queue", "--state", "all"],
        ["explain", some],
        ["budget", "show"],
        ["budget", "history"],
        ["statement", "--hourly", "--from", "2h"],
        ["token", "list"],
        ["page"],
    ):
        ran = real(*args, "--json")
        assert ran.returncode == 0, ran.stderr
        document = json.loads(ran.stdout)
        name, _, version = document["schema"].removeprefix("divvy.").partition("/")
        jsonschema.validate(document, json.loads((SCHEMAS / f"{name}.{version}.json").read_text()))
        assert real(*args).returncode == 0


def test_the_tutorial_does_what_it_says(real, up):
    # The sample's first sweep has to leave soon after its start; cancelling the others first would spare it.
    deadline = time.monotonic() + 60
    while "preempted by" not in real("explain", "j0000003").stdout and time.monotonic() < deadline:
        time.sleep(0.5)
    for job in real("queue", "--state", "running", "-q").stdout.split():
        real("cancel", job)  # so that nothing has to wait for the sample's protected jobs
    said: dict[str, str] = {}
    for command in examples("tutorial/first-five-minutes.md"):
        ran = real(*shlex.split(command)[1:])
        assert ran.returncode == 0, f"{command}\n{ran.stderr}"
        said[command] = ran.stdout
    assert said["divvy logs -f first"] == "hello\nbye\n"
    assert "preempted by" in said["divvy explain j0000003"]
    assert "trying it out" in said["divvy budget history"]


def test_ten_minutes_do_what_they_say(real):
    said: dict[str, str] = {}
    for command in examples("tutorial/ten-minutes.md"):
        ran = real(*shlex.split(command)[1:])
        assert ran.returncode == 0, f"{command}\n{ran.stderr}"
        said[command] = ran.stdout
    assert "a forecast by replay" in said["divvy whatif --policy fifo --hours 1"]
    deadline = time.monotonic() + 90  # the sample makes its examples at the lowest priority
    while len(shown := real("publish", "--list", "-q").stdout.split()) < 3 and time.monotonic() < deadline:
        time.sleep(1)
    assert shown == ["example-batch", "example-machine", "example-resnet50"]
    listed = json.loads(real("publish", "--list", "--json").stdout)["documents"]
    assert all(one["example"] and one["command"].startswith("divvy ") for one in listed)


def test_the_five_minutes_of_the_readme_do_what_they_say(real):
    for job in real("queue", "--state", "running", "-q").stdout.split():
        real("cancel", job)
    for command in examples("../README.md"):
        ran = real(*shlex.split(command)[1:])
        assert ran.returncode == 0, f"{command}\n{ran.stderr}"
        if command.startswith("divvy logs"):
            assert ran.stdout == "hello from a budget\n"


def test_a_job_runs_where_it_was_submitted_and_its_exit_code_comes_back(real, tmp_path):
    script = 'pwd; echo "$GREETING $1"; echo oops >&2; exit 3'
    ran = real(
        *(
            "submit",
            "-A",
            "research.vision",
            "--min-runtime",
            "15s",
            "--priority",
            "9",
            "--env",
            "GREETING=hello",
        ),
        *("--wait", "--", "sh", "-c", script, "sh", "a b; rm -rf $HOME"),
        cwd=tmp_path,
    )
    assert ran.returncode == 3, ran.stderr
    job = ran.stdout.split()[0]
    logs = real("logs", job)
    assert logs.stdout.splitlines() == [str(tmp_path), "hello a b; rm -rf $HOME"]
    assert logs.stderr == "oops\n"
    assert real("logs", "-f", job).stdout == logs.stdout
    assert "exit code 3" in real("explain", job).stdout + real("status", job).stdout


def test_refusals_of_the_real_api_have_codes_and_exit_codes(real):
    unknown = real("submit", "-A", "research.vison", "--", "true")
    assert unknown.returncode == 2
    assert "did you mean research.vision?" in unknown.stderr
    assert real("submit", "-A", "research.vision", "-g", "4000", "--", "true").returncode == 2
    assert real("explain", "j9999999").returncode == 5
    stale = real("budget", "set", "product.search", "50", "--reason", "late", "--version", "0")
    assert stale.returncode == 6, stale.stderr
    over = real("budget", "set", "product.search", "90", "--reason", "too much", "--json")
    assert over.returncode == 2
    assert json.loads(over.stderr)["code"] == "share-sum"
