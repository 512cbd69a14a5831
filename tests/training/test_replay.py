"""Recorded gradients are those that would be computed, or they are computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

from seqwise.backbones.states import flatten, map_carry
from seqwise.config import (
    DataSettings,
    NetworkSettings,
    RecurrentSettings,
    Settings,
    TrainingSettings,
    TransformerSettings,
)
from seqwise.data.batch import Batch
from seqwise.layers.record import record
from seqwise.losses import Loss, total
from seqwise.tasks.language.model import LanguageModel
from seqwise.training.budgets import Budget
from seqwise.training.loop import Trainer
from seqwise.training.replay import MOST, WARM, Replay, kind_of

WORDS, ROWS, TIME = 50, 4, 6
RECORDED = WARM + 2  # the update that is recorded first


class Pretended:
    """A graph as a CPU has none: `replay` calls the work again, and puts the results where they were before."""

    made: ClassVar[list[Pretended]] = []

    def __init__(self, parameters: list[nn.Parameter]):
        self.parameters, self.replays = parameters, 0
        Pretended.made.append(self)

    def record(self, work: Callable[[], tuple[Tensor, object]]) -> tuple[Tensor, object]:
        states = torch.default_generator.get_state()
        self.work, self.results = work, work()
        self.gradients = [parameter.grad for parameter in self.parameters]
        torch.default_generator.set_state(states)  # what is recorded has not happened yet
        for result in self._tensors(self.results):
            result.fill_(float("nan"))
        return self.results

    def replay(self) -> None:
        self.replays += 1
        kept = [parameter.grad for parameter in self.parameters]
        for parameter in self.parameters:
            parameter.grad = None
        found = self.work()
        for place, value in zip(self._tensors(self.results), self._tensors(found), strict=True):
            place.copy_(value)
        for place, parameter, old in zip(self.gradients, self.parameters, kept, strict=True):
            if place is not None:
                place.copy_(parameter.grad)
            parameter.grad = old

    def _tensors(self, results: tuple[Tensor, object]) -> list[Tensor]:
        return [results[0], *flatten(results[1]).values()]


@dataclass(frozen=True)
class Batches:
    """Eight batches an epoch, all of one shape but those of `odd`."""

    odd: tuple[int, ...] = ()
    steps: int = 8

    def epoch(self, number: int, start: int = 0) -> Iterator[Batch]:
        for step in range(start, self.steps):
            draw = torch.Generator().manual_seed(100 * number + step)
            ids = torch.randint(WORDS, (ROWS, TIME + 1 - (step in self.odd)), generator=draw)
            yield Batch(ids[:, :-1], ids[:, 1:], positions=torch.arange(ROWS), fresh=step == 0)


ALIKE = Batches()


def make(settings: Settings, device: str = "cpu", budget: str = "2-epochs", batches: Batches = ALIKE) -> Trainer:
    torch.manual_seed(0)
    model = LanguageModel(settings, WORDS).to(device)
    trainer = Trainer(model, batches, settings.training, Budget.parse(budget), seed=5)
    trainer.device_decides = True
    return trainer


def replaying(trainer: Trainer) -> Trainer:
    """On a CPU, with a graph that is none."""
    if trainer.device.type == "cpu":
        # The CPU's generator is what a GPU's is elsewhere, so that it draws must not be held against it.
        trainer.replay = Replay(trainer._learn, trainer.model, trainer.device, lambda: Pretended(trainer.parameters))
        trainer.replay._rehearsed = trainer.replay.compute
    return trainer


def plainly(trainer: Trainer) -> Trainer:
    trainer.replay.graph = None
    return trainer


def settings_of(model: str, **network: object) -> Settings:
    return Settings(
        model=model,
        data=DataSettings(window=TIME),
        network=NetworkSettings(width=32, depth=2, embedding=32, **{"dropout": 0.2, **network}),
        transformer=TransformerSettings(heads=2),
        recurrent=RecurrentSettings(weight_dropout=0.0 if model == "transformer" else 0.1),
        training=TrainingSettings(learning_rate=1e-2, precision="float32"),
    )


DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
MODELS = ["rnn", "lstm", "gru", "transformer"]


@pytest.fixture(autouse=True)
def _forgotten() -> None:
    Pretended.made = []


def compare(one: Trainer, other: Trainer) -> int:
    """Steps made. They, the gradients and all that would be saved are the same to the bit."""
    count = 0
    for a, b in zip(one.steps(), other.steps(), strict=True):
        assert replace(a, seconds=0.0, tokens_per_second=0.0) == replace(b, seconds=0.0, tokens_per_second=0.0)
        saved, found = one.snapshot().tensors, other.snapshot().tensors
        assert saved.keys() == found.keys()
        assert all(torch.equal(tensor, found[name]) for name, tensor in saved.items()), a.number
        assert all(torch.equal(p.grad, q.grad) for p, q in zip(one.parameters, other.parameters)), a.number
        count += 1
    return count


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("device", DEVICES)
def test_every_step_is_what_it_would_have_been(device: str, model: str) -> None:
    settings = settings_of(model)
    if device == "cuda":
        settings.training.precision = "bfloat16"
    one, other = plainly(make(settings, device)), replaying(make(settings, device))
    assert compare(one, other) == 16
    assert not other.replay.refused
    assert not one.replay._recorded
    assert len(other.replay._recorded) == 1


def test_it_is_recorded_when_the_shape_was_met_often_enough() -> None:
    trainer = replaying(make(settings_of("gru"), batches=Batches(odd=(3,)), budget="1-epochs"))
    learnt = trainer.replay.compute
    calls: list[int] = []
    trainer.replay.compute = lambda rows, *rest: (calls.append(rows.length), learnt(rows, *rest))[1]
    trainer.replay._rehearsed = trainer.replay.compute
    list(trainer.steps())
    # The first has no carry, the fourth is shorter. Of the others one is recorded, which calls; so does our pretence.
    assert calls[: 2 + RECORDED] == [TIME, TIME, TIME, TIME - 1, TIME, TIME]
    assert [graph.replays for graph in Pretended.made] == [3]


@pytest.mark.parametrize("settings", [{"output": "sampled"}, {"output": "adaptive"}, {"tied": False}])
@pytest.mark.parametrize("device", DEVICES)
def test_it_holds_for_every_output(device: str, settings: dict[str, object]) -> None:
    if device == "cpu" and settings.get("output") == "sampled":
        settings = {**settings, "samples": 8}
    chosen = settings_of("lstm", **settings)
    compare(plainly(make(chosen, device)), replaying(make(chosen, device)))


def change_a_number(model: nn.Module) -> None:
    model.drop_in.p = 0.5


def add_a_hook(model: nn.Module) -> None:
    model.embedding.register_forward_hook(lambda module, given, found: 2 * found)


def put_a_function_in_its_place(model: nn.Module) -> None:
    model.embedding.forward = lambda ids: nn.functional.embedding(ids, model.embedding.weight) * 3


def move_the_weights(model: nn.Module) -> None:
    model.embedding.weight.data = 2 * model.embedding.weight.data


CHANGES = [change_a_number, add_a_hook, put_a_function_in_its_place, move_the_weights]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("device", DEVICES)
def test_a_model_that_was_changed_in_between_is_computed(device: str, change: Callable[[nn.Module], None]) -> None:
    settings = settings_of("lstm", tied=False)
    one, other = plainly(make(settings, device)), replaying(make(settings, device))
    for trainer in (one, other):
        steps = trainer.steps()
        for _ in range(RECORDED + 2):
            next(steps)
        change(trainer.model)
        for _ in range(5):
            next(steps)
    assert other.replay._recorded
    for p, q in zip(one.parameters, other.parameters, strict=True):
        assert torch.equal(p, q)


def test_whoever_looks_inside_sees_every_step() -> None:
    trainer = replaying(make(settings_of("lstm"), batches=Batches(steps=20)))
    steps = trainer.steps()
    for _ in range(RECORDED + 2):
        next(steps)
    assert trainer.replay._recorded
    with record(trainer.model, "*.forget") as seen:
        next(steps)
        next(steps)
    assert {name: len(seen.every(name)) for name in seen} == {f"backbone.deep.layer.{i}.lstm.forget": 2 for i in (0, 1)}


def test_the_switch_turns_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQWISE_KERNELS", "off")
    trainer = replaying(make(settings_of("lstm")))
    list(trainer.steps())
    assert not Pretended.made


class Own(nn.Module):
    """A model of somebody's own, with a habit."""

    def __init__(self, habit: Callable[[Own, Tensor], None]):
        super().__init__()
        self.embedding, self.habit, self.calls = nn.Embedding(WORDS, WORDS), habit, 0

    def forward(self, batch: Batch, carry: object = None) -> tuple[Loss, None]:
        scores = self.embedding(batch.ids)
        self.habit(self, scores)
        return total(nn.functional.cross_entropy(scores.flatten(0, 1), batch.targets.flatten(), reduction="none")), None


