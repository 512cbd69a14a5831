"""Bodies of requests."""

from __future__ import annotations

import asyncio
import json
from typing import TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError

from seqwise.errors import UsageError
from seqwise.studio.errors import explain_invalid

Model = TypeVar("Model", bound=BaseModel)


async def read_model(request: Request, model: type[Model]) -> Model:
    """Returns the body of a request, a JSON object, checked against its model."""
    return await asyncio.to_thread(_parse, await request.body(), model)  # it may have millions of characters


def _parse(body: bytes, model: type[Model]) -> Model:
    try:
        values = json.loads(body)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise UsageError("expected a JSON object as the body of the request.")
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise UsageError(explain_invalid(error)) from None
