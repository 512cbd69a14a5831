"""The classify task: training, evaluation, predictions, validation, and rejected settings."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from used_settings import keep_used

from seqwise.config import Settings, parse_settings
from seqwise.errors import DataError, UsageError
from seqwise.layers.record import record
from seqwise.losses import r_drop
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.classify.metrics import format_prediction
from seqwise.tasks.classify.model import Classifier, TextBatch, collate, predict_log_probabilities
from seqwise.tasks.classify.task import Classify
from seqwise.tasks.defaults import DefaultsContext, resolve
from seqwise.tasks.task import InferenceOptions, Preprocessor
from seqwise.training.api import TrainedModel, load_run, train
from seqwise.training.choices import build_defaults_context
from seqwise.training.distribution import World
from seqwise.training.run import Run
from seqwise.training.training_run import open_task

GOOD_WORDS, BAD_WORDS = ["good", "lovely", "bright"], ["bad", "dull", "poor"]
SMALL = {
    "network": {"width": 12, "embedding": 8, "dropout": 0.1},
    "training": {"batch_size": 16, "learning_rate": 0.02},
}
FAMILIES = ["feedforward", "rnn", "gru", "lstm", "attentive-rnn", "transformer"]


@pytest.fixture(scope="module")
def opinions(tmp_path_factory) -> str:
    """Texts in which one word decides whether a film is good or bad."""
    rng = random.Random(0)
    lines = []
    for number in range(300):
        label = "ny"[number % 2]
        words = rng.choices(["the", "film", "is", "was", "so", "and", "very"], k=rng.randint(2, 9))
        words.insert(rng.randrange(len(words)), rng.choice(GOOD_WORDS if label == "y" else BAD_WORDS))
        lines.append(f"{' '.join(words)}\t{label}")
    path = tmp_path_factory.mktemp("opinions") / "opinions.tsv"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def resolve_settings(task: Classify, settings: Settings, cuda: bool = False) -> Settings:
    size = task.size()
    context = DefaultsContext(
        size.num_tokens,
        size.vocabulary_size,
        cuda,
        2,
        num_examples=size.num_examples,
        max_length=size.max_length,
        num_labels=size.num_labels,
    )
    return resolve(settings, context)[0]


def prepare_task(data: str, **settings) -> tuple[Classify, Settings]:
    user_settings = parse_settings({"task": "classify", "model": "lstm", **SMALL, **settings})
    task = Classify.prepare(data, user_settings)
    return task, resolve_settings(task, user_settings)


@pytest.mark.parametrize(
    "family", [name if name == "gru" else pytest.param(name, marks=pytest.mark.slow) for name in FAMILIES]
)
def test_every_family_learns_which_word_decides(opinions: str, tmp_path: Path, family: str):
    settings = {**SMALL, "transformer": {"heads": 2}, "training": {**SMALL["training"], "validate_every": 200}}
    budget = "12-epochs" if family == "transformer" else "6-epochs"
    trained_model = train(
        opinions, budget=budget, out=tmp_path / "run", settings=keep_used(settings, task="classify", model=family)
    )
    assert trained_model.evaluate(opinions).metrics["accuracy"] == 1.0
    answers = trained_model.predict(["so lovely and the film was very", "was dull", "bright film"])
    assert [answer.values["label"] for answer in answers] == ["y", "n", "y"]


@pytest.fixture(scope="module")
def trained_model(opinions: str, tmp_path_factory) -> TrainedModel:
    """A run of one epoch."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    return train(opinions, task="classify", budget="1-epochs", out=folder, settings=SMALL)


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["last", "mean", "max", "attention"])
def test_every_pooling_learns(opinions: str, tmp_path: Path, pooling: str):
    settings = {**SMALL, "classify": {"pooling": pooling}, "training": {**SMALL["training"], "validate_every": 200}}
    trained_model = train(
        opinions, task="classify", model="gru", budget="6-epochs", out=tmp_path / "run", settings=settings
    )
    assert trained_model.evaluate(opinions).metrics["accuracy"] == 1.0


def test_a_loaded_run_gives_the_same_predictions(opinions: str, trained_model: TrainedModel):
    loaded = load_run(trained_model.run.folder)
    assert loaded.run.preprocessor.attributes == {"labels": ["n", "y"]}
    assert loaded.predict("so good").values == trained_model.predict("so good").values
    evaluation = loaded.evaluate(opinions)
    assert evaluation.data == f"{opinions}, the test split"
    assert evaluation.metrics == trained_model.evaluate(opinions).metrics