def counts_its_calls(model: Own, scores: Tensor) -> None:
    model.calls += 1


def draws_on_the_cpu(model: Own, scores: Tensor) -> None:
    torch.rand(3)


def waits(model: Own, scores: Tensor) -> None:
    float(scores.sum())


def own(habit: Callable[[Own, Tensor], None], device: str) -> Trainer:
    torch.manual_seed(0)
    trainer = Trainer(Own(habit).to(device), Batches(), TrainingSettings(learning_rate=0.1), Budget.parse("2-epochs"))
    trainer.device_decides = True
    if device == "cpu":
        trainer.replay = Replay(trainer._learn, trainer.model, trainer.device, lambda: Pretended(trainer.parameters))
    return trainer


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("habit", "refused"),
    [(counts_its_calls, ""), (draws_on_the_cpu, "draws random numbers"), (waits, "waits for the GPU")],
)
def test_what_cannot_be_replayed_is_not_recorded(
    device: str, habit: Callable[[Own, Tensor], None], refused: str
) -> None:
    if device == "cpu" and habit is waits:
        pytest.skip("nothing waits on a CPU")
    one, other = own(habit, device), own(habit, device)
    compare(plainly(one), other)
    assert not other.replay._recorded
    assert refused in other.replay.refused
    assert bool(refused) == bool(other.replay.refused)


