"""Every task trains, evaluates and predicts on data in memory as on the same data in files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seqwise
from seqwise.environment import get_cache_folder
from seqwise.errors import DataError, UsageError
from seqwise.training.run import Run
from seqwise.training.training_run import open_training

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")

SMALL: dict[str, Any] = {"device": "cpu", "network": {"width": 8, "depth": 1}}
REVIEWS = [
    (f"{word} film number {number}", label) for number in range(30) for word, label in (("good", "yes"), ("bad", "no"))
]
FRAME = pandas.DataFrame(REVIEWS, columns=["text", "label"])


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SEQWISE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def train(data: Any, tmp_path: Path, **keywords: Any) -> Any:
    out = next(folder for number in range(99) if not (folder := tmp_path / f"run-{number}").exists())
    return seqwise.train(data, out=out, model="gru", budget=keywords.pop("budget", "300-tokens"), **SMALL, **keywords)


LABELLED = {
    "pandas": FRAME,
    "polars": polars.DataFrame({"text": [text for text, _ in REVIEWS], "label": [label for _, label in REVIEWS]}),
    "tuples": REVIEWS,
    "dictionaries": [{"text": text, "label": label} for text, label in REVIEWS],
    "generator": None,
    "array": np.array(REVIEWS),
}


@pytest.mark.parametrize("kind", LABELLED)
def test_labelled_texts_in_memory_are_the_texts_of_a_file(kind: str, tmp_path: Path):
    file = tmp_path / "reviews.csv"
    FRAME.to_csv(file, index=False)
    data = (row for row in REVIEWS) if kind == "generator" else LABELLED[kind]
    data = list(map(tuple, data)) if kind == "array" else data
    model = train(data, tmp_path, task="classify")
    of_file = train(file, tmp_path, task="classify")
    assert model.run.metadata.fingerprint == of_file.run.metadata.fingerprint
    assert model.evaluate(FRAME).metrics == of_file.evaluate(file).metrics
    assert model.evaluate(FRAME).data.endswith("the test split")
    expected = [each.text for each in of_file.predict(["good film", "bad film"])]
    texts = pandas.DataFrame({"text": ["good film", "bad film"]})
    for inputs in (texts, texts["text"], polars.from_pandas(texts), (text for text in texts["text"])):
        assert [each.text for each in model.predict(inputs)] == expected


def test_the_task_is_detected_from_the_columns_of_a_frame(tmp_path: Path):
    assert train(FRAME, tmp_path).settings.task == "classify"
    assert train(FRAME["text"], tmp_path).settings.task == "language"


def test_columns_with_other_names_are_chosen_by_name(tmp_path: Path):
    frame = FRAME.rename(columns={"text": "review", "label": "stars"}).assign(stars=lambda rows: rows["stars"] == "yes")
    model = train(frame, tmp_path, task="classify", columns=["review", "stars"])
    assert model.run.preprocessor.attributes["labels"] == ["false", "true"]
    assert len(model.predict(frame)) == len(frame)


def test_a_missing_text_is_reported_with_its_row(tmp_path: Path):
    frame = FRAME.copy()
    frame.loc[4, "text"] = None
    with pytest.raises(DataError, match=r"^row 4 of the DataFrame: the text of this example is empty") as caught:
        train(frame, tmp_path, task="classify")
    assert 'pass settings={"data.on_empty": "drop"} to drop such examples' in str(caught.value)
    model = train(frame, tmp_path, task="classify", settings={"data.on_empty": "drop"})
    splits = model.task.open_splits(model.run.metadata.data, model.settings, None)
    assert len(splits.findings.warnings["examples with an empty text, which are dropped"]) == 1


def test_a_missing_column_is_one_error_with_the_argument_that_helps(tmp_path: Path):
    frame = FRAME.rename(columns={"label": "stars"})
    with pytest.raises(DataError) as caught:
        train(frame, tmp_path, task="classify")
    assert str(caught.value).splitlines() == [
        "the DataFrame: there is no column label; there are text, stars.",
        'Rename a column, or say which ones to read: columns=["text", "stars"]',
    ]
    with pytest.raises(UsageError, match=r"^the DataFrame: the columns a, stars do not show .*\nSet task \("):
        train(frame.rename(columns={"text": "a"}), tmp_path)
    with pytest.raises(DataError, match=r'^row 1 of data\["valid"\]: the label'):
        train({"train": REVIEWS, "valid": [REVIEWS[0], ("good", "")]}, tmp_path, task="classify")


def test_messages_of_an_evaluation_name_rows_of_the_evaluated_data(tmp_path: Path):
    model = train(REVIEWS, tmp_path, task="classify", settings={"data.on_empty": "drop"})
    evaluation = model.evaluate([*REVIEWS, ("", "yes")])
    assert evaluation.data == "the list, the test split"
    assert "1 example with an empty text, which is dropped (row 60 of the list)." in evaluation.warnings
    with pytest.raises(DataError, match=r"^row 1 of the list: the label 'perhaps' does not occur in the training"):
        model.evaluate([REVIEWS[0], ("a film", "perhaps")])


def test_a_dictionary_has_the_splits(tmp_path: Path):
    model = train({"train": FRAME[:40], "validation": REVIEWS[40:50], "test": FRAME[50:]}, tmp_path, task="classify")
    assert model.run.metadata.split_rule == "splits as the files are named."
    assert sorted(path.name for path in Path(model.run.metadata.data).iterdir()) == [
        "test.jsonl", "train.jsonl", "valid.jsonl",
    ]  # fmt: skip


def test_texts_are_documents_and_a_single_text_is_split_inside(tmp_path: Path):
    model = train([text for text, _ in REVIEWS], tmp_path, task="language", budget="500-tokens")
    assert "whole documents are held out" in model.run.metadata.split_rule
    model = train([" ".join(text for text, _ in REVIEWS)], tmp_path, task="language", budget="500-tokens")
    assert "the end of the text is held out" in model.run.metadata.split_rule
    with pytest.raises(DataError, match="A str is a path"):
        train("a text\nof two lines", tmp_path)


def test_tagged_sentences_are_lists_of_words_and_tags(tmp_path: Path):
    rows = [(["Anna", "lives", "in", f"Town{n}"], ["B-PER", "O", "O", "B-LOC"]) for n in range(40)]
    model = train(rows, tmp_path, task="tag")
    assert model.evaluate(pandas.DataFrame(rows, columns=["tokens", "tags"])).metrics["span_f1"] >= 0
    assert model.predict("Anna lives here").values


def test_pairs_are_translated(tmp_path: Path):
    rows = [(f"number {n}", f"Zahl {n}") for n in range(60)]
    model = train(rows, tmp_path, task="translate")
    assert model.evaluate(rows).data.endswith("the test split")
    assert len(model.predict([source for source, _ in rows[:2]])) == 2


WAVE = np.sin(np.arange(200) / 3)
SERIES = {
    "array": WAVE,
    "list": WAVE.tolist(),
    "Series": pandas.Series(WAVE, name="wave"),
    "two series": np.stack([WAVE, -WAVE], axis=1),
    "DatetimeIndex": pandas.DataFrame({"a": WAVE}, index=pandas.date_range("2020-01-01", periods=200, freq="D")),
    "polars": polars.DataFrame({"day": pandas.date_range("2020-01-01", periods=200, freq="D").to_list(), "a": WAVE}),
}


@pytest.mark.parametrize("kind", SERIES)
def test_series_of_numbers_are_forecast(kind: str, tmp_path: Path):
    model = train(SERIES[kind], tmp_path, horizon=4, forecast={"lookback": 8})
    assert model.settings.task == "forecast"
    assert model.evaluate(SERIES[kind]).data.endswith("the test split")
    prediction = model.predict(SERIES[kind])
    assert len(prediction.values["series"]) == (2 if kind == "two series" else 1)


@pytest.mark.parametrize(
    ("frequency", "dates", "expected"),
    [("D", True, "2020-07-19"), ("D", False, "2020-07-19"), ("6h", True, "2020-02-20 00:00:00")],
)
def test_dates_are_written_without_a_time_of_day_where_all_are_at_midnight(
    frequency: str, dates: bool, expected: str, tmp_path: Path
):
    times = pandas.date_range("2020-01-01", periods=200, freq=frequency)
    frame = pandas.DataFrame({"day": times if dates else times.to_numpy(), "a": WAVE})
    model = train(frame, tmp_path, horizon=4, forecast={"lookback": 8})
    (series,) = model.predict(frame).values["series"].values()
    assert series["timestamps"][0] == expected


def test_rows_of_a_series_are_named_in_errors(tmp_path: Path):
    frame = pandas.DataFrame({"date": [f"{day:02}/01/2024" for day in range(1, 13)] * 20, "a": ["5"] * 240})
    with pytest.raises(
        DataError, match=r"^the DataFrame: .*ambiguous.*\nPass forecast=\{\"date_order\": \"day-first\"\}"
    ):
        train(frame, tmp_path, task="forecast")
    frame = pandas.DataFrame({"t": range(200), "a": WAVE.astype(object)})
    frame.loc[7, "a"] = "many"
    with pytest.raises(DataError, match=r"^row 7 of the DataFrame: column 'a': expected a number, found 'many'"):
        train(frame, tmp_path, task="forecast")


def test_images_are_arrays_or_paths(tmp_path: Path):
    from PIL import Image

    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, (16, 16, 3), dtype=np.uint8) for _ in range(24)]
    Image.fromarray(images[0]).save(tmp_path / "first.png")
    rows = [
        (tmp_path / "first.png", "a first image"),
        *((image, f"image {n % 3}") for n, image in enumerate(images[1:])),
    ]
    model = train(rows, tmp_path, task="caption", settings={"caption.image_size": 16})
    assert model.evaluate(rows).data.endswith("the test split")
    assert model.predict(images[1]).values["caption"] is not None
    assert len(model.predict([tmp_path / "first.png", images[2]])) == 2


@pytest.mark.slow
def test_word_vectors_are_trained_on_sentences():
    sentences = [text for text, _ in REVIEWS]
    vectors = seqwise.train_vectors(sentences, dim=8, min_count=1, epochs=1, threads=1, seed=1)
    from_lists_of_words = seqwise.train_vectors(
        (s.split() for s in sentences), dim=8, min_count=1, epochs=1, threads=1, seed=1
    )
    assert np.array_equal(vectors.matrix, from_lists_of_words.matrix)
    assert vectors.count("film") == len(sentences)


def test_equal_data_has_one_copy_and_a_run_can_be_resumed_from_it(tmp_path: Path, cache: Path):
    model = train(REVIEWS, tmp_path, task="classify")
    model.evaluate(FRAME)
    copies = list((cache / "data").iterdir())
    assert len(copies) == 1
    assert Path(model.run.metadata.data) == copies[0] / "data.jsonl"
    assert json.loads((copies[0] / "data.jsonl").read_text().splitlines()[0]) == {"text": REVIEWS[0][0], "label": "yes"}
    assert open_training(Run.open(model.run.folder)).ended


def test_a_resumed_run_whose_data_is_gone_says_how_to_restore_it(tmp_path: Path):
    model = train(REVIEWS, tmp_path, task="classify")
    shutil.rmtree(get_cache_folder() / "data")
    with pytest.raises(DataError, match=r"no longer in the cache\.\nPass the same data once more"):
        open_training(Run.open(model.run.folder))
    model.evaluate(REVIEWS)
    assert open_training(Run.open(model.run.folder)).ended


@pytest.mark.slow
def test_processes_of_a_comparison_read_data_in_memory(tmp_path: Path):
    result = seqwise.compare(
        FRAME, models=["rnn"], task="classify", budget="2k-tokens", seeds=1, lr_trials=1, out=tmp_path / "out", **SMALL
    )
    assert [row["name"] for row in result.leaderboard] == ["rnn"]
    assert "data.jsonl" in result.report.command


@pytest.mark.parametrize(
    ("data", "task", "message"),
    [
        ([], "classify", "received an empty list"),
        (
            [("a", "b", "c")],
            "classify",
            r"^row 0 of the list: expected tuples \(text, label\), dictionaries or a DataFrame",
        ),
        ([3], "language", "^row 0 of the list: expected texts; received int 3"),
        ([("a", "b")], None, "tuples together with task=…"),
        ({"trian": []}, "classify", r"received 'trian'\.\n.*Perhaps you meant 'train'"),
        ({"train": "a.csv"}, "classify", "received the path 'a.csv'"),
        (np.zeros((2, 2, 2)), "forecast", r"received shape \(2, 2, 2\)"),
        (["a", "b"], "forecast", "expected an array of numbers"),
        (pandas.DataFrame([[1, 2]], columns=["a", "a"]), "classify", "two columns are called 'a'"),
    ],
)
def test_data_of_a_wrong_shape_is_an_error(data: Any, task: str | None, message: str, tmp_path: Path):
    with pytest.raises(DataError, match=message):
        train(data, tmp_path, task=task)
    assert not list((get_cache_folder() / "data").glob("*"))
