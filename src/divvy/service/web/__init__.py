"""The web page: plain HTML, CSS and ES modules, served from memory with a policy that forbids all else.

There is no build step and nothing comes from another host, so the page works without internet access.
"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fastapi import FastAPI, Request, Response

STATIC: Final = Path(__file__).parent / "static"
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
#: Scripts, styles, images and connections of this origin only; nothing inline, no frames, no plug-ins.
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # A browser asks each time and gets 304 unless the file changed: an upgrade is never half seen.
    "Cache-Control": "no-cache",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """One file of the page.

    Attributes:
        content: Its bytes.
        packed: The same, compressed by gzip.
        kind: Media type.
        tag: Entity tag: a hash of the content.
    """

    content: bytes
    packed: bytes
    kind: str
    tag: str


def load(root: Path = STATIC) -> dict[str, Asset]:
    """Return every file of the page by its path below the root."""
    return {path.relative_to(root).as_posix(): _asset(path) for path in sorted(root.rglob("*.*"))}


def _asset(path: Path) -> Asset:
    content = path.read_bytes()
    tag = hashlib.sha256(content).hexdigest()[:20]
    return Asset(content, gzip.compress(content, mtime=0), _TYPES[path.suffix], f'"{tag}"')


def answer(asset: Asset, *, known: str, packed: bool) -> tuple[int, dict[str, str], bytes]:
    """Return the status, headers and body for a browser that knows a tag and may accept gzip."""
    headers = HEADERS | {"ETag": asset.tag, "Vary": "Accept-Encoding"}
    if asset.tag in (tag.strip().removeprefix("W/") for tag in known.split(",")):
        return 304, headers, b""
    headers["Content-Type"] = asset.kind
    if not packed:
        return 200, headers, asset.content
    return 200, headers | {"Content-Encoding": "gzip"}, asset.packed


def mount(app: FastAPI) -> None:
    """Add the page to an application: ``/`` and the files that it needs below ``/web``."""
    assets = load()

    async def serve(request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        asset = assets.get(name)
        if asset is None:
            return Response("no such file", 404, HEADERS, "text/plain")
        known = request.headers.get("if-none-match", "")
        accepted = request.headers.get("accept-encoding", "")
        status, headers, body = answer(asset, known=known, packed="gzip" in accepted)
        return Response(body, status, headers)

    app.add_route("/", serve, methods=["GET"], include_in_schema=False)
    app.add_route("/web/{name:path}", serve, methods=["GET"], include_in_schema=False)
