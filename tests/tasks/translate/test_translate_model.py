"""The translation model: batches and losses equal hand-computed values; padding, scheduled sampling, targets."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from seqwise.backbones.memory import Memory
from seqwise.layers.record import record
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.translate.model import PairBatch, Translator, collate

SOURCES = [np.array([5, 6, 7]), np.array([8]), np.array([5, 8])]
TARGETS = [np.array([4, 5]), np.array([6, 7, 8, 9]), np.array([9])]
BOS_EOS_IDS = [(1, 2)]  # begin, end

KINDS = [
    *[("gru", attention) for attention in ("none", "additive", "dot", "general")],
    *[("lstm", "additive"), ("rnn", "general"), ("attentive-rnn", "general"), ("feedforward", "general")],
    ("transformer", "additive"),
]


def create_settings(model: str = "gru", attention: str = "general", **translate) -> ResolvedSettings:
    return ResolvedSettings(
        task="translate",
        model=model,
        network={"width": 8, "depth": 1, "embedding": 6, "dropout": 0.0},
        recurrent={"bidirectional": True, "concat_directions": True, "weight_dropout": 0.0},
        transformer={"heads": 2, "hidden": 16},
        data={"max_length": 6},
        translate={"attention": attention, "vocabulary": "separate", "label_smoothing": 0.0, **translate},
    )


def build_translator(model: str = "gru", attention: str = "general", sizes=(10, [10]), **translate) -> Translator:
    torch.manual_seed(0)
    return Translator(create_settings(model, attention, **translate), sizes)


def create_batch(numbers=(0, 1, 2), max_length: int = 6) -> PairBatch:
    return collate([[SOURCES[n] for n in numbers], [TARGETS[n] for n in numbers]], BOS_EOS_IDS, max_length)


def test_a_batch_equals_a_hand_computed_one():
    batch = create_batch((0, 1))
    assert batch.source.tolist() == [[5, 6, 7], [8, 0, 0]]
    assert batch.lengths.tolist() == [3, 1]
    assert batch.inputs.tolist() == [[[1, 4, 5, 0, 0]], [[1, 6, 7, 8, 9]]]
    assert batch.targets.tolist() == [[[4, 5, 2, 0, 0]], [[6, 7, 8, 9, 2]]]
    assert batch.mask.tolist() == [[[True, True, True, False, False]], [[True] * 5]]
    assert (batch.num_sequences, batch.length, batch.num_targets, batch.num_tokens) == (2, 5, 8, 8)


def test_a_truncated_target_has_no_end_token():
    batch = create_batch((1,), max_length=2)
    assert batch.inputs.tolist() == [[[1, 6, 7]]]
    assert batch.targets.tolist() == [[[6, 7, 0]]]
    assert batch.mask.tolist() == [[[True, True, False]]]
    assert create_batch((0,), max_length=2).source.tolist() == [[5, 6]]


@pytest.mark.parametrize(("model", "attention"), KINDS)
def test_the_loss_of_a_batch_is_the_sum_over_its_rows(model: str, attention: str):
    translator = build_translator(model, attention).double().eval()
    batch_loss, _ = translator(create_batch())
    row_losses = [translator(create_batch((number,)))[0] for number in range(3)]
    torch.testing.assert_close(batch_loss.total, torch.stack([loss.total for loss in row_losses]).sum())
    assert batch_loss.count == sum(loss.count for loss in row_losses) == 3 + 5 + 2


@pytest.mark.parametrize(("model", "attention"), [("gru", "additive"), ("transformer", "additive")])
def test_gradients_equal_finite_differences(model: str, attention: str):
    translator = build_translator(model, attention).double()
    vectors = torch.randn(2, 3, 6, dtype=torch.float64, requires_grad=True)
    lengths, ids = torch.tensor([3, 1]), torch.tensor([[1, 4], [1, 5]])

    def compute_loss(vectors: torch.Tensor) -> torch.Tensor:
        memory = Memory(translator.encoder(vectors, lengths=lengths).vectors, lengths)
        return translator.get_decoder(0).losses(memory, ids, torch.tensor([[4, 2], [5, 2]]))

    assert torch.autograd.gradcheck(compute_loss, vectors)


def test_the_loss_equals_that_of_decoding_step_by_step():
    model = build_translator().double().eval()
    batch = create_batch((0,))
    memory = model.encode(batch.source, batch.lengths)
    decoder, state, total = model.get_decoder(0), None, 0.0
    for step, target in enumerate([4, 5, 2]):
        log_probabilities, state = decoder.next(batch.inputs[:, 0, step : step + 1], state, memory)
        total -= log_probabilities[0, target].item()
    assert model(batch)[0].total.item() == pytest.approx(total)


def test_label_smoothing_applies_in_training_only():
    unsmoothed, smoothed = build_translator(), build_translator(label_smoothing=0.2)
    assert unsmoothed.eval()(create_batch())[0].total.item() == smoothed.eval()(create_batch())[0].total.item()
    batch = create_batch((0,))
    memory = smoothed.encode(batch.source, batch.lengths)
    decoder = smoothed.get_decoder(0)
    log_probs = decoder.logits(decoder.decode(batch.inputs[:, 0], None, memory).vectors).log_softmax(-1)[0]
    targets = enumerate([4, 5, 2])
    expected = sum(-0.8 * log_probs[step, target] - 0.2 * log_probs[step].mean() for step, target in targets)
    torch.testing.assert_close(smoothed.train()(batch)[0].total, expected)


def test_an_untrained_model_predicts_by_frequency():
    counts = torch.tensor([0, 0, 30, 0, 50, 10, 5, 3, 1, 1])
    torch.manual_seed(0)
    model = Translator(create_settings("transformer"), (10, [10]), [counts]).eval()
    batch = create_batch()
    log_probabilities, _ = model.get_decoder(0).next(
        batch.inputs[:, 0, :1], None, model.encode(batch.source, batch.lengths)
    )
    torch.testing.assert_close(log_probabilities.exp(), ((counts + 1) / 110).expand(3, -1), atol=0.05, rtol=0)


def test_a_shared_vocabulary_has_one_embedding_matrix():
    model = build_translator(vocabulary="shared")
    assert model.get_decoder(0).embedding is model.embedding
    assert model.get_decoder(0).head.output.weight is model.embedding.weight
    separate = build_translator(vocabulary="separate", sizes=(10, [12]))
    assert separate.get_decoder(0).embedding.weight.shape == (12, 6)


def test_each_target_has_its_own_decoder_or_all_share_one():
    separate, shared = build_translator(sizes=(10, [10, 12])), build_translator(sizes=(10, [12]))
    assert separate.get_decoder(1) is separate.decoders[1]
    assert shared.get_decoder(1) is shared.decoders[0]


def test_losses_of_several_targets_add_up():
    model = build_translator(sizes=(10, [10, 12])).eval()
    batch = collate([SOURCES, TARGETS, TARGETS[::-1]], [(1, 2), (1, 2)], 6)
    memory = model.encode(batch.source, batch.lengths)
    parts = [
        model.get_decoder(n).loss(memory, batch.inputs[:, n], batch.targets[:, n], batch.mask[:, n]).total
        for n in range(2)
    ]
    torch.testing.assert_close(model(batch)[0].total, parts[0] + parts[1])


def test_teacher_forcing_decreases_linearly():
    model = build_translator(teacher_forcing=0.4)
    shares = []
    for model.progress in (0.0, 0.5, 1.0):
        shares.append(model.true_token_share)
    assert shares == pytest.approx([1.0, 0.7, 0.4])


def test_without_teacher_forcing_the_model_reads_its_own_predictions():
    model = build_translator(teacher_forcing=0.0).eval()
    model.progress = 1.0
    batch = create_batch((0, 1))
    memory = model.encode(batch.source, batch.lengths)
    mixed = model.mix_predictions(model.get_decoder(0), memory, batch.inputs[:, 0])
    predictions = (
        model.get_decoder(0).logits(model.get_decoder(0).decode(batch.inputs[:, 0], None, memory).vectors).argmax(-1)
    )
    assert mixed[:, 0].tolist() == [1, 1]
    assert torch.equal(mixed[:, 1:], predictions[:, :-1])


def test_scheduled_sampling_is_reproducible_and_has_no_effect_at_the_start():
    model, teacher_forced = build_translator(teacher_forcing=0.2).train(), build_translator().train()

    def compute_loss(model: Translator) -> float:
        torch.manual_seed(3)
        return float(model(create_batch())[0].total.detach())

    assert compute_loss(model) == compute_loss(teacher_forced)
    model.progress = 0.9
    assert compute_loss(model) == compute_loss(model) != compute_loss(teacher_forced)
    assert model.eval()(create_batch())[0].total.item() == teacher_forced.eval()(create_batch())[0].total.item()


def test_attention_weights_can_be_recorded():
    model = build_translator("gru", "general").eval()
    with record(model, "*weights") as recording:
        model(create_batch())
    weights = recording["decoders.0.decoder.weights"]
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 5))
    assert weights[1, :, 1:].abs().max() == 0  # padding gets no attention


def test_r_drop_without_dropout_is_the_ordinary_loss():
    """Both passes are equal then, so nothing diverges: value and gradients are those of one pass."""
    for smoothing in (0.0, 0.1):
        plain = build_translator("transformer", label_smoothing=smoothing).train()
        twice = build_translator("transformer", label_smoothing=smoothing, r_drop=5.0).train()
        losses = [model(create_batch())[0] for model in (plain, twice)]
        assert losses[0].count == losses[1].count == create_batch().num_targets
        assert float(losses[1].total.detach()) == pytest.approx(float(losses[0].total.detach()), rel=1e-5)
        for loss in losses:
            loss.objective.backward()
        for first, second in zip(plain.parameters(), twice.parameters()):
            assert second.grad.numpy() == pytest.approx(first.grad.numpy(), abs=1e-5)


def test_the_loss_of_r_drop_equals_its_equation():
    model, batch, alpha, smoothing = build_translator(r_drop=3.0), create_batch(), 3.0, 0.2
    decoder, mask, targets = model.get_decoder(0), batch.mask[:, 0], batch.targets[:, 0]
    memory = model.encode(batch.source, batch.lengths)
    noise = torch.randn(2, *memory.vectors.shape)  # what dropout does: two different memories of the same sources
    memories = [Memory(memory.vectors + each, batch.lengths) for each in noise]
    states = [decoder.decode(batch.inputs[:, 0], None, each).vectors[mask] for each in memories]
    p, q = (decoder.logits(each).softmax(-1).detach().double() for each in states)
    expected = 0.0
    for row, target in enumerate(targets[mask].tolist()):
        for each in (p, q):
            expected -= ((1 - smoothing) * each[row, target].log() + smoothing * each[row].log().mean()) / 2
        expected += alpha / 4 * ((p[row] * (p[row] / q[row]).log()).sum() + (q[row] * (q[row] / p[row]).log()).sum())
    both = Memory(torch.cat([m.vectors for m in memories]), batch.lengths.repeat(2))
    loss = decoder.r_drop_loss(both, batch.inputs[:, 0].repeat(2, 1), targets, mask, smoothing, alpha)
    assert float(loss.objective.detach()) == pytest.approx(float(expected), rel=1e-4)
    assert float(loss.total.detach()) < float(expected)
    assert loss.num_targets == int(mask.sum())


def test_r_drop_has_no_effect_in_evaluation():
    plain, twice = build_translator().eval(), build_translator(r_drop=5.0).eval()
    assert float(plain(create_batch())[0].total.detach()) == float(twice(create_batch())[0].total.detach())
