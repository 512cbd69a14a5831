"""Replayed gradients equal computed ones; where they might not, gradients are computed."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from seqwise.backbones.states import flatten, map_state
from seqwise.budget import Budget
from seqwise.data.batch import TokenBatch
from seqwise.errors import MemoryLimitError, NonFiniteError
from seqwise.layers.positions import sines_and_cosines
from seqwise.layers.record import record
from seqwise.losses import Loss, total
from seqwise.resolved_settings import ResolvedSettings, ResolvedTrainingSettings
from seqwise.tasks.language.model import LanguageModel
from seqwise.training import replay
from seqwise.training.loop import Trainer
from seqwise.training.optimizers import supports_skipping
from seqwise.training.replay import (
    MAX_CHECKS,
    MAX_GRAPHS,
    WARMUP_CALLS,
    GraphReplay,
    RandomStates,
    compute_signature,
    describe_batch,
    describe_state,
    get_torch_settings,
    has_memory_for_graph,
)

ROWS, TIME = 4, 6
CAPTURE_STEP = WARMUP_CALLS + 2  # the update of a shape that is recorded first
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
MODELS = ["rnn", "lstm", "gru", "transformer"]
OUTPUTS = [{"output": "sampled", "samples": 8}, {"output": "adaptive"}, {"tie_weights": False}]


class FakeGraph:
    """An imitation of a CUDA graph: `replay` calls the work again and copies the results to where they were before."""

    made: ClassVar[list[FakeGraph]] = []

    def __init__(self, model: nn.Module):
        self.parameters, self.replays = list(model.parameters()), 0
        FakeGraph.made.append(self)

    def capture(self, work: Callable[[], tuple[Tensor, object]]) -> tuple[Tensor, object]:
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


class FailingGraph(FakeGraph):
    def capture(self, work: Callable[[], tuple[Tensor, object]]) -> tuple[Tensor, object]:
        work()
        torch.rand(5)
        raise RuntimeError("operation not permitted.\nand more")


@pytest.fixture(autouse=True)
def _no_graphs_yet() -> None:
    FakeGraph.made = []


@pytest.fixture
def _allow_cpu_dropout(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU, dropout uses the generator whose use normally prevents a capture."""
    if not torch.cuda.is_available():
        monkeypatch.setattr(RandomStates, "have_changed", lambda self: False)


@dataclass(frozen=True)
class Batches:
    """So many batches an epoch, all of one shape but those of `odd`. Not all targets count, nor equally many."""

    odd: tuple[int, ...] = ()
    steps: int = 12
    words: int = 50
    rows: int = ROWS

    def epoch(self, number: int, start: int = 0) -> Iterator[TokenBatch]:
        for step in range(start, self.steps):
            draw = torch.Generator().manual_seed(100 * number + step)
            ids = torch.randint(self.words, (self.rows, TIME + 1 - (step in self.odd)), generator=draw)
            counted = torch.rand(ids[:, 1:].shape, generator=draw) < (step + 1) / (self.steps + 1)
            counted[:, 0] = True
            yield TokenBatch(
                ids[:, :-1], ids[:, 1:], counted, positions=torch.arange(self.rows), resets_state=step == 0
            )


SAME_SHAPES = Batches()


def make(
    settings: ResolvedSettings, device: str = "cpu", budget: str = "2-epochs", batches: Batches = SAME_SHAPES
) -> Trainer:
    torch.manual_seed(0)
    model = LanguageModel(settings, batches.words).to(device)
    return with_replay(Trainer(model, batches, settings.training, Budget.parse(budget), seed=5))


def with_replay(trainer: Trainer) -> Trainer:
    """Turn look-ahead and replay on; on a CPU with a fake graph."""
    trainer.checks_on_device = supports_skipping(trainer.optimizer)
    if trainer.device.type == "cpu":
        trainer.replay.make_graph = lambda: FakeGraph(trainer.model)
    return trainer


def without_replay(trainer: Trainer) -> Trainer:
    trainer.replay.make_graph = None
    return trainer


