"""The web page in a real headless Chromium: every view, every action, nothing wrong on the console."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from socket import SHUT_RDWR
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from browser import SIZES, Visit, launch
from fake_fleet import LEAVES, FakeFleet
from fake_server import Server
from playwright.sync_api import Browser, Page, expect, sync_playwright

pytestmark = pytest.mark.e2e

VIEWS = {
    "fleet": "fleet",
    "queue": "queue",
    "running": "queue?state=running",
    "budgets": "budgets",
    "job": "queue?job=j00013",
    "node": "fleet?node=gpu-005",
}


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()


@pytest.fixture
def server(fleet: FakeFleet) -> Iterator[Server]:
    with Server(fleet) as running:
        yield running


@pytest.fixture
def visit(chromium: Browser, server: Server) -> Iterator[Callable[..., Visit]]:
    """Open a page; at the end none may have had a fault that its test did not take out."""
    visits: list[Visit] = []

    def begin(**how: str) -> Visit:
        visits.append(Visit(chromium, server.url, **how))
        return visits[-1]

    yield begin
    for one in visits:
        one.close()
    assert [one.faults for one in visits] == [[] for _ in visits]


def drawer(page: Page):
    return page.locator("#drawer[open]")


# -- every view ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_every_view_is_drawn_without_a_fault(visit, server, size, scheme):
    one = visit(size=size, scheme=scheme)
    for name, view in VIEWS.items():
        page = one.go(view)
        if "=j" in view or "=gpu" in view:
            expect(drawer(page)).to_be_visible()
        else:
            expect(page.locator("main h1")).to_have_count(1)
        one.shoot(f"page-{name}-{size}-{scheme}", whole="=" not in view)
        wider = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wider <= 0, f"{name} scrolls sideways by {wider} px"
    assert one.hosts == {urlsplit(server.url).netloc}, "nothing may come from elsewhere"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(visit, scheme):
    one = visit(scheme=scheme)
    options = {} if scheme == "light" else {"runOnly": ["color-contrast"]}  # the rest is the same in the dark
    for view in VIEWS.values():
        page = one.go(view)
        found = Axe().run(page, options=options).response["violations"]
        assert [(v["id"], [n["html"][:120] for n in v["nodes"][:3]]) for v in found] == [], view


def test_the_fleet_shows_allocation_beside_utilisation_and_never_a_false_zero(visit, fleet):
    page = visit().go("fleet")
    down = page.locator(".node", has_text="gpu-006")
    expect(down).to_contain_text("busy n/a")
    expect(down).to_contain_text("utilisation n/a: the node is down")
    expect(down.locator(".use[data-unknown]")).to_have_count(8)
    assert "0%" not in down.inner_text()
    cells = page.locator(".node", has_text="gpu-002").locator(".device")
    expect(cells).to_have_count(8)
    name = cells.first.get_attribute("aria-label")
    assert re.fullmatch(r"gpu-002 device 0: Protected, j\d+ of lab\..*; utilisation \d+%", name)


def test_the_queue_gives_positions_reasons_and_who_is_ahead(visit, fleet):
    page = visit().go("queue")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(14)
    first, second = fleet.queue()["jobs"][:2]
    expect(rows.nth(1)).to_contain_text(second["id"])
    expect(rows.nth(1)).to_contain_text("other jobs of the same account go first")
    rows.nth(1).click()
    expect(drawer(page)).to_contain_text(second["reason"]["text"])
    expect(drawer(page)).to_contain_text("Ahead of it: 1")
    expect(drawer(page)).to_contain_text("What would help")
    drawer(page).get_by_role("link", name=first["id"]).click()
    expect(drawer(page).locator("h2")).to_have_text(first["id"])
    page.keyboard.press("Escape")
    expect(drawer(page)).to_have_count(0)
    expect(page).not_to_have_url(re.compile("job="))


def test_the_queue_can_be_filtered(visit, fleet):
    page = visit().go("queue")
    page.get_by_label("Only this account").select_option("lab.vision")
    wanted = [job["id"] for job in fleet.queue("lab.vision")["jobs"]]
    expect(page.locator("tbody tr")).to_have_count(len(wanted))
    expect(page.locator(".elsewhere")).to_contain_text("divvy queue --account lab.vision --json")
    page.get_by_role("link", name="Running").click()
    expect(page.locator("tbody")).to_contain_text("gpu-00")


def test_budgets_show_the_number_that_the_queue_is_sorted_by(visit, fleet):
    page = visit().go("budgets")
    for account in fleet.accounts():
        row = page.locator(f'tr[data-key="{account["path"]}"]')
        expect(row).to_contain_text(f"{account['balance']:.3f}")
    page.get_by_role("link", name="mapping").click()
    expect(page.locator(".panel h2").first).to_contain_text("lab.vision.mapping")
    page.get_by_role("link", name="24 hours").click()
    expect(page.locator(".chart svg")).to_have_attribute("aria-label", re.compile("24 hours"))
    page.locator(".chart .touch").hover()
    expect(page.locator(".chart .readout")).to_contain_text("delivered")
    page.get_by_text("As a table").click()
    expect(page.locator(".chart table tbody tr")).to_have_count(24)
    expect(page.get_by_label("History of the budget")).to_contain_text("lab.vision: 50% → 45%")


def test_each_view_gives_the_command_and_the_call_for_the_same_data(visit, server):
    one = visit()
    for view, command, path in (
        ("fleet", "divvy status --json", "/v1/status"),
        ("queue", "divvy queue --json", "/v1/queue?limit=200"),
        ("budgets", "divvy budget show --json", "/v1/budget"),
        ("queue?job=j00013", "divvy explain j00013 --json", "/v1/jobs/j00013/explain"),
    ):
        page = one.go(view)
        place = page.locator("#drawer .elsewhere" if "job=" in view else "main .elsewhere").first
        expect(place).to_contain_text(command)
        expect(place).to_contain_text(server.url + path)
    page.locator("#drawer .elsewhere button").first.click()
    assert page.evaluate("navigator.clipboard.readText()") == "divvy explain j00013 --json"


# -- live -----------------------------------------------------------------------------------------------


def test_a_new_version_reaches_the_page_through_the_stream(visit, fleet):
    page = visit().go("fleet")
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    page.locator(".tools input[type=search]").focus()
    fleet.nodes[0]["devices"][0].update(job=None, account=None, state="free", utilisation=None)
    fleet.touch()
    expect(page.locator(".node", has_text="gpu-001").locator(".cell").first).to_have_attribute(
        "data-state", "free"
    )
    assert page.evaluate("document.activeElement.type") == "search", "an update must not take the focus"


def test_without_a_stream_the_page_polls(visit, fleet, server, monkeypatch):
    monkeypatch.setattr("fake_server.Handler._stream", lambda self: self._json(503, {"title": "full"}))
    one = visit()
    page = one.go("queue")
    expect(page.locator("#live")).to_have_attribute("data-state", "polling")
    fleet.submit(
        {
            "account": LEAVES[0],
            "gpus": 1,
            "min_runtime": "1h",
            "name": "late",
            "argv": [],
            "cwd": "",
            "env": {},
        }
    )
    expect(page.locator("tbody")).to_contain_text("late")
    one.forgive(503)


def test_a_lost_server_is_said_and_its_return_noticed(visit, fleet, server, monkeypatch):
    one = visit()
    page = one.go("fleet")
    with monkeypatch.context() as broken:
        broken.setattr(
            "fake_server.Handler._route", lambda self, _method: self.connection.shutdown(SHUT_RDWR)
        )
        fleet.touch()
        expect(page.locator("#banner")).to_contain_text("does not answer", timeout=15_000)
        expect(page.locator(".node").first).to_be_visible()
    expect(page.locator("#banner")).to_be_hidden(timeout=15_000)
    one.faults.clear()


def test_a_silent_scheduler_is_said(visit, fleet):
    fleet.age = 200.0
    page = visit().go("fleet")
    expect(page.locator("#banner")).to_contain_text("The scheduler has been silent for 3m 20s")


def test_empty_views_say_what_to_do_next(visit, fleet):
    fleet.jobs.clear()
    fleet.nodes.clear()
    one = visit()
    expect(one.go("queue").locator(".empty")).to_contain_text("divvy submit --account")
    expect(one.go("fleet").locator(".empty")).to_contain_text("divvy up")


def test_examples_are_labelled(visit, fleet):
    fleet.jobs["j00013"]["name"] = "example: pretrain"
    fleet.versions[-1]["reason"] = "divvy up: the sample organisation"
    one = visit()
    page = one.go("queue")
    expect(page.locator("tr", has_text="j00013").locator(".chip")).to_have_text("example")
    expect(page.locator("tr", has_text="j00014").locator(".chip", has_text="example")).to_have_count(0)
    expect(one.go("budgets").locator(".heading .chip").first).to_have_text("example")


def test_text_of_users_is_text(visit, fleet):
    fleet.jobs["j00013"]["name"] = "<img src=x onerror=alert(1)>"
    page = visit().go("queue")
    expect(page.locator("tr", has_text="j00013")).to_contain_text("<img src=x onerror=alert(1)>")
    expect(page.locator("tbody img")).to_have_count(0)


# -- actions --------------------------------------------------------------------------------------------


def test_a_job_is_cancelled_after_a_second_press(visit, fleet):
    page = visit().go("queue?job=j00013")
    button = drawer(page).get_by_role("button", name="Cancel this job")
    button.click()
    assert fleet.jobs["j00013"]["state"] == "queued"
    drawer(page).get_by_role("button", name="Press again").click()
    expect(drawer(page).locator(".chip").first).to_have_text("cancelled")
    expect(page.locator("#toast")).to_contain_text("j00013 will be cancelled")


def test_the_end_of_the_output_is_shown_when_asked_for(visit, fleet):
    one = visit()
    page = one.go("queue?job=j00013")
    drawer(page).get_by_role("button", name="Show the end of it").click()
    expect(drawer(page).get_by_label("Standard output")).to_contain_text("step 2: loss 0.833 é€")
    expect(drawer(page).get_by_label("Standard error")).to_contain_text("no GPU found")
    version = page.evaluate("performance.getEntriesByName('divvy:paint').length")
    fleet.touch()
    while page.evaluate("performance.getEntriesByName('divvy:paint').length") == version:
        page.wait_for_timeout(50)
    expect(drawer(page).get_by_label("Standard output")).to_be_visible()


def test_a_node_is_drained_and_brought_back(visit, fleet):
    page = visit().go("fleet")
    page.get_by_role("link", name="gpu-001").click()
    drawer(page).get_by_label("Reason of the drain").fill("fan is loud")
    drawer(page).get_by_role("button", name="Drain").click()
    expect(drawer(page).locator(".chip").first).to_have_text("draining")
    assert fleet.nodes[0]["cause"] == "fan is loud"
    drawer(page).get_by_role("button", name="Bring back").click()
    expect(drawer(page).locator(".chip").first).to_have_text("up")


def test_an_owner_changes_a_share_with_a_reason(visit, fleet):
    one = visit()
    page = one.go("budgets")
    page.get_by_label("Change the share of lab.vision.mapping").click()
    box = page.locator("#box[open]")
    box.get_by_label("New share").fill("55")
    box.get_by_label("Reason").fill("deadline")
    box.get_by_role("button", name="Save").click()
    expect(box.locator(".refusal")).to_contain_text("at most 100")
    box.get_by_label("New share").fill("38")
    box.get_by_role("button", name="Save").click()
    expect(page.locator("#toast")).to_contain_text("version 4")
    assert fleet.versions[0]["reason"] == "deadline"
    expect(page.locator('tr[data-key="lab.vision.mapping"]')).to_contain_text("38%")
    one.forgive(422)


def test_a_stale_change_is_refused_and_can_be_made_again(visit, fleet):
    one = visit()
    page = one.go("budgets")
    page.get_by_label("Change the share of lab.robotics").click()
    fleet.set_share("lab.vision", {"version": 3, "share": 44.0, "reason": "somebody else"})
    box = page.locator("#box[open]")
    box.get_by_label("New share").fill("9")
    box.get_by_label("Reason").fill("less")
    box.get_by_role("button", name="Save").click()
    expect(box.locator(".refusal")).to_contain_text("version 4")
    expect(box.get_by_label("New share")).to_have_value("9")
    assert fleet.shares["lab.robotics"] == 10
    box.get_by_role("button", name="Save").click()
    expect(box).to_have_count(0)
    assert fleet.shares["lab.robotics"] == 9
    one.forgive(409)


def test_the_page_asks_for_a_token_and_takes_one_from_the_address(visit, server):
    server.token = "right"  # noqa: S105 - of the fake
    one = visit()
    one.page.goto(server.url)
    box = one.page.locator("#box[open]")
    expect(box).to_contain_text("divvy token create")
    box.get_by_role("textbox", name="Token").fill("right")
    box.get_by_role("button", name="Sign in").click()
    expect(one.page.locator(".node").first).to_be_visible()
    one.page.get_by_role("button", name="Sign out").click()
    expect(box).to_be_visible()
    other = visit()
    other.page.goto(f"{server.url}/#token=right")
    expect(other.page.locator(".node").first).to_be_visible()
    assert "right" not in other.page.url
    one.forgive(401)


def test_the_theme_can_be_chosen_and_is_kept(visit):
    page = visit().go("fleet")
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_label("Switch between light and dark").click()
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert light != dark
    page.reload()
    page.wait_for_selector("html[data-ready]")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark


def test_the_keyboard_is_enough(visit, fleet):
    page = visit().go("queue")
    page.keyboard.press("Tab")
    expect(page.locator("#skip")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    page.locator("tbody a.id").first.focus()
    page.keyboard.press("Enter")
    expect(drawer(page)).to_be_visible()
    page.keyboard.press("Escape")
    expect(drawer(page)).to_have_count(0)


# -- size and speed ---------------------------------------------------------------------------------------


def painted(page: Page, name: str) -> list[float]:
    return page.evaluate(f"performance.getEntriesByName('divvy:{name}').map((entry) => entry.duration)")


def test_ten_thousand_devices_on_one_screen(visit, fleet):
    fleet.nodes = FakeFleet(nodes=1_250, waiting=0).nodes
    one = visit()
    page = one.go("fleet")
    expect(page.locator("canvas")).to_have_count(2)
    canvas = page.locator("canvas").first
    blank = "(c) => new Set(c.getContext('2d').getImageData(0, 0, c.width, 60).data).size < 8"
    assert not canvas.evaluate(blank), "the canvas is blank"
    canvas.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".readout").first).to_contain_text("gpu-002")
    page.keyboard.press("Enter")
    expect(drawer(page).locator("h2")).to_have_text("gpu-002")
    page.keyboard.press("Escape")
    page.get_by_label("Only nodes that are not up").check()
    expect(page.locator(".node")).to_have_count(2)
    page.get_by_label("Only nodes that are not up").uncheck()
    for _ in range(4):
        for node in fleet.nodes:
            for device in node["devices"]:
                if device["utilisation"] is not None:
                    device["utilisation"] = fleet.random.random()
        before = len(painted(page, "paint"))
        fleet.touch()
        end = time.monotonic() + 10
        while len(painted(page, "paint")) == before and time.monotonic() < end:
            page.wait_for_timeout(50)
    one.shoot("page-fleet-large", whole=False)
    assert min(painted(page, "paint")) < 200
    first = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    assert first < 1_000
