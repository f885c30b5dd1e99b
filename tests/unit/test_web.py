from __future__ import annotations

import asyncio
import gzip
import re

import pytest
from fastapi import FastAPI
from httpx import ASGITransport, AsyncClient, Response

from divvy.service.web import STATIC, load, mount


class Client:
    """Asks an application that holds nothing but the page."""

    def __init__(self) -> None:
        self._app = FastAPI()
        mount(self._app)

    def get(self, path: str, headers: dict[str, str] | None = None) -> Response:
        async def ask() -> Response:
            async with AsyncClient(transport=ASGITransport(self._app), base_url="http://page") as client:
                return await client.get(path, headers=headers)

        return asyncio.run(ask())


@pytest.fixture
def client() -> Client:
    return Client()


def test_the_page_comes_with_a_policy_that_forbids_everything_else(client):
    answer = client.get("/")
    policy = answer.headers["content-security-policy"]
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_what_has_not_changed_is_not_sent_again(client):
    tag = client.get("/web/app.js").headers["etag"]
    again = client.get("/web/app.js", headers={"If-None-Match": f'W/"old", {tag}'})
    assert again.status_code == 304
    assert again.content == b""
    assert client.get("/web/app.js", headers={"If-None-Match": '"other"'}).status_code == 200


def test_files_are_packed_for_browsers_that_unpack(client):
    plain = client.get("/web/app.js", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    packed = client.get("/web/app.js", headers={"Accept-Encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.content == plain.content == (STATIC / "app.js").read_bytes()


@pytest.mark.parametrize("path", ["/web/nothing.js", "/web/../app.py", "/web/%2e%2e/__init__.py", "/web/"])
def test_nothing_else_is_served(client, path):
    assert client.get(path).status_code == 404


def test_the_page_names_no_other_host_and_holds_nothing_inline():
    html = (STATIC / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"\son\w+=|\sstyle=|<style|<script>(?!<)", html)
    for path in STATIC.iterdir():
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text), path.name
        if path.suffix == ".js":
            assert "innerHTML" not in text
            assert "eval(" not in text


def test_every_module_that_is_named_is_there():
    assets = load()
    html = (STATIC / "index.html").read_text(encoding="utf-8")
    named = set(re.findall(r'/web/([\w.]+)"', html))
    for name, asset in assets.items():
        if name.endswith(".js"):
            named |= set(re.findall(r'from "\./([\w.]+)"', asset.content.decode()))
        assert gzip.decompress(asset.packed) == asset.content
    later = re.search(r"const LATER = \[(.*?)\]", assets["app.js"].content.decode())
    named |= {f"{view}.js" for view in re.findall(r'"(\w+)"', later[1])}
    assert named == set(assets) - {"index.html"}
