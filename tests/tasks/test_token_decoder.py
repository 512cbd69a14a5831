"""TokenDecoder: losses and label smoothing equal PyTorch's, shared embeddings, and decoding step by step."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from seqwise.backbones.memory import Memory
from seqwise.layers.embedding import Embedding
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.token_decoder import TokenDecoder

MODELS = ["feedforward", "rnn", "gru", "lstm", "attentive-rnn", "transformer"]
VOCABULARY, WIDTH = 11, 8
for_each_model = pytest.mark.parametrize("model", MODELS)


def build(model: str = "lstm", vocabulary: int = VOCABULARY, **network) -> TokenDecoder:
    settings = ResolvedSettings.model_validate({"model": model, "network": {"width": WIDTH, "depth": 2, **network}})
    settings.transformer.heads = 2
    torch.manual_seed(0)
    return TokenDecoder(settings, vocabulary, WIDTH, 20)


def create_batch(rows: int = 3):
    generator = torch.Generator().manual_seed(1)
    memory = Memory(torch.randn(rows, 5, WIDTH, generator=generator), torch.tensor([5, 2, 3])[:rows])
    inputs, targets = torch.randint(VOCABULARY, (2, rows, 4), generator=generator)
    mask = torch.arange(4) < torch.tensor([4, 1, 3])[:rows, None]
    return memory, inputs, targets, mask


@for_each_model
def test_losses_equal_those_of_decoding_step_by_step(model):
    decoder = build(model).eval()
    memory, inputs, targets, _ = create_batch()
    losses = decoder.losses(memory, inputs, targets)
    state, expected = decoder.start(memory), []
    with torch.no_grad():
        for t in range(4):
            scores, state = decoder.next(inputs[:, t : t + 1], state)
            expected.append(F.nll_loss(scores, targets[:, t], reduction="none"))
    torch.testing.assert_close(losses, torch.stack(expected, dim=1), atol=1e-5, rtol=1e-4)


@for_each_model
def test_the_loss_of_a_batch_is_the_sum_of_its_rows(model):
    decoder = build(model).eval()
    memory, inputs, targets, mask = create_batch()
    batch_loss = decoder.loss(memory, inputs, targets, mask, smoothing=0.1)
    sum_of_rows = 0.0
    for row in range(3):
        length, memory_length = int(mask[row].sum()), int(memory.lengths[row])
        row_memory = Memory(memory.vectors[row : row + 1, :memory_length])
        index = slice(row, row + 1), slice(0, length)
        sum_of_rows += decoder.loss(row_memory, inputs[index], targets[index], mask[index], smoothing=0.1).total.item()
    assert batch_loss.count == 8
    assert batch_loss.total.item() == pytest.approx(sum_of_rows, rel=1e-5)


@pytest.mark.parametrize("vocabulary", [VOCABULARY, 30_000])
def test_label_smoothing_and_its_gradients_equal_those_of_pytorch(vocabulary):
    """Also with a vocabulary so large that projection and loss are fused."""
    decoder = build(vocabulary=vocabulary, embedding=6).double()
    memory, inputs, targets, mask = create_batch()
    memory = Memory(memory.vectors.double(), memory.lengths)
    vectors = decoder.output_dropout(decoder.decode(inputs, None, memory).vectors)
    expected_loss = F.cross_entropy(decoder.logits(vectors)[mask], targets[mask], label_smoothing=0.2, reduction="sum")
    names, weights = zip(*decoder.named_parameters())
    expected = torch.autograd.grad(expected_loss, weights)
    loss = decoder.loss(memory, inputs, targets, mask, smoothing=0.2)
    torch.testing.assert_close(loss.total, expected_loss)
    for name, actual, expected_gradient in zip(names, torch.autograd.grad(loss.total, weights), expected):
        torch.testing.assert_close(actual, expected_gradient, msg=name)


def test_an_untrained_decoder_predicts_by_frequency():
    settings = ResolvedSettings.model_validate({"model": "transformer", "network": {"width": WIDTH, "depth": 1}})
    settings.transformer.heads = 2
    counts = torch.tensor([0.0, 5, 10, 85])
    decoder = TokenDecoder(settings, 4, WIDTH, 9, counts=counts).eval()
    decoder.embedding.weight.data.zero_()
    scores, _ = decoder.next(torch.tensor([[1]]), None, Memory(torch.randn(1, 3, WIDTH)))
    torch.testing.assert_close(scores.exp()[0], (counts + 1) / 104)


def test_a_shared_embedding_is_not_initialised_again():
    settings = ResolvedSettings.model_validate({"model": "transformer", "network": {"width": WIDTH, "depth": 1}})
    settings.transformer.heads = 2
    embedding = Embedding(VOCABULARY, WIDTH)
    before = embedding.weight.clone()
    decoder = TokenDecoder(settings, VOCABULARY, WIDTH, 9, embedding=embedding)
    assert decoder.embedding is embedding
    assert decoder.output.weight is embedding.weight
    assert torch.equal(embedding.weight, before)


@pytest.mark.parametrize("tied", [True, False])
def test_embeddings_of_an_untrained_transformer_are_small(tied):
    decoder = build("transformer", vocabulary=2000, tie_weights=tied)
    for weight in (decoder.embedding.weight, decoder.output.weight):
        assert weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert (decoder.embedding.weight is decoder.output.weight) == tied


@for_each_model
def test_an_untrained_decoder_is_uniform_and_then_learns(model):
    decoder = build(model)
    memory, inputs, targets, mask = create_batch()
    optimiser = torch.optim.Adam(decoder.parameters(), lr=0.02)
    losses = []
    for _ in range(60):
        loss = decoder.loss(memory, inputs, targets, mask)
        optimiser.zero_grad()
        loss.total.backward()
        optimiser.step()
        losses.append(loss.total.item() / loss.count)
    assert losses[0] == pytest.approx(math.log(VOCABULARY), rel=0.35)
    assert losses[-1] < 0.5 * losses[0]


@for_each_model
def test_the_same_seed_gives_the_same_bits(model):
    memory, inputs, targets, _ = create_batch()
    assert torch.equal(build(model).losses(memory, inputs, targets), build(model).losses(memory, inputs, targets))