def test_evaluation_has_definitions_and_a_confusion_table(trained_model: TrainedModel, tmp_path: Path):
    (tmp_path / "other.csv").write_text("text,label\nso good,y\nso bad,n\nlovely,n\n")
    evaluation = trained_model.evaluate(tmp_path / "other.csv")
    assert evaluation.data.endswith("all of it")
    assert list(evaluation.metrics) == ["accuracy", "macro_f1", "loss", "examples"]
    assert evaluation.metrics.keys() <= evaluation.definitions.keys()
    labels, confusion = evaluation.tables
    assert labels.rows["n"][3] == 2
    assert sum(map(sum, confusion.rows.values())) == 3
    num_correct = sum(confusion.rows[label][index] for index, label in enumerate(("n", "y")))
    assert evaluation.metrics["accuracy"] == pytest.approx(num_correct / 3)


def test_predictions_of_an_evaluation_can_be_written(trained_model: TrainedModel, tmp_path: Path):
    (tmp_path / "other.csv").write_text('text,label\n"so\tgood\nfilm",y\nso bad,n\n')
    evaluation = trained_model.evaluate(tmp_path / "other.csv", out=tmp_path / "answers.tsv")
    lines = [line.split("\t") for line in (tmp_path / "answers.tsv").read_text().splitlines()]
    assert lines[0] == ["input", "expected", "predicted", "probability"]
    assert [line[:2] for line in lines[1:]] == [["so good film", "y"], ["so bad", "n"]]
    num_correct = sum(line[1] == line[2] for line in lines[1:])
    assert evaluation.metrics["accuracy"] == num_correct / 2
    assert all(0.5 <= float(line[3]) <= 1 for line in lines[1:])


def test_an_output_path_that_cannot_be_written_is_rejected_before_scoring(trained_model: TrainedModel, tmp_path: Path):
    with pytest.raises(UsageError, match="its folder does not exist"):
        trained_model.evaluate(tmp_path / "not read.csv", out=tmp_path / "nowhere" / "answers.tsv")


def test_a_label_unknown_to_the_run_is_rejected_in_evaluation(trained_model: TrainedModel, tmp_path: Path):
    (tmp_path / "other.csv").write_text("text,label\nso good,y\nso so,maybe\n")
    with pytest.raises(DataError, match=r"other.csv:3: the label 'maybe'.*\n?.*The training labels are: n, y"):
        trained_model.evaluate(tmp_path / "other.csv")


def test_a_prediction_has_label_probability_and_alternatives(trained_model: TrainedModel):
    answer = trained_model.predict("so good")
    values = answer.values
    assert values["text"] == "so good"
    assert values["probability"] == max(values["probabilities"].values())
    assert sum(values["probabilities"].values()) == pytest.approx(1)
    first, second = values["probabilities"]
    assert answer.text == f"{first}  {values['probability']:.3f}    {second}  {values['probabilities'][second]:.3f}"
    assert trained_model.predict("so good", top=1).text == f"{first}  {values['probability']:.3f}"


def test_a_batch_counts_its_rows_targets_and_tokens():
    batch = collate([np.array([3, 4, 5]), np.array([6])], np.array([1, 0]), np.array([7, 9]))
    assert batch.ids.tolist() == [[3, 4, 5], [6, 0, 0]]
    assert (batch.num_sequences, batch.length, batch.num_targets, batch.num_tokens) == (2, 3, 2, 4)
    assert batch.positions is not None
    assert batch.positions.tolist() == [7, 9]
    assert batch.slice(1, 2).labels.tolist() == [0]


def build_model(**settings) -> Classifier:
    user_settings = parse_settings({"task": "classify", "model": "lstm", **SMALL, **settings})
    torch.manual_seed(0)
    return Classifier(ResolvedSettings.from_settings(user_settings), 20, 3, unknown=1, counts=torch.tensor([6, 3, 1]))


def create_batch(*lengths: int) -> TextBatch:
    rng = np.random.default_rng(0)
    rows = [rng.integers(2, 20, length) for length in lengths]
    return collate(rows, np.arange(len(rows)) % 3, np.arange(len(rows)))


