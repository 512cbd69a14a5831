"""Bodies of requests."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError

from seqwise.errors import UsageError

Model = TypeVar("Model", bound=BaseModel)


async def read_object(request: Request) -> dict[str, Any]:
    """Returns the body of a request, a JSON object."""
    try:
        values = json.loads(await request.body())
    except (ValueError, RecursionError):
        raise UsageError("expected a JSON object as the body of the request.") from None
    if not isinstance(values, dict):
        raise UsageError("expected a JSON object as the body of the request.")
    return values


async def read_model(request: Request, model: type[Model]) -> Model:
    """Returns the body of a request, checked against its model."""
    try:
        return model.model_validate(await read_object(request))
    except ValidationError as error:
        raise UsageError(explain(error)) from None


def explain(error: ValidationError) -> str:
    """Returns what is wrong with a request, as a sentence."""
    problems = [f"{'.'.join(map(str, each['loc']))[:200]}: {each['msg']}" for each in error.errors()[:5]]
    return f"the request is not valid: {'; '.join(problems)}"
