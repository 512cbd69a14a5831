"""`hf:NAME`: data sets of the Hugging Face Hub. A local folder stands for one of the Hub: nothing is downloaded."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from seqwise.config import Settings
from seqwise.data.corpus.sources import open_corpus
from seqwise.data.hub import fetch_hub_data, fetch_if_hub
from seqwise.errors import DataError, UsageError
from seqwise.tasks import get_task
from seqwise.tasks.guess import guess_task


@pytest.fixture(autouse=True)
def _separate_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SEQWISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))


def test_without_the_extra_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    for read in (guess_task, open_corpus, fetch_if_hub):
        with pytest.raises(UsageError, match=r"reading hf:imdb needs the extra \[hf\]") as excinfo:
            read("hf:imdb")
        assert "pip install 'seqwise[hf]'" in excinfo.value.fix


def test_other_data_is_not_fetched():
    assert fetch_if_hub("book.txt") == "book.txt"
    assert fetch_if_hub("builtin:docs") == "builtin:docs"


def test_a_folder_of_a_data_set_is_read_with_its_splits(tmp_path: Path):
    pytest.importorskip("datasets")
    folder = tmp_path / "films"
    folder.mkdir()
    for split, count in (("train", 40), ("validation", 6), ("test", 8)):
        rows = [{"text": f"film {split} {number}", "label": ["bad", "good"][number % 2]} for number in range(count)]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = f"hf:{folder}"
    assert guess_task(data)[0] == "classify"
    task = get_task("classify").prepare(data, Settings(task="classify"))
    assert {split: len(examples) for split, examples in task.splits.parts.items()} == {
        "train": 40, "valid": 6, "test": 8,
    }  # fmt: skip
    assert task.splits.parts["test"][1].text == "film test 1"


def load_with(monkeypatch: pytest.MonkeyPatch, loader) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets, "load_dataset", loader)


def test_labels_get_their_names_and_translations_a_column_per_language(monkeypatch: pytest.MonkeyPatch):
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({
        "label": datasets.ClassLabel(names=["neg", "pos"]),
        "tags": datasets.Sequence(datasets.ClassLabel(names=["O", "B-PER"])),
        "translation": datasets.Translation(languages=["de", "en"]),
    })  # fmt: skip
    rows = {
        "label": [1, -1],
        "tags": [[0, 1], []],
        "translation": [{"de": "Hund", "en": "dog"}, {"de": "ä", "en": "a"}],
    }
    part = datasets.Dataset.from_dict(rows, features=features)
    calls = []

    def load(name, config=None):
        calls.append((name, config))
        if (name, config) != ("glue", "sst2"):
            raise FileNotFoundError(f"no {name} on the Hub\nand more")
        return datasets.DatasetDict({"train": part, "unsupervised": part})

    load_with(monkeypatch, load)
    folder = fetch_hub_data("hf:glue/sst2")
    assert calls == [("glue/sst2", None), ("glue", "sst2")]
    assert [path.name for path in sorted(folder.glob("*.jsonl"))] == ["train.jsonl"]
    lines = [json.loads(line) for line in (folder / "train.jsonl").read_text(encoding="utf-8").splitlines()]
    assert lines == [
        {"label": "pos", "tags": ["O", "B-PER"], "de": "Hund", "en": "dog"},
        {"label": None, "tags": [], "de": "ä", "en": "a"},
    ]
    with pytest.raises(DataError, match=r"hf:imdb cannot be loaded: no imdb on the Hub\nName it") as excinfo:
        fetch_hub_data("hf:imdb")
    assert "/CONFIG" in excinfo.value.fix
    with pytest.raises(DataError, match="names no data set"):
        fetch_hub_data("hf:")
