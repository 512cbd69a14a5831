"""The view of cost counts operations, steps and activations as a profiler does, and finds where attention dominates."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from product_chain import measure_chain
from torch import nn
from used_settings import keep_used

import seqwise
from seqwise.errors import UsageError
from seqwise.heads.ngrams import NGramHead
from seqwise.layers.cells import EarlyResetGRUCell, GRUCell, LSTMCell
from seqwise.layers.output import MixtureSoftmax
from seqwise.layers.positions import LearnedPositions
from seqwise.layers.recurrent import Bidirectional, Recurrent, StackedRecurrent
from seqwise.layers.rnn import LSTM
from seqwise.layers.transformer import Decoder, DecoderLayer, Encoder, EncoderDecoder, PreNormEncoderLayer
from seqwise.lens.cost import cost, find_crossovers
from seqwise.lens.cost_counts import count_module
from seqwise.lens.cost_inputs import build_call
from seqwise.lens.cost_measure import Timing, describe_load, measure_activations, profile_operations
from seqwise.lens.cost_models import count_model
from seqwise.lens.cost_polynomials import M, N, build_term

TASKS = ("language", "masked", "classify", "tag", "translate", "caption", "forecast")
FAMILIES = ("feedforward", "rnn", "gru", "lstm", "attentive-rnn", "transformer")


def build_encoder(width: int = 16, depth: int = 2) -> Encoder:
    return Encoder([PreNormEncoderLayer(width, 4, 4 * width, "gelu") for _ in range(depth)])


def choose_length(counted) -> int:
    """20, or the length of a forecast, which is fixed."""
    return 20 if counted.fixed_target is None else -(-24 // counted.module.encoder.patch_size)


# --- polynomials


def test_polynomials_add_multiply_and_scale_with_the_width():
    polynomial = 2 * M * build_term(9, 2) + M * (M + N) * build_term(3, 1) + 5
    assert polynomial.evaluate(10, 4) == 2 * 10 * 9 + 10 * 14 * 3 + 5
    assert polynomial.evaluate(10, 4, scale=2.0) == 2 * 10 * 9 * 4 + 10 * 14 * 3 * 2 + 5
    assert polynomial.format(3) == "5 + 2·M·k² + M·N·k + M²·k"


# --- against a profiler


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("task", TASKS)
def test_operations_agree_with_the_profiler_for_every_task_and_family(small_run, task: str, family: str):
    counted = count_model(small_run(task, family))
    length = choose_length(counted)
    assert counted.uncounted == []
    assert counted.count_operations(length, 3) == pytest.approx(profile_operations(counted, length, 3), rel=0.01)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("task", TASKS)
def test_sequential_steps_are_the_longest_chain_of_products(small_run, task: str, family: str):
    counted = count_model(small_run(task, family))
    length = choose_length(counted)
    assert counted.count_steps(length) == measure_chain(counted.module, build_call(counted, length, 2))


@pytest.mark.parametrize(
    ("task", "family", "tolerance"),
    [
        *(("language", family, 0.01) for family in FAMILIES),
        *(("masked", family, 0.01) for family in FAMILIES),
        *(("classify", family, 0.05) for family in FAMILIES),
        *(("translate", family, 0.05) for family in FAMILIES),
        *(("tag", family, 0.07) for family in FAMILIES),
        *(("caption", family, 0.05) for family in FAMILIES),
    ],
)
def test_activations_agree_with_what_autograd_keeps(small_run, task: str, family: str, tolerance: float):
    counted = count_model(small_run(task, family))
    assert 4 * counted.count_activations(128) == pytest.approx(measure_activations(counted, 128), rel=tolerance)


@pytest.mark.parametrize(
    "module",
    [
        Recurrent(LSTMCell(5, 8)),
        Recurrent(EarlyResetGRUCell(5, 8)),
        StackedRecurrent([Recurrent(GRUCell(5, 8)), Recurrent(GRUCell(8, 8))]),
        Bidirectional(Recurrent(GRUCell(5, 8)), Recurrent(GRUCell(5, 8))),
        LSTM(5, 8, num_layers=2, bidirectional=True, batch_first=True),
        build_encoder(),
        EncoderDecoder(build_encoder(), Decoder([DecoderLayer(16, 4, 32, "relu") for _ in range(2)])),
        nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)),
    ],
    ids=lambda module: type(module).__name__,
)
def test_modules_are_counted_as_the_profiler_does(module: nn.Module):
    counted = count_model(module)
    assert counted.count_operations(12, 2) == pytest.approx(profile_operations(counted, 12, 2), rel=0.01)
    assert counted.count_steps(12) == measure_chain(module, build_call(counted, 12, 2))


@pytest.mark.parametrize("order", [1, 2, 5])
@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 8])
def test_texts_shorter_than_the_longest_ngram_have_only_the_shorter_ones(order: int, length: int):
    head = NGramHead(10, 3, order, buckets=64)
    _, is_valid = head.find_rows(torch.zeros(1, length, dtype=torch.int64), torch.tensor([length]))
    (component,) = count_module(head)
    values = 2 + 3 + 0.25  # a 64-bit row, a ratio per label and a byte of the mask
    assert component.count_activations(length, length) == int(is_valid.sum()) * values
    assert component.count_activations(length, length, batch_size=4) == 4 * int(is_valid.sum()) * values


VARIANTS = [
    ("translate", "lstm", {"translate": {"attention": "dot"}, "network": {"embedding": 16}}),
    ("translate", "rnn", {"translate": {"attention": "none"}}),
    ("translate", "gru", {"translate": {"attention": "general", "input_feeding": True}, "network": {"depth": 2}}),
    ("translate", "gru", {"recurrent": {"reset": "before"}, "network": {"depth": 2}}),
    ("caption", "gru", {"caption": {"encoder": "patches", "patch": 4}}),
    ("caption", "gru", {"caption": {"blocks": 1}}),
    ("classify", "lstm", {"network": {"depth": 2}, "recurrent": {"concat_directions": False}}),
    ("classify", "lstm", {"network": {"depth": 2}, "recurrent": {"layer_norm": True}}),
    ("classify", "gru", {"classify": {"pooling": "max"}}),
    ("forecast", "gru", {"forecast": {"decoder": "segments", "patch": 4}, "network": {"depth": 2}}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("task", "family", "changes"), VARIANTS, ids=str)
def test_variants_are_counted_as_the_profiler_does(tmp_path, task: str, family: str, changes: dict):
    row = import_module(f"rows_{task}").ROW
    (tmp_path / "data").mkdir()
    base = {**row.settings, "task": task, "model": family, "budget": "300-tokens", "device": "cpu"}
    counted = count_model(
        seqwise.train(row.write(tmp_path / "data"), settings=keep_used(base, **changes), out=tmp_path / "run")
    )
    length = choose_length(counted)
    assert counted.count_operations(length, 3) == pytest.approx(profile_operations(counted, length, 3), rel=0.01)
    assert counted.count_steps(length) == measure_chain(counted.module, build_call(counted, length, 2))


def test_a_large_softmax_keeps_gradients_instead_of_probabilities(small_run):
    counted = count_model(small_run("language", "gru"))
    softmax = counted.module.head.output
    large = type(softmax)(softmax.width, 20_000)
    counted.module.head.output = large
    try:
        wide = count_model(small_run("language", "gru"))
        kept = 4 * wide.count_activations(64)
        assert kept == pytest.approx(measure_activations(wide, 64), rel=0.01)
        assert kept < 4 * 64 * 20_000 / 2 + 4 * 20_000 * 17, "not all probabilities are kept"
    finally:
        counted.module.head.output = softmax


@pytest.mark.parametrize("vocabulary_size", [300, 20_000])  # the second has a fused loss
def test_a_mixture_of_softmaxes_is_counted_as_the_profiler_does(small_run, vocabulary_size: int):
    trained = small_run("language", "gru")
    softmax = trained.model.head.output
    trained.model.head.output = MixtureSoftmax(softmax.width, vocabulary_size, 2)
    try:
        counted = count_model(trained)
        assert counted.count_operations(20, 3) == pytest.approx(profile_operations(counted, 20, 3), rel=0.01)
        assert counted.count_steps(20) == measure_chain(counted.module, build_call(counted, 20, 2))
        assert 4 * counted.count_activations(64) == pytest.approx(measure_activations(counted, 64), rel=0.01)
    finally:
        trained.model.head.output = softmax


# --- by hand


def test_an_lstm_has_eight_products_of_its_width_per_token():
    counted = count_model(Recurrent(LSTMCell(8, 8)))
    assert counted.count_operations(10) == 10 * 2 * (4 * 8 * 8 + 4 * 8 * 8)
    assert counted.count_steps(10) == 10
    assert counted.sum_by_kind()["recurrent layers"].format(8) == "16·M·k²"


def test_a_transformer_layer_has_24_k_squared_and_4_k_times_the_length_per_token():
    counted = count_model(build_encoder(16, depth=1))
    formulas = {kind: polynomial.format(16) for kind, polynomial in counted.sum_by_kind().items() if polynomial.terms}
    assert formulas == {
        "attention projections": "8·M·k²",
        "attention, M × M": "4·M²·k",
        "feed-forward layers": "16·M·k²",
    }
    assert counted.count_operations(10) == 24 * 10 * 16**2 + 4 * 10**2 * 16
    assert counted.count_steps(10) == counted.count_steps(1000) == 6


def test_attention_equals_its_projections_at_twice_the_width_and_all_layers_at_six_times():
    assert find_crossovers(count_model(build_encoder(16))) == {"projections": 32, "layers": 96}
    assert find_crossovers(count_model(build_encoder(64))) == {"projections": 128, "layers": 384}
    assert find_crossovers(count_model(Recurrent(GRUCell(4, 4)))) == {}


def test_a_decoder_has_terms_of_both_lengths():
    decoder = Decoder([DecoderLayer(16, 4, 32, "relu")])
    counted = count_model(EncoderDecoder(build_encoder(16, depth=1), decoder))
    assert counted.sum_by_kind()["attention, source × source"].format(16) == "4·M²·k"
    assert counted.sum_by_kind()["attention, target × source"].format(16) == "4·M·N·k"
    assert counted.sum_by_kind()["attention, target × target"].format(16) == "4·N²·k"
    assert sum(each.count(10, 20) for each in counted.encoder) == 24 * 10 * 256 + 4 * 10**2 * 16
    projections = (8 + 4) * 20 * 256 + 4 * 10 * 256  # keys and values of the source are projected once
    attention = 4 * (20**2 + 10 * 20) * 16
    assert sum(each.count(10, 20) for each in counted.decoder) == projections + attention + 8 * 20 * 256


# --- the view


def test_the_view_shows_lengths_widths_and_the_crossover():
    view = cost(build_encoder(16), max_length=256, measure=False)
    values = view.data["Encoder"]
    np.testing.assert_array_equal(values["lengths"], [8, 16, 32, 64, 128, 256])
    np.testing.assert_allclose(values["operations"]["attention, M × M"], 2 * 4 * values["lengths"] ** 2 * 16)
    by_width = values["operations_by_width"]["feed-forward layers"]
    np.testing.assert_allclose(by_width[1:] / by_width[:-1], 4)
    assert values["crossover"] == {"projections": 32, "layers": 96}
    chart = next(figure for figure in view.figures if "by component" in figure.title)
    assert [(line.value, line.label) for line in chart.references] == [(32, "= projections"), (96, "= all layers")]
    assert "as its projections at 32 tokens" in " ".join(view.summary)


def test_several_models_share_charts_and_are_compared():
    view = cost([Recurrent(GRUCell(16, 16)), build_encoder(16)], max_length=64, measure=False)
    assert [series.name for series in view.figures[0].series] == ["Recurrent", "Encoder"]
    assert view.summary[-1] == "Recurrent needs the fewest operations at every length shown."
    steps = next(figure for figure in view.figures if figure.title == "Sequential steps")
    np.testing.assert_array_equal(steps.series[0].y, [8, 16, 32, 64])
    np.testing.assert_array_equal(steps.series[1].y, [12] * 4)


def test_several_models_have_numbers_at_one_length():
    short = nn.Sequential(LearnedPositions(16, 20), build_encoder(16))
    view = cost([build_encoder(16), short], max_length=64, measure=False)
    assert [values["length"] for values in view.data.values()] == [20, 20]
    assert [row[1] for row in view.figures[-1].rows] == [20, 20]


def test_the_model_with_the_fewest_operations_is_named_for_short_and_long_sequences():
    window = nn.Sequential(nn.Linear(16, 200), nn.Linear(200, 16))  # 12,800 operations per token
    view = cost([window, build_encoder(16, depth=1)], max_length=1024, measure=False)  # 6,144 + 64 M
    assert view.summary[-1] == ("Encoder needs the fewest operations up to a length of 64, Sequential from 128 on.")


def test_encoding_once_saves_the_encoder_for_all_targets_but_one(small_run):
    view = cost(small_run("translate", "transformer"), measure=False)
    (reuse,) = (values["reuse"] for values in view.data.values())
    np.testing.assert_allclose(reuse["repeated"] - reuse["shared"], (reuse["targets"] - 1) * reuse["encode"])
    assert any("Encoding once and decoding 8 targets" in sentence for sentence in view.summary)


@pytest.mark.parametrize(("task", "family"), [("language", "gru"), ("translate", "lstm"), ("forecast", "transformer")])
def test_measurements_change_nothing(small_run, task: str, family: str):
    model = small_run(task, family)
    before = {name: tensor.clone() for name, tensor in model.model.state_dict().items()}
    state = torch.get_rng_state()
    view = cost(model, max_length=32)
    (values,) = view.data.values()
    assert (values["measured"]["minimum"] > 0).all()
    assert (values["measured"]["minimum"] <= values["measured"]["median"]).all()
    assert values["profiler"]["counted"] == pytest.approx(values["profiler"]["profiled"], rel=0.01)
    assert torch.equal(torch.get_rng_state(), state), "no random number is drawn"
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.model.parameters())
    assert str(view)


def test_a_busy_machine_is_reported():
    quiet = Timing(median=1.0, minimum=0.9, cpu_share=0.99)
    assert describe_load([quiet, quiet]) is None
    assert "for 40% of the time" in str(describe_load([replace(quiet, cpu_share=0.4)]))


def test_layers_of_ones_own_are_named_as_not_counted():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.weight = nn.Linear(4, 4), nn.Parameter(torch.ones(4, 4))

        def forward(self, x):
            return self.linear(x) @ self.weight

    assert "Not counted: Own, whose products are not known." in cost(Own(), measure=False).summary


def test_bad_arguments_are_errors(small_run):
    with pytest.raises(UsageError, match="max_length must be at least 8; received 2"):
        cost(build_encoder(), max_length=2)
    with pytest.raises(UsageError, match="has no layer whose operations are known"):
        cost(nn.ReLU())
    with pytest.raises(UsageError, match="an n-gram model looks up counts"):
        cost(small_run("language", "ngram"))


@pytest.mark.parametrize("max_length", [1, 5, 20])
def test_learned_positions_limit_the_lengths_that_are_measured(max_length: int):
    module = nn.Sequential(LearnedPositions(16, max_length), build_encoder())
    view = cost(module, max_length=16)
    (values,) = view.data.values()
    assert values["length"] == max_length
    assert values["longest"] == max_length
    assert max(values["measured"]["lengths"]) == min(max_length, 16)
    assert values["profiler"]["length"] <= max_length
    assert f"one sequence of {max_length} tokens" in view.summary[0]
    says_end = any(f"learned positions end at {max_length} tokens: longer" in each for each in view.summary)
    assert says_end == (max_length < 16)


def test_a_translator_with_a_short_maximum_length_has_a_cost(tmp_path: Path):
    rows = [{"source": f"{n % 7} {n % 3}", "target": f"{n % 3} {n % 7}"} for n in range(40)]
    settings = {
        "network.width": 8, "data.max_length": 3, "transformer.positions": "learned", "transformer.heads": 2,
        "device": "cpu",
    }  # fmt: skip
    run = seqwise.train(
        rows, task="translate", model="transformer", budget="100-tokens", settings=settings, out=tmp_path / "run"
    )
    view = cost(run)
    (values,) = view.data.values()
    assert values["length"] == values["longest"] == 4  # with <bos>
    assert list(values["measured"]["lengths"]) == [4]
    assert len(str(view)) > 100
