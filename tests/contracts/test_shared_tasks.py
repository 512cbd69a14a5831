"""Prepared data can be shared by all families: `prepare` depends on no setting in which trials may differ."""

from __future__ import annotations

from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from task_row import TaskRow

from seqwise.compare.run.execute import UNRELATED_TO_DATA
from seqwise.config import Settings, merge_settings, parse_settings
from seqwise.tasks import get_task
from seqwise.tasks.defaults import resolve
from seqwise.tasks.task import Preprocessor, Task
from seqwise.training.training_run import build_defaults_context, choose_device

ROWS: dict[str, TaskRow] = {
    path.stem.removeprefix("rows_"): import_module(path.stem).ROW
    for path in sorted(Path(__file__).parent.glob("rows_*.py"))
}
# Its data is the fixture `book`.
LANGUAGE = TaskRow("language", lambda folder: "", [], {"network": {"width": 8}, "training": {"batch_size": 4}})
# Other values of all settings and sections in which trials may differ.
OTHER_VALUES: dict[str, Any] = {
    "network": {"width": 30, "depth": 3, "embedding": 14, "dropout": 0.4, "tie_weights": False},
    "recurrent": {"bidirectional": True},
    "transformer": {"heads": 3, "hidden": 20, "positions": "learned"},
    "context": {"length": 7},
    "training": {"batch_size": 6, "learning_rate": 0.5, "accumulate": 2, "optimizer": "sgd"},
    "seed": 11,
    "budget": "7-epochs",
    "device": "cpu",
}


def prepare_task(name: str, data: str, settings: Settings, preprocessor: Preprocessor | None = None) -> Task:
    return get_task(name).prepare(data, settings.model_copy(deep=True), preprocessor)


def collect_values(value: Any) -> dict[str, Any]:
    """Returns all tensors and numbers of a batch, by name."""
    values = {field.name: getattr(value, field.name) for field in fields(value)}
    nested = {f"{key}.{inner}": item for key, each in values.items() if hasattr(each, "__dataclass_fields__")
              for inner, item in collect_values(each).items()}  # fmt: skip
    return {key: each for key, each in (values | nested).items() if isinstance(each, torch.Tensor | int | float | bool)}


def test_every_setting_unrelated_to_data_has_another_value():
    assert OTHER_VALUES.keys() | {"model"} == UNRELATED_TO_DATA


@pytest.mark.parametrize("name", ["language", *ROWS])
def test_data_is_read_identically_for_all_families(name: str, book: Path, tmp_path: Path):
    row = ROWS.get(name, LANGUAGE)
    data = row.write(tmp_path) or str(book)
    base = {**row.settings, "task": name, "device": "auto"}
    first = parse_settings({**base, "model": "rnn", "budget": "2-epochs"})
    get_task(name).prepare(data, first)  # fills in the settings that depend on the data
    preprocessor = prepare_task(name, data, first).preprocessor
    ours = prepare_task(name, data, first, preprocessor)
    resolved = resolve(first, build_defaults_context(ours, choose_device(first), 1))[0]
    expected = collect_values(next(iter(ours.batches(resolved).epoch(0))))
    assert any(isinstance(each, torch.Tensor) and each.numel() > 1 for each in expected.values())
    for family in ("feedforward", "lstm", "transformer"):
        other = parse_settings(merge_settings(first.model_dump(), {**OTHER_VALUES, "model": family}))
        theirs = prepare_task(name, data, other, preprocessor)
        assert theirs.fingerprint == ours.fingerprint
        assert theirs.split_rule == ours.split_rule
        assert theirs.size() == ours.size()
        assert theirs.preprocessor.facts == ours.preprocessor.facts
        assert {key: each.fingerprint for key, each in theirs.preprocessor.tokenizers.items()} == {
            key: each.fingerprint for key, each in ours.preprocessor.tokenizers.items()
        }
        batch = collect_values(next(iter(theirs.batches(resolved).epoch(0))))
        assert batch.keys() == expected.keys()
        for key, value in expected.items():
            assert torch.equal(batch[key], value) if isinstance(value, torch.Tensor) else batch[key] == value, key
