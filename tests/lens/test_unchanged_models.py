"""A view leaves a model that is being trained as it was: its mode, its weights and the random numbers."""

import pickle
import random

import numpy as np
import pytest
import torch

import seqwise.lens
from seqwise.lens.subject import open_subject

CASES = [
    ("attribution", "tag", "lstm"),
    ("states", "classify", "gru"),
    ("senses", "language", "lstm"),
    ("decoding", "translate", "transformer"),
]


@pytest.mark.parametrize(("view", "task", "family"), CASES)
def test_a_view_keeps_training_mode_and_random_numbers(small_run, view: str, task: str, family: str):
    run = small_run(task, family)
    expected = str(getattr(seqwise.lens, view)(run))
    run.model.train()
    states = get_random_states()
    try:
        assert str(getattr(seqwise.lens, view)(run)) == expected
        assert all(part.training for part in run.model.modules())
        assert get_random_states() == states
    finally:
        run.model.eval()


@pytest.mark.parametrize(("view", "task", "family"), CASES)
def test_the_first_view_of_a_saved_run_keeps_random_numbers(small_run, view: str, task: str, family: str):
    folder = small_run(task, family).run.folder
    states = get_random_states()
    getattr(seqwise.lens, view)(seqwise.load(folder, device="cpu"))
    assert get_random_states() == states


def get_random_states() -> list[object]:
    """Returns the states of the global random numbers of Python, NumPy and PyTorch."""
    return [random.getstate(), pickle.dumps(np.random.get_state()), torch.get_rng_state().tolist()]


def test_answers_to_a_text_are_those_without_dropout(small_run):
    run = small_run("tag", "lstm")
    text = "Anna lives in Oslo and works for Acme"
    expected = [answer.name for answer in open_subject(run, text).inspected.answers]
    run.model.train()
    try:
        for _ in range(5):
            assert [answer.name for answer in open_subject(run, text).inspected.answers] == expected
    finally:
        run.model.eval()
