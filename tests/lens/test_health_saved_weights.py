"""The view of health judges the weights that are saved, which another metric than the loss may have chosen."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from seqwise.lens.health_checks.curves import check_improvement
from seqwise.training.health_rules import Curve

EARLY = (10, {"loss": 0.4, "accuracy": 0.7, "objective": 0.3})
LATE = (20, {"loss": 1.1, "accuracy": 0.8, "objective": 0.2})


def make_evidence(*validations: tuple[int, dict[str, float]]) -> SimpleNamespace:
    curve = Curve(np.array([10.0, 20.0]), np.ones(2), np.ones(2), np.ones(2), validations)
    properties = SimpleNamespace(validation_entropy=0.69, entropy=0.69, target_name="label")
    return SimpleNamespace(curve=curve, properties=properties, is_recurrent=True, suggest_view=lambda view: view)


def test_saved_weights_are_those_with_the_best_objective():
    assert make_evidence(EARLY, LATE).curve.saved == LATE
    assert make_evidence(EARLY).curve.saved == EARLY
    assert make_evidence().curve.saved is None


@pytest.mark.parametrize(
    ("validations", "severity", "text"),
    [
        ((EARLY, LATE), "warning", "The saved weights are overconfident"),
        ((EARLY,), "good", "its validation loss is 42% below"),
        ((LATE,), "note", "The model has learned nothing"),
    ],
)
def test_the_loss_of_the_saved_weights_is_compared_with_the_frequencies(validations, severity: str, text: str):
    (finding,) = check_improvement(make_evidence(*validations))
    assert finding.severity == severity
    assert text in finding.text
