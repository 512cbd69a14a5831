"""The rules of the curve on made-up curves: each recognises its cause, just above its threshold and not below it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from seqwise.budget import Budget
from seqwise.metrics.evaluation import compute_entropy
from seqwise.training.health_curve_rules import (
    CURVE_RULES,
    find_overfitting,
    find_rising_loss,
    find_small_budget,
    find_spikes,
)
from seqwise.training.health_monitor import HealthMonitor
from seqwise.training.health_rules import (
    RULES,
    Curve,
    RunProperties,
    estimate_movement,
    find_constant_predictions,
    find_divergence,
    find_exploding_gradients,
    find_longest_run,
    find_low_rate,
    find_stuck_loss,
    find_vanished_gradients,
    is_constant_prediction,
)
from seqwise.training.step import Step

PROPERTIES = RunProperties("language", 0.003, entropy=6.0, weight_scale=0.05, weight_norm=10.0, target_name="token")


def make_curve(losses, norms=1.0, rates=0.003, validations=(), progress=1.0, ended="") -> Curve:
    """A line every ten updates, from update 10 on."""
    losses = np.asarray(losses, dtype=np.float64)
    columns = (np.broadcast_to(np.asarray(values, dtype=np.float64), losses.shape) for values in (norms, rates))
    return Curve(10.0 * np.arange(1, len(losses) + 1), losses, *columns, validations, progress, ended)


def make_healthy_curve() -> Curve:
    """From 6.5 down to 4 over 2,000 updates, with noise."""
    noise = np.random.default_rng(0).normal(0, 0.1, 200)
    losses = 4 + 2.5 * np.exp(-np.arange(200) / 20)
    validations = [(100 * n, {"loss": float(losses[10 * n - 1])}) for n in range(1, 21)]
    return make_curve(losses + noise, validations=validations)


@pytest.mark.parametrize("rule", [*RULES, *CURVE_RULES], ids=lambda rule: rule.__name__)
def test_no_rule_reports_a_healthy_curve(rule):
    assert rule(make_healthy_curve(), PROPERTIES) is None


@pytest.mark.parametrize("rule", [*RULES, *CURVE_RULES], ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("rows", [0, 1, 5])
def test_no_rule_fails_on_a_short_curve(rule, rows):
    assert rule(make_curve([6.0] * rows, progress=0.5), PROPERTIES) is None


def test_a_loss_at_the_entropy_is_stuck_after_1000_updates_of_blocks():
    noise = np.random.default_rng(0).normal(0, 0.05, 120)
    stuck = find_stuck_loss(make_curve(6.05 + noise), PROPERTIES)
    assert stuck is not None
    assert stuck.severity == "problem"
    assert stuck.format_line() == (
        "the loss has stayed at the entropy of the token frequencies (6.00 nats) for 1,100 updates: "
        "try --training.learning-rate 0.001"
    )
    assert find_stuck_loss(make_curve(6.05 + noise[:109]), PROPERTIES) is None, (
        "900 updates from the first block to the last"
    )
    assert find_stuck_loss(make_curve(6.7 + noise), PROPERTIES) is None, "12 % above the entropy"
    assert find_stuck_loss(make_curve(5.9 + noise), PROPERTIES) is None, (
        "below the entropy, so that something is learned"
    )
    validations = [(500, {"loss": 5.8})]
    assert find_stuck_loss(make_curve(6.05 + noise, validations=validations), PROPERTIES) is None, "dropout hides it"


def test_a_loss_that_was_stuck_until_the_rate_fell_is_a_warning():
    curve = make_curve([6.0] * 150 + [5.0] * 50)
    stuck = find_stuck_loss(curve, PROPERTIES)
    assert stuck.severity == "warning"
    assert "until update 1,500" in stuck.text


def test_warm_up_is_not_counted_as_stuck():
    rates = np.concatenate([np.linspace(0, 0.0014, 100), np.full(50, 0.003)])
    assert find_stuck_loss(make_curve([6.0] * 150, rates=rates), PROPERTIES) is None


def test_masked_models_may_stay_five_times_as_long_and_patience_shortens_the_time():
    masked = replace(PROPERTIES, task="masked")
    assert find_stuck_loss(make_curve([6.0] * 400), masked) is None
    assert find_stuck_loss(make_curve([6.0] * 520), masked) is not None
    ended = make_curve([6.0] * 40, ended="validation has not improved 8 times in a row")
    assert find_stuck_loss(ended, PROPERTIES) is not None
    assert find_stuck_loss(replace(ended, ended="the budget is spent"), PROPERTIES) is None


def test_a_low_rate_is_recognised_by_the_distance_that_the_weights_can_have_moved():
    curve = make_curve([6.0] * 50, rates=1e-7)
    properties = replace(PROPERTIES, learning_rate=1e-7)
    assert estimate_movement(curve, properties) == pytest.approx(500 * 1e-7 / 0.05)
    assert find_low_rate(curve, properties).settings == {"training.learning_rate": "0.0001"}
    assert find_stuck_loss(make_curve([6.0] * 150, rates=1e-7), properties) is None, "the cause is the rate"
    assert find_low_rate(make_curve([6.0] * 50, rates=1e-5), properties) is None, "10 % of the weights"
    assert find_low_rate(make_curve(np.linspace(6, 5, 50), rates=1e-7), properties) is None, "the loss falls"


def test_a_low_rate_is_not_reported_during_the_warm_up():
    """As in the first 400 updates of a long budget, of which a twentieth is warm-up."""
    properties = replace(PROPERTIES, learning_rate=1e-4)
    warmup = np.linspace(0, 4e-6, 40)
    assert estimate_movement(make_curve([6.0] * 40, rates=warmup), properties) < 0.02
    assert find_low_rate(make_curve([6.0] * 40, rates=warmup), properties) is None
    low = replace(PROPERTIES, learning_rate=4e-6)
    assert find_low_rate(make_curve([6.0] * 60, rates=np.append(warmup, [1e-8] * 20)), low) is not None


def test_gradients_of_zero_are_not_taken_for_a_low_rate():
    properties = replace(PROPERTIES, is_adam=False)
    curve = make_curve([6.0] * 50, norms=0.0, rates=0.003)
    assert find_low_rate(curve, properties) is None
    assert find_vanished_gradients(curve, properties) is not None


def test_the_movement_of_sgd_is_bounded_by_clipped_gradients():
    properties = replace(PROPERTIES, is_adam=False, clip_threshold=2.0)
    assert estimate_movement(make_curve([6.0] * 10, norms=5.0, rates=0.1), properties) == pytest.approx(
        100 * 0.1 * 2 / 10
    )


def test_divergence_is_twice_the_loss_before_training():
    assert find_divergence(make_curve([6.5] * 5 + [13.1] * 10), PROPERTIES).rule == "divergence"
    assert find_divergence(make_curve([6.5] + [20.0] * 14), PROPERTIES).rule == "divergence", "after the first update"
    assert find_divergence(make_curve([6.5] * 5 + [12.9] * 10), PROPERTIES) is None
    assert find_divergence(make_curve([0.1] * 5 + [11.0] * 10), PROPERTIES) is None, "below twice the entropy"


def test_exploding_gradients_are_a_problem_without_clipping():
    norms = np.ones(50)
    norms[::10] = 2_000
    exploding = find_exploding_gradients(make_curve([6.0] * 50, norms), replace(PROPERTIES, clip="none"))
    assert (exploding.severity, exploding.settings) == ("problem", {"training.clip": "norm"})
    assert find_exploding_gradients(make_curve([6.0] * 50, norms), PROPERTIES).severity == "warning"
    norms[::20] = 1
    assert find_exploding_gradients(make_curve([6.0] * 50, norms), PROPERTIES) is None


def test_vanished_gradients_need_a_loss_that_is_still_large():
    assert find_vanished_gradients(make_curve([6.0] * 20, norms=1e-8), PROPERTIES) is not None
    assert find_vanished_gradients(make_curve([0.01] * 20, norms=1e-8), PROPERTIES) is None


def test_metrics_of_a_constant_prediction_are_recognised():
    accuracy = 0.7
    assert is_constant_prediction({"accuracy": accuracy, "macro_f1": 2 * accuracy / 1.7 / 3})
    assert not is_constant_prediction({"accuracy": accuracy, "macro_f1": 0.5})
    assert not is_constant_prediction({"accuracy": 1.0, "macro_f1": 1.0})
    assert is_constant_prediction({"span_f1": 0.0})


def test_constant_predictions_are_reported_after_five_validations():
    metrics = {"loss": 0.6, "accuracy": 0.7, "macro_f1": 2 * 0.7 / 1.7 / 2}
    validations = [(600 + n, metrics) for n in range(5)]
    curve = make_curve([0.6] * 70, validations=validations)
    assert find_constant_predictions(curve, PROPERTIES).text == "the model always predicts the same label"
    assert find_constant_predictions(replace(curve, validations=validations[:4]), PROPERTIES) is None
    early = [(step - 200, each) for step, each in validations]
    assert find_constant_predictions(replace(curve, validations=early), PROPERTIES) is None


def test_overfitting_is_a_rising_validation_loss_with_a_falling_training_loss():
    validations = [(100 * n, {"loss": loss}) for n, loss in enumerate([3.0, 2.0, 2.5, 2.6, 2.7], start=1)]
    curve = make_curve(np.linspace(4, 1, 50), validations=validations)
    found = find_overfitting(curve, PROPERTIES)
    assert "since update 200 the validation loss has risen from 2.000 to 2.700" in found.text
    assert "+35% over 3 validations" in found.evidence
    assert find_overfitting(replace(curve, losses=np.linspace(1, 4, 50)), PROPERTIES) is None, "it diverges"
    assert find_overfitting(replace(curve, validations=validations[:3]), PROPERTIES) is None


def test_spikes_are_counted():
    losses = 4 + np.random.default_rng(0).normal(0, 0.1, 200)
    losses[[50, 100, 150]] = 12
    assert "3 logged updates" in find_spikes(make_curve(losses), PROPERTIES).text
    losses[150] = 4
    assert find_spikes(make_curve(losses), PROPERTIES) is None


def test_a_rising_training_loss_is_reported():
    losses = np.concatenate([np.linspace(6, 3, 50), np.linspace(3, 5, 50)])
    assert "has risen from" in find_rising_loss(make_curve(losses), PROPERTIES).text


def test_a_small_budget_is_one_whose_last_fifth_still_brings_much():
    falling = make_curve(np.linspace(6, 3, 100))
    found = find_small_budget(falling, PROPERTIES)
    assert found.severity == "warning"
    assert "from 3.742 to 3.136" in found.text, "means of 100 updates"
    assert find_small_budget(replace(falling, progress=0.9), PROPERTIES) is None, "not yet spent"
    assert "after 90 updates" in find_small_budget(make_curve([6.0] * 9), PROPERTIES).text


def test_a_small_maximum_of_epochs_is_no_small_budget():
    ended = Budget.parse("1h", max_epochs=2).explain_end(1.0, 100, 2)
    falling = find_small_budget(make_curve(np.linspace(6, 3, 100), ended=ended), PROPERTIES)
    short = find_small_budget(make_curve([6.0] * 9, ended=ended), PROPERTIES)
    assert "still falling steeply when the maximum of epochs was reached: from 3.742" in falling.text
    assert short.text == "the maximum of epochs is far too small: it was reached after 90 updates"
    assert falling.advice == short.advice == "a new run with a larger --training.max-epochs"


def test_the_longest_run_is_found():
    assert find_longest_run(np.array([1, 1, 0, 1, 1, 1, 0], dtype=bool)) == (3, 5)
    assert find_longest_run(np.zeros(3, dtype=bool)) == (None, 0)


def test_the_entropy_of_frequencies():
    assert compute_entropy(np.array([1, 1, 0])) == pytest.approx(math.log(2))
    assert compute_entropy(np.array([1, 0]), smoothing=0.2) == pytest.approx(-0.9 * math.log(0.9) - 0.1 * math.log(0.1))


def make_step(number: int, loss: float) -> Step:
    return Step(number, 0, number, loss, 1.0, 0.003, 0.0, 0.0, 0.5)


def test_the_monitor_reports_each_problem_once_and_not_again_after_resuming():
    monitor = HealthMonitor(PROPERTIES)
    notes = [note for number in range(10, 1500, 10) for note in monitor.add(make_step(number, 6.0))]
    assert len(notes) == 1
    assert "entropy of the token frequencies" in notes[0]
    keys = {"step": 0, "loss": 6.0, "gradient_norm": 1.0, "learning_rate": 0.003}
    rows = [{**keys, "step": number} for number in range(10, 1500, 10)]
    resumed = HealthMonitor(PROPERTIES, rows)
    assert [note for number in range(1500, 2000, 10) for note in resumed.add(make_step(number, 6.0))] == []
    assert resumed.add(make_step(2000, 60.0)) == ()
    assert any(resumed.add(make_step(number, 60.0)) for number in range(2010, 3000, 10)), "another problem"


def test_a_problem_that_has_passed_is_not_reported_again_after_resuming():
    """It was reported, then the loss fell below the entropy, then rose again; the run is resumed in between."""
    losses = [6.0] * 120 + [3.0] * 30 + [6.0] * 300
    rows = [
        {"step": 10 * number, "loss": loss, "gradient_norm": 1.0, "learning_rate": 0.003, "progress": 0.5}
        for number, loss in enumerate(losses, start=1)
    ]
    monitor = HealthMonitor(PROPERTIES)
    assert sum(len(monitor.add(make_step(row["step"], row["loss"]))) for row in rows) == 1
    for stop in (130, 150, 155, 200):
        resumed = HealthMonitor(PROPERTIES, rows[:stop])
        assert not any(resumed.add(make_step(row["step"], row["loss"])) for row in rows[stop:])
        assert resumed.next_check == monitor.next_check, "the same updates are checked as without an interruption"
