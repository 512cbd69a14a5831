"""Word vectors in the studio: which files are found, and what is computed of them."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from safetensors.numpy import save_file

from seqwise.errors import UsageError
from seqwise.studio import vector_files
from seqwise.studio.catalogue import Catalogue
from seqwise.studio.functions.vectors import AnalogyRequest, MapRequest, NearestRequest, VectorRequest
from seqwise.studio.uploads import Uploads
from seqwise.studio.vector_files import check_size, find_vector_file, list_vector_files
from seqwise.studio.work import vectors as work
from seqwise.studio.worker import Cancelled, Context
from seqwise.vectors.keyed import KeyedVectors

# Vectors in which king − man + woman is exactly queen.
WORDS = {"man": (1, 0, 0), "woman": (0, 1, 0), "king": (1, 0, 1), "queen": (0, 1, 1), "apple": (-1, 0.2, 0.1)}


def make_vectors() -> KeyedVectors:
    return KeyedVectors(tuple(WORDS), np.array([*WORDS.values()], np.float32), np.array([50, 40, 30, 20, 10]))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with vectors of every format, and with other files of the same suffixes."""
    folder = tmp_path / "runs"
    (folder / "below").mkdir(parents=True)
    keyed = make_vectors()
    for name in ("a.safetensors", "b.bin", "c.vec", "below/d.txt", "e.vec.gz"):
        keyed.save(folder / name)
    keyed.save(folder / "f.txt", "glove")
    save_file({"vectors": np.zeros((2, 3), np.float32)}, folder / "model.safetensors")
    (folder / "corpus.txt").write_text("It was a dark night.\nThe rain fell in torrents.\n", encoding="utf-8")
    (folder / "numbers.txt").write_text("2019 5\n", encoding="utf-8")
    (folder / "weights.bin").write_bytes(bytes(range(256)))
    (folder / "empty.vec").touch()
    return folder


def make_services(folder: Path) -> Any:
    return SimpleNamespace(catalogue=Catalogue([folder]), uploads=Uploads())


def get_context() -> Context:
    return Context(lambda event: None)


# --- files


def test_files_of_vectors_are_found_by_their_content(folder: Path):
    found = {file.id: (file.num_words, file.dim) for file in list_vector_files(Catalogue([folder]))}
    assert found == {
        "runs/a.safetensors": (5, 3),
        "runs/b.bin": (5, 3),
        "runs/c.vec": (5, 3),
        "runs/e.vec.gz": (5, 3),
        "runs/f.txt": (None, 3),
        "runs/below/d.txt": (5, 3),
    }


def test_a_file_that_changes_is_read_again(folder: Path):
    catalogue = Catalogue([folder])
    assert any(file.id == "runs/c.vec" for file in list_vector_files(catalogue))
    (folder / "c.vec").write_text("no vectors\n", encoding="utf-8")
    assert not any(file.id == "runs/c.vec" for file in list_vector_files(catalogue))


def test_links_out_of_the_folders_and_hidden_files_are_not_listed(folder: Path, tmp_path: Path):
    make_vectors().save(tmp_path / "secret.vec")
    (folder / "link.vec").symlink_to(tmp_path / "secret.vec")
    (folder / "linked").symlink_to(tmp_path)
    (folder / "inside.vec").symlink_to(folder / "c.vec")
    make_vectors().save(folder / ".hidden.vec")
    ids = {file.id for file in list_vector_files(Catalogue([folder]))}
    assert "runs/inside.vec" in ids
    assert not {each for each in ids if "link" in each or "hidden" in each or "secret" in each}


def test_the_list_has_limits(folder: Path, monkeypatch: pytest.MonkeyPatch):
    deep = folder / "1/2/3/4/5"
    deep.mkdir(parents=True)
    make_vectors().save(deep / "deep.vec")
    make_vectors().save(deep.parent / "less.vec")
    ids = {file.id for file in list_vector_files(Catalogue([folder]))}
    assert "runs/1/2/3/4/less.vec" in ids
    assert "runs/1/2/3/4/5/deep.vec" not in ids
    monkeypatch.setattr(vector_files, "MAX_FILES", 2)
    assert len(list_vector_files(Catalogue([folder]))) == 2


def test_a_pipe_does_not_stop_the_list(folder: Path):
    os.mkfifo(folder / "pipe.vec")
    assert len(list_vector_files(Catalogue([folder]))) > 3


@pytest.mark.parametrize(
    "identifier",
    ["runs/../secret.vec", "runs//etc/passwd", "runs", "runs/", "other/c.vec", "runs/link.vec", "runs/none.vec",
     "runs/linked/secret.vec", "runs/below", "runs/model.json", "runs/c.vec\0", "../runs/c.vec", ""],
)  # fmt: skip
def test_other_files_are_refused(identifier: str, folder: Path, tmp_path: Path):
    make_vectors().save(tmp_path / "secret.vec")
    (folder / "link.vec").symlink_to(tmp_path / "secret.vec")
    (folder / "linked").symlink_to(tmp_path)
    (folder / "model.json").write_text("{}", encoding="utf-8")
    with pytest.raises(UsageError, match="there is no file of vectors"):
        find_vector_file(Catalogue([folder]), identifier)


def test_a_file_is_found_by_its_id(folder: Path):
    assert find_vector_file(Catalogue([folder]), "runs/below/d.txt") == folder.resolve() / "below/d.txt"


