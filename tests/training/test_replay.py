"""Gradients replayed from CUDA graphs equal eager ones; where they might differ, nothing is replayed."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
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
from seqwise.training.loop import Step, Trainer
from seqwise.training.optimizers import supports_skipping
from seqwise.training.replay import (
    MAX_CHECKS,
    MAX_GRAPHS,
    WARMUP_CALLS,
    GraphReplay,
    RandomStates,
    build_batch_key,
    build_state_key,
    compute_signature,
    get_torch_settings,
    has_memory_for_graph,
)

BATCH_SIZE, LENGTH = 4, 6
CAPTURE_STEP = WARMUP_CALLS + 2  # number of the call with a given key at which its graph is captured
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
MODELS = ["rnn", "lstm", "gru", "transformer"]
OUTPUTS = [{"output": "sampled", "samples": 8}, {"output": "adaptive"}, {"output": "mixture"}, {"tie_weights": False}]


class FakeGraph:
    """An imitation of a CUDA graph: `replay` calls the work again and copies the results into the same tensors."""

    instances: ClassVar[list[FakeGraph]] = []

    def __init__(self, model: nn.Module):
        self.parameters, self.replays = list(model.parameters()), 0
        FakeGraph.instances.append(self)

    def capture(self, work: Callable[[], tuple[Tensor, object]]) -> tuple[Tensor, object]:
        generator_state = torch.default_generator.get_state()
        self.work, self.results = work, work()
        self.gradients = [parameter.grad for parameter in self.parameters]
        # A real capture records kernels without running them: it draws no random numbers and computes no results.
        torch.default_generator.set_state(generator_state)
        for result in self._tensors(self.results):
            result.fill_(float("nan"))
        return self.results

    def replay(self) -> None:
        self.replays += 1
        gradients = [parameter.grad for parameter in self.parameters]
        for parameter in self.parameters:
            parameter.grad = None
        results = self.work()
        for target, value in zip(self._tensors(self.results), self._tensors(results), strict=True):
            target.copy_(value)
        for target, parameter, old_gradient in zip(self.gradients, self.parameters, gradients, strict=True):
            if target is not None:
                target.copy_(parameter.grad)
            parameter.grad = old_gradient

    def _tensors(self, results: tuple[Tensor, object]) -> list[Tensor]:
        return [results[0], *flatten(results[1]).values()]


class FailingGraph(FakeGraph):
    """A graph whose capture fails."""

    def capture(self, work: Callable[[], tuple[Tensor, object]]) -> tuple[Tensor, object]:
        work()
        torch.rand(5)  # changes the generator, which must be restored after the failure
        raise RuntimeError("operation not permitted.\nand more")


@pytest.fixture(autouse=True)
def _clear_fake_graphs() -> None:
    FakeGraph.instances = []


@pytest.fixture
def _allow_cpu_dropout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets models with dropout be captured without a GPU: on a CPU dropout uses the generator that prevents it."""
    if not torch.cuda.is_available():
        monkeypatch.setattr(RandomStates, "has_host_changed", lambda self: False)


@dataclass(frozen=True)
class FakeBatches:
    """Random batches of one shape, but one time step shorter at the steps `shorter`. Targets are masked at random."""

    shorter: tuple[int, ...] = ()
    steps: int = 12
    vocabulary: int = 50
    batch_size: int = BATCH_SIZE

    def epoch(self, number: int, start: int = 0) -> Iterator[TokenBatch]:
        for step in range(start, self.steps):
            generator = torch.Generator().manual_seed(100 * number + step)
            ids = torch.randint(
                self.vocabulary, (self.batch_size, LENGTH + 1 - (step in self.shorter)), generator=generator
            )
            mask = torch.rand(ids[:, 1:].shape, generator=generator) < (step + 1) / (self.steps + 1)
            mask[:, 0] = True
            yield TokenBatch(
                ids[:, :-1], ids[:, 1:], mask, positions=torch.arange(self.batch_size), resets_state=step == 0
            )


SAME_SHAPES = FakeBatches()


def make_trainer(
    settings: ResolvedSettings, device: str = "cpu", budget: str = "2-epochs", batches: FakeBatches = SAME_SHAPES
) -> Trainer:
    torch.manual_seed(0)
    model = LanguageModel(settings, batches.vocabulary).to(device)
    return enable_replay(Trainer(model, batches, settings.training, Budget.parse(budget), seed=5))


