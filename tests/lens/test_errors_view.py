"""The view of errors: each task through a small run, with the numbers of its own evaluation."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import seqwise
from seqwise.errors import UsageError
from seqwise.lens.error_figures import shorten_names
from seqwise.lens.errors import errors
from seqwise.tasks.tag.errors import TaggedSentence, build_span_items
from seqwise.tasks.training_summary import hash_texts

RUNS = [
    ("language", "lstm"),
    ("language", "transformer"),
    ("language", "ngram"),
    ("masked", "transformer"),
    ("masked", "gru"),
    ("classify", "gru"),
    ("tag", "lstm"),
    ("translate", "transformer"),
    ("caption", "gru"),
    ("forecast", "gru"),
]


@pytest.mark.parametrize(("task", "family"), RUNS)
def test_errors_of_every_task_agree_with_its_evaluation(small_run, task: str, family: str):
    run = small_run(task, family)
    before = {name: value.clone() for name, value in run.model.state_dict().items()}
    torch.manual_seed(5)
    state = torch.get_rng_state()
    view = errors(run)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in run.model.state_dict().items())
    assert "the valid split" in view.title
    data = view.data
    assert data["num_evaluated"] == data["num_examples"]
    evaluation = run.evaluate(run.run.metadata.data, split="valid").metrics
    names = {"accuracy": "accuracy", "F1": "span_f1", "MAE": "mae", "exact match": "exact_match"}
    metric, value = data["metric"]["name"], data["overall"]["value"]
    if metric == "loss":
        assert math.exp(value) == pytest.approx(evaluation["perplexity"], rel=1e-5)
    elif metric != "chrF":  # the mean over sentences is not that of the corpus
        assert value == pytest.approx(evaluation[names[metric]], abs=1e-6)
    for name in {*data["metrics"]} & {*evaluation}:
        assert data["metrics"][name] == pytest.approx(evaluation[name], rel=1e-4, abs=1e-6)
    assert data["slices"]
    for part in data["slices"]:
        if not math.isnan(part["low"]):
            assert part["low"] <= part["value"] + 1e-9
            assert part["value"] <= part["high"] + 1e-9
    assert len(str(view)) > 200
    assert data["metric"]["lower_is_better"] == (metric in ("loss", "MAE"))


def test_plain_tags_are_judged_word_by_word(tmp_path):
    rows = [{"tokens": ["the", "cat", "sat"], "tags": ["DET", "NOUN", "VERB"]},
            {"tokens": ["a", "dog", "ran", "off"], "tags": ["DET", "NOUN", "VERB", "PART"]}] * 30  # fmt: skip
    settings = {"network.width": 8, "network.embedding": 8, "tag.characters": 4, "device": "cpu"}
    run = seqwise.train(rows, task="tag", model="gru", budget="1-epochs", settings=settings, out=tmp_path / "run")
    data = errors(run, data=[*rows[:11], {"tokens": ["zebra", "ran"], "tags": ["NOUN", "VERB"]}]).data
    assert data["metric"]["name"] == "accuracy"
    counts = {each["name"]: each["count"] for each in data["slices"]}
    assert counts["words tagged NOUN"] == 12
    assert counts["words unseen in training"] == counts["unknown words"] == 1
    matrix = data["confusions"]["Confusion matrix: tag of each word"]
    assert int(np.trace(matrix["counts"])) / matrix["counts"].sum() == pytest.approx(data["overall"]["value"])


def test_slices_of_one_property_add_up_to_the_whole(small_run):
    view = errors(small_run("classify", "gru"))
    total = view.data["overall"]
    parts = [each for each in view.data["slices"] if each["group"] == "true label"]
    assert sum(each["count"] for each in parts) == total["count"]
    right = sum(each["count"] * each["value"] for each in parts)
    assert right == pytest.approx(total["count"] * total["value"])


def test_a_confusion_matrix_has_the_counts_of_the_evaluation(small_run):
    run = small_run("classify", "gru")
    confusion = errors(run).data["confusions"]["Confusion matrix"]
    tables = run.evaluate(run.run.metadata.data, split="valid").tables
    expected = next(table for table in tables if table.title.startswith("confusion"))
    assert confusion["counts"].tolist() == [list(row) for row in expected.rows.values()]


def test_the_test_split_of_the_runs_own_data_needs_the_data_named(small_run):
    run = small_run("classify", "gru")
    with pytest.raises(UsageError, match="test split"):
        errors(run, split="test")
    with pytest.raises(UsageError, match="not shown"):
        errors(run, split="all")
    assert "the test split" in errors(run, data=run.run.metadata.data, split="test").title


def test_other_data_without_splits_is_evaluated_as_a_whole(small_run):
    run = small_run("classify", "gru")
    labels = run.run.preprocessor.attributes["labels"]
    rows = [{"text": f"good film {number}", "label": labels[number % len(labels)]} for number in range(24)]
    assert errors(run, data=rows).data["num_evaluated"] == 24
    assert "the valid split" in errors(run, data=run.run.metadata.data).title


def test_at_most_the_given_number_of_examples_is_evaluated_and_said(small_run):
    run = small_run("classify", "gru")
    view = errors(run, max_examples=3)
    assert view.data["num_evaluated"] == 3
    assert f"on 3 of {view.data['num_examples']:,} texts" in view.summary[0]
    with pytest.raises(UsageError, match="max_examples"):
        errors(run, max_examples=0)


def test_tokens_of_a_language_model_are_chosen_from_all_of_the_text(small_run):
    for family in ("transformer", "ngram"):
        run = small_run("language", family)
        view = errors(run, max_examples=200)
        assert 100 <= view.data["num_evaluated"] <= 500
        assert view.data["num_evaluated"] < view.data["num_examples"]


def test_progress_reaches_the_total(small_run):
    calls: list[tuple[int, int]] = []
    for task, family in (("language", "lstm"), ("tag", "lstm"), ("forecast", "gru"), ("translate", "transformer")):
        errors(small_run(task, family), progress=lambda done, total: calls.append((done, total)))
        assert calls[-1][0] == calls[-1][1] > 0


def test_a_plain_module_has_no_errors():
    with pytest.raises(UsageError, match="trained run"):
        errors(torch.nn.Linear(2, 2))


def test_worst_examples_are_sorted_by_loss_and_wrong(small_run):
    worst = errors(small_run("classify", "gru")).data["worst"]["Worst examples"]
    losses = [row[0] for row in worst["rows"]]
    assert losses == sorted(losses, reverse=True)
    assert all(row[1] != row[2] for row in worst["rows"])


def test_forecast_errors_have_all_lead_times_and_quantiles(small_run):
    run = small_run("forecast", "gru")
    data = errors(run).data
    leads = [each for each in data["slices"] if each["group"] == "lead time"]
    assert len(leads) == run.settings.horizon
    assert np.mean([each["value"] for each in leads]) == pytest.approx(data["overall"]["value"], rel=1e-6)
    shares = data["coverage"]["shares"]
    assert len(shares) == len(data["coverage"]["levels"])
    assert (np.diff(shares[:, 0]) >= 0).all()


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["texts of 1 to 8 tokens", "texts of 9 tokens", "texts of 10 tokens"], ["1 to 8", "9", "10"]),
        (["texts with no unknown words", "texts with 1 unknown word", "texts with 2 or more unknown words"],
         ["no", "1", "2 or more"]),
        (["spans with unseen words", "spans without unseen words"], ["with unseen words", "without unseen words"]),
        (["hour 01", "hour 02", "hour 03"], ["01", "02", "03"]),
        (["all texts"], ["all texts"]),
    ],
)  # fmt: skip
def test_names_in_figures_leave_out_what_all_have_in_common(names: list[str], short: list[str]):
    assert shorten_names(names) == short


def test_data_without_spans_has_no_slices_of_them():
    sentence = TaggedSentence(["he", "ran"], ["O", "O"], ["O", "O"], np.ones(2), 0.1)
    vocabulary = SimpleNamespace(tokenizer=SimpleNamespace(unknown=0), get_word_id=lambda word: 1)
    training = SimpleNamespace(arrays={"words": np.sort(hash_texts(["he"]))})
    items, groups = build_span_items([sentence] * 3, vocabulary, training)
    assert len(items.units) == 0
    assert not any(group.slices for group in groups)
