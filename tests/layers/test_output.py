"""Output layers: full, tied, adaptive, sampled, mixture."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from seqwise.errors import UsageError
from seqwise.kernels import loss as kernel
from seqwise.layers.dropout import VariationalDropout
from seqwise.layers.embedding import Embedding
from seqwise.layers.output import AdaptiveSoftmax, FullSoftmax, MixtureSoftmax, SampledSoftmax

V, D, K = 30, 16, 3
LAYERS = {
    "full": lambda: FullSoftmax(D, V),
    "tied": lambda: FullSoftmax(D, V, Embedding(V, D).weight),
    "tied, narrower": lambda: FullSoftmax(D, V, Embedding(V, 4).weight),
    "adaptive": lambda: AdaptiveSoftmax(D, V, [5, 12]),
    "sampled": lambda: SampledSoftmax(D, V, 8),
    "sampled, tied, by counts": lambda: SampledSoftmax(D, V, 8, Embedding(V, 4).weight, torch.arange(V)),
    "mixture": lambda: MixtureSoftmax(D, V, K),
    "mixture, tied, narrower": lambda: MixtureSoftmax(D, V, K, Embedding(V, 4).weight),
}


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture(params=LAYERS)
def layer(request):
    return LAYERS[request.param]()


def test_probabilities_sum_to_one_in_training_and_evaluation(layer):
    vectors = torch.randn(2, 3, D)
    for mode in (True, False):
        probability = layer.train(mode).log_probabilities(vectors).exp()
        assert probability.shape == (2, 3, V)
        torch.testing.assert_close(probability.sum(-1), torch.ones(2, 3))


def test_the_evaluation_loss_is_the_negative_log_probability_of_the_target(layer):
    vectors, targets = torch.randn(40, D), torch.randint(V, (40,))
    layer.eval()
    expected = -layer.log_probabilities(vectors).gather(-1, targets[:, None]).squeeze(-1)
    torch.testing.assert_close(layer.loss(vectors, targets), expected)


def test_sequences_have_the_losses_of_their_rows(layer):
    vectors, targets = torch.randn(2, 3, D), torch.randint(V, (2, 3))
    expected = layer.eval().loss(vectors.flatten(0, 1), targets.flatten()).view(2, 3)
    torch.testing.assert_close(layer.loss(vectors, targets), expected)


def test_a_single_target_has_a_loss(layer):
    assert layer.loss(torch.randn(1, D), torch.tensor([V - 1])).shape == (1,)


def test_full_softmax_equals_a_hand_computed_result():
    layer = FullSoftmax(1, 2)
    layer.weight.data, layer.bias.data = torch.tensor([[1.0], [0.0]]), torch.tensor([0.0, math.log(2)])
    loss = layer.loss(torch.tensor([[math.log(3)]]), torch.tensor([1]))  # exp(logits) = 3, 2
    assert loss.item() == pytest.approx(math.log(5 / 2), abs=1e-6)


def test_a_tied_output_layer_shares_the_parameter():
    embedding = Embedding(V, D)
    layer = FullSoftmax(D, V, embedding.weight)
    assert layer.weight is embedding.weight
    layer.loss(torch.randn(4, D), torch.arange(4)).sum().backward()
    assert embedding.weight.grad.abs().sum() > 0


def test_a_tied_matrix_of_another_width_gets_a_projection():
    layer = FullSoftmax(D, V, Embedding(V, 4).weight)
    x = torch.randn(3, D)
    expected = (x @ layer.project.weight.T @ layer.weight.T + layer.bias).log_softmax(-1)
    torch.testing.assert_close(layer.log_probabilities(x), expected)


def test_a_tied_matrix_of_the_wrong_size_is_rejected():
    with pytest.raises(UsageError, match="expected 30 rows, received 7"):
        FullSoftmax(D, V, Embedding(7, D).weight)


def test_adaptive_softmax_equals_pytorch():
    ours, torch_layer = AdaptiveSoftmax(D, V, [5, 12]), nn.AdaptiveLogSoftmaxWithLoss(D, V, [5, 12])
    torch_layer.load_state_dict(ours.softmax.state_dict())
    x, targets = torch.randn(20, D), torch.randint(V, (20,))
    assert torch.equal(ours.log_probabilities(x), torch_layer.log_prob(x))
    assert ours.loss(x, targets).mean().item() == pytest.approx(torch_layer(x, targets).loss.item(), abs=1e-6)


def test_adaptive_probabilities_are_head_times_cluster():
    layer = AdaptiveSoftmax(D, V, [5, 12])
    x = torch.randn(3, D)
    head = layer.softmax.head(x).softmax(-1)  # 5 words and 2 clusters
    tail = layer.softmax.tail[1](x).softmax(-1)  # words 12 … 29
    torch.testing.assert_close(layer.log_probabilities(x)[:, 14].exp(), head[:, 6] * tail[:, 2])


@pytest.mark.parametrize("cutoffs", [[], [5, 5], [12, 5], [0, 5], [5, 30]])
def test_invalid_cutoffs_are_rejected(cutoffs):
    with pytest.raises(UsageError, match="between 1 and 29"):
        AdaptiveSoftmax(D, V, cutoffs)


def test_clusters_of_zero_width_are_rejected():
    with pytest.raises(UsageError, match="need a width of at least 16; received 15"):
        AdaptiveSoftmax(15, V, [5, 12])


def test_sampled_loss_equals_a_hand_computed_result():
    layer = SampledSoftmax(1, 4, 3, counts=torch.tensor([1, 1, 1, 1]))
    layer.weight.data = torch.tensor([[0.0], [1.0], [2.0], [3.0]])
    layer.sample_negatives = lambda: torch.tensor([0, 2, 2])  # each weighs 1 / (3 · 1/4)
    loss = layer.loss(torch.tensor([[0.5], [0.5]]), torch.tensor([1, 2]))
    first = math.log(math.exp(0.5) + (math.exp(0.0) + 2 * math.exp(1.0)) * 4 / 3) - 0.5
    second = math.log(math.exp(1.0) + math.exp(0.0) * 4 / 3) - 1.0  # both 2s hit the target: masked
    torch.testing.assert_close(loss, torch.tensor([first, second]))


def test_sampling_every_word_once_gives_the_full_softmax():
    layer = SampledSoftmax(D, V, V, counts=torch.ones(V))
    layer.sample_negatives = lambda: torch.randperm(V)
    x, targets = torch.randn(9, D), torch.randint(V, (9,))
    torch.testing.assert_close(layer.loss(x, targets), F.cross_entropy(layer.logits(x), targets, reduction="none"))


@pytest.mark.parametrize("counts", [None, torch.arange(V).flip(0)], ids=["log-uniform", "counts"])
def test_the_sampled_gradient_converges_to_the_full_gradient(counts):
    layer = SampledSoftmax(D, V, 1, counts=counts)
    x, targets = torch.randn(16, D), torch.randint(V, (16,))

    def gradient(samples: int, repeats: int) -> torch.Tensor:
        layer.samples = samples
        losses = [layer.loss(x, targets).mean() for _ in range(repeats)]
        return torch.autograd.grad(torch.stack(losses).mean(), layer.weight)[0]

    full = torch.autograd.grad(layer.eval().loss(x, targets).mean(), layer.weight)[0]
    layer.train()
    error_of_2, error_of_400 = (((gradient(samples, 300) - full).norm() / full.norm()).item() for samples in (2, 400))
    assert error_of_400 < 0.02
    assert error_of_400 < error_of_2 / 5


def test_sampling_distributions_are_normalised_and_positive():
    for layer in (SampledSoftmax(D, 1000, 8), SampledSoftmax(D, 1000, 8, counts=torch.zeros(1000))):
        assert layer.probability.sum().item() == pytest.approx(1.0, abs=1e-5)
        assert layer.probability.min() > 0


def test_sampling_probabilities_are_proportional_to_counts_to_the_power_three_quarters():
    layer = SampledSoftmax(D, 2, 1, counts=torch.tensor([16, 1]))
    assert layer.probability.tolist() == pytest.approx([8 / 9, 1 / 9])


def test_the_sampling_distribution_is_not_in_the_state_dict():
    assert set(SampledSoftmax(D, V, 8).state_dict()) == {"weight", "bias"}


def test_output_layers_describe_themselves():
    assert FullSoftmax(D, V).describe() == "full softmax over 30 tokens, untied projection"
    assert SampledSoftmax(D, V, 8).describe().endswith("evaluation uses the full softmax over 30 tokens")
    assert "clusters cut at 5, 12" in AdaptiveSoftmax(D, V, [5, 12]).describe()


# Mixture of softmaxes


def compute_mixture(layer: MixtureSoftmax, vectors: torch.Tensor) -> torch.Tensor:
    """Returns probabilities (N, V) from explicit probabilities of every component."""
    contexts = torch.tanh(vectors @ layer.context.weight.T + layer.context.bias).view(len(vectors), K, -1)
    components = (contexts @ layer.weight.T + layer.bias).softmax(-1)  # (N, K, V)
    return torch.einsum("nk,nkv->nv", (vectors @ layer.prior.weight.T).softmax(-1), components)


@pytest.mark.parametrize("name", ["mixture", "mixture, tied, narrower"])
@pytest.mark.parametrize("min_scores", [0, 1 << 30])
def test_the_mixture_equals_explicit_probabilities_with_its_gradients(name, min_scores, monkeypatch):
    monkeypatch.setattr(kernel, "MIN_SCORES", dict.fromkeys(kernel.MIN_SCORES, min_scores))
    monkeypatch.setattr(kernel, "MAX_SCORES", dict.fromkeys(kernel.MAX_SCORES, 7 * V))  # several chunks
    layer, vectors, targets = LAYERS[name]().double(), torch.randn(10, D).double(), torch.randint(V, (10,))
    torch.nn.init.normal_(layer.bias)
    leaves = [vectors.requires_grad_(), *layer.parameters()]
    expected = compute_mixture(layer, vectors)
    torch.testing.assert_close(layer.log_probabilities(vectors), expected.log())
    losses, expected_losses = layer.loss(vectors, targets), -expected.log()[range(10), targets]
    torch.testing.assert_close(losses, expected_losses)
    for reduce in (torch.Tensor.sum, lambda each: each @ torch.arange(10.0).double()):
        grads = torch.autograd.grad(reduce(losses), leaves, retain_graph=True)
        torch.testing.assert_close(grads, torch.autograd.grad(reduce(expected_losses), leaves, retain_graph=True))


def test_gradients_of_the_mixture_equal_finite_differences(monkeypatch):
    monkeypatch.setattr(kernel, "MIN_SCORES", dict.fromkeys(kernel.MIN_SCORES, 0))
    layer, targets = MixtureSoftmax(3, 5, 2).double(), torch.tensor([0, 4])
    vectors = torch.randn(2, 3).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda each: layer.loss(each, targets), [vectors])
    grads = torch.autograd.grad(layer.loss(vectors, targets).sum(), list(layer.parameters()))
    for (name, weight), grad in zip(layer.named_parameters(), grads):
        for index in range(0, weight.numel(), 3):
            sums = []
            for change in (1e-6, -1e-6):
                with torch.no_grad():
                    weight.view(-1)[index] += change
                    sums.append(layer.loss(vectors, targets).sum())
                    weight.view(-1)[index] -= change
            difference = float(sums[0] - sums[1]) / 2e-6
            assert grad.flatten()[index].item() == pytest.approx(difference, abs=1e-7), (name, index)


def test_the_mixture_equals_a_hand_computed_result():
    layer = MixtureSoftmax(1, 2, 2)
    layer.prior.weight.data = torch.tensor([[math.log(3)], [0.0]])  # priors 3/4 and 1/4 for x = 1
    layer.context.weight.data, layer.context.bias.data = torch.zeros(2, 1), torch.tensor([math.atanh(0.5), 0.0])
    layer.weight.data, layer.bias.data = torch.tensor([[2 * math.log(4)], [0.0]]), torch.zeros(2)
    # h = 0.5 and 0; exp(logits) = (4, 1) and (1, 1): p = 3/4 · 4/5 + 1/4 · 1/2
    loss = layer.loss(torch.ones(1, 1), torch.tensor([0]))
    assert loss.item() == pytest.approx(-math.log(0.6 + 0.125), abs=1e-6)


def test_the_mixture_takes_vectors_without_time_unless_its_dropout_needs_sequences():
    layer, vectors, targets = MixtureSoftmax(D, V, K), torch.randn(2, 5, D), torch.randint(V, (2, 5))
    torch.testing.assert_close(layer.loss(vectors.view(10, D), targets.view(10)), layer.loss(vectors, targets).view(10))
    layer.dropout = VariationalDropout(0.5)
    assert layer.loss(vectors, targets).shape == (2, 5)
    with pytest.raises(UsageError, match=rf"expects vectors \(batch, time, width\), received \(10, {K * D}\)"):
        layer.loss(vectors.view(10, D), targets.view(10))
    layer.eval()
    torch.testing.assert_close(layer.loss(vectors.view(10, D), targets.view(10)), layer.loss(vectors, targets).view(10))


def test_one_matrix_is_shared_and_the_description_names_the_components():
    embedding = Embedding(V, 4)
    layer = MixtureSoftmax(D, V, K, embedding.weight)
    assert layer.weight is embedding.weight
    assert layer.describe() == "mixture of 3 softmaxes over 30 tokens, tied projection"
    with pytest.raises(UsageError, match="expected 30 rows, received 7"):
        MixtureSoftmax(D, V, K, Embedding(7, D).weight)
