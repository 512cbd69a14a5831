"""Tags and notes of runs, and deleting runs."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from seqwise.files import check_link, write_text
from seqwise.studio.entries import MAX_NOTE, MAX_TAG, MAX_TAGS, Entry, clean_tags
from seqwise.studio.functions import RunId
from seqwise.studio.routes.reading import read_model
from seqwise.studio.scan import NOTES_FILE
from seqwise.studio.services import Services
from seqwise.studio.trash import Trash

MAX_RUNS = 500  # of one request


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class NotesBody(_Body):
    """The tags and the note of a run."""

    id: RunId
    tags: Annotated[list[Annotated[str, Field(max_length=MAX_TAG)]], Field(max_length=MAX_TAGS)] = []
    note: Annotated[str, Field(max_length=MAX_NOTE)] = ""


class DeleteBody(_Body):
    """Runs to delete."""

    ids: Annotated[list[RunId], Field(min_length=1, max_length=MAX_RUNS)]


class RestoreBody(_Body):
    """Deleted runs to restore."""

    tokens: Annotated[list[Annotated[str, Field(max_length=40)]], Field(min_length=1, max_length=MAX_RUNS)]


class EmptyBody(_Body):
    """Removes all deleted runs for good."""


def build_router(services: Services) -> APIRouter:
    """Returns the routes that change runs."""
    router, trash = APIRouter(prefix="/api"), Trash(services.catalogue)

    @router.post("/notes")
    async def save_notes(request: Request) -> Any:
        body = await read_model(request, NotesBody)
        entry = services.catalogue.get(body.id)
        tags, note = clean_tags(body.tags), body.note.strip()
        await asyncio.to_thread(write_notes, entry, tags, note)
        await services.watcher.look()
        return {"tags": tags, "note": note}

    @router.post("/delete")
    async def delete(request: Request) -> Any:
        body = await read_model(request, DeleteBody)
        deleted = []
        try:
            for each in dict.fromkeys(body.ids):
                deleted.append((await asyncio.to_thread(trash.delete, each)).token)
        finally:
            await services.watcher.look()
        return {"tokens": deleted}

    @router.post("/restore")
    async def restore(request: Request) -> Any:
        body = await read_model(request, RestoreBody)
        try:
            restored = [await asyncio.to_thread(trash.restore, token) for token in dict.fromkeys(body.tokens)]
        finally:
            await services.watcher.look()
        return {"paths": [each.path for each in restored]}

    @router.get("/trash")
    def list_trash() -> Any:
        return [each.describe() for each in trash.list()]

    @router.post("/empty-trash")
    async def empty_trash(request: Request) -> Any:
        await read_model(request, EmptyBody)
        return {"removed": await asyncio.to_thread(trash.empty)}

    return router


def write_notes(entry: Entry, tags: list[str], note: str) -> None:
    """Writes tags and note of a run into its folder."""
    path = entry.folder / NOTES_FILE
    check_link(path, entry.folder)
    write_text(path, json.dumps({"tags": tags, "note": note}, ensure_ascii=False, indent=1) + "\n", concurrent=True)