def settings_of(model: str, training: dict[str, object] | None = None, **network: object) -> ResolvedSettings:
    return ResolvedSettings(
        model=model,
        data={"window": TIME},
        network={"width": 32, "depth": 2, "embedding": 32, "dropout": 0.2, **network},
        transformer={"heads": 2},
        recurrent={"weight_dropout": 0.0 if model == "transformer" else 0.1},
        training={"learning_rate": 1e-2, "precision": "float32", **(training or {})},
    )


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


def counted(trainer: Trainer) -> list[int]:
    """Return a list whose only number counts all replays from now on."""
    seen = [0]
    for recorded in trainer.replay.graphs.values():
        own = recorded.graph.replay

        def again(own: Callable[[], None] = own) -> None:
            seen[0] += 1
            own()

        recorded.graph.replay = again
    return seen


@pytest.mark.usefixtures("_allow_cpu_dropout")
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("device", DEVICES)
def test_replayed_steps_equal_computed_ones(device: str, model: str) -> None:
    settings = settings_of(model, {"precision": "bfloat16" if device == "cuda" else "float32"})
    one, other = without_replay(make(settings, device)), make(settings, device)
    assert compare(one, other) == 24
    assert not other.replay.disabled_reason
    assert not one.replay.graphs
    assert len(other.replay.graphs) == 1


@pytest.mark.usefixtures("_allow_cpu_dropout")
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("training", [{"ema": 0.9}, {"optimizer": "asgd"}, {"clip": "value"}, {"validate_every": 3}])
def test_replayed_steps_equal_computed_ones_for_all_training_settings(device: str, training: dict[str, object]) -> None:
    trainers = [make(settings_of("gru", training), device) for _ in range(2)]
    for trainer in trainers:
        trainer.validate = lambda: {"loss": 1.0}
    assert compare(without_replay(trainers[0]), trainers[1]) == 24
    assert trainers[1].replay.graphs


@pytest.mark.gpu
def test_the_fused_loss_is_replayed_on_a_gpu() -> None:
    settings, batches = settings_of("lstm", {"precision": "bfloat16"}), Batches(words=1_000_003)  # above its least
    one, other = (make(settings, "cuda", batches=batches) for _ in range(2))
    compare(without_replay(one), other)
    assert other.replay.graphs


@pytest.mark.usefixtures("_allow_cpu_dropout")
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "settings", [{"output": "sampled", "samples": 8}, {"output": "adaptive"}, {"tie_weights": False}]
)
def test_replayed_steps_equal_computed_ones_for_every_output_layer(device: str, settings: dict[str, object]) -> None:
    chosen = settings_of("lstm", **settings)
    trainer = make(chosen, device)
    compare(without_replay(make(chosen, device)), trainer)
    # An adaptive softmax looks which words there are.
    waits = device == "cuda" and settings.get("output") == "adaptive"
    assert bool(trainer.replay.graphs) != waits
    assert trainer.replay.disabled_reason == ("it waits for the GPU" if waits else "")


@pytest.mark.usefixtures("_allow_cpu_dropout")
def test_a_graph_is_captured_after_the_warm_up_calls_of_a_shape() -> None:
    trainer = make(settings_of("gru"), batches=Batches(odd=(3,), steps=8), budget="1-epochs")
    compute, calls = trainer.replay.compute, []
    trainer.replay.compute = lambda rows, *rest: (calls.append(rows.length), compute(rows, *rest))[1]
    list(trainer.steps())
    # The first has no carry, the fourth is shorter. Of the others one is recorded, which calls; so does our pretence.
    assert calls[: 2 + CAPTURE_STEP] == [TIME, TIME, TIME, TIME - 1, TIME, TIME]
    assert [graph.replays for graph in FakeGraph.made] == [3]