def enable_replay(trainer: Trainer) -> Trainer:
    """Turns look-ahead and replay on; on a CPU with a fake graph."""
    trainer.checks_on_device = supports_skipping(trainer.optimizer)
    if trainer.device.type == "cpu":
        trainer.replay.create_graph = lambda: FakeGraph(trainer.model)
    return trainer


def disable_replay(trainer: Trainer) -> Trainer:
    trainer.replay.create_graph = None
    return trainer


def make_settings(model: str, training: dict[str, object] | None = None, **network: object) -> ResolvedSettings:
    return ResolvedSettings(
        model=model,
        data={"window": LENGTH},
        network={"width": 32, "depth": 2, "embedding": 32, "dropout": 0.2, **network},
        transformer={"heads": 2, "attention_dropout": 0.1},
        recurrent={"weight_dropout": 0.0 if model == "transformer" else 0.1},
        training={"learning_rate": 1e-2, "precision": "float32", **(training or {})},
    )


def train_both(eager: Trainer, replayed: Trainer) -> int:
    """Trains both; checks that steps, gradients and snapshots are bit-identical. Returns the number of steps."""
    num_steps = 0
    for eager_step, replayed_step in zip(eager.steps(), replayed.steps(), strict=True):
        assert remove_times(eager_step) == remove_times(replayed_step)
        expected, actual = eager.snapshot().tensors, replayed.snapshot().tensors
        assert expected.keys() == actual.keys()
        assert all(torch.equal(tensor, actual[name]) for name, tensor in expected.items()), eager_step.number
        gradients = zip((p.grad for p in eager.parameters), (p.grad for p in replayed.parameters), strict=True)
        assert all(torch.equal(*pair) for pair in gradients), eager_step.number
        num_steps += 1
    return num_steps


def take_steps(trainer: Trainer, count: int) -> Iterator[Step]:
    """Takes some steps, and returns the generator of the others."""
    steps = trainer.steps()
    for _ in range(count):
        next(steps)
    return steps


def remove_times(step: Step) -> Step:
    return replace(step, seconds=0.0, tokens_per_second=0.0)


def assert_equal_tensors(expected: Iterable[Tensor], actual: Iterable[Tensor]) -> None:
    assert all(torch.equal(a, b) for a, b in zip(expected, actual, strict=True))


class ReplayCounter:
    """Counts the replays of all graphs that a trainer has now."""

    def __init__(self, trainer: Trainer):
        self.count = 0
        for captured_gradients in trainer.replay.graphs.values():
            captured_gradients.graph.replay = partial(self._count_and_replay, captured_gradients.graph.replay)

    def _count_and_replay(self, replay: Callable[[], None]) -> None:
        self.count += 1
        replay()


@pytest.mark.usefixtures("_allow_cpu_dropout")
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("device", DEVICES)
def test_replayed_steps_equal_eager_steps(device: str, model: str) -> None:
    settings = make_settings(model, {"precision": "bfloat16" if device == "cuda" else "float32"})
    eager, replayed = disable_replay(make_trainer(settings, device)), make_trainer(settings, device)
    assert train_both(eager, replayed) == 24
    assert not replayed.replay.disabled_reason
    assert not eager.replay.graphs
    assert len(replayed.replay.graphs) == 1


@pytest.mark.usefixtures("_allow_cpu_dropout")
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("training", [{"ema": 0.9}, {"optimizer": "asgd"}, {"clip": "value"}, {"validate_every": 3}])
def test_replayed_steps_equal_eager_steps_for_all_training_settings(device: str, training: dict[str, object]) -> None:
    eager, replayed = (make_trainer(make_settings("gru", training), device) for _ in range(2))
    eager.validate = replayed.validate = lambda: {"loss": 1.0}
    assert train_both(disable_replay(eager), replayed) == 24
    assert replayed.replay.graphs


@pytest.mark.gpu
def test_the_fused_loss_is_replayed_on_a_gpu() -> None:
    batches = FakeBatches(vocabulary=1_000_003)  # large enough for the fused loss (MIN_SCORES in kernels/loss.py)
    settings = make_settings("lstm", {"precision": "bfloat16"})
    eager, replayed = (make_trainer(settings, "cuda", batches=batches) for _ in range(2))
    train_both(disable_replay(eager), replayed)
    assert replayed.replay.graphs


