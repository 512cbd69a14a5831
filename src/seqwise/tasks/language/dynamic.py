"""Dynamic evaluation: each segment of the text is scored, then the model is trained on it (Mikolov et al. 2010).

Two rules of update, for the gradient g of the mean loss of a segment and the weights θ₀ of the run:

    sgd     θ ← θ − η g, with g clipped at norm 1
    rms     θ ← θ − η g / (√MS + ε) + (θ₀ − θ) min(1, λ √MS / mean √MS)                        (Krause et al. 2018)

MS is the mean of g² over batches of the training split; the mean of √MS is that over the means of all tensors, as in
the authors' code. Every token is scored before the model is trained on it.

Short segments make many small updates, so an update is a few operations on lists of tensors, nothing waits for the
device, and on a GPU the work of a segment is replayed as a CUDA graph.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor, nn

from seqwise.backbones.states import ModelState, detach, map_state
from seqwise.callbacks import ProgressCallback, no_progress
from seqwise.data.batch import TokenBatch
from seqwise.data.corpus.batching import StreamEvaluationLoader, WindowEvaluationLoader
from seqwise.data.corpus.store import TokenStore
from seqwise.errors import NonFiniteError, UsageError
from seqwise.kernels.cuda_graph import CudaGraph, no_garbage_collection, replace_generator_state
from seqwise.kernels.recurrence.availability import get_disabled_reason
from seqwise.losses import total
from seqwise.metrics.options import DYNAMIC_RATES, DYNAMIC_SEGMENTS, TextEvaluationOptions
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.language.scoring import get_window

CLIP_NORM = 1.0  # of sgd
SEGMENTS_PER_READ = 256  # segments that are copied to the device at once
STATISTICS_BATCH = 100  # segments in a batch of the training split whose gradient is squared: Krause et al. 2018
STATISTICS_TOKENS = 500  # tokens of such a batch for a model without a state
MAX_STATISTICS_BATCHES = 5000  # all of WikiText-2 has 4,177; of a larger text evenly spaced streams begin
SEARCH_TOKENS = 30_000  # beginning of the validation split on which rate and decay are searched
# Learning rates are multiplied by these in a search; those of the decay are for rms.
RATE_FACTORS, DECAYS = (0.5, 1.0, 2.0), (0.001, 0.002, 0.005)
WARMUP_SEGMENTS = 3  # before a graph is captured

Update = Callable[[tuple[Tensor, ...]], None]  # changes the weights, given their gradients


class SegmentSums(NamedTuple):
    """What the segments of a text add up to."""

    nats: float
    num_tokens: int
    num_segments: int


@dataclass(frozen=True)
class DynamicSettings:
    """The rule of update and its numbers."""

    method: str
    rate: float  # η
    decay: float  # λ
    epsilon: float  # ε
    segment: int  # tokens between updates

    @classmethod
    def from_options(
        cls, options: TextEvaluationOptions, model: nn.Module, settings: ResolvedSettings
    ) -> DynamicSettings:
        """Returns the settings with the defaults of the method and of the model."""
        method, rate, segment = options.dynamic_method, options.dynamic_rate, options.dynamic_segment
        window = get_window(settings)
        if segment is None:
            segment = DYNAMIC_SEGMENTS[method] if model.stateful else min(window, window - window // 2 + 1)
        if not model.stateful and segment > window:
            problem = f"the model reads windows of {window} tokens; received --dynamic-segment {segment}."
            raise UsageError(problem, fix=f"Use at most {window}.")
        rate = DYNAMIC_RATES[method] if rate is None else rate
        return cls(method, rate, options.dynamic_decay, options.dynamic_epsilon, segment)

    def describe(self) -> str:
        """Returns a description for the report of an evaluation."""
        rule = f"SGD, rate {self.rate:g}, gradient clipped at norm {CLIP_NORM:g}"
        if self.method == "rms":
            rule = f"RMS, rate {self.rate:g}, decay {self.decay:g}, epsilon {self.epsilon:g}"
        return f"each segment of {self.segment} tokens is scored, then trained on ({rule}); one stream"


def score_dynamically(
    model: nn.Module,
    store: TokenStore,
    settings: ResolvedSettings,
    dynamic: DynamicSettings,
    rms: Sequence[Tensor] = (),
    progress: ProgressCallback = no_progress,
    max_tokens: int | None = None,
) -> tuple[float, int]:
    """Returns the summed negative log likelihood of a text, or of its beginning, and its number of tokens.

    A copy of the model is updated. `rms` is needed for the method of this name: see `measure_rms_gradients`.
    """
    model = deepcopy(model)
    parameters = list_parameters(model)
    update = SGDUpdate(parameters, dynamic) if dynamic.method == "sgd" else RMSUpdate(parameters, rms, dynamic)
    segments = iterate_segments(model, store, settings, dynamic.segment, 1)
    if max_tokens is not None:
        segments = islice(segments, math.ceil(max_tokens / dynamic.segment))
    sums = run_segments(model, segments, update, lambda done: progress(done, len(store) - 1))
    return sums.nats, sums.num_tokens


def search_dynamic(
    model: nn.Module,
    store: TokenStore,
    settings: ResolvedSettings,
    dynamic: DynamicSettings,
    rms: Sequence[Tensor] = (),
    progress: ProgressCallback = no_progress,
) -> DynamicSettings:
    """Returns the settings with the rate, and for rms the decay, that have the smallest loss on a text's beginning."""
    decays = DECAYS if dynamic.method == "rms" else (dynamic.decay,)
    candidates = [replace(dynamic, rate=factor * dynamic.rate, decay=decay)
                  for factor in RATE_FACTORS for decay in decays]  # fmt: skip
    losses = []
    for index, candidate in enumerate(candidates):
        try:
            losses.append(score_dynamically(model, store, settings, candidate, rms, max_tokens=SEARCH_TOKENS)[0])
        except NonFiniteError:
            losses.append(math.inf)
        progress(index + 1, len(candidates))
    return candidates[losses.index(min(losses))]


