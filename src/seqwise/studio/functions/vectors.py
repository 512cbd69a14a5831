"""Requests about word vectors: of a file in the folders, of an uploaded file, or the embedding of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from seqwise.errors import UsageError
from seqwise.studio.functions import Function, Request, RunId, UploadId
from seqwise.studio.vector_files import check_size, find_vector_file

if TYPE_CHECKING:
    from seqwise.studio.services import Services

MAX_MAP_WORDS = 5_000
Word = Annotated[str, Field(min_length=1, max_length=200)]
Count = Annotated[int, Field(ge=1, le=100)]


class VectorRequest(Request):
    """Something about vectors; exactly one of `file`, `upload` and `run` says which ones."""

    file: Annotated[str, Field(max_length=1_000)] | None = None
    upload: UploadId | None = None
    run: RunId | None = None
    vocabulary: Annotated[str, Field(max_length=200)] = ""  # of a run: that of the source or a target
    embedding: Literal["input", "output"] = "input"  # of a run

    def resolve(self, services: Services) -> dict[str, Any]:
        """Returns the arguments; `source` is a path and, of a run, the embedding."""
        names = ("file", "upload", "run", "vocabulary", "embedding")
        values = {name: value for name, value in self.model_dump().items() if name not in names}
        return {**values, "source": self._resolve_source(services)}

    def _resolve_source(self, services: Services) -> dict[str, Any]:
        if [self.file, self.upload, self.run].count(None) != 2:
            raise UsageError("expected one of file, upload and run.")
        if self.run is not None:
            folder = str(services.catalogue.get_folder(self.run))
            return {"path": folder, "vocabulary": self.vocabulary, "embedding": self.embedding}
        if self.file is not None:
            path = find_vector_file(services.catalogue, self.file)
        else:
            path = services.uploads.get(str(self.upload))
        check_size(path)
        return {"path": str(path)}


class MapRequest(VectorRequest):
    """A map of the most frequent words, or of a word and its neighbours."""

    count: Annotated[int, Field(ge=10, le=MAX_MAP_WORDS)] = 500
    skip: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    around: Word | None = None
    method: Literal["pca", "tsne"] | None = None


class NearestRequest(VectorRequest):
    """The words nearest to a word."""

    word: Word
    count: Count = 20


class AnalogyRequest(VectorRequest):
    """a is to b as c is to …"""

    a: Word
    b: Word
    c: Word
    count: Count = 10
    method: Literal["add", "multiply"] = "add"


class SimilarityRequest(VectorRequest):
    """How similar two words are."""

    a: Word
    b: Word


FUNCTIONS = {
    "open_vectors": Function(VectorRequest, "vectors:open_vectors", "views"),
    "map_vectors": Function(MapRequest, "vectors:map_vectors", "views"),
    "nearest_words": Function(NearestRequest, "vectors:find_nearest", "views"),
    "analogy": Function(AnalogyRequest, "vectors:solve_analogy", "views"),
    "similarity": Function(SimilarityRequest, "vectors:compute_similarity", "views"),
}
