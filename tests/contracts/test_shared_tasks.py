"""Prepared data can be shared by all families: `prepare` depends on no setting in which trials may differ."""

from __future__ import annotations

from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from task_row import TaskRow

from seqwise.compare.run.shared_data import UNRELATED_TO_DATA
from seqwise.config import Settings, merge_settings, parse_settings
from seqwise.tasks import get_task
from seqwise.tasks.defaults import resolve
from seqwise.tasks.task import Preprocessor, Task
from seqwise.training.choices import build_defaults_context, choose_device

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
    settings = parse_settings({**base, "model": "rnn", "budget": "2-epochs"})
    get_task(name).prepare(data, settings)  # fills in the settings that depend on the data
    preprocessor = prepare_task(name, data, settings).preprocessor
    first_task = prepare_task(name, data, settings, preprocessor)
    resolved = resolve(settings, build_defaults_context(first_task, choose_device(settings), 1))[0]
    expected = collect_values(next(iter(first_task.batches(resolved).epoch(0))))
    assert any(isinstance(each, torch.Tensor) and each.numel() > 1 for each in expected.values())
    for family in ("feedforward", "lstm", "transformer"):
        changed_settings = parse_settings(merge_settings(settings.model_dump(), {**OTHER_VALUES, "model": family}))
        other_task = prepare_task(name, data, changed_settings, preprocessor)
        assert other_task.fingerprint == first_task.fingerprint
        assert other_task.split_rule == first_task.split_rule
        assert other_task.size() == first_task.size()
        assert other_task.preprocessor.attributes == first_task.preprocessor.attributes
        assert {key: each.fingerprint for key, each in other_task.preprocessor.tokenizers.items()} == {
            key: each.fingerprint for key, each in first_task.preprocessor.tokenizers.items()
        }
        batch = collect_values(next(iter(other_task.batches(resolved).epoch(0))))
        assert batch.keys() == expected.keys()
        for key, value in expected.items():
            assert torch.equal(batch[key], value) if isinstance(value, torch.Tensor) else batch[key] == value, key
