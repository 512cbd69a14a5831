"""Optimisers: equal to PyTorch's own with the same settings, and β₁ over training."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from seqwise.resolved_settings import ResolvedTrainingSettings
from seqwise.training.optimizers import build_optimizer

BETAS = {"beta1": 0.8, "beta2": 0.95, "epsilon": 1e-3}


def compute_gradients(model: nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)


def train_twins(reference_class: type[torch.optim.Optimizer], settings: dict, **reference) -> tuple[nn.Module, ...]:
    """Returns two equal models after the same 5 gradients: with our optimiser, and with PyTorch's plain one."""
    torch.manual_seed(0)
    ours, theirs = nn.Linear(3, 4), nn.Linear(3, 4)
    theirs.load_state_dict(ours.state_dict())
    optimizer = build_optimizer(ours, ResolvedTrainingSettings(learning_rate=0.1, weight_decay=0.3, **settings))
    groups = [{"params": [theirs.weight], "weight_decay": 0.3}, {"params": [theirs.bias], "weight_decay": 0.0}]
    reference_optimizer = reference_class(groups, lr=0.1, **reference)
    for seed in range(5):
        for model, each in ((ours, optimizer), (theirs, reference_optimizer)):
            compute_gradients(model, seed)
            each.step()
    return ours, theirs


@pytest.mark.parametrize(("name", "reference_class"), [("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)])
@pytest.mark.parametrize("beta1", [0.8, 0.0])
def test_adam_and_adamw_equal_those_of_torch(name, reference_class, beta1):
    settings = BETAS | {"optimizer": name, "beta1": beta1}
    ours, theirs = train_twins(reference_class, settings, betas=(beta1, 0.95), eps=1e-3, foreach=False)
    for parameter, expected in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(parameter, expected)


def test_weight_decay_of_adam_is_an_l2_gradient_of_the_matrices_only():
    """The first update of Adam is the sign of the gradient: with a gradient of zero, that of the decayed weight."""
    model = nn.Linear(2, 2)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    settings = ResolvedTrainingSettings(optimizer="adam", learning_rate=0.1, weight_decay=0.5, epsilon=1e-20)
    optimizer = build_optimizer(model, settings)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    torch.testing.assert_close(model.weight, before["weight"] - 0.1 * before["weight"].sign())
    assert torch.equal(model.bias, before["bias"])


def test_without_a_mean_of_gradients_adam_divides_by_their_root_mean_square():
    model = nn.Linear(1, 1, bias=False)
    start = float(model.weight.detach())
    settings = ResolvedTrainingSettings(optimizer="adam", beta1=0, beta2=0.5, learning_rate=0.1, weight_decay=0)
    optimizer = build_optimizer(model, settings)
    for gradient in (3.0, 1.0):
        model.weight.grad = torch.tensor([[gradient]])
        optimizer.step()
    # squares: 0.5 · 9 = 4.5, over 1 − 0.5 is 9; then 0.5 · 4.5 + 0.5 · 1 = 2.75, over 1 − 0.25 is 3.6667
    assert float(model.weight.detach()) == pytest.approx(start - 0.1 * 3 / 3 - 0.1 * 1 / (2.75 / 0.75) ** 0.5)


def test_the_default_betas_are_unchanged():
    (group,) = build_optimizer(nn.Linear(1, 1, bias=False), ResolvedTrainingSettings()).param_groups
    assert (group["betas"], group["eps"], group["fused"]) == ((0.9, 0.99), 1e-8, True)
