"""Trainings and comparisons: check their data, start, stop and resume them."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from seqwise.errors import UsageError
from seqwise.studio.forms import build_check_arguments
from seqwise.studio.routes.forms import FormRequest, plan_job
from seqwise.studio.routes.reading import read_model
from seqwise.studio.services import Services


class JobRequest(BaseModel):
    """Names a run, a comparison or a job."""

    model_config = ConfigDict(extra="forbid", strict=True)

    id: Annotated[str, Field(min_length=1, max_length=1_000)]


class ResumeRequest(JobRequest):
    """Names a run or a comparison; a finished run needs a larger budget."""

    budget: Annotated[str, Field(max_length=50)] = ""


def build_router(services: Services) -> APIRouter:
    """Returns the routes of jobs."""
    router, jobs = APIRouter(prefix="/api"), services.jobs

    @router.get("/jobs")
    def list_jobs() -> Any:
        return jobs.describe_all()

    @router.post("/jobs")
    async def start(request: Request) -> Any:
        planned = await asyncio.to_thread(plan_job, services, await read_model(request, FormRequest))
        planned.form.check()
        if planned.name_problem:
            raise UsageError(planned.name_problem)
        return await _answer(jobs.start, planned.arguments, planned.folder, planned.out)

    @router.post("/jobs/resume")
    async def resume(request: Request) -> Any:
        values = await read_model(request, ResumeRequest)
        await services.watcher.look()  # the run may have just been created or stopped
        return await _answer(jobs.resume, services.catalogue.get(values.id), values.budget)

    @router.post("/jobs/stop")
    async def stop(request: Request) -> Any:
        values = await read_model(request, JobRequest)
        await services.watcher.look()
        has_ended = await asyncio.to_thread(jobs.stop, values.id)
        await services.watcher.look()
        return {"id": values.id, "has_ended": has_ended}

    @router.post("/jobs/forget")
    async def forget(request: Request) -> Any:
        await asyncio.to_thread(jobs.forget, (await read_model(request, JobRequest)).id)
        return {}

    @router.post("/check")
    async def check(request: Request) -> Any:
        form = (await asyncio.to_thread(plan_job, services, await read_model(request, FormRequest))).form
        form.check()
        return await services.checks.run(build_check_arguments(form), request.is_disconnected)

    async def _answer(function: Any, *arguments: Any) -> Any:
        folder, job = await asyncio.to_thread(function, *arguments)
        await services.watcher.look()
        return await asyncio.to_thread(jobs.describe, folder, job)

    return router
