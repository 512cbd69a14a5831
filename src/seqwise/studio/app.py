"""The web application of the studio: its routes, its errors and what runs beside them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from fastapi import FastAPI

from seqwise.studio.errors import PlainResponse, add_handlers
from seqwise.studio.routes import calls, comparisons, forms, jobs, lab, pages, run, runs, vectors
from seqwise.studio.services import Services


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
    app = FastAPI(
        lifespan=run_services, docs_url=None, redoc_url=None, openapi_url=None, default_response_class=PlainResponse
    )
    add_handlers(app)
    for module in (pages, runs, run, calls, forms, jobs, comparisons, lab, vectors):
        app.include_router(module.build_router(services))
    return app