@pytest.mark.usefixtures("_allow_cpu_dropout")
@pytest.mark.parametrize("device", DEVICES)
def test_alternating_shapes_have_a_graph_each(device: str) -> None:
    settings, batches = settings_of("lstm"), Batches(odd=tuple(range(0, 12, 2)))
    one, other = (make(settings, device, "3-epochs", batches) for _ in range(2))
    assert compare(without_replay(one), other) == 36
    assert len(other.replay.graphs) == 2


@pytest.mark.usefixtures("_allow_cpu_dropout")
@pytest.mark.parametrize("device", DEVICES)
def test_a_resumed_training_ends_with_the_same_bits(device: str) -> None:
    settings = settings_of("lstm")
    whole, first, second = (make(settings, device) for _ in range(3))
    list(whole.steps())
    steps = first.steps()
    for _ in range(CAPTURE_STEP + 3):
        next(steps)
    assert first.replay.graphs
    second.restore(first.snapshot())
    list(second.steps())
    for p, q in zip(whole.parameters, second.parameters, strict=True):
        assert torch.equal(p, q)


@pytest.mark.usefixtures("_allow_cpu_dropout")
@pytest.mark.parametrize("device", DEVICES)
def test_a_replayed_update_that_is_not_finite_is_an_error(device: str) -> None:
    trainer = make(settings_of("lstm"), device)
    steps = trainer.steps()
    for _ in range(CAPTURE_STEP + 2):
        next(steps)
    with torch.no_grad():
        trainer.model.embedding.weight.fill_(torch.inf)  # in its place: the next gradients are replayed
    seen = counted(trainer)
    with pytest.raises(NonFiniteError, match="The update was not made"):
        next(steps), next(steps)
    assert seen[0]


# A model that is changed


def change_a_number(model: nn.Module) -> None:
    model.drop_in.p = 0.5


def change_a_number_deep_inside(model: nn.Module) -> None:
    model.backbone.deep.layer[1].weight_dropout = 0.6


def become_another(model: nn.Module) -> None:
    class Other(type(model.drop_in)):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * x

    model.drop_in.__class__ = Other


def add_a_hook(model: nn.Module) -> None:
    model.embedding.register_forward_hook(lambda module, given, found: 2 * found)


def add_a_hook_of_a_tensor(model: nn.Module) -> None:
    model.embedding.weight.register_hook(lambda gradient: 2 * gradient)


def triple(weight: Tensor) -> None:
    weight.grad.mul_(3)


def add_a_hook_after_a_gradient(model: nn.Module) -> None:
    model.embedding.weight.register_post_accumulate_grad_hook(triple)


def put_a_function_in_its_place(model: nn.Module) -> None:
    model.embedding.forward = lambda ids: nn.functional.embedding(ids, model.embedding.weight) * 3


def move_the_weights(model: nn.Module) -> None:
    model.embedding.weight.data = 2 * model.embedding.weight.data


def freeze_some_words(model: nn.Module) -> None:
    model.embedding.freeze(torch.arange(10))


def freeze_a_weight(model: nn.Module) -> None:
    model.embedding.weight.requires_grad_(False)


def put_a_module_in_its_place(model: nn.Module) -> None:
    model.drop_out = nn.Identity()


def stop_training(model: nn.Module) -> None:
    model.backbone.train = lambda mode=True: model.backbone  # as those do who keep a part as it is
    model.backbone.dropout = 0.9


CHANGES = [
    change_a_number, change_a_number_deep_inside, become_another, add_a_hook, add_a_hook_of_a_tensor,
    add_a_hook_after_a_gradient, put_a_function_in_its_place, move_the_weights, freeze_some_words, freeze_a_weight,
    put_a_module_in_its_place, stop_training,
]  # fmt: skip


