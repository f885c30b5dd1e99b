"""The web page: static files without a secret in them; they ask the API like everybody else, with a token.

The token comes once in the fragment of the address (``/#token=...``), which a browser never sends. The page
keeps it in ``sessionStorage`` and sends it as a bearer header, so there is no cookie that another site
could ride on (docs/explanation/identity.md).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from fastapi import APIRouter
from starlette.responses import FileResponse, Response

from divvy.errors import NotFoundError

router = APIRouter(include_in_schema=False)

STATIC: Final = Path(__file__).resolve().parent.parent / "web" / "static"
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
    ".json": "application/json",
}


def _pages() -> dict[str, Path]:
    """Return what may be served, by its place: a list made once, so that no request ever names a file."""
    if not STATIC.is_dir():
        return {}
    files = (path for path in sorted(STATIC.rglob("*")) if path.is_file() and path.suffix in _TYPES)
    return {str(path.relative_to(STATIC)): path for path in files}


_PAGES: Final = _pages()


@router.get("/")
async def page() -> Response:
    """Return the page."""
    return _file("index.html")


@router.get("/web/{place:path}")
async def file(place: str) -> Response:
    """Return one of the page's files."""
    return _file(place)


def _file(place: str) -> Response:
    found = _PAGES.get(place)
    if found is None:
        raise NotFoundError.one("page-unknown", f"no page {place[:80]!r}")
    headers = {"Cache-Control": "no-cache"}
    return FileResponse(found, media_type=_TYPES[found.suffix], headers=headers)
