"""The pages besides fleet, queue and budgets: drawn, accessible, saved as files, and only what is allowed is offered."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from browser import SIZES, Visit, launch
from fake_insight import PASS, PLAN, ROUTES, topology, whatif
from fake_plan import ROUTER
from fake_server import Server
from playwright.sync_api import Browser, expect, sync_playwright

from divvy.service import schemas
from divvy.service.claims import CLAIMS

pytestmark = pytest.mark.e2e

VIEWS = {
    "statement": "statement",
    "slices": "slices",
    "serving": "serving",
    "plan": "plan",
    "transfers": "transfers",
    "decisions": "decisions",
    "whatif": "whatif",
    "whatif-answer": "whatif?asked=1",
    "claims": "claims",
}


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()


@pytest.fixture
def server(fleet) -> Iterator[Server]:
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


def test_the_fake_answers_by_the_shapes_of_the_api():
    schemas.WhatIf.model_validate(whatif({"shares": {}, "policy": "", "hours": 24.0}))
    schemas.Decisions.model_validate(
        {"schema": "divvy.decisions/1", "as_of": 0.0, "age_seconds": 0.0, "passes": [PASS], "next": 7}
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_every_view_is_drawn_without_a_fault(visit, size, scheme):
    one = visit(size=size, scheme=scheme)
    for name, view in VIEWS.items():
        page = one.go(view)
        expect(page.locator("main h1")).to_have_count(1)
        expect(page.locator(".elsewhere code").first).to_be_visible()
        expect(page.locator(".pair-tile")).to_have_count(5 if "asked" in view else 0)
        one.shoot(f"page-{name}-{size}-{scheme}")
        wider = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wider <= 0, f"{name} scrolls sideways by {wider} px"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(visit, scheme):
    one = visit(scheme=scheme)
    options = {} if scheme == "light" else {"runOnly": ["color-contrast"]}  # the rest is the same in the dark
    for view in VIEWS.values():
        page = one.go(view)
        expect(page.locator(".pair-tile")).to_have_count(5 if "asked" in view else 0)
        found = Axe().run(page, options=options).response["violations"]
        assert [(v["id"], [n["html"][:160] for n in v["nodes"][:3]]) for v in found] == [], view


def test_what_is_not_there_yet_says_what_to_do_next(visit, server):
    for name in ("chat", "node", "batch", "serve-chat", "fleet"):
        server.insight.documents.remove(name)
    one = visit()
    expect(one.go("slices").locator(".empty")).to_contain_text("divvy slices plan")
    page = one.go("transfers")
    expect(page.locator(".empty").first).to_contain_text("divvy topo show")
    expect(page.locator(".empty").last).to_contain_text("divvy route plan")
    expect(one.go("serving").locator(".empty")).to_contain_text("--publish")
    expect(one.go("plan").locator(".empty")).to_contain_text(
        "divvy plan --services FILE --json | divvy publish -"
    )


def test_a_slice_plan_is_drawn_with_its_alternatives_and_its_label(visit):
    page = visit().go("slices")
    expect(page.locator(".chip", has_text="example").first).to_be_visible()
    words = page.locator('[data-chart="slice-layout"] svg').get_attribute("aria-label")
    assert (
        words
        == "GPU 0: 1g.10gb at 0, 1g.10gb at 1, 1g.10gb at 2, 1g.10gb at 3, 3g.40gb at 4; GPU 1: 4g.40gb at 0, 3g.40gb at 4"
    )
    widths = page.locator('[data-chart="slice-layout"] rect.slice').evaluate_all(
        "(all) => all.map((one) => Math.round(one.getAttribute('width')))"
    )
    assert widths[4] > 3 * widths[0], "a slice is as wide as the memory that it takes"
    rates = page.locator('[data-chart="slice-rates"] svg').get_attribute("aria-label")
    assert all(
        word in rates for word in ("this plan", "best equal slices", "best PARIS + ELSA", "upper bound")
    )
    expect(page.locator("pre.code")).to_contain_text("nvidia-smi mig")


def test_a_router_tells_its_slices_and_the_objective_that_it_meets(visit, server):
    one = visit()
    page = one.go("serving")
    expect(page.get_by_label("Model chat")).to_contain_text("96.2%")
    assert page.locator("table.serving tbody tr").count() == 4
    expect(page.locator('tr[data-key="gpu0-3g"]')).to_contain_text("2 given")
    down = page.locator('tr[data-key="gpu1-2g"]')
    expect(down.locator(".chip")).to_have_text("down")
    expect(down.locator('[data-label="Busy"]')).to_have_text("\u2013")
    words = page.locator('[data-chart="served-chat"] svg').get_attribute("aria-label")
    assert "answered in time 9,500 (95.0%)" in words
    expect(page.locator(".elsewhere")).to_contain_text("divvy publish --print serve-chat")
    expect(page.locator("[role=status].bad")).to_have_count(0)
    told = {"by": "ada", "command": "divvy serve", "example": False}
    server.insight.documents.put("serve-chat", ROUTER, at=1.7e9 - 120, **told)
    expect(one.go("serving").locator("[role=status].bad")).to_contain_text(
        "Nothing was heard of this router for 2m"
    )
    server.insight.documents.put("serve-chat", {**ROUTER, "state": "ended"}, at=1.7e9 - 1, **told)
    page.reload()
    expect(page.locator("[role=status].bad")).to_contain_text("This router ended")


def test_a_plan_says_every_change_its_price_and_why(visit):
    page = visit().go("plan")
    expect(page.get_by_label("Jobs to start", exact=True)).to_contain_text(
        "started on devices that were taken back"
    )
    expect(page.get_by_label("Jobs to preempt", exact=True)).to_contain_text("balance 0.60 against 1.40")
    expect(page.get_by_label("Dated slots", exact=True).locator("tbody tr")).to_have_count(2)
    expect(page.get_by_label("Tried, and wait", exact=True)).to_contain_text(
        "what could be taken is still protected"
    )
    service = page.get_by_label("Service chat")
    expect(service).to_contain_text("4 to 9 seconds; 31.5 compute-slice seconds out of service")
    expect(service).to_contain_text("3g.40gb + 3g.40gb")
    expect(page.get_by_label("Routes", exact=True)).to_contain_text("100% rdma-affine")
    expect(page.locator("main")).to_contain_text("divvy apply --version 42 --services s.toml")
    expect(page.locator(".elsewhere")).to_contain_text("divvy plan --services s.toml --json")


def test_a_topology_has_a_picture_a_matrix_and_the_plan_says_why_other_ways_were_rejected(visit):
    page = visit().go("transfers")
    picture = page.locator('[data-chart="topology"] img')
    assert picture.evaluate("(one) => one.complete && one.naturalWidth > 100")
    page.get_by_text("Link matrix").click()
    expect(page.locator("table.links td[data-near='3']").first).to_have_text("NV4")
    row = page.locator('tr[data-key="t0"]')
    expect(row).to_contain_text("100% nvlink")
    row.get_by_text("1 way").click()
    expect(row).to_contain_text("rdma-affine: slower even alone")


def test_a_decision_says_why_and_opens_the_job(visit):
    page = visit().go("decisions")
    row = page.locator("tbody tr").first
    expect(row).to_contain_text("an under-served account claims its share")
    expect(row).to_contain_text("balance 0.60 against 1.40")
    expect(row).to_contain_text("divvy replay 41")
    expect(page.locator(".elsewhere")).to_contain_text("divvy decisions --limit 30 --json")
    row.get_by_role("link", name="j00013").first.click()
    expect(page.locator("#drawer[open] h2")).to_have_text("j00013")


def test_a_what_if_is_asked_with_the_shares_that_were_changed(visit, server):
    page = visit().go("whatif")
    page.get_by_label("lab.language", exact=True).fill("55")
    page.locator("select[name=policy]").select_option("fifo")
    page.get_by_role("button", name="Ask", exact=True).click()
    expect(page.locator(".pair-tile").first).to_be_visible()
    assert server.insight.asked == [{"shares": {"lab.language": 55}, "policy": "fifo", "hours": 24}]
    expect(page.locator('tr[data-key="lab.language"]')).to_contain_text("10m \u2192 30s")
    expect(page.get_by_text("This is a forecast by replay")).to_be_visible()


def test_a_what_if_is_ready_to_run(visit, server):
    page = visit().go("whatif")
    page.get_by_role("button", name="Ask with equal shares").click()
    expect(page.locator(".pair-tile").first).to_be_visible()
    asked = server.insight.asked[0]["shares"]
    assert asked["lab.vision.mapping"] == asked["lab.vision.perception"] == 50


def test_every_claim_stands_beside_our_figures(visit):
    page = visit().go("claims")
    expect(page.locator(".claim")).to_have_count(len(CLAIMS))
    for claim in CLAIMS:
        expect(page.locator(".claim", has_text=claim.title)).to_contain_text(claim.command)


@pytest.mark.parametrize("view", ["budgets", "statement", "slices", "transfers", "whatif?asked=1"])
def test_every_chart_is_saved_as_svg_and_png(visit, view, tmp_path):
    page = visit().go(view)
    charts = page.locator("[data-chart]")
    expect(charts.first).to_be_visible()
    assert charts.count() >= 1
    for number in range(charts.count()):
        name = charts.nth(number).get_attribute("data-chart")
        with page.expect_download() as svg:
            page.get_by_label(f"Save the chart {name} as SVG").click()
        svg.value.save_as(tmp_path / "chart.svg")
        assert (tmp_path / "chart.svg").read_text().lstrip().startswith("<svg")
        assert "var(--" not in (tmp_path / "chart.svg").read_text()
        with page.expect_download() as png:
            page.get_by_label(f"Save the chart {name} as PNG").click()
        png.value.save_as(tmp_path / "chart.png")
        assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")
        assert (tmp_path / "chart.png").stat().st_size > 1_000


def test_the_fleet_and_what_ran_are_saved(visit, tmp_path):
    page = visit().go("fleet")
    with page.expect_download() as picture:
        page.get_by_label("Save the fleet as SVG").click()
    picture.value.save_as(tmp_path / "fleet.svg")
    text = (tmp_path / "fleet.svg").read_text()
    assert text.count("<title>") == 48
    assert "gpu-001 device 0" in text
    assert "var(--" not in text
    with page.expect_download() as trace:
        page.get_by_role("button", name="Trace for Perfetto").click()
    trace.value.save_as(tmp_path / "trace.json")
    assert "traceEvents" in json.loads((tmp_path / "trace.json").read_text())
    page.goto(page.url.replace("fleet", "statement"))
    with page.expect_download() as statement:
        page.get_by_role("button", name="Save as JSON").click()
    assert statement.value.suggested_filename == "divvy-statement.json"


def test_what_is_not_allowed_is_not_offered(visit, server):
    server.insight.role = "viewer"
    page = visit().go("budgets")
    expect(page.locator("tr[data-key]").first).to_be_visible()
    expect(page.get_by_label(re.compile("Change the share"))).to_have_count(0)
    page.goto(f"{server.url}/#/fleet?node=gpu-001")
    expect(page.locator("#drawer[open]")).to_contain_text("Administrators take nodes out of service")
    expect(page.get_by_role("button", name="Drain", exact=True)).to_have_count(0)


def test_an_owner_is_offered_what_lies_below(visit, server):
    server.insight.role = "owner"  # of lab
    page = visit().go("budgets")
    expect(page.get_by_label("Change the share of lab.vision", exact=True)).to_be_visible()
    expect(page.get_by_label("Change the share of lab", exact=True)).to_have_count(0)


def test_the_command_line_puts_documents_on_the_page_and_takes_them_off(divvy, home, tmp_path):
    for name, document in (("plan", PLAN), ("node", topology()), ("batch", ROUTES)):
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    ran = divvy("publish", str(tmp_path / "plan.json"), "--name", "mine", "--example")
    assert (ran.code, "under slices: chat on 2 x A100-80GB" in ran.out) == (0, True), ran.err
    assert divvy("publish", str(tmp_path / "node.json"), "-q").out == "node\n"
    assert "mine" in divvy("publish", "--list").out
    assert divvy("publish", "--list", "-q").out.split() == [
        "batch",
        "chat",
        "fleet",
        "mine",
        "node",
        "serve-chat",
    ]
    assert json.loads(divvy("publish", "--print", "mine").out) == PLAN
    assert divvy("publish", "--print", "none").code == 5
    assert divvy("publish", "--remove", "mine").code == 0
    assert divvy("publish", "--remove", "mine").code == 5
    assert divvy("publish").code == 2
    (tmp_path / "no.json").write_text('{"schema": "divvy.status/1"}')
    refused = divvy("publish", str(tmp_path / "no.json"))
    assert (refused.code, "shown-kind" in refused.err) == (2, True)
    (tmp_path / "no.json").write_text("[1]")
    assert divvy("publish", str(tmp_path / "no.json")).code == 2


def test_the_command_line_asks_what_if(divvy, home):
    ran = divvy("whatif", "--share", "lab.language=50", "--hours", "2")
    assert ran.code == 0, ran.err
    assert "a forecast by replay, not a measurement" in ran.out
    assert "97.0% -> 97.0%" in ran.out
    asked = json.loads(divvy("whatif", "--policy", "fifo", "--json").out)["asked"]
    assert asked == {"shares": {}, "policy": "fifo", "hours": 24.0}
    assert divvy("whatif", "-q").out.split() == []
    assert divvy("whatif", "--share", "lab.language").code == 2
