"""The training loop, on a model small enough to compute its updates by hand."""

from __future__ import annotations

import math
import weakref
from dataclasses import dataclass, field, replace
from functools import partial

import pytest
import torch
from torch import nn

from seqwise.budget import Budget
from seqwise.data.batch import TokenBatch
from seqwise.errors import MemoryLimitError, NonFiniteError
from seqwise.layers.cells import LSTMCell
from seqwise.layers.recurrent import Recurrent
from seqwise.losses import Loss, total
from seqwise.resolved_settings import ResolvedTrainingSettings
from seqwise.training.distribution import World
from seqwise.training.loop import Step, Trainer
from seqwise.training.optimizers import supports_skipping

VOCABULARY = 5


class Toy(nn.Module):
    """An LSTM over random tokens whose state is passed on, with dropout so that random numbers matter."""

    def __init__(self, dropout: float = 0.0):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 4)
        self.lstm = Recurrent(LSTMCell(4, 4))
        self.drop = nn.Dropout(dropout)
        self.head = nn.Linear(4, VOCABULARY)
        self.max_rows = 1000  # rows that fit into the simulated memory

    def forward(self, batch: TokenBatch, state=None) -> tuple[Loss, object]:
        if batch.num_sequences > self.max_rows:
            allocation = torch.zeros(1)
            self.allocation = weakref.ref(allocation)
            raise torch.OutOfMemoryError("simulated")
        states, state = self.lstm(self.embedding(batch.ids), state)
        losses = nn.functional.cross_entropy(
            self.head(self.drop(states)).flatten(0, 1), batch.targets.flatten(), reduction="none"
        )
        return total(losses), state


class ToyBatches:
    """Six batches an epoch of fixed random tokens, in an order that depends on the epoch."""

    steps = 6

    def __init__(self, rows: int = 8):
        self.rows = rows

    def epoch(self, number: int, start: int = 0):
        for step in range(start, self.steps):
            generator = torch.Generator().manual_seed(100 * number + step)
            ids = torch.randint(VOCABULARY, (self.rows, 7), generator=generator)
            yield TokenBatch(ids[:, :-1], ids[:, 1:], positions=torch.arange(self.rows) * 7, resets_state=step == 0)


def make_trainer(
    dropout: float = 0.0, budget: str = "2-epochs", validate=None, rows: int = 8, device: str = "cpu", **settings
) -> Trainer:
    torch.manual_seed(0)
    values = {"learning_rate": 0.01, "weight_decay": 0.1, **settings}
    return Trainer(
        Toy(dropout).to(device),
        ToyBatches(rows),
        ResolvedTrainingSettings(**values),
        Budget.parse(budget),
        validate,
        seed=3,
    )


def run(trainer: Trainer) -> list[Step]:
    return list(trainer.steps())


def get_weights(trainer: Trainer) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in trainer.model.parameters()])


def get_averaged_weights(trainer: Trainer) -> torch.Tensor:
    with trainer.use_averaged_weights():
        return get_weights(trainer)


def test_a_budget_in_epochs_is_spent_exactly():
    steps = run(make_trainer())
    assert len(steps) == 12
    assert [step.epoch for step in steps] == [0] * 6 + [1] * 6
    assert steps[-1].tokens == 12 * 8 * 6
    assert steps[-1].ended == "the budget is spent"
    assert steps[-1].progress == 1


def test_the_budget_in_tokens_ends_with_the_update_that_reaches_it():
    assert len(run(make_trainer(budget="100-tokens"))) == math.ceil(100 / 48)


def test_one_sgd_update_is_the_gradient_times_the_rate():
    trainer = make_trainer(
        optimizer="sgd", clip="none", schedule="constant", warmup=0, weight_decay=0, budget="48-tokens"
    )
    before = get_weights(trainer)
    batch = next(ToyBatches().epoch(0))
    loss, _ = trainer.model(batch)
    (loss.total / loss.count).backward()
    gradient = torch.cat([p.grad.flatten() for p in trainer.model.parameters()])
    step = run(trainer)[0]
    torch.testing.assert_close(get_weights(trainer), before - 0.01 * gradient)
    assert step.gradient_norm == pytest.approx(float(gradient.norm()))
    assert step.loss == pytest.approx(float(loss.total.detach()) / 48)


