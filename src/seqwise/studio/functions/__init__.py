"""What the studio computes with models: each function has a name, a typed request and a lane.

The requests are checked by the server, which imports no PyTorch. The functions themselves are in `seqwise.studio.work`
and run in the worker process of their lane: what takes long in one lane does not delay another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from seqwise.studio.services import Services

Lane = Literal["use", "views", "lab"]

RunId = Annotated[str, Field(max_length=1_000)]
UploadId = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]


class Request(BaseModel):
    """The arguments of a function, as the page sends them."""

    model_config = ConfigDict(extra="forbid", strict=True)

    def resolve(self, services: Services) -> dict[str, Any]:
        """Returns the keyword arguments of the function: runs become their folders, and uploads their files."""
        values = self.model_dump()
        if "run" in values:
            values["run"] = str(services.catalogue.get_folder(values["run"]))
        if "runs" in values:
            values["runs"] = [str(services.catalogue.get_folder(each)) for each in values["runs"]]
        if values.get("upload") is not None:
            values["upload"] = str(services.uploads.get(values["upload"]))
        return values


@dataclass(frozen=True)
class Function:
    """A function of `seqwise.studio.work`."""

    request: type[Request]
    target: str  # module of `seqwise.studio.work` and name, such as "predictions:predict"
    lane: Lane
    max_seconds: float = 600.0
    is_cached: bool = False  # equal arguments have equal results, which the server remembers


def get_functions() -> dict[str, Function]:
    """Returns all functions by name."""
    from seqwise.studio.functions import comparisons, lab, predictions, runs, vectors, views

    modules = (comparisons, lab, predictions, runs, vectors, views)
    return {name: function for module in modules for name, function in module.FUNCTIONS.items()}
