"""Requests for predictions with a run, one for each task, and for examples of its data."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from seqwise.studio.functions import Function, Request, RunId, UploadId

MAX_TEXT = 20_000  # characters
MAX_TABLE = 4_000_000  # characters of a table
MAX_NEW_TOKENS = 500
MAX_BEAM = 20
MAX_HORIZON = 10_000  # steps

Text = Annotated[str, Field(max_length=MAX_TEXT)]
Name = Annotated[str, Field(max_length=1_000)]
Number = Annotated[int, Field(ge=0, le=1_000_000)]
TokenId = Annotated[int, Field(ge=0, lt=2**31)]
Beam = Annotated[int, Field(ge=1, le=MAX_BEAM)]
LengthPenalty = Annotated[float, Field(ge=0, le=10)]
Values = Annotated[list[float | None], Field(max_length=MAX_HORIZON, default_factory=list)]


class RunRequest(Request):
    """Ask for what the page must know of a run."""

    run: RunId


class ExampleRequest(RunRequest):
    """Ask for an example of the validation split; each number stands for another one."""

    number: Number = 0


class PredictRequest(RunRequest):
    """Predict for one text."""

    text: Text


class ContinueRequest(PredictRequest):
    """Continue a text; `prefix` are the tokens that the continuation begins with."""

    prefix: Annotated[list[TokenId], Field(max_length=MAX_NEW_TOKENS, default_factory=list)]
    length: Annotated[int, Field(ge=1, le=MAX_NEW_TOKENS)] = 40
    seed: Annotated[int, Field(ge=0, lt=2**53)] = 0
    greedy: bool = False
    temperature: Annotated[float, Field(gt=0, le=100)] = 1.0
    top_k: Annotated[int | None, Field(ge=1, le=1_000_000)] = None
    top_p: Annotated[float | None, Field(gt=0, le=1)] = None


class ExplainRequest(PredictRequest):
    """Ask which words decide a label."""

    label: Name


class SearchRequest(RunRequest):
    """Options of a beam search."""

    beam: Beam = 5
    length_penalty: LengthPenalty = 1.0
    n_best: Beam | None = None  # as many as the beam, unless it is set
    start: Annotated[str, Field(max_length=2_000)] = ""


class TranslateRequest(SearchRequest):
    """Translate a text."""

    text: Text
    target: Name | None = None


class CaptionRequest(SearchRequest):
    """Describe an image: one that was uploaded, or an example of the validation split."""

    upload: UploadId | None = None
    number: Number = 0


class TableRequest(RunRequest):
    """Ask for the end of a table that was uploaded, or of an example of the validation split."""

    upload: UploadId | None = None
    number: Number = 0


class ForecastRequest(RunRequest):
    """Forecast the steps after the end of a table; `truth` and `before` are drawn beside the forecast."""

    text: Annotated[str, Field(max_length=MAX_TABLE)]
    series: Name | None = None
    truth: Values
    before: Values


FUNCTIONS = {
    "describe_model": Function(RunRequest, "predictions:describe_model", "use"),
    "choose_example": Function(ExampleRequest, "examples:choose_example", "use"),
    "predict": Function(PredictRequest, "predictions:predict", "use"),
    "continue_text": Function(ContinueRequest, "continuations:continue_text", "use"),
    "fill_masks": Function(PredictRequest, "text_predictions:fill_masks", "use"),
    "classify": Function(PredictRequest, "text_predictions:classify", "use"),
    "explain_label": Function(ExplainRequest, "text_predictions:explain_label", "use"),
    "tag": Function(PredictRequest, "tagging:tag", "use"),
    "translate": Function(TranslateRequest, "searches:translate", "use"),
    "caption": Function(CaptionRequest, "searches:caption", "use"),
    "read_table": Function(TableRequest, "forecasts:read_table", "use"),
    "forecast": Function(ForecastRequest, "forecasts:forecast", "use"),
}