@pytest.mark.usefixtures("_allow_cpu_dropout")
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("device", DEVICES)
def test_a_changed_model_is_not_replayed(device: str, change: Callable[[nn.Module], None]) -> None:
    settings = settings_of("lstm", tie_weights=False)
    one, other = without_replay(make(settings, device)), make(settings, device)
    for trainer in (one, other):
        steps = trainer.steps()
        for _ in range(CAPTURE_STEP + 2):
            next(steps)
        seen = counted(trainer)
        change(trainer.model)
        for _ in range(5):
            next(steps)
        assert seen[0] == 0, "what was recorded before is not replayed"
    for p, q in zip(one.parameters, other.parameters, strict=True):
        assert torch.equal(p, q)


@pytest.mark.usefixtures("_allow_cpu_dropout")
def test_a_changed_model_is_captured_again() -> None:
    trainer = make(settings_of("lstm"), batches=Batches(steps=60), budget="1-epochs")
    for number, _ in enumerate(trainer.steps()):
        if number % 10 == 9:
            trainer.model.drop_in.p = 0.1 + number / 1000
    assert len(FakeGraph.made) == 6
    assert len(trainer.replay.graphs) == 1


def test_only_repeatable_hooks_allow_replay() -> None:
    model = make(settings_of("lstm")).model
    assert compute_signature(model) is not None
    model.embedding.freeze(torch.arange(3))
    assert compute_signature(model) is not None
    for register in (
        model.head.register_forward_pre_hook,
        model.head.register_forward_hook,
        model.head.register_full_backward_hook,
        model.embedding.weight.register_hook,
        nn.modules.module.register_module_forward_hook,
        nn.modules.module.register_module_full_backward_hook,
    ):
        handle = register(lambda *_: None)
        try:
            assert compute_signature(model) is None
        finally:
            handle.remove()
        assert compute_signature(model) is not None


@pytest.mark.usefixtures("_allow_cpu_dropout")
@pytest.mark.parametrize("device", DEVICES)
def test_values_recorded_during_replay_come_from_every_step(device: str) -> None:
    trainer = make(settings_of("lstm"), device, batches=Batches(steps=20))
    steps = trainer.steps()
    for _ in range(CAPTURE_STEP + 2):
        next(steps)
    assert trainer.replay.graphs, trainer.replay.disabled_reason
    seen = counted(trainer)
    with record(trainer.model, "*.forget") as found:
        next(steps)
        next(steps)
    assert seen[0] == 0
    assert {name: len(found.every(name)) for name in found} == {
        f"backbone.deep.layer.{i}.lstm.forget": 2 for i in (0, 1)
    }
    next(steps)
    assert seen[0] == 1, "afterwards it goes on as before"


@pytest.mark.usefixtures("_allow_cpu_dropout")
def test_the_garbage_collector_is_paused_while_a_graph_is_captured() -> None:
    """It might destroy another graph, which makes the capture fail."""
    trainer, enabled = make(settings_of("gru")), []

    class Capture(FakeGraph):
        def capture(self, work: Callable[[], tuple[Tensor, object]]) -> tuple[Tensor, object]:
            enabled.append(gc.isenabled())
            return super().record(work)

    trainer.replay.make_graph = lambda: Capture(trainer.model)
    list(trainer.steps())
    assert enabled == [False]
    assert gc.isenabled()


def test_the_environment_variable_turns_replay_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQWISE_KERNELS", "off")
    list(make(settings_of("lstm")).steps())
    assert not FakeGraph.made


# A model with side effects


class CustomModel(nn.Module):
    """A model with a side effect in its forward pass. It has a buffer that every call changes, and dropout."""

    def __init__(self, side_effect: Callable[[CustomModel, Tensor], None]):
        super().__init__()
        self.embedding, self.side_effect, self.calls, self.flag = nn.Embedding(50, 50), side_effect, 0, False
        self.norm, self.drop = nn.BatchNorm1d(50), nn.Dropout(0.1)

    def forward(self, batch: TokenBatch, carry: object = None) -> tuple[Loss, None]:
        scores = self.drop(self.norm(self.embedding(batch.ids).flatten(0, 1)))
        self.side_effect(self, scores)
        return total(nn.functional.cross_entropy(scores, batch.targets.flatten(), reduction="none")), None