@pytest.mark.parametrize("cut", [1, 5, 6, 7])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"ema": 0.9},
        {"optimizer": "asgd"},
        {"schedule": "plateau", "validate_every": 2},
        {"accumulate": 3},
        {"optimizer": "adam", "beta1": 0.0, "beta2": 0.999},
        {"optimizer": "adam", "schedule": "one-cycle-flat", "beta1": 0.8, "peak_beta1": 0.7},
        {"schedule": "one-cycle", "peak_beta1": 0.85},
        {"average_from": 0.5},
        {"average_last": 3, "validate_every": 2},
        {"average_from": 0.0, "optimizer": "sgd"},
    ],
    ids=str,
)
def test_a_snapshot_leads_to_the_same_bits(cut, settings):
    """Interrupted after `cut` updates and restored in a new trainer: weights, optimiser and metrics are identical."""
    losses = iter([3.0, 2.0, 2.5, 2.6, 2.7, 1.0] * 10)
    uninterrupted = make_trainer(dropout=0.5, validate=lambda: {"loss": next(losses)}, **settings)
    expected_steps = run(uninterrupted)

    other_losses = iter([3.0, 2.0, 2.5, 2.6, 2.7, 1.0] * 10)
    validate = lambda: {"loss": next(other_losses)}  # noqa: E731
    interrupted = make_trainer(dropout=0.5, validate=validate, **settings)
    stream = interrupted.steps()
    steps_before = [next(stream) for _ in range(cut)]
    snapshot = interrupted.snapshot()
    saved = {name: t.clone() for name, t in snapshot.tensors.items()}
    resumed = make_trainer(dropout=0.5, validate=validate, **settings)
    resumed.restore(type(snapshot)(saved, snapshot.state))
    steps_after = run(resumed)

    assert torch.equal(get_weights(uninterrupted), get_weights(resumed))
    expected_snapshot, actual_snapshot = uninterrupted.snapshot(), resumed.snapshot()
    assert expected_snapshot.tensors.keys() == actual_snapshot.tensors.keys()
    assert all(
        torch.equal(expected_snapshot.tensors[name], actual_snapshot.tensors[name])
        for name in expected_snapshot.tensors
    )
    assert [step.loss for step in expected_steps] == [step.loss for step in steps_before + steps_after]
    assert [step.validation for step in expected_steps] == [step.validation for step in steps_before + steps_after]


def test_accumulation_gives_the_same_update_up_to_rounding():
    one_batch, micro_batches = make_trainer(), make_trainer(accumulate=4)
    run(one_batch), run(micro_batches)
    torch.testing.assert_close(get_weights(one_batch), get_weights(micro_batches), rtol=1e-4, atol=1e-6)


def test_out_of_memory_halves_the_micro_batch_and_keeps_the_update():
    unlimited, limited = make_trainer(), make_trainer()
    limited.model.max_rows = 3
    steps = run(limited)
    run(unlimited)
    torch.testing.assert_close(get_weights(unlimited), get_weights(limited), rtol=1e-4, atol=1e-6)
    assert limited.micro_batches.num_micro_batches == 4
    assert [note for step in steps for note in step.notes] == [
        "out of memory: the batch of 8 sequences is now computed in 2 micro-batches, whose gradients are summed.",
        "out of memory: the batch of 8 sequences is now computed in 4 micro-batches, whose gradients are summed.",
    ]


def test_tensors_of_a_failed_attempt_are_released_before_the_next():
    trainer = make_trainer()
    trainer.model.max_rows = 4
    next(trainer.steps())
    assert trainer.micro_batches.num_micro_batches == 2
    assert trainer.model.allocation() is None