def test_a_file_that_needs_too_much_memory_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch):
    (folder / "large.vec").write_text("3000000 400\nthe" + 400 * " 0.5" + "\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"need 4\.8 GB of memory; the studio uses up to"):
        check_size(folder / "large.vec")
    monkeypatch.setattr(vector_files, "get_memory", lambda: (1000, 100))
    with pytest.raises(UsageError, match="GB for a file"):
        check_size(folder / "c.vec")
    monkeypatch.setattr(vector_files, "get_memory", lambda: (None, None))
    check_size(folder / "c.vec")


# --- requests


def test_exactly_one_source_is_resolved(folder: Path):
    services = make_services(folder)
    resolved = NearestRequest(file="runs/c.vec", word="king").resolve(services)
    assert resolved == {"word": "king", "count": 20, "source": {"path": str(folder.resolve() / "c.vec")}}
    upload = services.uploads.add("words.vec", (folder / "c.vec").read_bytes())
    assert VectorRequest(upload=upload).resolve(services)["source"]["path"].endswith(".vec")
    for request in (VectorRequest(), VectorRequest(file="runs/c.vec", upload=upload)):
        with pytest.raises(UsageError, match="expected one of"):
            request.resolve(services)
    with pytest.raises(UsageError, match="there is no run"):
        VectorRequest(run="runs/none").resolve(services)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (NearestRequest, {"word": ""}),
        (NearestRequest, {"word": "a" * 201}),
        (NearestRequest, {"word": "a", "count": 1_000}),
        (MapRequest, {"count": 1_000_000}),
        (MapRequest, {"method": "umap"}),
        (AnalogyRequest, {"a": "a", "b": "b"}),
        (VectorRequest, {"upload": "../../etc/passwd"}),
        (VectorRequest, {"path": "/etc/passwd"}),
    ],
)
def test_a_malformed_request_is_refused(kind: type[VectorRequest], values: dict[str, Any]):
    with pytest.raises(ValidationError):
        kind.model_validate(values)


# --- what is computed


@pytest.fixture
def source(folder: Path) -> dict[str, Any]:
    return {"path": str(folder / "a.safetensors")}


def test_a_file_is_described(source: dict[str, Any]):
    about = work.open_vectors(get_context(), source)
    assert (about["num_words"], about["dim"], about["num_bytes"], about["has_counts"]) == (5, 3, 60, True)
    assert about["words"] == list(WORDS)


def test_nearest_words_have_cosines_and_counts(source: dict[str, Any]):
    answer = work.find_nearest(get_context(), source, "king", 2)
    assert [each["word"] for each in answer["nearest"]] == ["man", "queen"]
    assert answer["nearest"][0] == {"word": "man", "cosine": pytest.approx(0.5**0.5), "count": 50}
    assert answer["norm"] == pytest.approx(2**0.5)


def test_an_analogy_is_solved(source: dict[str, Any]):
    answer = work.solve_analogy(get_context(), source, "man", "king", "woman", 2, "add")
    assert answer["answers"][0]["word"] == "queen"


def test_a_similarity_has_ranks(source: dict[str, Any]):
    answer = work.compute_similarity(get_context(), source, "king", "queen")
    assert answer["cosine"] == pytest.approx(0.5)
    assert answer["dot"] == pytest.approx(1.0)
    assert answer["ranks"] == [2, 2]
    assert work.compute_similarity(get_context(), source, "king", "king")["ranks"] == [None, None]


def test_unknown_words_get_suggestions(source: dict[str, Any]):
    answer = work.solve_analogy(get_context(), source, "King", "qeen", "woman", 2, "add")
    assert answer == {
        "unknown": [{"word": "King", "suggestions": ["king"]}, {"word": "qeen", "suggestions": ["queen"]}]
    }
    assert work.map_vectors(get_context(), source, 10, 0, "zzz", None) == {
        "unknown": [{"word": "zzz", "suggestions": []}]
    }


def test_a_map_shows_frequent_words_or_those_around_one(source: dict[str, Any]):
    whole = work.map_vectors(get_context(), source, 10, 0, None, "pca")
    assert whole["figure"]["names"] == list(WORDS)
    assert whole["figure"]["title"] == "The 5 most frequent words"
    assert set(whole["figure"]["groups"]) == {group for group, _ in whole["figure"]["styles"]}
    around = work.map_vectors(get_context(), source, 3, 0, "queen", "pca")
    assert around["figure"]["names"] == ["queen", "woman", "king", "apple"]


def test_reading_reports_progress_and_can_be_cancelled(folder: Path):
    events: list[dict[str, Any]] = []
    work.open_vectors(Context(events.append), {"path": str(folder / "b.bin")})
    size = (folder / "b.bin").stat().st_size
    assert events[-1]["progress"] == [size, size]
    context = get_context()
    context.cancelled.add(context.request)
    with pytest.raises(Cancelled):
        work.open_vectors(context, {"path": str(folder / "c.vec")})


def test_two_files_stay_in_memory_until_they_change(folder: Path, monkeypatch: pytest.MonkeyPatch):
    read: list[str] = []
    load = work.load_vectors
    monkeypatch.setattr(work, "load_vectors", lambda path, **options: read.append(path.name) or load(path, **options))
    monkeypatch.setattr(work, "_files", {})
    for name in ("a.safetensors", "b.bin", "a.safetensors", "c.vec", "a.safetensors", "b.bin"):
        work.find_nearest(get_context(), {"path": str(folder / name)}, "king", 1)
    assert read == ["a.safetensors", "b.bin", "c.vec", "b.bin"]
    os.utime(folder / "b.bin", (0, 0))
    work.find_nearest(get_context(), {"path": str(folder / "b.bin")}, "king", 1)
    assert read[-1] == "b.bin"
    assert len(read) == 5
    assert len(work._files) == work.MAX_FILES
