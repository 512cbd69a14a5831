"""The statements of the lab, without their verdicts: those come from running the experiments."""

from __future__ import annotations

from functools import cache
from typing import Any

from fastapi import APIRouter

from seqwise.lab.catalogue import CHAPTERS
from seqwise.lab.page.build import list_styles
from seqwise.lab.statements import Statement, list_statements
from seqwise.page.figures import to_plain
from seqwise.studio.functions.lab import compute_maximum
from seqwise.studio.services import Services


def build_router(services: Services) -> APIRouter:
    """Returns the routes of the lab."""
    router = APIRouter(prefix="/api")

    @router.get("/lab")
    def get_lab() -> Any:
        return _describe_lab()

    return router


@cache
def _describe_lab() -> dict[str, Any]:
    """Returns the chapters with their statements, and the styles of figures that the page computes itself."""
    statements = list_statements().values()
    chapters = [
        {
            "letter": letter,
            "title": chapter.title,
            "statements": [_describe(each) for each in statements if each.id[0] == letter],
        }
        for letter, chapter in CHAPTERS.items()
    ]
    return {"chapters": chapters, "styles": list_styles()}


def _describe(statement: Statement) -> dict[str, Any]:
    values = to_plain(statement)
    values["parameters"] = [{**to_plain(each), "maximum": compute_maximum(each)} for each in statement.parameters]
    return values