def has_no_side_effect(model: CustomModel, scores: Tensor) -> None:
    pass


def counts_its_calls(model: CustomModel, scores: Tensor) -> None:
    model.calls += 1


def takes_turns(model: CustomModel, scores: Tensor) -> None:
    model.flag = not model.flag


def draws_with_torch(model: CustomModel, scores: Tensor) -> None:
    torch.rand(3)


def draws_with_numpy(model: CustomModel, scores: Tensor) -> None:
    np.random.rand()


def draws_with_python(model: CustomModel, scores: Tensor) -> None:
    random.random()


def waits(model: CustomModel, scores: Tensor) -> None:
    float(scores.detach().sum())


def waits_unseen(model: CustomModel, scores: Tensor) -> None:
    if scores.is_cuda:
        torch.cuda.synchronize()  # which PyTorch's alarm does not report


def draws_on_its_own(model: CustomModel, scores: Tensor) -> None:
    if not hasattr(model, "chance"):
        model.chance = np.random.default_rng(0)
    model.chance.random()


DRAWS = "it draws random numbers on the CPU, or with a generator of its own"
SIDE_EFFECTS = {
    counts_its_calls: "the model changes itself",
    takes_turns: "the model changes itself",
    draws_with_torch: DRAWS,
    draws_with_numpy: DRAWS,
    draws_with_python: DRAWS,
    draws_on_its_own: DRAWS,
    waits: "it waits for the GPU",
}


def own(side_effect: Callable[[CustomModel, Tensor], None], device: str) -> Trainer:
    torch.manual_seed(0)
    model = CustomModel(side_effect).to(device)
    return with_replay(Trainer(model, Batches(), ResolvedTrainingSettings(learning_rate=0.1), Budget.parse("2-epochs")))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("side_effect", SIDE_EFFECTS)
