"""The web application of the studio: its routes, its errors and what runs beside them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from seqwise.errors import SeqwiseError, UsageError
from seqwise.studio.routes import calls, comparisons, forms, jobs, lab, pages, run, runs, vectors
from seqwise.studio.services import Services
from seqwise.studio.worker import describe_error


def build_app(services: Services) -> FastAPI:
    """Returns the application; `Guard` must protect it."""

    @asynccontextmanager
    async def run_services(app: FastAPI) -> AsyncIterator[None]:
        task = asyncio.create_task(services.watcher.run())
        yield
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await services.close()

    # FastAPI's own documentation pages would load scripts from elsewhere.
    app = FastAPI(lifespan=run_services, docs_url=None, redoc_url=None, openapi_url=None)

    @app.exception_handler(SeqwiseError)
    async def explain(request: Request, error: SeqwiseError) -> JSONResponse:
        return JSONResponse(describe_error(error), 400 if isinstance(error, UsageError) else 500)

    for module in (pages, runs, run, calls, forms, jobs, comparisons, lab, vectors):
        app.include_router(module.build_router(services))
    return app
