"""A real headless Chromium, and pages that keep what went wrong on them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, Playwright, Request

ARTIFACTS: Final = Path(__file__).parents[3] / "artifacts"
FLAGS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--no-first-run",
)
SIZES: Final = {"wide": (1280, 860), "narrow": (390, 844)}


def launch(playwright: Playwright) -> Browser:
    """Start the machine's own Chromium, or the one that Playwright has installed; skip without any."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None and not Path(playwright.chromium.executable_path).exists():
        pytest.skip("no Chromium is installed here (Debian: apt-get install chromium)")
    return playwright.chromium.launch(executable_path=found, args=list(FLAGS))


class Visit:
    """One page of one visitor.

    Attributes:
        page: The page.
        faults: Errors and warnings of its console, and exceptions; a test that expects none checks that.
        hosts: Hosts that it asked for anything.
    """

    def __init__(self, browser: Browser, url: str, *, size: str = "wide", scheme: str = "light") -> None:
        width, height = SIZES[size]
        self.url = url
        self.context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme="dark" if scheme == "dark" else "light"
        )
        self.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=url)
        self.page: Page = self.context.new_page()
        self.faults: list[str] = []
        self.hosts: set[str] = set()
        self.page.set_default_timeout(10_000)
        self.page.on("console", lambda message: self._note(message.type, message.text))
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("request", self._asked)

    def _note(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.faults.append(text)

    def _asked(self, request: Request) -> None:
        self.hosts.add(urlsplit(request.url).netloc)

    def go(self, view: str = "fleet") -> Page:
        """Open a view and wait until it is drawn."""
        self.page.goto(f"{self.url}/#/{view}")
        self.page.wait_for_selector(f"html[data-ready={view.partition('?')[0]}]")
        return self.page

    def shoot(self, name: str, *, whole: bool = True) -> None:
        """Keep a picture of the page."""
        ARTIFACTS.mkdir(exist_ok=True)
        self.page.screenshot(path=ARTIFACTS / f"{name}.png", full_page=whole)

    def forgive(self, status: int) -> None:
        """Take out what the browser itself notes about refusals with a status."""
        self.faults = [fault for fault in self.faults if f"a status of {status}" not in fault]

    def close(self) -> None:
        """Leave."""
        self.context.close()
