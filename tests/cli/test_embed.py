"""`seqwise embed`: files, formats, messages."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest

TEXTS = "the old model\n\nevery small word.\n"


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "lines.txt"
    path.write_text(TEXTS)
    return path


def test_vectors_of_a_text_are_written_with_tokens_and_offsets(seqwise_command, trained_run, tmp_path: Path):
    out = tmp_path / "v.jsonl"
    result = seqwise_command("embed", trained_run("lstm", "words"), "the old model", "--out", out)
    assert (result.status, result.out) == (0, f"{out}: 3 vectors of dimension 16, layer 1 of 1\n")
    (line,) = map(json.loads, out.read_text().splitlines())
    assert (line["text"], line["tokens"]) == ("the old model", ["the", "old", "model"])
    assert line["offsets"] == [[0, 3], [4, 7], [8, 13]]
    assert np.array(line["vectors"]).shape == (3, 16)


def test_tokens_are_written_beside_an_array(seqwise_command, trained_run, lines: Path, tmp_path: Path):
    result = seqwise_command("embed", trained_run("lstm", "words"), lines, "--out", tmp_path / "v.npy")
    assert result.status == 0
    assert "1 of 3 lines is empty: no vectors" in result.err
    array, about = np.load(tmp_path / "v.npy"), json.loads((tmp_path / "v.json").read_text())
    assert (array.shape, array.dtype) == ((7, 16), np.float32)
    assert [text["rows"] for text in about["texts"]] == [[0, 3], [3, 3], [3, 7]]
    assert about["texts"][2]["tokens"] == ["every", "small", "word", "."]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lines.txt", "v.json", "v.npy"]


def test_both_formats_have_the_same_numbers(seqwise_command, trained_run, lines: Path, tmp_path: Path):
    for name in ("v.npy", "v.jsonl"):
        assert seqwise_command("embed", trained_run("lstm", "words"), lines, "--out", tmp_path / name).status == 0
    rows = [row for line in (tmp_path / "v.jsonl").read_text().splitlines() for row in json.loads(line)["vectors"]]
    assert np.allclose(np.load(tmp_path / "v.npy"), np.array(rows), rtol=1e-5, atol=1e-7)


def test_one_vector_per_text_is_the_mean(seqwise_command, trained_run, lines: Path, tmp_path: Path):
    run = trained_run("lstm", "words")
    seqwise_command("embed", run, lines, "--out", tmp_path / "all.npy")
    result = seqwise_command("embed", run, lines, "--out", tmp_path / "mean.npy", "--pool", "mean", "--json")
    assert json.loads(result.out) == {
        "out": str(tmp_path / "mean.npy"), "texts": 3, "tokens": 7, "width": 16, "layer": 1, "pool": "mean",
    }  # fmt: skip
    every, mean = np.load(tmp_path / "all.npy"), np.load(tmp_path / "mean.npy")
    expected = np.stack([every[:3].mean(0), np.zeros(16), every[3:].mean(0)])
    assert np.allclose(mean, expected, atol=1e-6)
    assert "1 of 3 lines is empty: a vector of zeros" in result.err


def test_embed_reads_standard_input_and_chosen_layers(
    seqwise_command, trained_run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for layer in (0, 1):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"the old model\n")))
        out = tmp_path / f"{layer}.npy"
        assert seqwise_command("embed", trained_run("lstm", "words"), "-", "--out", out, "--layer", layer).status == 0
    assert not np.allclose(np.load(tmp_path / "0.npy"), np.load(tmp_path / "1.npy"))


@pytest.mark.parametrize(
    ("words", "fragments"),
    [
        (["the"], ["--out is missing", "For example: seqwise embed"]),
        (["the", "--out", "v.txt"], ["expected a file that ends in .npy or .jsonl", "v.txt"]),
        (["the", "--out", "no/such/v.npy"], ["no/such/v.npy", "folder does not exist", "mkdir -p no/such"]),
        (["", "--out", "v.npy"], ["there is no text"]),
        (["missing.txt", "--out", "v.npy"], ["missing.txt", "no such file"]),
        (["the", "--out", "v.npy", "--layer", "5"], ["there is no layer 5", "to 1"]),
        (["the", "--out", "v.npy", "--pool", "max"], ["--pool", "none, mean", "max"]),
    ],
)
def test_invalid_arguments_are_explained(seqwise_command, trained_run, words, fragments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = seqwise_command("embed", trained_run("lstm", "words"), *words)
    assert result.status == 2
    assert [part for part in fragments if part not in result.err] == []
    assert result.out == ""
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_a_run_is_an_error(seqwise_command, tmp_path: Path):
    result = seqwise_command("embed", tmp_path, "the", "--out", tmp_path / "v.npy")
    assert result.status == 2
    assert "is not a run" in result.err