@pytest.mark.usefixtures("_allow_cpu_dropout")
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("output", OUTPUTS)
def test_replayed_steps_equal_eager_steps_for_every_output_layer(device: str, output: dict[str, object]) -> None:
    settings = make_settings("lstm", **output)
    trainer = make_trainer(settings, device)
    train_both(disable_replay(make_trainer(settings, device)), trainer)
    # An adaptive softmax reads on the host which clusters occur.
    synchronises_host = device == "cuda" and output.get("output") == "adaptive"
    assert bool(trainer.replay.graphs) != synchronises_host
    assert trainer.replay.disabled_reason == ("it waits for the GPU" if synchronises_host else "")


@pytest.mark.usefixtures("_allow_cpu_dropout")
def test_a_graph_is_captured_after_the_warm_up_calls_with_its_key() -> None:
    trainer = make_trainer(make_settings("gru"), batches=FakeBatches(shorter=(3,), steps=8), budget="1-epochs")
    compute, calls = trainer.replay.compute, []
    trainer.replay.compute = lambda batch, *rest: (calls.append(batch.length), compute(batch, *rest))[1]
    list(trainer.steps())
    # The first batch has no state, the fourth is shorter: each has a key of its own. The capture calls `compute` too,
    # and so does each fake replay.
    assert calls[: 2 + CAPTURE_STEP] == [LENGTH, LENGTH, LENGTH, LENGTH - 1, LENGTH, LENGTH]
    assert [graph.replays for graph in FakeGraph.instances] == [3]


@pytest.mark.usefixtures("_allow_cpu_dropout")
@pytest.mark.parametrize("device", DEVICES)
def test_each_of_two_alternating_shapes_has_a_graph(device: str) -> None:
    settings, batches = make_settings("lstm"), FakeBatches(shorter=tuple(range(0, 12, 2)))
    eager, replayed = (make_trainer(settings, device, "3-epochs", batches) for _ in range(2))
    assert train_both(disable_replay(eager), replayed) == 36
    assert len(replayed.replay.graphs) == 2


@pytest.mark.usefixtures("_allow_cpu_dropout")
@pytest.mark.parametrize("device", DEVICES)
def test_a_resumed_run_ends_with_bit_identical_weights(device: str) -> None:
    settings = make_settings("lstm")
    uninterrupted, interrupted, resumed = (make_trainer(settings, device) for _ in range(3))
    list(uninterrupted.steps())
    take_steps(interrupted, CAPTURE_STEP + 3)
    assert interrupted.replay.graphs
    resumed.restore(interrupted.snapshot())
    list(resumed.steps())
    assert_equal_tensors(uninterrupted.parameters, resumed.parameters)


@pytest.mark.usefixtures("_allow_cpu_dropout")
@pytest.mark.parametrize("device", DEVICES)
def test_replayed_gradients_that_are_not_finite_raise_an_error(device: str) -> None:
    trainer = make_trainer(make_settings("lstm"), device)
    steps = take_steps(trainer, CAPTURE_STEP + 2)
    with torch.no_grad():
        trainer.model.embedding.weight.fill_(torch.inf)  # in place: the next gradients are replayed
    replays = ReplayCounter(trainer)
    with pytest.raises(NonFiniteError, match="The update was not made"):
        next(steps), next(steps)
    assert replays.count


# Models that change


def change_dropout_p(model: nn.Module) -> None:
    model.input_dropout.p = 0.5


def change_dropout_p_deep_inside(model: nn.Module) -> None:
    model.backbone.stack.layer[1].weight_dropout = 0.6


def change_the_class(model: nn.Module) -> None:
    class Doubling(type(model.input_dropout)):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * x

    model.input_dropout.__class__ = Doubling


def add_a_hook(model: nn.Module) -> None:
    model.embedding.register_forward_hook(lambda module, args, output: 2 * output)


def add_tensor_hook(model: nn.Module) -> None:
    model.embedding.weight.register_hook(lambda gradient: 2 * gradient)


def triple_gradient(weight: Tensor) -> None:
    weight.grad.mul_(3)


