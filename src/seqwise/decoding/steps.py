"""Reads the tokens of a generation: the prompt by the model itself, then each token by a step at fixed addresses.

A model may have `build_step(state)`, which returns a `TokenStep`: the same function of one token per sequence as
`model.next`, without what only training, recording or sequences of other lengths need. While activations are recorded,
the model itself reads the tokens, so that a recording misses nothing.

On a GPU the step is captured in a CUDA graph after its first calls and replayed with one launch: the kernels of a step
are so short that launching them one by one takes several times as long as running them. Every tensor that a step reads
or writes has a fixed address: the ids are copied into one, the state is changed in place, and the next call overwrites
the scores. If the capture fails, generation continues without a graph.
"""

from __future__ import annotations

import warnings
from typing import Any, Protocol

import torch
from torch import Tensor

from seqwise.backbones.states import ModelState
from seqwise.kernels.cuda_graph import ShortLivedCudaGraph, no_garbage_collection, replace_generator_state
from seqwise.kernels.recurrence.availability import get_disabled_reason
from seqwise.layers.record import is_recording

WARMUP_STEPS = 2  # before a graph is captured: they choose kernels and allocate memory


class Predictor(Protocol):
    """Reads more tokens (B, T) and returns the log-probabilities (B, V) of the next token and the state after them."""

    def next(self, ids: Tensor, state: ModelState, /) -> tuple[Tensor, ModelState]: ...


class TokenStep(Protocol):
    """Reads one token of each sequence at a time; its state changes in place. It is a `BackboneStep` with tokens."""

    def prepare_cache(self) -> None: ...  # before each `advance`, outside of a graph
    def advance(self, ids: Tensor) -> Tensor: ...  # (B, 1) → scores (B, V), as `TokenReader.read` returns them
    def get_state(self) -> ModelState: ...  # from which `Predictor.next` continues


class TokenReader:
    """Reads tokens with a model and holds its state."""

    def __init__(self, model: Predictor):
        self.model, self.state = model, None
        self.build_step: Any = None if get_disabled_reason() else getattr(model, "build_step", None)
        self.step: TokenStep | None = None
        self.graph: StepGraph | None = None

    def read(self, ids: Tensor) -> Tensor:
        """Reads more tokens, first the prompts (B, T), then one token of each (B, 1).

        Returns scores (B, V) of the next token: log-probabilities plus a constant for each sequence.
        """
        if self.step is None and self.state is not None and self.build_step is not None and not is_recording():
            self._start_steps(ids.device)
        if self.step is None:
            scores, self.state = self.model.next(ids, self.state)
            return scores
        if is_recording():
            self.state, self.step = self.step.get_state(), None
            return self.read(ids)
        self.step.prepare_cache()
        return self.step.advance(ids) if self.graph is None else self.graph(ids)

    def _start_steps(self, device: torch.device) -> None:
        self.step = self.build_step(self.state)
        if self.step is None:
            self.build_step = None
        elif device.type == "cuda":
            self.graph = StepGraph(self.step, ShortLivedCudaGraph(device))


class StepGraph:
    """A step that is replayed as a CUDA graph after its first calls."""

    def __init__(self, step: TokenStep, graph: ShortLivedCudaGraph):
        self.step, self.graph, self.calls = step, graph, 0
        self.ids: Tensor | None = None  # the graph's input; None without a graph
        self.scores: Tensor | None = None  # the graph's output

    def __call__(self, ids: Tensor) -> Tensor:
        self.calls += 1
        if self.calls == WARMUP_STEPS + 1:
            self._capture(ids)
        if self.ids is None or self.scores is None:
            return self.graph.warm_up(lambda: self.step.advance(ids))
        self.ids.copy_(ids)
        self.graph.replay()
        return self.scores

    def _capture(self, ids: Tensor) -> None:
        """Captures the step, which computes nothing yet. If that fails, it warns, and there is no graph."""
        graph_ids = ids.clone()
        try:
            with no_garbage_collection():
                self.scores = self.graph.capture(lambda: self.step.advance(graph_ids))
            self.ids = graph_ids
        except RuntimeError as error:
            replace_generator_state(ids.device)
            reason = (str(error).strip() or "no reason given").splitlines()[0]
            warnings.warn(f"no CUDA graph of the decoding step: {reason}. Generation continues without.", stacklevel=2)
