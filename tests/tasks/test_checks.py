"""Settings that are rejected before anything is written."""

from __future__ import annotations

import pytest

from seqwise.errors import UsageError
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks import get_task
from seqwise.tasks.checks import check_family, check_output


def test_the_full_softmax_and_every_neural_family_are_accepted():
    for model in ("feedforward", "rnn", "gru", "lstm", "attentive-rnn", "transformer"):
        settings = ResolvedSettings(task="tag", model=model)
        check_family(settings)
        check_output(settings, ("full",))


@pytest.mark.parametrize("task", ["classify", "tag", "caption", "forecast", "translate", "masked"])
def test_only_the_language_task_has_an_ngram_model(task: str):
    with pytest.raises(
        UsageError, match=f"ngram cannot do the task {task}: it predicts the next token from n-gram counts"
    ):
        check_family(ResolvedSettings(task=task, model="ngram"))


@pytest.mark.parametrize("task", ["classify", "tag", "caption", "forecast", "translate", "masked"])
@pytest.mark.parametrize("output", ["sampled", "adaptive", "mixture"])
def test_only_the_language_task_has_an_approximate_softmax(task: str, output: str):
    settings = ResolvedSettings(task=task, model="gru", network={"output": output})
    with pytest.raises(UsageError, match=f"the task {task} has the full softmax only; .* {output}"):
        check_output(settings, get_task(task).outputs)