def test_a_graph_that_fails_is_done_without() -> None:
    class Broken(Pretended):
        def record(self, work: Callable[[], tuple[Tensor, object]]) -> tuple[Tensor, object]:
            work()
            torch.rand(5)
            raise RuntimeError("operation not permitted\nand more")

    settings = settings_of("lstm")
    one, other = plainly(make(settings)), replaying(make(settings))
    other.replay.graph = lambda: Broken(other.parameters)
    compare(one, other)
    assert other.replay.refused == "operation not permitted"


def test_only_so_many_shapes_are_recorded() -> None:
    class Lengths(Batches):
        def epoch(self, number: int, start: int = 0) -> Iterator[Batch]:
            for step in range(start, self.steps):
                ids = torch.zeros(ROWS, 2 + step % (MOST + 4), dtype=torch.int64)
                yield Batch(ids, ids, fresh=True)

    trainer = replaying(make(settings_of("gru"), batches=Lengths(steps=12 * (RECORDED + 1)), budget="1-epochs"))
    list(trainer.steps())
    assert len(trainer.replay._recorded) == MOST


def test_a_batch_with_something_else_in_it_is_computed() -> None:
    @dataclass(frozen=True)
    class Odd(Batch):
        names: tuple[str, ...] = ("a",)

    ids = torch.zeros(2, 3, dtype=torch.int64)
    assert kind_of(Batch(ids, ids)) is not None
    assert kind_of(Batch(ids, ids)) != kind_of(Batch(ids, ids[:, :2]))
    assert kind_of(Batch(ids, ids)) != kind_of(Batch(ids, ids.int()))
    assert kind_of(Odd(ids, ids)) is None


def test_a_carry_outlives_the_next_replay() -> None:
    trainer = replaying(make(settings_of("lstm", dropout=0.0), budget="1-epochs"))
    carries = []
    for _ in trainer.steps():
        carries.append((trainer.carry, map_carry(torch.clone, trainer.carry)))
    assert Pretended.made[0].replays > 2
    for kept, copy in carries:
        assert all(torch.equal(a, b) for a, b in zip(flatten(kept).values(), flatten(copy).values()))
