"""Forms for new trainings and comparisons."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from seqwise.studio.forms import build_arguments, format_command, list_fields
from seqwise.studio.routes.reading import read_object
from seqwise.studio.services import Services


def build_router(services: Services) -> APIRouter:
    """Returns the routes of forms."""
    router = APIRouter(prefix="/api")

    @router.get("/form")
    def get_form() -> Any:
        return list_fields()

    @router.post("/command")
    async def preview_command(request: Request) -> Any:
        values = await read_object(request)
        command = str(values.pop("command", "train"))
        return {"command": format_command(build_arguments(command, values))}

    return router