def add_post_accumulate_grad_hook(model: nn.Module) -> None:
    model.embedding.weight.register_post_accumulate_grad_hook(triple_gradient)


def replace_forward(model: nn.Module) -> None:
    model.embedding.forward = lambda ids: nn.functional.embedding(ids, model.embedding.weight) * 3


def reallocate_weights(model: nn.Module) -> None:
    model.embedding.weight.data = 2 * model.embedding.weight.data


def freeze_some_words(model: nn.Module) -> None:
    model.embedding.freeze(torch.arange(10))


def freeze_a_weight(model: nn.Module) -> None:
    model.embedding.weight.requires_grad_(False)


def replace_a_module(model: nn.Module) -> None:
    model.output_dropout = nn.Identity()


def override_train(model: nn.Module) -> None:
    model.backbone.train = lambda mode=True: model.backbone  # as users do to keep a frozen part in eval mode
    model.backbone.dropout = 0.9


CHANGES = [
    change_dropout_p, change_dropout_p_deep_inside, change_the_class, add_a_hook, add_tensor_hook,
    add_post_accumulate_grad_hook, replace_forward, reallocate_weights, freeze_some_words, freeze_a_weight,
    replace_a_module, override_train,
]  # fmt: skip


@pytest.mark.usefixtures("_allow_cpu_dropout")
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("device", DEVICES)
def test_a_changed_model_is_not_replayed(device: str, change: Callable[[nn.Module], None]) -> None:
    settings = make_settings("lstm", tie_weights=False)
    eager, replayed = disable_replay(make_trainer(settings, device)), make_trainer(settings, device)
    for trainer in (eager, replayed):
        steps = take_steps(trainer, CAPTURE_STEP + 2)
        replays = ReplayCounter(trainer)
        change(trainer.model)
        for _ in range(5):
            next(steps)
        assert replays.count == 0, "the graph captured before the change is not replayed"
    assert_equal_tensors(eager.parameters, replayed.parameters)


@pytest.mark.usefixtures("_allow_cpu_dropout")
def test_a_changed_model_is_captured_again() -> None:
    trainer = make_trainer(make_settings("lstm"), batches=FakeBatches(steps=60), budget="1-epochs")
    for number, _ in enumerate(trainer.steps()):
        if number % 10 == 9:
            trainer.model.input_dropout.p = 0.1 + number / 1000
    assert len(FakeGraph.instances) == 6
    assert len(trainer.replay.graphs) == 1


def test_a_hook_prevents_replay_unless_it_is_marked_as_repeatable() -> None:
    model = make_trainer(make_settings("lstm")).model
    assert compute_signature(model) is not None
    model.embedding.freeze(torch.arange(3))  # registers a hook that is marked as repeatable
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
def test_nothing_is_replayed_while_activations_are_recorded(device: str) -> None:
    trainer = make_trainer(make_settings("lstm"), device, batches=FakeBatches(steps=20))
    steps = take_steps(trainer, CAPTURE_STEP + 2)
    assert trainer.replay.graphs, trainer.replay.disabled_reason
    replays = ReplayCounter(trainer)
    with record(trainer.model, "*.forget") as recording:
        next(steps)
        next(steps)
    assert replays.count == 0
    assert {name: len(recording.every(name)) for name in recording} == {
        f"backbone.stack.layer.{i}.lstm.forget": 2 for i in (0, 1)
    }
    next(steps)
    assert replays.count == 1, "replay continues afterwards"


@pytest.mark.usefixtures("_allow_cpu_dropout")
def test_the_garbage_collector_is_paused_while_a_graph_is_captured() -> None:
    """It might destroy another graph, which makes the capture fail."""
    trainer, enabled = make_trainer(make_settings("gru")), []

    class GraphThatChecksTheCollector(FakeGraph):
        def capture(self, work: Callable[[], tuple[Tensor, object]]) -> tuple[Tensor, object]:
            enabled.append(gc.isenabled())
            return super().capture(work)

    trainer.replay.create_graph = lambda: GraphThatChecksTheCollector(trainer.model)
    list(trainer.steps())
    assert enabled == [False]
    assert gc.isenabled()


def test_seqwise_kernels_off_turns_replay_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQWISE_KERNELS", "off")
    list(make_trainer(make_settings("lstm")).steps())
    assert not FakeGraph.instances


