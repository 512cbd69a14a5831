"""`RegisteredBackbone`: the network of a family that the user has registered, with the interface of a backbone.

The network is an `nn.Module` that turns vectors (B, T, D) into vectors (B, T, width), or into a tuple that begins with
them, as the layers of `torch.nn` do. If its `forward` has a parameter `lengths`, it gets the lengths of the sequences.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from seqwise.backbones.states import BackboneOutput, ModelState
from seqwise.errors import UsageError
from seqwise.families import get_family
from seqwise.resolved_settings import ResolvedSettings

PROBE_STEPS = 4  # steps of the random input from which the width is found out, and whether the network is causal


def is_registered_network(settings: ResolvedSettings) -> bool:
    """Returns whether the family is a registered network, rather than a built-in family or a registered cell."""
    family = get_family(settings.model)
    return family.build is not None and not family.is_recurrent


class RegisteredBackbone(nn.Module):
    """A registered network. Its state is the vectors read so far, up to a window: each segment reads them again."""

    stateful = False

    def __init__(self, settings: ResolvedSettings, inputs: int, causal: bool = False):
        super().__init__()
        self.family, self.inputs = settings.model, inputs
        network = get_family(settings.model).build(inputs, settings)  # type: ignore[misc]
        if not isinstance(network, nn.Module):
            raise self._build_error(f"expected an nn.Module; received {type(network).__name__}")
        self.network = network
        self.takes_lengths = "lengths" in inspect.signature(network.forward).parameters
        window = settings.data.window
        self.window = window if isinstance(window, int) and window > 1 else None  # only texts are cut into windows
        self.width = self._probe_network(causal)

    def forward(self, vectors: Tensor, state: ModelState = None, lengths: Tensor | None = None) -> BackboneOutput:
        """Returns vectors (B, T, width), zero in the padding, for vectors (B, T, D); and the state, in evaluation."""
        history = vectors if state is None else torch.cat([state, vectors], dim=1)
        if self.window is not None and history.shape[1] > self.window:
            history = history[:, -max(self.window // 2, vectors.shape[1]) :]
        if lengths is None:
            outputs = self._call_network(history, None)[:, -vectors.shape[1] :]
        else:
            steps = torch.arange(vectors.shape[1], device=vectors.device)
            is_valid = (steps < lengths.to(vectors.device)[:, None])[..., None]  # (B, T, 1)
            outputs = self._call_network(vectors.where(is_valid, 0.0), lengths).where(is_valid, 0.0)
        return BackboneOutput(outputs, None if self.training else history)

    def _call_network(self, vectors: Tensor, lengths: Tensor | None) -> Tensor:
        """Returns the network's vectors; raises `UsageError` if they do not have the expected shape."""
        arguments: dict[str, Any] = {"lengths": lengths} if self.takes_lengths else {}
        outputs = self.network(vectors, **arguments)
        outputs = outputs[0] if isinstance(outputs, tuple) else outputs
        if not isinstance(outputs, Tensor) or outputs.shape[:2] != vectors.shape[:2] or outputs.dim() != 3:
            received = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
            expected = f"({vectors.shape[0]}, {vectors.shape[1]}, width)"
            raise self._build_error(
                f"expected vectors {expected} for inputs {tuple(vectors.shape)}; received {received}"
            )
        return outputs

    @torch.no_grad()
    def _probe_network(self, causal: bool) -> int:
        """Returns the width of the outputs; with `causal`, raises `UsageError` if they depend on later steps."""
        is_training = self.network.training
        self.network.eval()
        weight = next(self.network.parameters(), torch.empty(0))
        generator = None if weight.device.type == "meta" else torch.Generator(weight.device).manual_seed(0)
        vectors = torch.randn(2, PROBE_STEPS, self.inputs, generator=generator, device=weight.device)
        outputs = self._call_network(vectors, None)
        if causal and not outputs.is_meta:
            changed = torch.cat([vectors[:, :-1], vectors[:, -1:] + 1], dim=1)
            if not torch.allclose(outputs[:, :-1], self._call_network(changed, None)[:, :-1], atol=1e-4):
                problem = "its output depends on later steps, which a model that predicts them must not see"
                raise self._build_error(problem)
        self.network.train(is_training)
        return outputs.shape[2]

    def _build_error(self, problem: str) -> UsageError:
        fix = "A network of your own turns (B, T, inputs) into (B, T, width): seqwise.families.register explains it."
        return UsageError(f"the model {self.family}: {problem}.", fix=fix)
