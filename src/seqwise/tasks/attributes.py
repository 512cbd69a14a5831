"""What `task.json` of a run must contain for each task, checked when the run is opened.

Digests detect damage, but anyone can edit the file and remove its digest; so tasks can rely on the types of the values.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    NonNegativeInt,
    PositiveInt,
    ValidationError,
)

from seqwise.errors import RunError

T = TypeVar("T", bound=Hashable)
MAX_TICK = 1 << 62  # microseconds: numbers of the time grid fit into 64 bits


def _reject_duplicates(values: list[T]) -> list[T]:
    if len(set(values)) < len(values):
        raise ValueError("expected every value once")
    return values


Names = Annotated[list[str], Field(min_length=1), AfterValidator(_reject_duplicates)]
Tick = Annotated[int, Field(ge=-MAX_TICK, le=MAX_TICK)]


class ClassifyAttributes(BaseModel):
    labels: Names


class TagAttributes(BaseModel):
    tags: Names
    spans: bool
    folds: bool
    alphabet: str


class TranslateAttributes(BaseModel):
    source: str
    targets: Names
    ratios: list[FiniteFloat]


class CaptionAttributes(BaseModel):
    kind: Literal["images", "pictures", "frames", "features"]  # "pictures" in runs of version 0.1
    width: NonNegativeInt
    regions: NonNegativeInt


class ColumnAttributes(BaseModel):
    time: str
    targets: Names
    known: list[str]
    series: str | None


class GridAttributes(BaseModel):
    model_config = ConfigDict(extra="forbid")  # they are arguments of `TimeGrid`

    unit: Literal["moment", "month", "business day", "number"]
    step: Annotated[int, Field(ge=1, le=MAX_TICK)]
    first: Tick
    style: str
    day: Annotated[int, Field(ge=1, le=31)] = 1


class ForecastAttributes(BaseModel):
    columns: ColumnAttributes
    clock: GridAttributes
    names: Names
    mean: list[FiniteFloat]
    deviation: list[FiniteFloat]
    known_mean: list[FiniteFloat]
    known_deviation: list[FiniteFloat]
    in_sample: list[FiniteFloat | None]
    season: PositiveInt
    calendar: list[Literal["time of day", "day of week", "time of year"]]


SCHEMAS: dict[str, type[BaseModel]] = {
    "classify": ClassifyAttributes,
    "tag": TagAttributes,
    "translate": TranslateAttributes,
    "caption": CaptionAttributes,
    "forecast": ForecastAttributes,
}
# Lists of equal lengths.
EQUAL_LENGTHS: dict[str, Sequence[Sequence[str]]] = {
    "translate": [("targets", "ratios")],
    "forecast": [("names", "mean", "deviation", "in_sample"), ("known_mean", "known_deviation")],
}


def check_attributes(task: str, attributes: Mapping[str, Any], file: Path, fix: str) -> None:
    """Raises an error unless the attributes of a run have the types that its task needs; of other tasks any are valid.

    task: as named in the settings of the run
    file, fix: for the message
    """
    if task not in SCHEMAS:
        return
    try:
        SCHEMAS[task].model_validate(dict(attributes), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        raise RunError(f"{name}: {first['msg']}, for the task {task}.", file=file, fix=fix) from None
    for names in EQUAL_LENGTHS.get(task, ()):
        if len({len(attributes[name]) for name in names}) > 1:
            raise RunError(f"{', '.join(names)}: expected lists of the same length.", file=file, fix=fix)
