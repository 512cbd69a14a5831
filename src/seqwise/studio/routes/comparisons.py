"""Comparisons as JSON: all of them, the progress of one, its report, and its files."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.responses import FileResponse, JSONResponse, Response

from seqwise.studio.comparisons import ComparisonProgress, find_download, list_comparisons, load_report_data
from seqwise.studio.services import Services


def build_router(services: Services) -> APIRouter:
    """Returns the routes of comparisons."""
    router, catalogue = APIRouter(prefix="/api"), services.catalogue

    @router.get("/comparisons")
    def get_comparisons() -> Any:
        return list_comparisons(catalogue)

    @router.get("/comparison")
    def get_comparison(id: str) -> Any:
        return ComparisonProgress(catalogue, catalogue.get(id)).describe()

    @router.get("/comparison/report")
    def get_report(id: str) -> Any:
        """The report in the folder; null if trials have ended since it was written: then a worker gathers it."""
        catalogue.get_folder(id)  # raises an error if the report may be somewhere else
        progress = ComparisonProgress(catalogue, catalogue.get(id))
        return None if progress.report is None else load_report_data(progress)

    @router.get("/comparison/file")
    def download(id: str, name: str) -> Response:
        entry = catalogue.get(id)
        path = find_download(catalogue, entry, name)
        if path is None:
            return JSONResponse({"problem": "there is no such file."}, 404)
        # Always as an attachment: a file of a folder must never be a page of this server.
        return FileResponse(path, media_type="application/octet-stream", filename=f"{entry.folder.name}-{name}")

    return router
