"""The page itself, its style sheets and its modules."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import FileResponse, JSONResponse, Response

from seqwise.page.html import FIGURE_STYLE, build_style, list_scales
from seqwise.studio.services import Services

PACKAGE = Path(__file__).parents[2]
# Folders of modules and style sheets. Their addresses are those of the package, so that relative imports work.
STATIC_FOLDERS = (
    "page/components",
    "compare/report/page",
    "lab/page",
    "lab/page/live",
    "studio/static",
    "studio/static/pages",
)
MEDIA_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


def build_router(services: Services) -> APIRouter:
    """Returns the routes of the page."""
    router = APIRouter()

    @router.get("/")
    def show_page() -> Response:
        return FileResponse(PACKAGE / "studio/static/index.html", media_type="text/html; charset=utf-8")

    @router.get("/favicon.ico")
    def get_icon() -> Response:
        return FileResponse(PACKAGE / "studio/static/icon.svg", media_type="image/svg+xml")

    @router.get("/style.css")
    def get_style() -> Response:
        return Response(_read_style(), media_type="text/css")

    @router.get("/api/scales")
    def get_scales() -> dict:
        return list_scales()

    @router.get("/static/{path:path}")
    def get_file(path: str) -> Response:
        if path not in _list_files():
            return JSONResponse({"problem": "there is no such file."}, 404)
        return FileResponse(PACKAGE / path, media_type=MEDIA_TYPES[Path(path).suffix])

    return router


@cache
def _read_style() -> str:
    return build_style() + FIGURE_STYLE.read_text(encoding="utf-8")


@cache
def _list_files() -> frozenset[str]:
    folders = [PACKAGE / folder for folder in STATIC_FOLDERS]
    files = [path for folder in folders for path in folder.iterdir() if path.suffix in MEDIA_TYPES]
    return frozenset(path.relative_to(PACKAGE).as_posix() for path in files)