@torch.no_grad()
def compute_loss(model: Classifier, batch: TextBatch) -> float:
    torch.manual_seed(1)
    return float(model(batch)[0].total)


def test_an_untrained_model_predicts_by_frequency():
    model = build_model().eval()
    torch.nn.init.zeros_(model.head.output.weight)
    probabilities = model.scores(torch.zeros(1, 2, dtype=torch.int64), torch.tensor([2])).softmax(-1)
    assert probabilities[0].tolist() == pytest.approx([7 / 13, 4 / 13, 2 / 13])


def test_balanced_weights_multiply_the_loss_and_leave_the_bias_zero():
    unweighted, weighted = build_model().eval(), build_model(classify={"class_weights": "balanced"}).eval()
    weighted.load_state_dict(unweighted.state_dict())
    batch = create_batch(3, 4, 5)
    losses = [compute_loss(unweighted, batch.slice(i, i + 1)) for i in range(3)]
    expected = sum(loss * 10 / (3 * count) for loss, count in zip(losses, (6, 3, 1)))
    assert compute_loss(weighted, batch) == pytest.approx(expected, rel=1e-5)
    assert not build_model(classify={"class_weights": "balanced"}).head.output.bias.any()


def test_word_dropout_replaces_tokens_by_unknown_in_training_only():
    model = build_model(classify={"word_dropout": 0.5})
    ids = torch.full((40, 50), 7)
    with record(model, "embedding.vectors") as recording:
        model.train()(TextBatch(ids, torch.full((40,), 50), torch.zeros(40, dtype=torch.int64)))
        dropped_share = (recording["embedding.vectors"] == model.embedding.weight[1]).all(-1).float().mean()
        model.eval().scores(ids, torch.full((40,), 50))
        unchanged_share = (recording["embedding.vectors"] == model.embedding.weight[7]).all(-1).float().mean()
    assert 0.45 < float(dropped_share) < 0.55
    assert float(unchanged_share) == 1.0


