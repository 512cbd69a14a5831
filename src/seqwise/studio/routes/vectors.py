"""The files of word vectors inside the folders."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from seqwise.studio.services import Services
from seqwise.studio.vector_files import MAX_FILES, list_vector_files


def build_router(services: Services) -> APIRouter:
    """Returns the routes of vectors."""
    router = APIRouter(prefix="/api")

    @router.get("/vectors")
    def get_files() -> Any:
        files = list_vector_files(services.catalogue)
        return {"files": [vars(file) for file in files], "is_complete": len(files) < MAX_FILES}

    return router
