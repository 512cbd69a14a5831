"""The translator: batches by hand, losses that add up, padding that changes nothing, scheduled sampling."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from seqwise.layers.record import record
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.translate.model import PairBatch, Translator, collate

SOURCES = [np.array([5, 6, 7]), np.array([8]), np.array([5, 8])]
TARGETS = [np.array([4, 5]), np.array([6, 7, 8, 9]), np.array([9])]
BOUNDARIES = [(1, 2)]  # begin, end

KINDS = [
    *[("gru", attention) for attention in ("none", "additive", "dot", "general")],
    *[("lstm", "additive"), ("rnn", "general"), ("attentive-rnn", "general"), ("feedforward", "general")],
    ("transformer", "additive"),
]


def settings(model: str = "gru", attention: str = "general", **translate) -> ResolvedSettings:
    return ResolvedSettings(
        task="translate",
        model=model,
        network={"width": 8, "depth": 1, "embedding": 6, "dropout": 0.0},
        recurrent={"bidirectional": True, "concat_directions": True, "weight_dropout": 0.0},
        transformer={"heads": 2, "hidden": 16},
        data={"max_length": 6},
        translate={"attention": attention, "vocabulary": "separate", "label_smoothing": 0.0, **translate},
    )


def translator(model: str = "gru", attention: str = "general", sizes=(10, [10]), **translate) -> Translator:
    torch.manual_seed(0)
    return Translator(settings(model, attention, **translate), sizes)


def batch(numbers=(0, 1, 2), longest: int = 6) -> PairBatch:
    return collate([[SOURCES[n] for n in numbers], [TARGETS[n] for n in numbers]], BOUNDARIES, longest)


def test_a_batch_by_hand():
    made = batch((0, 1))
    assert made.source.tolist() == [[5, 6, 7], [8, 0, 0]]
    assert made.lengths.tolist() == [3, 1]
    assert made.inputs.tolist() == [[[1, 4, 5, 0, 0]], [[1, 6, 7, 8, 9]]]
    assert made.targets.tolist() == [[[4, 5, 2, 0, 0]], [[6, 7, 8, 9, 2]]]
    assert made.mask.tolist() == [[[True, True, True, False, False]], [[True] * 5]]
    assert (made.rows, made.length, made.num_targets, made.num_tokens) == (2, 5, 8, 8)


def test_what_is_cut_has_no_end():
    made = batch((1,), longest=2)
    assert made.inputs.tolist() == [[[1, 6, 7]]]
    assert made.targets.tolist() == [[[6, 7, 0]]]
    assert made.mask.tolist() == [[[True, True, False]]]
    assert batch((0,), longest=2).source.tolist() == [[5, 6]]


@pytest.mark.parametrize(("model", "attention"), KINDS)
def test_the_loss_of_a_batch_is_the_sum_over_its_rows(model: str, attention: str):
    model_ = translator(model, attention).double().eval()
    whole, _ = model_(batch())
    parts = [model_(batch((number,)))[0] for number in range(3)]
    torch.testing.assert_close(whole.total, torch.stack([part.total for part in parts]).sum())
    assert whole.count == sum(part.count for part in parts) == 3 + 5 + 2


@pytest.mark.parametrize(("model", "attention"), [("gru", "additive"), ("transformer", "additive")])
def test_gradients_are_those_of_finite_differences(model: str, attention: str):
    model_ = translator(model, attention).double()
    vectors = torch.randn(2, 3, 6, dtype=torch.float64, requires_grad=True)
    lengths, ids = torch.tensor([3, 1]), torch.tensor([[1, 4], [1, 5]])

    def loss(vectors: torch.Tensor) -> torch.Tensor:
        from seqwise.backbones.memory import Memory

        memory = Memory(model_.encoder(vectors, lengths=lengths).vectors, lengths)
        return model_.writer(0).losses(memory, ids, torch.tensor([[4, 2], [5, 2]]))

    assert torch.autograd.gradcheck(loss, vectors)


def test_the_loss_by_hand():
    model = translator().double().eval()
    made = batch((0,))
    memory = model.encode(made.source, made.lengths)
    writer, carry, total = model.writer(0), None, 0.0
    for at, wanted in enumerate([4, 5, 2]):
        chances, carry = writer.next(made.inputs[:, 0, at : at + 1], carry, memory)
        total -= chances[0, wanted].item()
    assert model(made)[0].total.item() == pytest.approx(total)


def test_labels_are_smoothed_in_training_only():
    plain, smooth = translator(), translator(label_smoothing=0.2)
    assert plain.eval()(batch())[0].total.item() == smooth.eval()(batch())[0].total.item()
    made = batch((0,))
    memory = smooth.encode(made.source, made.lengths)
    logs = smooth.writer(0).logits(smooth.writer(0).read(made.inputs[:, 0], None, memory).vectors).log_softmax(-1)[0]
    by_hand = sum(-0.8 * logs[at, wanted] - 0.2 * logs[at].mean() for at, wanted in enumerate([4, 5, 2]))
    torch.testing.assert_close(smooth.train()(made)[0].total, by_hand)


def test_a_new_model_predicts_by_frequency():
    counts = torch.tensor([0, 0, 30, 0, 50, 10, 5, 3, 1, 1])
    torch.manual_seed(0)
    model = Translator(settings("transformer"), (10, [10]), [counts]).eval()
    made = batch()
    chances, _ = model.writer(0).next(made.inputs[:, 0, :1], None, model.encode(made.source, made.lengths))
    torch.testing.assert_close(chances.exp(), ((counts + 1) / 110).expand(3, -1), atol=0.05, rtol=0)


def test_a_shared_vocabulary_has_one_matrix():
    model = translator(vocabulary="shared")
    assert model.writer(0).embedding is model.embedding
    assert model.writer(0).head.output.weight is model.embedding.weight
    separate = translator(vocabulary="separate", sizes=(10, [12]))
    assert separate.writer(0).embedding.weight.shape == (12, 6)


def test_each_target_has_a_writer_of_its_own_or_all_share_one():
    apart, together = translator(sizes=(10, [10, 12])), translator(sizes=(10, [12]))
    assert apart.writer(1) is apart.writers[1]
    assert together.writer(1) is together.writers[0]


def test_losses_of_several_targets_add_up():
    model = translator(sizes=(10, [10, 12])).eval()
    made = collate([SOURCES, TARGETS, TARGETS[::-1]], [(1, 2), (1, 2)], 6)
    memory = model.encode(made.source, made.lengths)
    parts = [
        model.writer(n).loss(memory, made.inputs[:, n], made.targets[:, n], made.mask[:, n]).total for n in range(2)
    ]
    torch.testing.assert_close(model(made)[0].total, parts[0] + parts[1])


def test_the_share_of_true_tokens_falls_in_a_straight_line():
    model = translator(teacher_forcing=0.4)
    shares = []
    for model.progress in (0.0, 0.5, 1.0):
        shares.append(model.true_token_share)
    assert shares == pytest.approx([1.0, 0.7, 0.4])


def test_without_true_tokens_the_model_reads_its_own():
    model = translator(teacher_forcing=0.0).eval()
    model.progress = 1.0
    made = batch((0, 1))
    memory = model.encode(made.source, made.lengths)
    mixed = model.mix_predictions(model.writer(0), memory, made.inputs[:, 0])
    own = model.writer(0).logits(model.writer(0).read(made.inputs[:, 0], None, memory).vectors).argmax(-1)
    assert mixed[:, 0].tolist() == [1, 1]
    assert torch.equal(mixed[:, 1:], own[:, :-1])


def test_scheduled_sampling_is_the_same_for_the_same_seed_and_absent_at_the_start():
    model, plain = translator(teacher_forcing=0.2).train(), translator().train()

    def loss(model: Translator) -> float:
        torch.manual_seed(3)
        return float(model(batch())[0].total.detach())

    assert loss(model) == loss(plain)
    model.progress = 0.9
    assert loss(model) == loss(model) != loss(plain)
    assert model.eval()(batch())[0].total.item() == plain.eval()(batch())[0].total.item()


def test_attention_weights_can_be_looked_at():
    model = translator("gru", "general").eval()
    with record(model, "*weights") as seen:
        model(batch())
    weights = seen["writers.0.decoder.weights"]
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 5))
    assert weights[1, :, 1:].abs().max() == 0  # padding is never looked at