def test_label_smoothing_applies_in_training_only():
    no_dropout = {"dropout": 0.0}
    unsmoothed, smoothed = (
        build_model(network=no_dropout),
        build_model(network=no_dropout, classify={"label_smoothing": 0.2}),
    )
    smoothed.load_state_dict(unsmoothed.state_dict())
    batch = create_batch(3, 4)
    assert compute_loss(unsmoothed.eval(), batch) == compute_loss(smoothed.eval(), batch)
    assert compute_loss(unsmoothed.train(), batch) != compute_loss(smoothed.train(), batch)


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_equal_finite_differences(family: str):
    model = build_model(
        model=family, network={"width": 4, "embedding": 3, "dropout": 0.0}, transformer={"heads": 2, "hidden": 5}
    )
    model = model.double().eval()
    batch = create_batch(2, 4)
    parameters = dict(model.named_parameters())

    def run_with_parameters(*values: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(model, dict(zip(parameters, values)), (batch,))[0].total

    values = tuple(parameter.detach().clone().requires_grad_() for parameter in parameters.values())
    assert torch.autograd.gradcheck(run_with_parameters, values, fast_mode=True)


def test_activations_can_be_recorded_by_name(opinions: str):
    task, settings = prepare_task(opinions, classify={"pooling": "attention"})
    model = task.build(settings)
    with record(model) as recording:
        model.eval()(next(task.batches(settings).epoch(0)))
    assert {"embedding.vectors", "head.pooling.weights", "head.pooled", "head.scores"} <= set(recording)
    assert any(name.endswith("lstm.forget") for name in recording)


def test_scoring_truncates_long_rows_and_returns_each_row_once():
    model = build_model()
    rows = [np.arange(2, 2 + length) % 20 for length in (5, 30, 1, 0)]
    by_row = {
        int(index): row
        for indices, log_probabilities in predict_log_probabilities(model, rows, 10)
        for index, row in zip(indices, log_probabilities)
    }
    assert sorted(by_row) == [0, 1, 2, 3]
    (_, truncated_row), *_ = predict_log_probabilities(model, [rows[1][:10]], 10)
    assert by_row[1] == pytest.approx(truncated_row[0], abs=1e-6)


def test_the_objective_is_accuracy_then_loss_or_macro_f1_with_balanced_weights(opinions: str):
    task, settings = prepare_task(opinions)
    metrics = task.validate(task.build(settings), settings, World())
    assert 0 < metrics["objective"] - (1 - metrics["accuracy"]) < 1 / len(task.token_ids["valid"])
    settings.classify.class_weights = "balanced"
    metrics = task.validate(task.build(settings), settings, World())
    assert 0 < metrics["objective"] - (1 - metrics["macro_f1"]) < 1 / len(task.token_ids["valid"])


class RecordingProcess:
    """One of two processes, which records the numbers that it would add to those of the other."""

    def __init__(self, rank: int):
        self.rank, self.size, self.recorded = rank, 2, []

    def sum(self, *numbers: float) -> list[float]:
        self.recorded.append(numbers)
        return list(numbers)


def test_two_processes_validate_each_text_once(opinions: str):
    task, settings = prepare_task(opinions)
    model, processes = task.build(settings), [RecordingProcess(0), RecordingProcess(1)]
    for process in processes:
        task.validate(model, settings, process)
    sums = np.array([process.recorded[0] for process in processes]).sum(0)
    of_one_process = task.validate(model, settings, World())
    assert sums[1:].sum() == len(task.token_ids["valid"])
    assert sums[0] / sums[1:].sum() == pytest.approx(of_one_process["loss"])


def test_texts_without_spaces_are_tokenised_into_characters(tmp_path: Path):
    lines = [f"{'好看的电影真不错啊' * 3}{n}\ty\n{'难看的电影太长了吧' * 3}{n}\tn" for n in range(20)]
    (tmp_path / "a.tsv").write_text("\n".join(lines), encoding="utf-8")
    settings, messages = Settings(task="classify"), []
    task = Classify.prepare(str(tmp_path / "a.tsv"), settings, log=messages.append)
    assert settings.text.tokenizer == task.preprocessor.tokenizer.kind == "characters"
    assert "hardly any spaces" in messages[0]


def test_an_existing_preprocessor_is_used(opinions: str):
    task, _ = prepare_task(opinions)
    vocabulary = task.preprocessor.tokenizer
    new_task = Classify.prepare(opinions, Settings(task="classify"), Preprocessor({"text": vocabulary}))
    assert new_task.preprocessor.tokenizer is vocabulary
    assert new_task.labels == ["n", "y"]
    with pytest.raises(DataError, match="the label 'n' does not occur"):
        Classify.prepare(
            opinions, Settings(task="classify"), Preprocessor({"text": vocabulary}, {"labels": ["y", "z"]})
        )


def test_an_ngram_cannot_classify(opinions: str):
    task, settings = prepare_task(opinions)
    settings.model = "ngram"
    with pytest.raises(UsageError, match="cannot do the task classify"):
        task.check(settings)


def test_an_invalid_number_of_heads_is_rejected_before_anything_is_written(opinions: str):
    task, settings = prepare_task(opinions, model="transformer", transformer={"heads": 5})
    with pytest.raises(UsageError, match="multiple of the heads"):
        task.check(settings)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("cuda", [False, True])
def test_every_setting_gets_a_default(opinions: str, family: str, cuda: bool):
    user_settings = parse_settings({"task": "classify", "model": family})
    task = Classify.prepare(opinions, user_settings)
    settings = resolve_settings(task, user_settings, cuda)
    values = [settings.network.width, settings.network.depth, settings.network.embedding, settings.network.dropout,
                 settings.training.batch_size, settings.training.learning_rate, settings.training.weight_decay,
                 settings.data.max_length, settings.data.max_tokens, settings.classify.pooling,
                 settings.classify.word_dropout, settings.classify.label_smoothing]  # fmt: skip
    assert None not in values
    if family == "transformer":
        assert settings.network.width % settings.transformer.heads == 0  # type: ignore[operator]
    if family in ("rnn", "gru", "lstm", "attentive-rnn"):
        assert settings.recurrent.bidirectional
    task.check(settings)


def test_check_counts_texts_tokens_and_unknown_words(opinions: str):
    task, _ = prepare_task(opinions)
    counts = task.count_data()
    assert list(counts["train"]) == ["texts", "tokens", "longest", "unknown"]
    assert [counts[split]["texts"] for split in ("train", "valid", "test")] == [270, 15, 15]
    assert "2 labels" in task.describe_data()[1]


def test_asking_for_more_labels_than_exist_shows_all():
    assert (
        format_prediction("x", {"a": 0.7, "b": 0.3}, InferenceOptions(top=9).top, True).text == "a  0.700    b  0.300"
    )


def test_a_prediction_says_if_all_words_are_unknown(trained_model: TrainedModel):
    known, unknown, empty_text = trained_model.predict(["good film", "xyzzy plugh", ""])
    assert "nothing_known" not in known.values
    assert unknown.values["nothing_known"]
    assert empty_text.values["nothing_known"]


def test_a_run_of_an_earlier_version_keeps_its_split(opinions: str, tmp_path: Path):
    """Its settings do not say how labels are held out: at random."""
    settings = {"classify": {"stratify": False}, "network": {"width": 8}}
    train(opinions, task="classify", model="gru", budget="1-epochs", out=tmp_path / "run", settings=settings)
    config = tmp_path / "run" / "config.yaml"
    assert "  stratify: false\n" in config.read_text()
    config.write_text(config.read_text().replace("  stratify: false\n", ""))
    run = Run.open(tmp_path / "run")
    assert open_task(run).fingerprint == run.metadata.fingerprint
    assert load_run(tmp_path / "run").evaluate(opinions).data.endswith("the test split")
    assert "examples are held out at random" in run.metadata.split_rule


def test_a_new_run_is_stratified_and_recognises_its_data(opinions: str, tmp_path: Path):
    run = train(
        opinions,
        task="classify",
        model="gru",
        budget="1-epochs",
        out=tmp_path / "run",
        settings={"network": {"width": 8}},
    )
    assert run.settings.classify.stratify
    assert "examples of each label are held out" in run.run.metadata.split_rule
    assert open_task(Run.open(tmp_path / "run")).fingerprint == run.run.metadata.fingerprint
    assert run.evaluate(opinions).data.endswith("the test split")


def test_a_line_break_in_a_label_adds_no_line():
    prediction = format_prediction("x", {"a\nerror: b": 0.75, "c": 0.25}, 2, True)
    assert prediction.text == "a↵error: b  0.750    c  0.250"
    assert prediction.values["label"] == "a\nerror: b"


def build_classifier(**classify) -> tuple[Classifier, TextBatch]:
    values = {"model": "gru", **SMALL, "network": {"width": 12, "embedding": 8, "dropout": 0.0},
              "classify": {"word_dropout": 0.0, "label_smoothing": 0.1, **classify}}  # fmt: skip
    torch.manual_seed(0)
    model = Classifier(ResolvedSettings.model_validate(values), 20, 3, unknown=0)
    token_ids = [np.array([4, 5, 6]), np.array([7, 8])]
    return model.train(), collate(token_ids, np.array([0, 2]), np.arange(2))


def test_r_drop_without_dropout_is_the_ordinary_loss():
    (plain, batch), (twice, _) = build_classifier(), build_classifier(r_drop=4.0)
    losses = [model(batch)[0] for model in (plain, twice)]
    assert losses[0].count == losses[1].count == 2
    assert float(losses[1].total.detach()) == pytest.approx(float(losses[0].total.detach()), rel=1e-6)


def test_r_drop_equals_its_equation():
    p, q = np.array([[0.5, 0.5], [0.2, 0.8]]), np.array([[0.9, 0.1], [0.3, 0.7]])
    divergence = (p * np.log(p / q) + q * np.log(q / p)).sum()
    losses = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
    loss = r_drop(losses, torch.from_numpy(np.log(np.concatenate([p, q]))), 3.0)
    assert float(loss.total) == 5.0, "the reported loss has no divergence in it"
    assert float(loss.objective) == pytest.approx(5.0 + 3.0 / 4 * divergence)
    assert loss.count == 2
    dropped, batch = build_classifier(r_drop=4.0)
    dropped.input_dropout.p = 0.5
    ordinary, _ = build_classifier()
    ordinary.input_dropout.p = 0.5
    torch.manual_seed(1)
    with_divergence = float(dropped(batch)[0].objective.detach())
    torch.manual_seed(1)
    doubled = TextBatch(batch.ids.repeat(2, 1), batch.lengths.repeat(2), batch.labels.repeat(2))
    assert with_divergence > float(ordinary(doubled)[0].total.detach()) / 2, "the two passes have different masks"


def build_ngram_classifier(**classify) -> tuple[Classifier, TextBatch]:
    """Returns a classifier whose n-grams have random weights and ratios other than 0."""
    model, batch = build_classifier(ngrams=2, ngram_buckets=64, **classify)
    torch.nn.init.normal_(model.ngrams.weight)
    model.ngrams.count_ratios([np.array([4, 5, 6]), np.array([7, 8])], np.array([0, 2]))
    return model, batch


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_network_and_ngrams_have_their_own_losses_and_one_prediction(smoothing: float):
    model, batch = build_ngram_classifier(label_smoothing=smoothing)
    network, ngrams = model.compute_scores_by_part(batch.ids, batch.lengths)
    losses = [
        F.cross_entropy(scores, batch.labels, reduction="sum", label_smoothing=smoothing).item()
        for scores in (network, ngrams)
    ]
    assert model(batch)[0].total.item() == pytest.approx(sum(losses) / 2)
    expected = F.cross_entropy((network + ngrams) / 2, batch.labels, reduction="sum").item()
    assert model.eval()(batch)[0].total.item() == pytest.approx(expected)
    torch.testing.assert_close(model.scores(batch.ids, batch.lengths), (network + ngrams) / 2)


def test_r_drop_with_ngrams_and_without_dropout_is_the_ordinary_loss():
    ngrams = {"ngrams": 2, "ngram_buckets": 64}
    (plain, batch), (twice, _) = build_classifier(**ngrams), build_classifier(**ngrams, r_drop=4.0)
    assert twice(batch)[0].objective.item() == pytest.approx(plain(batch)[0].objective.item(), rel=1e-6)


def test_r_drop_compares_the_mean_scores_of_network_and_ngrams():
    model, batch = build_ngram_classifier(r_drop=4.0, word_dropout=0.5)
    torch.manual_seed(1)
    loss = model(batch)[0]
    torch.manual_seed(1)  # the same words are dropped
    parts = model.compute_scores_by_part(batch.ids.repeat(2, 1), batch.lengths.repeat(2))
    labels = batch.labels.repeat(2)
    nats = sum(F.cross_entropy(scores, labels, reduction="sum", label_smoothing=0.1).item() for scores in parts)
    assert loss.total.item() == pytest.approx(nats / 2 / 2)

    def compute_divergence(scores: torch.Tensor) -> float:
        first, second = scores.detach().double().softmax(-1).numpy().reshape(2, 2, 3)
        return float((first * np.log(first / second) + second * np.log(second / first)).sum())

    divergence = compute_divergence((parts[0] + parts[1]) / 2)
    assert loss.objective.item() == pytest.approx(nats / 4 + 4.0 / 4 * divergence, rel=1e-5)
    assert divergence > 0.1
    assert abs(compute_divergence(parts[0]) - divergence) > 0.1, "the n-grams make a difference"


def test_ngrams_of_an_untrained_classifier_predict_the_frequencies_of_the_labels():
    values = {"model": "gru", **SMALL, "classify": {"ngrams": 1}}
    counts = torch.tensor([1, 7, 1])
    model = Classifier(ResolvedSettings.model_validate(values), 20, 3, counts=counts)
    assert model.ngrams.bias.exp().tolist() == pytest.approx([2 / 12, 8 / 12, 2 / 12])
    values["classify"]["class_weights"] = "balanced"
    assert Classifier(ResolvedSettings.model_validate(values), 20, 3, counts=counts).ngrams.bias.tolist() == [0, 0, 0]


def test_a_classifier_of_bigrams_without_a_number_of_buckets_is_an_error():
    with pytest.raises(UsageError, match="need at least one bucket"):
        build_classifier(ngrams=2)


def test_ngrams_are_off_unless_set():
    assert build_classifier()[0].ngrams is None


def test_ratios_of_ngrams_are_those_of_the_truncated_training_texts(tmp_path: Path):
    path = tmp_path / "texts.tsv"
    path.write_text("".join(f"{number} good film finally\ty\n{number} bad film\tn\n" for number in range(30)))
    user_settings = parse_settings(
        {"task": "classify", "model": "gru", **SMALL, "classify": {"ngrams": 1}, "data": {"max_length": 3}}
    )
    task = Classify.prepare(str(path), user_settings)
    ratios = task.build(resolve_settings(task, user_settings)).ngrams.ratios
    tokenizer = task.preprocessor.tokenizer
    good, film, fourth = (tokenizer.encode(word).ids[0] for word in ("good", "film", "finally"))
    assert len({good, film, fourth, tokenizer.unknown}) == 4
    assert ratios[fourth].tolist() == [0, 0], "it is never among the first three tokens"
    assert ratios[good, task.labels.index("y")] > 1


def test_rules_choose_the_number_of_buckets_by_tokens_and_labels(opinions: str):
    user_settings = parse_settings({"task": "classify", "model": "gru", **SMALL, "classify": {"ngrams": 2}})
    task = Classify.prepare(opinions, user_settings)
    assert task.size().num_labels == 2
    context = build_defaults_context(task, torch.device("cpu"), 1)
    assert context.num_labels == 2
    settings, reasons = resolve(user_settings, context)
    assert 1024 < context.num_tokens <= 2048
    assert settings.classify.ngram_buckets == 2048, "one per training token, to the next power of two"
    expected = f"one or more per n-gram of the {context.num_tokens:,} training tokens"
    assert reasons["classify.ngram_buckets"] == expected
    settings, reasons = resolve(user_settings, replace(context, num_tokens=10**7, num_labels=12))
    assert settings.classify.ngram_buckets == 2**18, "2²² weights of 12 labels"
    assert reasons["classify.ngram_buckets"].startswith("12 labels: no more, to keep the file small")


def test_ratios_compare_the_texts_of_both_labels(opinions: str):
    task, settings = prepare_task(opinions, classify={"ngrams": 2})
    model = task.build(settings)
    good = task.preprocessor.tokenizer.encode("lovely").ids[0]
    assert model.ngrams.ratios[good].tolist() == pytest.approx([-x for x in model.ngrams.ratios[good].tolist()[::-1]])
    assert model.ngrams.ratios[good, task.labels.index("y")] > 1


def encode_text(trained_model: TrainedModel, text: str) -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.from_numpy(trained_model.run.preprocessor.tokenizer.encode(text).ids.astype(np.int64))
    return ids[None], torch.tensor([len(ids)])


def test_a_run_with_ngrams_is_loaded_with_them(opinions: str, tmp_path: Path):
    settings = {**SMALL, "classify": {"ngrams": 3}}
    trained_model = train(
        opinions, task="classify", model="gru", budget="3-epochs", out=tmp_path / "run", settings=settings
    )
    loaded = load_run(tmp_path / "run")
    prediction = loaded.predict("so good")
    assert prediction.values == trained_model.predict("so good").values
    answer = Classify.inspect_text(loaded.bundle, "so good").answers[0]
    assert answer.name == f"label: {prediction.values['label']}"
    with torch.no_grad():
        assert float(answer.score(loaded.model).exp()) == pytest.approx(prediction.values["probability"], rel=1e-5)
        network, _ = loaded.model.compute_scores_by_part(*encode_text(loaded, "so good"))
        assert abs(float(network.softmax(-1).max()) - prediction.values["probability"]) > 1e-3
    assert torch.equal(loaded.model.ngrams.ratios, trained_model.model.ngrams.ratios)
    assert bool((loaded.model.ngrams.ratios != 0).any())
    evaluation = loaded.evaluate(opinions)
    assert evaluation.metrics["accuracy"] == 1.0
    assert "n-grams of up to 3 tokens" in evaluation.method


@pytest.mark.parametrize(
    ("classify", "message"),
    [
        ({"ngrams": 6}, "classify.ngrams: input should be less than or equal to 5"),
        ({"ngrams": -1}, "classify.ngrams: input should be greater than or equal to 0"),
        ({"ngrams": 2, "ngram_buckets": 0}, "classify.ngram_buckets: input should be greater than or equal to 1"),
        ({"ngram_buckets": 64}, "classify.ngram_buckets has an effect with .* only"),
        ({"ngrams": 1, "ngram_buckets": 64}, "classify.ngram_buckets has an effect with .* only"),
    ],
)
def test_wrong_settings_of_ngrams_are_rejected(opinions: str, tmp_path: Path, classify: dict, message: str):
    with pytest.raises(UsageError, match=message):
        train(opinions, task="classify", model="gru", out=tmp_path / "run", settings={"classify": classify})