def raise_out_of_memory(*args, **kwargs):
    raise torch.OutOfMemoryError("simulated")


def test_a_single_row_that_does_not_fit_into_memory_is_an_error():
    trainer = make_trainer()
    trainer.model.max_rows = 0
    with pytest.raises(MemoryLimitError, match=r"one sequence of 6 steps does not fit into memory\.") as excinfo:
        run(trainer)
    assert "smaller --data.window, --network.width or --text.vocabulary" in excinfo.value.fix
    assert excinfo.value.exit_status == 1


def test_out_of_memory_in_the_update_and_in_validation_is_reported_as_such():
    trainer = make_trainer()
    trainer.optimizer.step = raise_out_of_memory
    with pytest.raises(MemoryLimitError, match="the update of the weights does not fit"):
        run(trainer)
    with pytest.raises(MemoryLimitError, match="validation does not fit"):
        run(make_trainer(validate=raise_out_of_memory))


def test_other_errors_of_the_model_are_not_changed():
    trainer = make_trainer()
    trainer.optimizer.step = lambda: torch.zeros(2) @ torch.zeros(3)
    with pytest.raises(RuntimeError, match="size"):
        run(trainer)


class ToyWithUnusedParameter(Toy):
    """The loss of every second batch does not depend on one of the parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.extra = nn.Parameter(torch.ones(3))
        self.calls = 0

    def forward(self, batch: TokenBatch, state=None) -> tuple[Loss, object]:
        loss, state = super().forward(batch, state)
        self.calls += 1
        return (Loss(loss.total + self.extra.sum(), loss.count) if self.calls % 2 else loss), state


def test_a_parameter_without_a_gradient_is_updated_as_with_zeros():
    """With several processes it must be so, since another process may have a gradient for it."""
    trainer = make_trainer(budget="3-epochs", schedule="constant", warmup=0, clip="none", weight_decay=0)
    trainer = Trainer(ToyWithUnusedParameter(), ToyBatches(), trainer.settings, trainer.budget)
    reference = nn.Parameter(torch.ones(3))
    adam = torch.optim.AdamW([reference], lr=0.01, betas=(0.9, 0.99), eps=1e-8, weight_decay=0)
    for step in trainer.steps():
        reference.grad = torch.full((3,), float(step.number % 2) / 48)
        adam.step()
        torch.testing.assert_close(trainer.model.extra, reference)


def test_beta1_moves_opposite_to_the_learning_rate():
    """12 updates: one to the peak, up to half of the budget at the peak, five down, one to zero."""
    trainer = make_trainer(schedule="one-cycle-flat", optimizer="adam", beta1=0.8, peak_beta1=0.7)
    betas = []
    for step in trainer.steps():
        (beta1, beta2), *others = {group["betas"] for group in trainer.optimizer.param_groups}
        assert not others
        assert beta2 == 0.99
        betas.append((step.learning_rate, beta1))
    rates = [0.1, 1, 1, 1, 1, 1, 1, 0.82, 0.64, 0.46, 0.28, 0.1]
    expected_betas = [0.8, 0.7, 0.7, 0.7, 0.7, 0.7, 0.7, 0.72, 0.74, 0.76, 0.78, 0.8]
    torch.testing.assert_close(torch.tensor(betas), torch.tensor([rates, expected_betas]).T * torch.tensor([0.01, 1]))


@dataclass(frozen=True)
class CountingWorld(World):
    sum_sizes: list[int] = field(default_factory=list)

    def sum(self, *numbers: float) -> list[float]:
        self.sum_sizes.append(len(numbers))
        return super().sum(*numbers)


def test_an_update_communicates_twice_and_a_validation_once():
    settings = ResolvedTrainingSettings(learning_rate=0.01, validate_every=2)
    world = CountingWorld()
    validate = lambda: {"loss": 1.0}  # noqa: E731
    stream = Trainer(Toy(), ToyBatches(), settings, Budget.parse("1-epochs"), validate, world=world).steps()
    next(stream)
    assert len(world.sum_sizes) == 2
    step = next(stream)
    assert step.validation == {"loss": 1.0}
    assert len(world.sum_sizes) == 5


def test_seconds_increase_and_exclude_the_time_of_the_caller(monkeypatch):
    """The clock advances by a second whenever it is read, and by a thousand while the caller has the step."""
    now = [0.0]

    def tick() -> float:
        now[0] += 1
        return now[0]

    monkeypatch.setattr("seqwise.training.loop.read_clock", tick)
    seconds = []
    for step in make_trainer(validate_every=4, validate=lambda: {"loss": 1.0}).steps():
        seconds.append(step.seconds)
        now[0] += 1000
    assert seconds == sorted(set(seconds))
    assert seconds[-1] < 100


def test_a_non_finite_loss_stops_before_the_update_and_names_the_samples():
    trainer = make_trainer()
    stream = trainer.steps()
    next(stream)
    batch = list(ToyBatches().epoch(0))[1]
    rows = [row for row in range(8) if 4 in batch.ids[row]]
    with torch.no_grad():
        trainer.model.embedding.weight[4] = math.nan
    before = trainer.snapshot()
    saved = {name: t.clone() for name, t in before.tensors.items()}
    with pytest.raises(NonFiniteError) as excinfo:
        next(stream)
    assert "at step 2" in str(excinfo.value)
    assert f"begin at token {', '.join(str(row * 7) for row in rows)}" in str(excinfo.value)
    after = trainer.snapshot().tensors
    assert all(torch.equal(torch.nan_to_num(saved[name]), torch.nan_to_num(after[name])) for name in saved)


CLIPS = ["norm", "value", "none"]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.mark.parametrize("clip", CLIPS)
@pytest.mark.parametrize("device", DEVICES)
def test_an_update_that_is_not_finite_is_skipped_on_the_device(device, clip):
    trainer = make_trainer(clip=clip, device=device)
    assert trainer.checks_on_device == (device == "cuda")
    trainer.checks_on_device = True  # the fused optimiser of CPUs can do the same
    steps = trainer.steps()
    for _ in range(3):
        next(steps)
    forward = trainer.model.embedding.forward
    trainer.model.embedding.forward = lambda ids: forward(ids) * math.nan
    next(steps)  # its gradients were computed before the change
    before = {name: tensor.clone() for name, tensor in trainer.snapshot().tensors.items()}
    state = replace(trainer.state)
    with pytest.raises(NonFiniteError, match=r"at step 5.*The update was not made"):
        next(steps)
    assert trainer.state == state
    after = trainer.snapshot().tensors
    unchanged_names = [name for name in before if name.startswith(("model.", "optimizer."))]
    assert any(name.endswith("exp_avg_sq") for name in unchanged_names)
    assert any(name.endswith(".step") for name in unchanged_names)
    assert all(torch.equal(before[name], after[name]) for name in unchanged_names)
    assert not hasattr(trainer.optimizer, "found_inf")


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"ema": 0.9, "schedule": "plateau", "patience": 3},
        {"budget": "321-tokens"},
        {"optimizer": "adam", "beta1": 0.8, "peak_beta1": 0.7, "schedule": "one-cycle-flat"},
        {"beta1": 0.0, "average_from": 0.3, "average_last": 2},
    ],
    ids=str,
)
@pytest.mark.parametrize("device", DEVICES)
def test_looking_ahead_changes_no_step_and_no_snapshot(device, settings):
    """Validation, learning rates and snapshots are the same although the next gradients are already computed."""

    def validate_weights(trainer: Trainer) -> dict[str, float]:
        trainer.model.eval()
        return {"loss": float(get_weights(trainer).abs().sum())}

    synchronous, looking_ahead = (
        make_trainer(dropout=0.3, device=device, validate_every=2, **settings) for _ in range(2)
    )
    synchronous.checks_on_device, looking_ahead.checks_on_device = False, True
    for trainer in (synchronous, looking_ahead):
        trainer.validate = partial(validate_weights, trainer)
    for expected_step, step in zip(synchronous.steps(), looking_ahead.steps(), strict=True):
        assert replace(expected_step, seconds=0.0, tokens_per_second=0.0) == replace(
            step, seconds=0.0, tokens_per_second=0.0
        )
        a, b = synchronous.snapshot(), looking_ahead.snapshot()
        assert a.tensors.keys() == b.tensors.keys()
        assert all(torch.equal(tensor, b.tensors[name]) for name, tensor in a.tensors.items())
        for snapshot in (a, b):
            snapshot.state["place"] |= dict.fromkeys(
                ("seconds", "validating", "validating_outside", "validation_seconds"), 0.0
            )
        assert a.state == b.state


def test_looking_ahead_computes_one_batch_more_within_an_epoch():
    trainer = make_trainer(budget="2-epochs")
    calls: list[None] = []
    trainer.checks_on_device = True
    trainer.model.register_forward_hook(lambda *_: calls.append(None))
    counts = [len(calls) for _ in trainer.steps()]
    assert counts == [2, 3, 4, 5, 6, 6, 8, 9, 10, 11, 12, 12], "one ahead, within an epoch"


@pytest.mark.parametrize("looking_ahead", [False, True])
def test_a_finished_step_is_yielded_before_the_next_batch_fails(looking_ahead):
    trainer = make_trainer(ema=0.9)
    calls: list[None] = []
    trainer.checks_on_device = looking_ahead
    forward = trainer.model.forward
    trainer.model.forward = lambda *args: 1 / 0 if len(calls) == 3 else (calls.append(None), forward(*args))[1]
    steps = trainer.steps()
    assert [next(steps).number for _ in range(3)] == [1, 2, 3]
    assert (trainer.state.step, trainer.average.num_averaged) == (3, 4)
    with pytest.raises(ZeroDivisionError):
        next(steps)


def test_a_batch_that_does_not_fit_on_the_device_is_an_error(monkeypatch):
    monkeypatch.setattr(TokenBatch, "to", raise_out_of_memory)
    with pytest.raises(MemoryLimitError, match="does not fit into memory"):
        run(make_trainer())


def test_only_fused_optimizers_skip_an_update_on_the_device():
    assert supports_skipping(make_trainer().optimizer)
    assert not supports_skipping(make_trainer(optimizer="sgd").optimizer)


def test_the_loss_of_a_last_update_is_weighted_and_summed_in_float64():
    trainer = make_trainer(optimizer="sgd", budget="20-tokens", accumulate=8)
    batch = next(ToyBatches().epoch(0))
    losses = [float(trainer.model(batch.slice(row, row + 1))[0].total.detach()) for row in range(4)]
    expected_loss = (sum(losses[:3]) + 2 / 6 * losses[3]) / 20  # three rows of six targets, and a third of another
    assert run(trainer)[0].loss == pytest.approx(expected_loss, rel=1e-12)


def test_early_stopping_waits_for_its_patience():
    losses = iter([3.0, 2.0, 2.5, 2.6, 2.7, 2.8])
    trainer = make_trainer(budget="50-epochs", validate=lambda: {"loss": next(losses)}, validate_every=1, patience=3)
    steps = run(trainer)
    assert len(steps) == 5
    assert [step.best for step in steps] == [True, True, False, False, False]
    assert steps[-1].ended == "validation has not improved 3 times in a row"


def test_averaged_weights_are_evaluated():
    evaluated = []
    trainer = make_trainer(ema=0.5, validate_every=1, budget="144-tokens", schedule="constant", warmup=0)
    trainer.validate = lambda: evaluated.append(get_weights(trainer)) or {"loss": 1.0}
    raw = []
    expected = get_weights(trainer)
    for count, _ in enumerate(trainer.steps(), start=2):
        raw.append(get_weights(trainer))
        decay = min(0.5, count / (count + 10))
        expected = decay * expected + (1 - decay) * raw[-1]
        torch.testing.assert_close(evaluated[-1], expected)
    assert not torch.allclose(evaluated[-1], raw[-1])


def test_averaged_sgd_starts_when_validation_stalls_and_is_then_the_mean():
    losses = iter([1.0] + [2.0] * 30)
    trainer = make_trainer(
        optimizer="asgd", validate_every=1, budget="4-epochs", validate=lambda: {"loss": next(losses)}
    )
    raw, notes = [], []
    for step in trainer.steps():
        notes += [(step.number, note) for note in step.notes]
        raw.append(get_weights(trainer))
    assert notes == [(6, "validation has stalled: weights are averaged from here on.")]
    with trainer.use_averaged_weights():
        torch.testing.assert_close(get_weights(trainer), torch.stack(raw[5:]).mean(0))


def test_weights_are_averaged_from_a_share_of_the_budget_on():
    """Of 12 updates, the sixth reaches half of the budget. Validations choose the best weights as without averaging."""
    evaluated, raw, notes, losses = [], [], [], iter([9.0, 8.0, 7.0, 1.0, 6.0, 5.0, 4.0, 0.5, 3.0, 2.0, 2.0, 2.0])
    trainer = make_trainer(average_from=0.5, validate_every=1)
    trainer.validate = lambda: evaluated.append(get_weights(trainer)) or {"loss": next(losses)}
    best_steps = []
    for step in trainer.steps():
        raw.append(get_weights(trainer))
        notes += [(step.number, note) for note in step.notes]
        best_steps += [step.number] if step.best else []
    assert all(torch.equal(weights, evaluated[index]) for index, weights in enumerate(raw[:6]))
    for index in range(6, 12):
        torch.testing.assert_close(evaluated[index], torch.stack(raw[5 : index + 1]).mean(0))
    assert notes == [(6, "weights are averaged from here on (training.average_from).")]
    assert best_steps == [1, 2, 3, 4, 8]
    assert trainer.state.best_loss == 0.5


def test_averaging_starts_again_when_a_larger_budget_has_not_reached_its_share():
    short = make_trainer(average_from=0.5, budget="1-epochs")
    run(short)
    assert short.average.num_averaged == 4  # after updates 3 to 6
    longer = make_trainer(average_from=0.5, budget="4-epochs")
    longer.restore(short.snapshot())
    assert not longer.average.is_running
    run(longer)
    assert longer.average.num_averaged == 13  # after updates 12 to 24


@pytest.mark.parametrize("is_second_better", [False, True])
def test_with_a_larger_budget_only_the_best_mean_of_the_last_weights_is_used(is_second_better: bool):
    """Six updates with a validation each, and one of the mean; then six more."""
    losses = iter([5.0] * 6 + [1.0] + [4.0] * 6 + [0.5 if is_second_better else 2.0])
    settings = {"average_last": 3, "validate_every": 1, "validate": lambda: {"loss": next(losses)}}
    short = make_trainer(budget="1-epochs", **settings)
    run(short)
    assert (short.state.best_loss, short.state.num_averaged, short.state.best_step) == (1.0, 3, 6)
    assert not torch.equal(get_averaged_weights(short), get_weights(short)), "the mean is best"
    longer = make_trainer(budget="2-epochs", **settings)
    longer.restore(short.snapshot())
    steps = run(longer)
    assert steps[-1].best == is_second_better
    again = make_trainer(budget="2-epochs", **settings)
    again.restore(longer.snapshot())
    for trainer in (longer, again):
        assert torch.equal(get_averaged_weights(trainer), get_weights(trainer)) == (not is_second_better)


def test_averaged_sgd_that_never_stalls_is_not_averaged():
    trainer = make_trainer(optimizer="asgd")
    run(trainer)
    assert not trainer.average.is_running


def test_validation_happens_twenty_times_per_budget_and_at_the_end():
    validations = []
    trainer = make_trainer(budget="20-epochs", validate=lambda: validations.append(1) or {"loss": 1.0})
    steps = run(trainer)
    assert len(validations) == 20
    assert steps[-1].validation == {"loss": 1.0}
