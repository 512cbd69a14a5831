"""Requests for the views of `seqwise.lens`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from seqwise.lens import VIEWS
from seqwise.studio.functions import Function, Request, RunId, UploadId

MAX_TEXT = 100_000  # characters
MAX_VALUE = 1_000  # characters of an option
MAX_OPTIONS = 20
MAX_RUNS = 2  # side by side
LIMIT = 10**9  # of a number

Whole = Annotated[int, Field(ge=-LIMIT, le=LIMIT)]
Number = Annotated[float, Field(ge=-LIMIT, le=LIMIT, allow_inf_nan=False)]
Value = bool | Whole | Number | Annotated[str, Field(max_length=MAX_VALUE)]
Options = Annotated[dict[Annotated[str, Field(max_length=100)], Value], Field(max_length=MAX_OPTIONS)]


class InputRequest(Request):
    """Runs with what they read: a text, an uploaded file, or neither: then a validation example is chosen."""

    runs: Annotated[list[RunId], Field(min_length=1, max_length=MAX_RUNS)]
    text: Annotated[str, Field(max_length=MAX_TEXT)] | None = None
    upload: UploadId | None = None


class ViewRequest(InputRequest):
    """One view of runs. `file_name` is the name that an uploaded file has on the user's machine."""

    view: Literal[tuple(VIEWS)]  # type: ignore[valid-type]
    options: Options = Field(default_factory=dict)
    file_name: Annotated[str, Field(max_length=300)] = ""


class SaveRequest(ViewRequest):
    """One view as a file."""

    format: Literal["html", "png", "svg", "json"]


FUNCTIONS = {
    "describe_views": Function(InputRequest, "views:describe_views", "views"),
    "compute_view": Function(ViewRequest, "views:compute_view", "views"),
    "save_view": Function(SaveRequest, "views:save_view", "views"),
}