def measure_rms_gradients(
    model: nn.Module,
    store: TokenStore,
    settings: ResolvedSettings,
    segment: int,
    progress: ProgressCallback = no_progress,
) -> list[Tensor]:
    """Returns the root mean square of the gradient of each weight over batches of a text, the training split."""
    batch_size = STATISTICS_BATCH if model.stateful else max(1, STATISTICS_TOKENS // segment)
    batch_size = max(1, min(batch_size, (len(store) - 1) // segment))
    squares = [torch.zeros_like(parameter) for parameter in list_parameters(model)]
    segments = iterate_segments(model, store, settings, segment, batch_size)
    try:
        sums = run_segments(
            model,
            islice(segments, MAX_STATISTICS_BATCHES),
            lambda gradients: torch._foreach_addcmul_(squares, gradients, gradients),
            lambda done: progress(done, len(store) - 1),
        )
    except NonFiniteError as error:  # its fix is about updates, and there was none
        fix = "Check the weights with seqwise inspect RUN --view health; train again with half the learning rate."
        raise NonFiniteError("the loss of the training split is not finite.", fix=fix) from error
    torch._foreach_div_(squares, float(sums.num_segments))
    torch._foreach_sqrt_(squares)
    if not all(bool(each.isfinite().all()) for each in squares):
        fix = "Use --dynamic-method sgd, which needs no statistics of gradients."
        raise NonFiniteError("gradients on the training split are not finite.", fix=fix)
    return squares


def list_parameters(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


class SGDUpdate:
    """θ ← θ − η g, with the gradient of all weights clipped at a norm."""

    def __init__(self, parameters: Sequence[nn.Parameter], dynamic: DynamicSettings):
        self.weights, self.rate = [parameter.detach() for parameter in parameters], dynamic.rate

    def __call__(self, gradients: tuple[Tensor, ...]) -> None:
        norm = torch.stack(torch._foreach_norm(gradients)).norm()
        # Not in place: two biases of a cell may have one gradient.
        clipped = torch._foreach_mul(gradients, (CLIP_NORM / (norm + 1e-6)).clamp(max=1.0))
        torch._foreach_add_(self.weights, clipped, alpha=-self.rate)


class RMSUpdate:
    """θ ← θ − η g / (√MS + ε) + (θ₀ − θ) min(1, λ √MS / mean √MS)."""

    def __init__(self, parameters: Sequence[nn.Parameter], rms: Sequence[Tensor], dynamic: DynamicSettings):
        self.weights = [parameter.detach() for parameter in parameters]
        self.initial = [weight.clone() for weight in self.weights]
        mean = torch.stack([each.mean() for each in rms]).mean()
        self.decays = [(dynamic.decay * each / mean).clamp_(max=1.0) for each in rms]
        self.rates = [dynamic.rate / (each + dynamic.epsilon) for each in rms]

    def __call__(self, gradients: tuple[Tensor, ...]) -> None:
        torch._foreach_lerp_(self.weights, self.initial, self.decays)
        torch._foreach_addcmul_(self.weights, gradients, self.rates, value=-1.0)


def iterate_segments(
    model: nn.Module, store: TokenStore, settings: ResolvedSettings, segment: int, batch_size: int
) -> Iterator[TokenBatch]:
    """Yields the segments of a text on the device of the model; without a state, windows with `segment` new targets."""
    device = next(model.parameters()).device
    if not model.stateful:
        window = get_window(settings)
        windows = WindowEvaluationLoader(store, batch_size, window, context=window - segment + 1)
        yield from (replace(batch, positions=None).to(device) for batch in windows.epoch())
        return
    for batch in StreamEvaluationLoader(store, batch_size, segment * SEGMENTS_PER_READ).epoch():
        moved = replace(batch, positions=None).to(device)
        for start in range(0, batch.length, segment):
            columns = slice(start, start + segment)
            mask = None if moved.mask is None else moved.mask[:, columns]
            resets_state = batch.resets_state and start == 0
            yield TokenBatch(moved.ids[:, columns], moved.targets[:, columns], mask, resets_state=resets_state)


def run_segments(
    model: nn.Module, segments: Iterable[TokenBatch], update: Update, progress: Callable[[int], None]
) -> SegmentSums:
    """Scores each segment, calls `update` with its gradient, and returns the sums."""
    runner = SegmentRunner(model.eval(), update)
    for segment in segments:
        runner.advance(segment)
        if runner.num_segments % SEGMENTS_PER_READ == 0:  # reading a sum waits for the device
            progress(runner.read_sums().num_tokens)
    sums = runner.read_sums()
    progress(sums.num_tokens)
    return sums


class SegmentRunner:
    """Scores one segment after the other, computes its gradient and passes it to `update`."""

    def __init__(self, model: nn.Module, update: Update):
        self.model, self.update, self.parameters = model, update, list_parameters(model)
        device = self.parameters[0].device
        self.nats, self.num_tokens = (torch.zeros((), dtype=torch.float64, device=device) for _ in range(2))
        self.state: ModelState = None
        self.graph: SegmentGraph | None = None
        self.num_segments, self.can_capture = 0, device.type == "cuda" and not get_disabled_reason()

    def advance(self, segment: TokenBatch) -> None:
        """Adds the loss of the segment, then updates."""
        if segment.resets_state:
            self.state = None
        if self.graph is None and self.can_capture and self.num_segments >= WARMUP_SEGMENTS:
            self._capture(segment)
        if self.graph is not None and self.graph.fits(segment, self.state):
            self.state = self.graph.replay(segment, self.state)
        else:
            self.state = self.compute(segment, self.state)
        self.num_segments += 1

    def compute(self, segment: TokenBatch, state: ModelState) -> ModelState:
        """Does the work of a segment without a graph, and returns the state after it."""
        losses, state = self.model.losses(segment, state)  # type: ignore[operator]
        loss = total(losses, segment.mask)
        gradients = torch.autograd.grad(
            loss.total / loss.num_targets, self.parameters, allow_unused=True, materialize_grads=True
        )
        with torch.no_grad():
            self.nats += loss.total
            self.num_tokens += loss.num_targets
            self.update(gradients)
        return detach(state) if self.model.stateful else None

    def read_sums(self) -> SegmentSums:
        """Returns the sums so far; raises an error if the loss is not finite."""
        nats = float(self.nats)
        if not math.isfinite(nats):
            problem = f"the loss became {nats:g} while learning from the text."
            raise NonFiniteError(problem, fix="Choose a smaller --dynamic-rate.")
        return SegmentSums(nats, int(self.num_tokens), self.num_segments)

    def _capture(self, segment: TokenBatch) -> None:
        """Captures the work of a segment of this shape; if that fails, it warns, and there is no graph."""
        self.can_capture = False
        try:
            self.graph = SegmentGraph(self, segment, self.state)
        except RuntimeError as error:
            replace_generator_state(self.nats.device)
            reason = (str(error).strip() or "no reason given").splitlines()[0]
            warnings.warn(f"no CUDA graph of dynamic evaluation: {reason}. It continues without.", stacklevel=2)


class SegmentGraph:
    """The work of segments of one shape as a CUDA graph, which reads and writes tensors at fixed addresses."""

    def __init__(self, runner: SegmentRunner, segment: TokenBatch, state: ModelState):
        self.runner, self.segment = runner, segment.map_tensors(lambda _, tensor: tensor.clone())
        self.state, self.graph = map_state(torch.clone, state), CudaGraph(runner.nats.device)
        self.shapes = list_shapes(segment, state)
        with no_garbage_collection():
            self.graph.capture(self._work)

    def _work(self) -> None:
        map_state(Tensor.copy_, self.state, self.runner.compute(self.segment, self.state))

    def fits(self, segment: TokenBatch, state: ModelState) -> bool:
        return list_shapes(segment, state) == self.shapes

    def replay(self, segment: TokenBatch, state: ModelState) -> ModelState:
        """Does the work for a segment, and returns the state after it, which the next replay overwrites."""
        for target, value in zip(self.segment.tensors().values(), segment.tensors().values(), strict=True):
            target.copy_(value)
        if state is not self.state:
            map_state(Tensor.copy_, self.state, state)
        self.graph.replay()
        return self.state


def list_shapes(segment: TokenBatch, state: ModelState) -> list[object]:
    shapes: list[object] = [(name, tensor.shape) for name, tensor in segment.tensors().items()]
    map_state(lambda tensor: shapes.append(tensor.shape) or tensor, state)  # type: ignore[func-returns-value]
    return shapes
