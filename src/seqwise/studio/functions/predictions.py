"""Requests for predictions with a run."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from seqwise.studio.functions import Function, Request, RunId

MAX_TEXT = 100_000  # characters


class PredictRequest(Request):
    """Predict for one text."""

    run: RunId
    text: Annotated[str, Field(max_length=MAX_TEXT)]


FUNCTIONS = {"predict": Function(PredictRequest, "predictions:predict", "use")}
