"""Errors of the studio, and how the page learns of any error: as JSON with `problem`, `fix`, `file` and `line`."""

from __future__ import annotations

import json
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from seqwise.errors import SeqwiseError, UsageError
from seqwise.page.figures import to_plain
from seqwise.studio.limits import BusyError, RequestTooLarge
from seqwise.studio.worker import describe_error


class PlainResponse(JSONResponse):
    """JSON in ASCII, without NaN: names of folders and texts of damaged files need not be valid Unicode."""

    def render(self, content: Any) -> bytes:
        return json.dumps(to_plain(content), allow_nan=False, separators=(",", ":")).encode()


def explain_invalid(error: ValidationError | RequestValidationError) -> str:
    """Returns what is wrong with a request, as a sentence."""
    problems = [f"{'.'.join(map(str, each['loc']))[:200]}: {each['msg']}" for each in error.errors()[:5]]
    return f"the request is not valid: {'; '.join(problems)}"


def add_handlers(app: FastAPI) -> None:
    """Makes the application answer every error in the same form; the terminal shows the traceback of a bug."""

    @app.exception_handler(SeqwiseError)
    async def explain(request: Request, error: SeqwiseError) -> JSONResponse:
        status = 503 if isinstance(error, BusyError) else 400 if isinstance(error, UsageError) else 500
        return PlainResponse(describe_error(error), status)

    @app.exception_handler(RequestTooLarge)
    async def refuse_size(request: Request, error: RequestTooLarge) -> JSONResponse:
        return PlainResponse({"problem": str(error), "fix": "Use a smaller file or text."}, 413)

    @app.exception_handler(RequestValidationError)
    async def refuse_parameters(request: Request, error: RequestValidationError) -> JSONResponse:
        return PlainResponse({"problem": explain_invalid(error), "fix": ""}, 422)

    @app.exception_handler(HTTPException)
    async def refuse_address(request: Request, error: HTTPException) -> JSONResponse:
        problem = "there is no such page." if error.status_code == 404 else f"{error.detail}."
        return PlainResponse({"problem": problem, "fix": ""}, error.status_code)

    @app.exception_handler(ClientDisconnect)
    async def ignore_disconnect(request: Request, error: ClientDisconnect) -> JSONResponse:
        return PlainResponse({"problem": "the connection was lost.", "fix": ""}, 400)  # the client is gone

    @app.exception_handler(Exception)
    async def explain_bug(request: Request, error: Exception) -> JSONResponse:
        fix = "This is a bug in Seqwise, or a damaged file; the terminal shows the traceback."
        return PlainResponse({"problem": f"unexpected {type(error).__name__}: {error}"[:500], "fix": fix}, 500)
