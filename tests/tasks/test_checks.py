"""What is refused before anything is written."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from seqwise.config import parse_settings
from seqwise.errors import UsageError
from seqwise.tasks import get_task
from seqwise.tasks.checks import check_model


def test_the_full_softmax_passes():
    check_model(parse_settings({"task": "tag"}), "cannot")


@pytest.mark.parametrize("task", ["classify", "tag", "caption", "forecast", "translate", "masked"])
@pytest.mark.parametrize("output", ["sampled", "adaptive"])
def test_only_a_language_model_approximates_its_softmax(task: str, output: str):
    settings = parse_settings({"task": task, "model": "gru", "network": {"output": output}})
    with pytest.raises(UsageError, match=f"the task {task} has the full softmax only; .* {output}"):
        get_task(task).check(SimpleNamespace(), settings)  # type: ignore[arg-type]
