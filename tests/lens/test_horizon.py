"""The horizon of models whose lag is known; exactly n tokens are visible; all of the context is the ordinary loss."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import seqwise
from seqwise.backbones.encoder import FeedForwardBackbone, RecurrentBackbone
from seqwise.errors import DataError, UsageError
from seqwise.heads.next_token import NextToken
from seqwise.layers.cells import RNNCell
from seqwise.layers.embedding import Embedding
from seqwise.layers.output import FullSoftmax
from seqwise.layers.recurrent import Recurrent, StackedRecurrent
from seqwise.lens.context_curves import measure_curve
from seqwise.lens.horizon import explain_inapplicable, horizon
from seqwise.lens.subject import Subject
from seqwise.lens.visible_context import build_score, build_token_source
from seqwise.lens.visible_context_examples import hide_past
from seqwise.tasks.language.ngram import NGram, NGramModel
from seqwise.tasks.tag.inspection import score_tag

FAMILIES = ["feedforward", "rnn", "gru", "lstm", "attentive-rnn", "transformer", "ngram"]
VOCABULARY = 4
SCALE = 6.0  # logit of the copied token


def make_lagged_tokens(length: int, lag: int, copies: float = 0.9) -> np.ndarray:
    """Returns random tokens, most of which repeat the token `lag` steps before."""
    generator = np.random.default_rng(0)
    tokens = generator.integers(VOCABULARY, size=length)
    for position in np.flatnonzero(generator.random(length) < copies):
        if position >= lag:
            tokens[position] = tokens[position - lag]
    return tokens


class CopyModel(nn.Module):
    """A language model whose weights are set by hand: it predicts the token `lag` steps before the target."""

    def __init__(self, lag: int, recurrent: bool):
        super().__init__()
        self.embedding = Embedding(VOCABULARY, VOCABULARY)
        identity = torch.eye(VOCABULARY)
        with torch.no_grad():
            self.embedding.weight.copy_(identity)
            if recurrent:  # a shift register: block 0 is the newest token, block lag − 1 the one to copy
                cell = RNNCell(VOCABULARY, lag * VOCABULARY, activation="identity")
                cell.weight_input.zero_()[:VOCABULARY] = identity
                cell.weight_hidden.copy_(torch.diag(torch.ones((lag - 1) * VOCABULARY), -VOCABULARY))
                self.backbone: nn.Module = RecurrentBackbone(StackedRecurrent([Recurrent(cell)]))
                output = FullSoftmax(lag * VOCABULARY, VOCABULARY)
                output.weight.zero_()[:, -VOCABULARY:] = SCALE * identity
            else:
                window = lag + 3
                self.backbone = FeedForwardBackbone(VOCABULARY, VOCABULARY, 1, window)
                weights = self.backbone.first.weight.zero_().view(VOCABULARY, VOCABULARY, window)
                weights[:, :, window - lag] = identity
                output = FullSoftmax(VOCABULARY, VOCABULARY)
                output.weight.copy_(SCALE * identity)
        self.head = NextToken(output)


@pytest.mark.parametrize("recurrent", [True, False], ids=["recurrent", "feedforward"])
@pytest.mark.parametrize("lag", [1, 2, 7, 10, 20])
def test_a_model_that_copies_the_token_k_steps_back_has_horizon_k(lag: int, recurrent: bool):
    ids = make_lagged_tokens(600, lag)
    positions = np.arange(100, 600)
    score = build_score(CopyModel(lag, recurrent), build_token_source(ids), positions)
    with torch.no_grad():
        curve = measure_curve(np.full(len(positions), math.log(VOCABULARY)), score, 64)
    losses = dict(zip(curve.contexts.tolist(), curve.mean))
    assert curve.horizon == lag
    assert curve.interval == (lag, lag)
    # Without the token the logits are all 0; with it, one is SCALE.
    share = (ids[positions] == ids[positions - lag]).mean()
    expected = math.log(math.exp(SCALE) + VOCABULARY - 1) - share * SCALE
    assert losses[64] == pytest.approx(expected, rel=1e-5)
    assert all(loss == pytest.approx(math.log(VOCABULARY), rel=1e-6) for n, loss in losses.items() if n < lag)


def test_the_horizon_of_an_ngram_model_is_the_lag_of_the_data():
    ids, lag = make_lagged_tokens(20_000, 4), 4
    model = NGramModel(lag + 1, VOCABULARY)
    model._ngram = NGram.count(ids, VOCABULARY, lag + 1)
    positions = np.arange(15_000, 16_000)
    baseline = np.full(len(positions), math.log(VOCABULARY))
    curve = measure_curve(baseline, build_score(model, build_token_source(ids), positions), lag)
    assert curve.horizon == lag
    assert curve.losses[-1] == pytest.approx(-model.ngram.score_tokens(ids)[positions], rel=1e-12), "all of the context"


def test_a_line_break_is_no_visible_token_of_an_ngram_model():
    # With end_id a text begins as if after a line break; a context that is cut must not.
    ids = np.array([0, 1, 2, 0, 1, 3, 0, 1, 2, 0, 2, 2, 0, 1, 1] * 20)
    model = NGramModel(4, VOCABULARY)
    model._ngram = NGram.count(ids, VOCABULARY, 4, end_id=0)
    positions = np.array([10, 11, 13, 14])
    whole = -model.ngram.truncate(3).score_tokens(ids)[positions]
    score = build_score(model, build_token_source(ids), positions)
    assert score(2, lambda steps: None) == pytest.approx(whole, rel=1e-12)
    ordinary = -model.ngram.score_tokens(ids)[positions]
    assert score(3, lambda steps: None) == pytest.approx(ordinary, rel=1e-12), "all that the model can use"


def compute_losses(trained, ids: np.ndarray, positions: np.ndarray, n: int) -> np.ndarray:
    with torch.no_grad():
        return build_score(trained.model, build_token_source(ids), positions)(n, lambda steps: None)


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "ngram"])
def test_with_all_tokens_visible_the_losses_add_up_to_the_ordinary_loss(small_run, tmp_path: Path, family: str):
    trained = small_run("language", family)
    text = "the old model reads every word of the old book and the new word"
    (tmp_path / "text.txt").write_text(text)
    ids = trained.run.preprocessor.tokenizer.encode(text + "\n").ids
    assert 8 <= len(ids) <= 16, "one window of a Transformer"
    losses = [compute_losses(trained, ids, np.array([t]), t)[0] for t in range(1, len(ids))]
    metrics = trained.evaluate(str(tmp_path / "text.txt"), split="all").metrics
    assert metrics["tokens"] == len(losses)
    assert math.exp(np.mean(losses)) == pytest.approx(metrics["perplexity"], rel=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_exactly_n_tokens_are_visible(small_run, book: Path, family: str):
    trained = small_run("language", family)
    ids = trained.run.preprocessor.tokenizer.encode(book.read_text()[:2000]).ids
    positions, n = np.array([40, 60, 80]), 1 if family == "ngram" else 3  # most longer n-grams were never seen
    losses = compute_losses(trained, ids, positions, n)
    hidden, visible = ids.copy(), ids.copy()
    hidden[positions - n - 1] = ids[:3]
    visible[positions - n] = ids[:3]
    assert (hidden != ids).any()
    assert (compute_losses(trained, hidden, positions, n) == losses).all()
    assert (compute_losses(trained, visible, positions, n) != losses).any()


def test_a_state_that_is_passed_on_gives_the_same_loss_as_all_tokens_at_once(small_run):
    trained = small_run("language", "lstm")
    ids = np.random.default_rng(0).integers(3, 20, size=40)
    tensor = torch.from_numpy(ids)[None]
    with torch.no_grad():
        _, state = trained.model.next(tensor[:, :20])
        scores, _ = trained.model.next(tensor[:, 20:39], state)
    loss = compute_losses(trained, ids, np.array([39]), 39)[0]
    assert loss == pytest.approx(-float(scores[0, ids[39]]), rel=1e-5)


@pytest.fixture(scope="module")
def lagged_text(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("lagged") / "text.txt"
    path.write_text("".join("abcd"[token] for token in make_lagged_tokens(60_000, 5)))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_a_trained_model_has_the_horizon_of_its_data(lagged_text: Path, tmp_path: Path, family: str):
    """Windows are short, so that the model learns to predict from few tokens too."""
    settings: dict = {"text": {"tokenizer": "characters"}}
    if family == "ngram":
        settings["context"] = {"length": 6}
    else:
        settings["network"] = {"width": 48, "depth": 1, "dropout": 0.0}
        settings["data"] = {"window": 10, "order": "windows"}
        settings["training"] = {"batch_size": 64, "learning_rate": 0.01}
    if family == "feedforward":
        settings["context"] = {"length": 7}
    base = {"task": "language", "model": family, "budget": "300000-tokens", "device": "cpu"}
    trained = seqwise.train(str(lagged_text), settings={**settings, **base}, out=tmp_path / "run")
    (values,) = horizon(trained, max_context=16).data.values()
    assert values["horizon"] == 5
    assert values["low"] <= 5 <= values["high"] <= 6
    assert values["loss"][0] - values["loss"][-1] > 0.2, "it has learned something"


def test_several_models_have_the_same_targets_and_their_own_limits(small_run):
    runs = [small_run("language", family) for family in ("lstm", "transformer", "ngram")]
    view = horizon(runs, max_context=32, num_targets=50)
    lstm, transformer, ngram = view.data.values()
    assert (lstm["max_context"], transformer["max_context"], ngram["max_context"]) == (32, 16, 4)
    assert lstm["losses"][0] == pytest.approx(transformer["losses"][0]), "loss(0) depends on the target alone"
    assert lstm["losses"][0] == pytest.approx(ngram["losses"][0])
    assert lstm["losses"].shape[1] == lstm["num_targets"] == 50
    assert view.summary[-1].startswith("Measured on 50 tokens evenly spread over ")
    assert len(view.figures[0].series) == 3


def test_without_context_a_token_is_predicted_by_its_frequency(small_run):
    trained = small_run("language", "gru")
    (values,) = horizon(trained, max_context=4, num_targets=30).data.values()
    store, _ = trained.task.open_store(trained.bundle, trained.run.metadata.data, "valid")
    counts = trained.bundle.training.arrays["token_counts"]
    positions = [4 + index * (len(store) - 4) // 30 for index in range(30)]
    tokens = store.read_sequences(positions, 1)[:, 0]
    expected = -np.log((counts[tokens] + 1) / (counts.sum() + len(counts)))
    assert values["losses"][0] == pytest.approx(expected)


def test_a_text_can_be_measured_instead_of_the_validation_split(small_run):
    trained = small_run("language", "lstm")
    view = horizon(trained, "the old model reads every word of the book \n" * 20, max_context=8)
    (values,) = view.data.values()
    assert "the text given" in values["targets"]
    assert values["num_targets"] > 100


def test_measuring_changes_nothing(small_run):
    trained = small_run("language", "lstm")
    trained.model.train()
    weights = {name: tensor.clone() for name, tensor in trained.model.state_dict().items()}
    state = torch.get_rng_state(), np.random.get_state()[1].copy()
    first = horizon(trained, max_context=8, num_targets=30)
    assert trained.model.training
    trained.model.eval()
    assert all(torch.equal(tensor, weights[name]) for name, tensor in trained.model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state[0])
    assert (np.random.get_state()[1] == state[1]).all()
    assert all(parameter.grad is None for parameter in trained.model.parameters())
    second = horizon(trained, max_context=8, num_targets=30)
    assert first.summary == second.summary


# Other tasks


@pytest.mark.parametrize("family", ["lstm", "transformer"])
def test_a_masked_token_is_predicted_from_n_tokens_on_each_side(small_run, family: str):
    trained = small_run("masked", family)
    (values,) = horizon(trained, num_targets=30).data.values()
    store, _ = trained.task.open_store(trained.bundle, trained.run.metadata.data, "valid")
    n = values["max_context"]
    assert n == (trained.settings.data.window - 1) // 2
    positions = [n + index * (len(store) - 2 * n) // 30 for index in range(30)]
    ids = torch.from_numpy(store.read_sequences([positions[7] - n], 2 * n + 1))
    target = int(ids[0, n])
    ids[0, n] = trained.run.preprocessor.tokenizer.id("<mask>")
    with torch.no_grad():
        scores = trained.model.scores(trained.model.states(ids), torch.tensor([0]), torch.tensor([n]))
    assert values["losses"][-1, 7] == pytest.approx(-float(scores[0, target]), rel=1e-5)


def test_what_is_measured_is_named(small_run):
    rows = [("the film is dull", "bad"), ("the film is a joy", "good")]
    view = horizon(small_run("classify", "gru"), data=rows * 10)
    (values,) = view.data.values()
    assert values["loss_name"] == "error rate"
    assert view.figures[0].title == "Error rate against visible context"
    assert view.figures[0].y_label == "error rate"
    assert view.figures[2].columns[4:6] == ("error rate (0)", "error rate (max)")
    shown = " ".join([*view.summary, *(f"{figure.title} {figure.note}" for figure in view.figures)])
    assert "loss" not in shown, "a share of wrong labels is no loss"
    assert f"The error rate is {values['loss'][-1]:.3f} with" in view.summary[0]
    (language,) = horizon(small_run("language", "gru"), num_targets=20).data.values()
    assert language["loss_name"] == "loss"


def test_a_classifier_reads_the_end_of_each_text(small_run):
    trained = small_run("classify", "gru")
    rows = [(f"the film is {word}", label) for word, label in [("dull", "bad"), ("a joy", "good"), ("fair", "good")]]
    (values,) = horizon(trained, data=rows * 10).data.values()
    evaluation = trained.evaluate(rows * 10)
    assert values["num_targets"] == 30
    assert values["max_context"] == 5, "the film is a joy"
    assert values["loss"][-1] == pytest.approx(1 - evaluation.metrics["accuracy"]), "all of the text"
    baselines = {each.name: each.value for each in evaluation.baselines}
    assert values["loss"][0] == pytest.approx(1 - baselines["most frequent label"])
    with torch.no_grad():
        ids = trained.run.preprocessor.tokenizer.encode("joy").ids
        label = int(trained.model.scores(torch.from_numpy(ids)[None], torch.tensor([1])).argmax())
    is_wrong = trained.run.preprocessor.attributes["labels"][label] != "good"
    assert values["losses"][1, 1] == is_wrong, "one token of the second text"


@pytest.mark.parametrize("family", ["lstm", "feedforward", "transformer"])
def test_a_tagger_sees_n_words_on_each_side(small_run, family: str):
    trained = small_run("tag", family)
    view = horizon(trained, num_targets=10_000)
    assert "with the word alone." in view.summary[0]
    (values,) = view.data.values()
    examples = trained.task.inspect_split(trained.bundle, trained.run.metadata.data, "valid", 10_000)
    expected = []
    with torch.no_grad():
        for example in examples:
            for position in range(len(example.tokens)):
                tag = int(example.batch.tag_ids[0, position])
                expected.append(-float(score_tag(trained.model, example.batch, position, tag)))
    assert values["losses"][-1] == pytest.approx(expected, rel=1e-3, abs=1e-5)
    assert values["contexts"][-1] == max(len(example.tokens) for example in examples) - 1


@pytest.mark.parametrize("family", ["gru", "feedforward", "transformer"])
def test_a_forecast_from_the_whole_window_is_the_ordinary_one(small_run, family: str):
    trained = small_run("forecast", family)
    (values,) = horizon(trained, num_targets=10_000).data.values()
    evaluation = trained.evaluate(trained.run.metadata.data, split="valid")
    assert values["loss"][-1] == pytest.approx(evaluation.metrics["mse"], rel=1e-4)
    assert values["num_targets"] == evaluation.metrics["windows"]
    assert values["max_context"] == trained.settings.forecast.lookback


def test_a_forecast_does_not_depend_on_hidden_steps():
    past = torch.tensor([[1.0, 2.0, 3.0, 5.0], [9.0, 9.0, 0.0, 2.0]])
    assert hide_past(past, 2).tolist() == [[4.0, 4.0, 3.0, 5.0], [1.0, 1.0, 0.0, 2.0]]
    assert hide_past(past, 4) is past
    assert hide_past(past, 9) is past


@pytest.mark.parametrize("task", ["translate", "caption"])
def test_tasks_without_a_past_say_why(small_run, task: str):
    trained = small_run(task, "transformer")
    reason = explain_inapplicable(Subject("run", trained.model, lambda: None, (), trained=trained))
    assert "which has no past" in reason
    with pytest.raises(UsageError, match="does not apply"):
        horizon(trained)


# Errors


def test_wrong_arguments_are_explained(small_run):
    language, forecast = small_run("language", "lstm"), small_run("forecast", "gru")
    with pytest.raises(UsageError, match="runs of one task, received runs of language and forecast"):
        horizon([language, forecast])
    with pytest.raises(UsageError, match="--max-context: expected at least 1, received 0"):
        horizon(language, max_context=0)
    with pytest.raises(UsageError, match="--num-targets: expected at least 20, received 3"):
        horizon(language, num_targets=3)
    with pytest.raises(UsageError, match="on many examples, not on one input"):
        horizon(forecast, "table.csv")
    with pytest.raises(UsageError, match="a text or data, received both"):
        horizon(language, "a text", data="book.txt")
    with pytest.raises(DataError, match="too few to measure"):
        horizon(language, "the old model")
    with pytest.raises(UsageError, match="trained run"):
        horizon(nn.Linear(2, 2))
