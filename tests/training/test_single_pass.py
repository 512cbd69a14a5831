"""Models that are fitted in one pass over the data: runs that were killed before their last file was written."""

from __future__ import annotations

import pytest

from seqwise.cli.main import main


@pytest.mark.parametrize("missing", [["README.md"], ["README.md", "summary.json"], ["README.md", "model.safetensors"]])
def test_a_run_without_its_last_files_is_fitted_again(book, tmp_path, capsys, missing):
    """A kill after the line of metrics.jsonl is written and before the summary and the model card are."""
    folder = tmp_path / "run"
    assert main(["train", str(book), "--model", "ngram", "--out", str(folder)]) == 0
    names, weights = sorted(path.name for path in folder.iterdir()), (folder / "model.safetensors").read_bytes()
    for name in missing:
        (folder / name).unlink()
    assert main(["train", "--resume", str(folder)]) == 0
    assert "already complete" not in capsys.readouterr().err
    assert sorted(path.name for path in folder.iterdir()) == names
    assert (folder / "model.safetensors").read_bytes() == weights
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == 1
    assert main(["train", "--resume", str(folder)]) == 0
    assert "this run is already complete: " in capsys.readouterr().err
