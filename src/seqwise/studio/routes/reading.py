"""Bodies of requests."""

from __future__ import annotations

import json
from typing import Any

from fastapi import Request

from seqwise.errors import UsageError


async def read_object(request: Request) -> dict[str, Any]:
    """Returns the body of a request, a JSON object."""
    try:
        values = json.loads(await request.body())
    except (ValueError, RecursionError):
        raise UsageError("expected a JSON object as the body of the request.") from None
    if not isinstance(values, dict):
        raise UsageError("expected a JSON object as the body of the request.")
    return values