# Models with side effects


class CustomModel(nn.Module):
    """A model with a side effect in its forward pass. It has a buffer that every call changes, and dropout."""

    def __init__(self, side_effect: Callable[[CustomModel, Tensor], None]):
        super().__init__()
        self.embedding, self.side_effect, self.calls, self.flag = nn.Embedding(50, 50), side_effect, 0, False
        self.norm, self.drop = nn.BatchNorm1d(50), nn.Dropout(0.1)

    def forward(self, batch: TokenBatch, state: object = None) -> tuple[Loss, None]:
        scores = self.drop(self.norm(self.embedding(batch.ids).flatten(0, 1)))
        self.side_effect(self, scores)
        return total(nn.functional.cross_entropy(scores, batch.targets.flatten(), reduction="none")), None


def do_nothing(model: CustomModel, scores: Tensor) -> None:
    pass


def count_calls(model: CustomModel, scores: Tensor) -> None:
    model.calls += 1


def toggle_flag(model: CustomModel, scores: Tensor) -> None:
    model.flag = not model.flag


def draw_with_torch(model: CustomModel, scores: Tensor) -> None:
    torch.rand(3)


def draw_with_numpy(model: CustomModel, scores: Tensor) -> None:
    np.random.rand()


def draw_with_python(model: CustomModel, scores: Tensor) -> None:
    random.random()


def read_value(model: CustomModel, scores: Tensor) -> None:
    float(scores.detach().sum())


def synchronise(model: CustomModel, scores: Tensor) -> None:
    if scores.is_cuda:
        torch.cuda.synchronize()  # which the sync debug mode of PyTorch does not report


def draw_with_own_generator(model: CustomModel, scores: Tensor) -> None:
    if not hasattr(model, "generator"):
        model.generator = np.random.default_rng(0)
    model.generator.random()


DRAWS_ON_CPU = "it draws random numbers on the CPU, or with a generator of its own"
SIDE_EFFECTS = {
    count_calls: "the model changes itself",
    toggle_flag: "the model changes itself",
    draw_with_torch: DRAWS_ON_CPU,
    draw_with_numpy: DRAWS_ON_CPU,
    draw_with_python: DRAWS_ON_CPU,
    draw_with_own_generator: DRAWS_ON_CPU,
    read_value: "it waits for the GPU",
}


