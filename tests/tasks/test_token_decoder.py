"""The writer: losses beside PyTorch's own, smoothing, sharing, and reading on."""

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
every = pytest.mark.parametrize("model", MODELS)


def build(model: str = "lstm", vocabulary: int = VOCABULARY, **network) -> TokenDecoder:
    settings = ResolvedSettings.model_validate({"model": model, "network": {"width": WIDTH, "depth": 2, **network}})
    settings.transformer.heads = 2
    torch.manual_seed(0)
    return TokenDecoder(settings, vocabulary, WIDTH, 20)


def batch(rows: int = 3):
    generator = torch.Generator().manual_seed(1)
    memory = Memory(torch.randn(rows, 5, WIDTH, generator=generator), torch.tensor([5, 2, 3])[:rows])
    inputs, targets = torch.randint(VOCABULARY, (2, rows, 4), generator=generator)
    real = torch.arange(4) < torch.tensor([4, 1, 3])[:rows, None]
    return memory, inputs, targets, real


@every
def test_losses_are_the_cross_entropy_of_what_comes_next(model):
    writer = build(model).eval()
    memory, inputs, targets, _ = batch()
    losses = writer.losses(memory, inputs, targets)
    state, expected = writer.start(memory), []
    with torch.no_grad():
        for t in range(4):
            scores, state = writer.next(inputs[:, t : t + 1], state)
            expected.append(F.nll_loss(scores, targets[:, t], reduction="none"))
    torch.testing.assert_close(losses, torch.stack(expected, dim=1), atol=1e-5, rtol=1e-4)


@every
def test_the_loss_of_a_batch_is_the_sum_of_its_rows(model):
    writer = build(model).eval()
    memory, inputs, targets, real = batch()
    whole = writer.loss(memory, inputs, targets, real, smoothing=0.1)
    total = 0.0
    for row in range(3):
        length, width = int(real[row].sum()), int(memory.lengths[row])
        alone = Memory(memory.vectors[row : row + 1, :width])
        ids = slice(row, row + 1), slice(0, length)
        total += writer.loss(alone, inputs[ids], targets[ids], real[ids], smoothing=0.1).total.item()
    assert whole.count == 8
    assert whole.total.item() == pytest.approx(total, rel=1e-5)


@pytest.mark.parametrize("vocabulary", [VOCABULARY, 30_000])
def test_smoothing_is_pytorchs_own_forwards_and_backwards(vocabulary):
    """Also where the vocabulary is so large that projection and loss are one."""
    writer = build(vocabulary=vocabulary, embedding=6).double()
    memory, inputs, targets, real = batch()
    memory = Memory(memory.vectors.double(), memory.lengths)
    vectors = writer.drop_out(writer.read(inputs, None, memory).vectors)
    plain = F.cross_entropy(writer.logits(vectors)[real], targets[real], label_smoothing=0.2, reduction="sum")
    names, weights = zip(*writer.named_parameters())
    expected = torch.autograd.grad(plain, weights)
    loss = writer.loss(memory, inputs, targets, real, smoothing=0.2)
    torch.testing.assert_close(loss.total, plain)
    for name, one, other in zip(names, torch.autograd.grad(loss.total, weights), expected):
        torch.testing.assert_close(one, other, msg=name)


def test_counts_are_what_a_new_writer_predicts():
    settings = ResolvedSettings.model_validate({"model": "transformer", "network": {"width": WIDTH, "depth": 1}})
    settings.transformer.heads = 2
    counts = torch.tensor([0.0, 5, 10, 85])
    writer = TokenDecoder(settings, 4, WIDTH, 9, counts=counts).eval()
    writer.embedding.weight.data.zero_()
    scores, _ = writer.next(torch.tensor([[1]]), None, Memory(torch.randn(1, 3, WIDTH)))
    torch.testing.assert_close(scores.exp()[0], (counts + 1) / 104)


def test_an_embedding_can_be_shared_and_is_left_as_it_is():
    settings = ResolvedSettings.model_validate({"model": "transformer", "network": {"width": WIDTH, "depth": 1}})
    settings.transformer.heads = 2
    embedding = Embedding(VOCABULARY, WIDTH)
    before = embedding.weight.clone()
    writer = TokenDecoder(settings, VOCABULARY, WIDTH, 9, embedding=embedding)
    assert writer.embedding is embedding
    assert writer.output.weight is embedding.weight
    assert torch.equal(embedding.weight, before)


@pytest.mark.parametrize("tied", [True, False])
def test_rows_of_a_new_transformer_are_short(tied):
    writer = build("transformer", vocabulary=2000, tied=tied)
    for weight in (writer.embedding.weight, writer.output.weight):
        assert weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert (writer.embedding.weight is writer.output.weight) == tied


@every
def test_a_new_writer_knows_nothing_and_then_learns(model):
    writer = build(model)
    memory, inputs, targets, real = batch()
    optimiser = torch.optim.Adam(writer.parameters(), lr=0.02)
    losses = []
    for _ in range(60):
        loss = writer.loss(memory, inputs, targets, real)
        optimiser.zero_grad()
        loss.total.backward()
        optimiser.step()
        losses.append(loss.total.item() / loss.count)
    assert losses[0] == pytest.approx(math.log(VOCABULARY), rel=0.35)
    assert losses[-1] < 0.5 * losses[0]


@every
def test_the_same_seed_gives_the_same_bits(model):
    memory, inputs, targets, _ = batch()
    assert torch.equal(build(model).losses(memory, inputs, targets), build(model).losses(memory, inputs, targets))
