"""Forms for new trainings and comparisons: their fields, the command that they stand for, and paths to choose from."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from seqwise.errors import UsageError
from seqwise.studio.forms import (
    MAX_VALUE,
    Form,
    build_arguments,
    build_check_arguments,
    describe_form,
    format_command,
    read_form,
)
from seqwise.studio.jobs import format_path
from seqwise.studio.processes import find_working_folder
from seqwise.studio.routes.reading import read_model
from seqwise.studio.services import Services

MAX_FIELDS = 300
MAX_PATHS = 50  # in a list to choose from

Command = Literal["train", "compare"]
Name = Annotated[str, Field(max_length=200)]
Value = str | bool | int | float | None


class FormRequest(BaseModel):
    """A form as the page sends it."""

    model_config = ConfigDict(extra="forbid", strict=True)

    command: Command = "train"
    values: Annotated[dict[Name, Value], Field(max_length=MAX_FIELDS)] = {}
    folder: Annotated[str, Field(max_length=MAX_VALUE)] = ""  # a given folder, by its name; the first one unless set
    name: Name = ""  # of the run below that folder; suggested unless set
    detected_task: Name = ""  # that a check has found in the data


@dataclass(frozen=True)
class PlannedJob:
    """A form, and where its run is saved."""

    form: Form
    folder: Path
    out: Path
    suggested_name: str  # if the user sets none
    name_problem: str = ""

    @property
    def arguments(self) -> list[str]:
        """The words after `seqwise`."""
        return build_arguments(self.form, format_path(self.out))


def plan_job(services: Services, request: FormRequest) -> PlannedJob:
    """Reads a form and chooses the folder of its run. A wrong name is a problem of the form, as other wrong values."""
    jobs, names = services.jobs, services.catalogue.names
    form = read_form(request.command, request.values, request.detected_task or None)
    folders = {names[each]: each for each in jobs.list_folders()}
    if not folders or (request.folder and request.folder not in folders):
        raise UsageError(
            "new runs cannot be saved there.", fix="Start the studio with a folder of runs: seqwise studio runs"
        )
    folder = folders[request.folder or next(iter(folders))]
    suggested = jobs.suggest_name(folder, _build_stem(form))
    try:
        return PlannedJob(form, folder, jobs.choose_out(folder, request.name.strip() or suggested), suggested)
    except UsageError as error:
        return PlannedJob(form, folder, folder / suggested, suggested, error.problem)


def _build_stem(form: Form) -> str:
    """Returns a name for a run: that of its data, and of its model."""
    data = Path(form.data.removeprefix("builtin:")).name.partition(".")[0]
    stem = re.sub(r"[^\w.-]+", "-", data).strip("-._")[:60] or form.task or "run"
    return f"{stem}-{'compare' if form.command == 'compare' else form.options.get('model', 'lstm')}"


def build_router(services: Services) -> APIRouter:
    """Returns the routes of forms."""
    router = APIRouter(prefix="/api")

    @router.get("/form")
    def get_form(command: Command = "train") -> Any:
        folders = [
            {"name": services.catalogue.names[each], "path": format_path(each)} for each in services.jobs.list_folders()
        ]
        return {**describe_form(command), "folders": folders, "working_folder": str(find_working_folder() or "")}

    @router.post("/command")
    async def preview_command(request: Request) -> Any:
        planned = await asyncio.to_thread(plan_job, services, await read_model(request, FormRequest))
        problems = {**planned.form.problems, **({"name": planned.name_problem} if planned.name_problem else {})}
        return {
            "command": format_command(planned.arguments) if planned.form.data else "",
            "check_command": format_command(build_check_arguments(planned.form)) if planned.form.data else "",
            "problems": problems,
            "unused": planned.form.unused,
            "task": planned.form.task,
            "name": planned.suggested_name,
        }

    @router.get("/paths")
    def list_paths(prefix: str = "") -> Any:
        return list(_find_paths(prefix[:MAX_VALUE]))

    return router


def _find_paths(prefix: str) -> Iterator[str]:
    """Yields files and folders below the working folder whose path begins so; a folder ends with a slash."""
    root = find_working_folder()
    parent, _, beginning = prefix.rpartition("/")
    is_plain = "\0" not in prefix and not any(part.startswith(".") for part in parent.split("/"))
    if root is None or not is_plain or prefix.startswith("/"):
        return
    try:
        folder = (root / parent).resolve()
        if not folder.is_relative_to(root):
            return
        found = sorted(each.name + "/" * each.is_dir() for each in os.scandir(folder) if not each.name.startswith("."))
    except OSError:  # there is no such folder
        return
    matching = [name for name in found if name.startswith(beginning) and name.isprintable()]
    yield from (f"{parent}/{name}" if parent else name for name in matching[:MAX_PATHS])