def make_custom_trainer(side_effect: Callable[[CustomModel, Tensor], None], device: str) -> Trainer:
    torch.manual_seed(0)
    model = CustomModel(side_effect).to(device)
    return enable_replay(
        Trainer(model, FakeBatches(), ResolvedTrainingSettings(learning_rate=0.1), Budget.parse("2-epochs"))
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("side_effect", SIDE_EFFECTS)
def test_a_model_that_cannot_be_replayed_is_not_captured(
    device: str, side_effect: Callable[[CustomModel, Tensor], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    if device == "cpu":
        if side_effect is read_value:
            pytest.skip("a CPU has no asynchronous work")
        monkeypatch.setattr(nn.Dropout, "forward", lambda self, x: x)  # dropout draws from the CPU generator
    eager, replayed = make_custom_trainer(side_effect, device), make_custom_trainer(side_effect, device)
    train_both(disable_replay(eager), replayed)
    assert not replayed.replay.graphs
    assert replayed.replay.disabled_reason == SIDE_EFFECTS[side_effect]
    assert_equal_tensors(eager.model.buffers(), replayed.model.buffers())


@pytest.mark.gpu
def test_buffers_are_updated_by_replay_on_a_gpu() -> None:
    eager, replayed = make_custom_trainer(do_nothing, "cuda"), make_custom_trainer(do_nothing, "cuda")
    train_both(disable_replay(eager), replayed)
    assert replayed.replay.graphs
    assert_equal_tensors(eager.model.buffers(), replayed.model.buffers())


@pytest.mark.gpu
def test_training_continues_without_graphs_after_a_failed_capture_on_a_gpu() -> None:
    eager, replayed = (make_custom_trainer(synchronise, "cuda") for _ in range(2))
    list(disable_replay(eager).steps())
    (note,) = [note for step in replayed.steps() for note in step.notes]
    assert not replayed.replay.graphs
    assert note.startswith("a CUDA graph could not be captured")
    assert_equal_tensors(eager.parameters, replayed.parameters)


@pytest.mark.gpu
@pytest.mark.parametrize("side_effect", [read_value, synchronise])
def test_a_failed_capture_does_not_affect_another_trainer_on_a_gpu(
    side_effect: Callable[[CustomModel, Tensor], None],
) -> None:
    settings = make_settings("lstm")
    eager, replayed = disable_replay(make_trainer(settings, "cuda")), make_trainer(settings, "cuda")
    failing = make_custom_trainer(side_effect, "cuda")
    for number, (eager_step, replayed_step) in enumerate(zip(eager.steps(), replayed.steps(), strict=True)):
        assert eager_step.loss == replayed_step.loss
        if number == CAPTURE_STEP + 1:
            assert replayed.replay.graphs
            list(failing.steps())
            assert failing.replay.disabled_reason
    assert replayed.replay.graphs


@pytest.mark.usefixtures("_allow_cpu_dropout")
def test_graphs_captured_before_a_generator_was_replaced_are_not_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make_trainer(make_settings("lstm"))
    steps = take_steps(trainer, CAPTURE_STEP + 1)
    replays = ReplayCounter(trainer)
    monkeypatch.setattr(RandomStates, "num_replaced", RandomStates.num_replaced + 1)
    for _ in range(5):
        next(steps)
    assert replays.count == 0
    assert len(FakeGraph.instances) == 2


def make_trainer_that_fails_when_checked(message: str, monkeypatch: pytest.MonkeyPatch) -> Trainer:
    """Returns a trainer whose model raises an error at the call that checks whether it can be captured."""
    monkeypatch.setattr(nn.Dropout, "forward", lambda self, x: x)
    calls: list[None] = []

    def raise_once(model: CustomModel, scores: Tensor) -> None:
        calls.append(None)
        if len(calls) == 1 + WARMUP_CALLS + 1:  # the first batch has a key of its own: it resets the state
            raise RuntimeError(message)

    return make_custom_trainer(raise_once, "cpu")


def test_a_computation_rejected_for_synchronising_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    eager = disable_replay(make_custom_trainer(do_nothing, "cpu"))
    replayed = make_trainer_that_fails_when_checked(replay.SYNC_ERROR, monkeypatch)
    train_both(eager, replayed)
    assert replayed.replay.disabled_reason == "it waits for the GPU"
    assert_equal_tensors(eager.model.buffers(), replayed.model.buffers())


def test_another_error_of_a_checked_computation_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make_trainer_that_fails_when_checked("something else", monkeypatch)
    with pytest.raises(RuntimeError, match="something else"):
        list(trainer.steps())


@pytest.mark.usefixtures("_allow_cpu_dropout")
def test_a_failed_capture_frees_all_graphs() -> None:
    trainer = make_trainer(make_settings("lstm"), batches=FakeBatches(shorter=(7, 8, 9, 10, 11)))
    steps = take_steps(trainer, CAPTURE_STEP + 1)
    assert trainer.replay.graphs
    trainer.replay.create_graph = lambda: FailingGraph(trainer.model)
    notes = [note for step in steps for note in step.notes]
    assert len(notes) == 1
    assert not trainer.replay.graphs


@pytest.mark.usefixtures("_allow_cpu_dropout")
def test_an_interrupt_during_a_capture_is_raised() -> None:
    class InterruptedGraph(FakeGraph):
        def capture(self, work: Callable[[], tuple[Tensor, object]]) -> tuple[Tensor, object]:
            try:
                raise KeyboardInterrupt
            finally:
                raise RuntimeError("the capture was not ended")

    trainer = make_trainer(make_settings("lstm"))
    trainer.replay.create_graph = lambda: InterruptedGraph(trainer.model)
    with pytest.raises(KeyboardInterrupt):
        list(trainer.steps())


@pytest.mark.usefixtures("_allow_cpu_dropout")
def test_training_continues_without_graphs_after_a_failed_capture() -> None:
    settings = make_settings("lstm")
    eager, replayed = disable_replay(make_trainer(settings)), make_trainer(settings)
    replayed.replay.create_graph = lambda: FailingGraph(replayed.model)
    list(eager.steps())
    notes = [note for step in replayed.steps() for note in step.notes]
    assert notes == ["a CUDA graph could not be captured (operation not permitted); training continues without graphs."]
    assert_equal_tensors(eager.parameters, replayed.parameters)


def test_a_model_that_changes_at_every_step_is_checked_a_limited_number_of_times() -> None:
    trainer = make_custom_trainer(do_nothing, "cpu")
    trainer.model.progress = 0.0
    checks = []
    trainer.replay._compute_and_check = lambda signature, *args: (checks.append(1), trainer.replay.compute(*args))[1]
    list(trainer.steps())
    assert not FakeGraph.instances
    assert len(checks) == MAX_CHECKS + 1


# Memory


@pytest.mark.usefixtures("_allow_cpu_dropout")
def test_the_number_of_graphs_is_limited() -> None:
    num_lengths = MAX_GRAPHS + 4

    class BatchesOfManyLengths(FakeBatches):
        def epoch(self, number: int, start: int = 0) -> Iterator[TokenBatch]:
            for step in range(start, self.steps):
                ids = torch.zeros(BATCH_SIZE, 2 + step % num_lengths, dtype=torch.int64)
                yield TokenBatch(ids, ids, resets_state=True)

    batches = BatchesOfManyLengths(steps=num_lengths * (CAPTURE_STEP + 1))
    trainer = make_trainer(make_settings("gru"), batches=batches, budget="1-epochs")
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
    monkeypatch.setattr(replay, "has_memory_for_graph", lambda device, num_graphs: False)
    trainer = make_trainer(make_settings("lstm"))
    notes = [note for step in trainer.steps() for note in step.notes]
    assert notes == [
        "a CUDA graph could not be captured (there is too little memory); training continues without graphs."
    ]


@pytest.mark.usefixtures("_allow_cpu_dropout")
def test_out_of_memory_frees_graphs_first_and_then_splits_the_batch() -> None:
    trainer = make_trainer(make_settings("lstm"))
    steps, notes = trainer.steps(), []
    for _ in range(CAPTURE_STEP + 1):
        next(steps)
    compute, fails = trainer.replay.compute, [True, True]

    def raise_out_of_memory(*args: object) -> object:
        if fails:
            fails.pop()
            raise torch.OutOfMemoryError("simulated")
        return compute(*args)

    trainer.replay.compute = raise_out_of_memory
    next(iter(trainer.replay.graphs.values())).graph.replay = raise_out_of_memory
    for step in steps:
        notes += step.notes
    assert notes == [
        "out of memory: CUDA graphs are freed; training continues without them.",
        "out of memory: the batch of 4 sequences is now computed in 2 micro-batches, whose gradients are summed.",
    ]
    assert trainer.micro_batches.num_micro_batches == 2
    assert not trainer.replay.graphs


@pytest.mark.usefixtures("_allow_cpu_dropout")
def test_a_single_sequence_that_does_not_fit_is_computed_again_without_graphs() -> None:
    trainer = make_trainer(make_settings("lstm"), batches=FakeBatches(batch_size=1))
    steps = take_steps(trainer, CAPTURE_STEP + 1)

    def raise_out_of_memory() -> None:
        raise torch.OutOfMemoryError("simulated")

    next(iter(trainer.replay.graphs.values())).graph.replay = raise_out_of_memory
    assert len(list(steps)) == 2 * 12 - CAPTURE_STEP - 1


def test_a_validation_that_never_fits_into_memory_is_an_error() -> None:
    def validate() -> dict[str, float]:
        calls.append(None)
        raise torch.OutOfMemoryError("simulated")

    for number in (1, CAPTURE_STEP + 2):  # without a graph, and with one
        trainer, calls = make_trainer(make_settings("lstm", {"validate_every": number}, dropout=0.0)), []
        trainer.model.backbone.stack.layer[0].weight_dropout = trainer.model.backbone.stack.layer[1].weight_dropout = (
            0.0
        )
        trainer.validate = validate
        with pytest.raises(MemoryLimitError, match="validation does not fit"):
            list(trainer.steps())
        assert len(calls) == (1 if number == 1 else 2)


@pytest.mark.usefixtures("_allow_cpu_dropout")
def test_a_validation_that_does_not_fit_is_repeated_without_graphs() -> None:
    trainer = make_trainer(make_settings("lstm", {"validate_every": CAPTURE_STEP + 2}))
    had_graphs = []

    def validate() -> dict[str, float]:
        had_graphs.append(bool(trainer.replay.graphs))
        if had_graphs[-1]:
            raise torch.OutOfMemoryError("simulated")
        return {"loss": 1.0}

    trainer.validate = validate
    list(trainer.steps())
    assert had_graphs[:2] == [True, False]
    assert not any(had_graphs[2:])


def test_a_trainer_has_no_reference_cycles() -> None:
    trainer = make_trainer(make_settings("lstm"))
    next(trainer.steps())
    trainer.replay.create_graph = None  # the lambda in `enable_replay` refers to the trainer
    reference = weakref.ref(trainer)
    gc.disable()
    try:
        del trainer
        assert reference() is None
    finally:
        gc.enable()


@pytest.mark.usefixtures("_allow_cpu_dropout")
def test_a_returned_state_is_not_overwritten_by_the_next_replay() -> None:
    trainer = make_trainer(make_settings("lstm", dropout=0.0), budget="1-epochs")
    states = []
    for _ in trainer.steps():
        states.append((trainer.model_state, map_state(torch.clone, trainer.model_state)))
    assert FakeGraph.instances[0].replays > 2
    for state, copy in states:
        assert all(torch.equal(a, b) for a, b in zip(flatten(state).values(), flatten(copy).values()))


def test_cached_sines_and_cosines_keep_their_address() -> None:
    like = torch.zeros(1)  # gives dtype and device
    address = sines_and_cosines(5, 6, like).data_ptr()
    for width in range(8, 8 + 2 * 40, 2):
        sines_and_cosines(5, width, like)
    assert sines_and_cosines(5, 6, like).data_ptr() == address


# Keys of graphs


def test_batches_are_described_by_type_tensor_shapes_and_plain_fields() -> None:
    @dataclass(frozen=True)
    class BatchWithNames(TokenBatch):
        names: tuple[str, ...] = ("a",)

    ids = torch.zeros(2, 3, dtype=torch.int64)
    assert build_batch_key(TokenBatch(ids, ids)) is not None
    assert build_batch_key(TokenBatch(ids, ids)) == build_batch_key(TokenBatch(ids + 1, ids, positions=torch.arange(2)))
    assert build_batch_key(TokenBatch(ids, ids)) != build_batch_key(TokenBatch(ids, ids[:, :2]))
    assert build_batch_key(TokenBatch(ids, ids)) != build_batch_key(TokenBatch(ids, ids.int()))
    assert build_batch_key(TokenBatch(ids, ids)) != build_batch_key(TokenBatch(ids, ids, resets_state=False))
    assert build_batch_key(BatchWithNames(ids, ids)) is None


def test_states_are_described_by_structure_shape_type_and_device() -> None:
    states = [
        None,
        torch.zeros(2, 3),
        (torch.zeros(2, 3),),
        torch.zeros(2, 4),
        torch.zeros(2, 3, dtype=torch.float64),
        torch.zeros(2, 3, device="meta"),
    ]
    assert len({build_state_key(state) for state in states}) == len(states)
    assert build_state_key(torch.zeros(2, 3)) == build_state_key(torch.ones(2, 3))


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
    default_settings = get_torch_settings()
    try:
        setting()
        assert get_torch_settings() != default_settings
    finally:
        torch.autograd.set_detect_anomaly(False)
        torch.use_deterministic_algorithms(False)
        torch.set_default_dtype(torch.float32)
        torch.set_float32_matmul_precision(precision)
    assert get_torch_settings() == before


def test_a_torchscript_module_is_never_replayed() -> None:
    assert compute_signature(nn.Sequential(torch.jit.trace(nn.Linear(2, 2), torch.zeros(1, 2)))) is None


def test_graph_replay_on_a_cpu_calls_compute() -> None:
    calls = []
    graph_replay = GraphReplay(lambda *args: calls.append(args), nn.Linear(1, 1), torch.device("cpu"))
    for _ in range(2 * CAPTURE_STEP):
        graph_replay(TokenBatch(torch.zeros(1, 1), torch.zeros(1, 1)), None, torch.ones(()))
    assert len(calls) == 2 * CAPTURE_STEP