def test_a_model_that_cannot_be_replayed_is_not_captured(
    device: str, side_effect: Callable[[CustomModel, Tensor], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    if device == "cpu":
        if side_effect is waits:
            pytest.skip("nothing waits on a CPU")
        monkeypatch.setattr(nn.Dropout, "forward", lambda self, x: x)  # it draws on the CPU as well
    one, other = own(side_effect, device), own(side_effect, device)
    compare(without_replay(one), other)
    assert not other.replay.graphs
    assert other.replay.disabled_reason == SIDE_EFFECTS[side_effect]
    for a, b in zip(one.model.buffers(), other.model.buffers(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.gpu
def test_buffers_are_updated_by_replay_on_a_gpu() -> None:
    one, other = own(has_no_side_effect, "cuda"), own(has_no_side_effect, "cuda")
    compare(without_replay(one), other)
    assert other.replay.graphs
    for a, b in zip(one.model.buffers(), other.model.buffers(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.gpu
def test_training_continues_without_graphs_after_a_failed_capture_on_a_gpu() -> None:
    plain, other = without_replay(own(waits_unseen, "cuda")), own(waits_unseen, "cuda")
    notes = []
    for _, step in zip(plain.steps(), other.steps(), strict=True):
        notes += step.notes
    assert not other.replay.graphs
    assert len(notes) == 1
    assert notes[0].startswith("gradients could not be recorded")
    for a, b in zip(plain.parameters, other.parameters, strict=True):
        assert torch.equal(a, b)


@pytest.mark.gpu
@pytest.mark.parametrize("side_effect", [waits, waits_unseen])
def test_a_failed_capture_does_not_affect_another_trainer_on_a_gpu(
    side_effect: Callable[[CustomModel, Tensor], None],
) -> None:
    settings = settings_of("lstm")
    plain, first, other = without_replay(make(settings, "cuda")), make(settings, "cuda"), own(side_effect, "cuda")
    for number, (a, b) in enumerate(zip(plain.steps(), first.steps(), strict=True)):
        assert a.loss == b.loss
        if number == CAPTURE_STEP + 1:
            assert first.replay.graphs
            list(other.steps())
            assert other.replay.disabled_reason
    assert first.replay.graphs


@pytest.mark.usefixtures("_allow_cpu_dropout")
def test_graphs_captured_before_a_generator_was_replaced_are_not_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make(settings_of("lstm"))
    steps = trainer.steps()
    for _ in range(CAPTURE_STEP + 1):
        next(steps)
    seen = counted(trainer)
    monkeypatch.setattr(RandomStates, "num_replaced", RandomStates.num_replaced + 1)
    for _ in range(5):
        next(steps)
    assert seen[0] == 0
    assert len(FakeGraph.made) == 2


@pytest.mark.parametrize("message", [replay.SYNC_ERROR, "something else"])
def test_a_check_that_synchronises_is_undone(message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nn.Dropout, "forward", lambda self, x: x)
    calls: list[None] = []

    def complains(model: CustomModel, scores: Tensor) -> None:
        calls.append(None)
        if len(calls) == 1 + WARMUP_CALLS + 1:  # the first batch of an epoch has a shape of its own
            raise RuntimeError(message)

    plain, other = without_replay(own(has_no_side_effect, "cpu")), own(complains, "cpu")
    if message != replay.SYNC_ERROR:
        with pytest.raises(RuntimeError, match=message):
            list(other.steps())
        return
    compare(plain, other)
    assert other.replay.disabled_reason == "it waits for the GPU"
    for a, b in zip(plain.model.buffers(), other.model.buffers(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.usefixtures("_allow_cpu_dropout")
def test_a_failed_capture_frees_all_graphs() -> None:
    trainer = make(settings_of("lstm"), batches=Batches(odd=(7, 8, 9, 10, 11)))
    steps = trainer.steps()
    for _ in range(CAPTURE_STEP + 1):
        next(steps)
    assert trainer.replay.graphs
    trainer.replay.make_graph = lambda: FailingGraph(trainer.model)
    notes = [note for step in steps for note in step.notes]
    assert len(notes) == 1
    assert not trainer.replay.graphs


@pytest.mark.usefixtures("_allow_cpu_dropout")
def test_an_interrupt_during_a_capture_is_raised() -> None:
    class Stopped(FakeGraph):
        def capture(self, work: Callable[[], tuple[Tensor, object]]) -> tuple[Tensor, object]:
            try:
                raise KeyboardInterrupt
            finally:
                raise RuntimeError("the capture was not ended")

    trainer = make(settings_of("lstm"))
    trainer.replay.make_graph = lambda: Stopped(trainer.model)
    with pytest.raises(KeyboardInterrupt):
        list(trainer.steps())


@pytest.mark.usefixtures("_allow_cpu_dropout")
def test_training_continues_without_graphs_after_a_failed_capture() -> None:
    settings = settings_of("lstm")
    one, other = without_replay(make(settings)), make(settings)
    other.replay.make_graph = lambda: FailingGraph(other.model)
    notes = []
    for _, step in zip(one.steps(), other.steps(), strict=True):
        notes += step.notes
    assert notes == ["gradients could not be recorded and are computed one by one: operation not permitted."]
    for a, b in zip(one.parameters, other.parameters, strict=True):
        assert torch.equal(a, b)


def test_a_model_that_changes_at_every_step_is_checked_a_limited_number_of_times() -> None:
    trainer = own(has_no_side_effect, "cpu")
    trainer.model.progress = 0.0
    tried = []
    trainer.replay._compute_checked = lambda signature, *given: (tried.append(1), trainer.replay.compute(*given))[1]
    list(trainer.steps())
    assert not FakeGraph.made
    assert len(tried) == MAX_CHECKS + 1


# Memory


@pytest.mark.usefixtures("_allow_cpu_dropout")
def test_the_number_of_graphs_is_limited() -> None:
    class Lengths(Batches):
        def epoch(self, number: int, start: int = 0) -> Iterator[TokenBatch]:
            for step in range(start, self.steps):
                ids = torch.zeros(ROWS, 2 + step % (MAX_GRAPHS + 4), dtype=torch.int64)
                yield TokenBatch(ids, ids, resets_state=True)

    trainer = make(settings_of("gru"), batches=Lengths(steps=12 * (CAPTURE_STEP + 1)), budget="1-epochs")
    list(trainer.steps())
    assert len(trainer.replay.graphs) == MAX_GRAPHS


def test_a_graph_needs_memory_beside_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (40, 100))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 20)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 20)
    assert has_memory_for_graph(torch.device("cuda"), 1)
    assert not has_memory_for_graph(torch.device("cuda"), 2)
    assert has_memory_for_graph(torch.device("cpu"), 99)


@pytest.mark.usefixtures("_allow_cpu_dropout")
def test_too_little_memory_for_a_graph_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "has_memory_for_graph", lambda device, recorded: False)
    trainer = make(settings_of("lstm"))
    notes = [note for step in trainer.steps() for note in step.notes]
    assert notes == ["gradients could not be recorded and are computed one by one: there is too little memory."]


@pytest.mark.usefixtures("_allow_cpu_dropout")
def test_out_of_memory_frees_graphs_first_and_then_splits_the_batch() -> None:
    trainer = make(settings_of("lstm"))
    steps, notes = trainer.steps(), []
    for _ in range(CAPTURE_STEP + 1):
        next(steps)
    compute, fails = trainer.replay.compute, [True, True]

    def narrow(*given: object) -> object:
        if fails:
            fails.pop()
            raise torch.OutOfMemoryError("pretended")
        return compute(*given)

    trainer.replay.compute = narrow
    next(iter(trainer.replay.graphs.values())).graph.replay = narrow
    for step in steps:
        notes += step.notes
    assert notes == [
        "out of memory: gradients are no longer recorded, but computed one by one.",
        "out of memory: the batch of 4 rows is now computed in 2 pieces; the updates stay the same.",
    ]
    assert trainer.micro_batches.num_pieces == 2
    assert not trainer.replay.graphs


@pytest.mark.usefixtures("_allow_cpu_dropout")
def test_a_single_row_that_does_not_fit_is_tried_again_without_graphs() -> None:
    trainer = make(settings_of("lstm"), batches=Batches(rows=1))
    steps = trainer.steps()
    for _ in range(CAPTURE_STEP + 1):
        next(steps)

    def narrow() -> None:
        raise torch.OutOfMemoryError("pretended")

    next(iter(trainer.replay.graphs.values())).graph.replay = narrow
    assert len(list(steps)) == 2 * 12 - CAPTURE_STEP - 1


def test_a_validation_that_never_fits_into_memory_is_an_error() -> None:
    def validate() -> dict[str, float]:
        calls.append(None)
        raise torch.OutOfMemoryError("pretended")

    for number in (1, CAPTURE_STEP + 2):  # with nothing recorded, and with something
        trainer, calls = make(settings_of("lstm", {"validate_every": number}, dropout=0.0)), []
        trainer.model.backbone.deep.layer[0].weight_dropout = trainer.model.backbone.deep.layer[1].weight_dropout = 0.0
        trainer.validate = validate
        with pytest.raises(MemoryLimitError, match="validation does not fit"):
            list(trainer.steps())
        assert len(calls) == (1 if number == 1 else 2)


@pytest.mark.usefixtures("_allow_cpu_dropout")
def test_a_validation_that_does_not_fit_is_tried_again_without_graphs() -> None:
    trainer = make(settings_of("lstm", {"validate_every": CAPTURE_STEP + 2}))
    held = []

    def validate() -> dict[str, float]:
        held.append(bool(trainer.replay.graphs))
        if held[-1]:
            raise torch.OutOfMemoryError("pretended")
        return {"loss": 1.0}

    trainer.validate = validate
    list(trainer.steps())
    assert held[:2] == [True, False]
    assert not any(held[2:])


def test_a_trainer_has_no_reference_cycles() -> None:
    trainer = make(settings_of("lstm"))
    next(trainer.steps())
    trainer.replay.make_graph = None  # of the tests' own, which has the trainer
    seen = weakref.ref(trainer)
    gc.disable()
    try:
        del trainer
        assert seen() is None
    finally:
        gc.enable()


@pytest.mark.usefixtures("_allow_cpu_dropout")
def test_a_state_survives_the_next_replay() -> None:
    trainer = make(settings_of("lstm", dropout=0.0), budget="1-epochs")
    carries = []
    for _ in trainer.steps():
        carries.append((trainer.model_state, map_state(torch.clone, trainer.model_state)))
    assert FakeGraph.made[0].replays > 2
    for kept, copy in carries:
        assert all(torch.equal(a, b) for a, b in zip(flatten(kept).values(), flatten(copy).values()))


def test_tables_of_positions_keep_their_address() -> None:
    like = torch.zeros(1)
    place = sines_and_cosines(5, 6, like).data_ptr()
    for width in range(8, 8 + 2 * 40, 2):
        sines_and_cosines(5, width, like)
    assert sines_and_cosines(5, 6, like).data_ptr() == place


# Names of shapes


def test_batches_are_described_by_type_shapes_and_values() -> None:
    @dataclass(frozen=True)
    class Odd(TokenBatch):
        names: tuple[str, ...] = ("a",)

    ids = torch.zeros(2, 3, dtype=torch.int64)
    assert describe_batch(TokenBatch(ids, ids)) is not None
    assert describe_batch(TokenBatch(ids, ids)) == describe_batch(TokenBatch(ids + 1, ids, positions=torch.arange(2)))
    assert describe_batch(TokenBatch(ids, ids)) != describe_batch(TokenBatch(ids, ids[:, :2]))
    assert describe_batch(TokenBatch(ids, ids)) != describe_batch(TokenBatch(ids, ids.int()))
    assert describe_batch(TokenBatch(ids, ids)) != describe_batch(TokenBatch(ids, ids, resets_state=False))
    assert describe_batch(Odd(ids, ids)) is None


def test_states_are_described_by_structure_shape_type_and_device() -> None:
    carries = [
        None,
        torch.zeros(2, 3),
        (torch.zeros(2, 3),),
        torch.zeros(2, 4),
        torch.zeros(2, 3, dtype=torch.float64),
        torch.zeros(2, 3, device="meta"),
    ]
    assert len({describe_state(carry) for carry in carries}) == len(carries)
    assert describe_state(torch.zeros(2, 3)) == describe_state(torch.ones(2, 3))


@pytest.mark.parametrize(
    "setting",
    [
        lambda: torch.autograd.set_detect_anomaly(True, check_nan=False),
        lambda: torch.set_float32_matmul_precision("high"),
        lambda: torch.use_deterministic_algorithms(True),
        lambda: torch.set_default_dtype(torch.float64),
    ],
)
def test_settings_of_pytorch_are_part_of_the_key(setting: Callable[[], object]) -> None:
    before, precision = get_torch_settings(), torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    usual = get_torch_settings()
    try:
        setting()
        assert get_torch_settings() != usual
    finally:
        torch.autograd.set_detect_anomaly(False)
        torch.use_deterministic_algorithms(False)
        torch.set_default_dtype(torch.float32)
        torch.set_float32_matmul_precision(precision)
    assert get_torch_settings() == before


def test_a_scripted_module_is_never_replayed() -> None:
    assert compute_signature(nn.Sequential(torch.jit.trace(nn.Linear(2, 2), torch.zeros(1, 2)))) is None


def test_a_replay_without_a_graph_only_computes() -> None:
    seen = []
    plain = GraphReplay(lambda *given: seen.append(given), nn.Linear(1, 1), torch.device("cpu"))
    for _ in range(2 * CAPTURE_STEP):
        plain(TokenBatch(torch.zeros(1, 1), torch.zeros(1, 1)), None, torch.ones(()))
    assert len(seen) == 2 * CAPTURE_STEP
