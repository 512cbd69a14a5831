"""The view of errors on data with nothing to compare: one example, one class, one token, all right, all wrong."""

from pathlib import Path

import pytest

from seqwise.data.corpus.store import TokenStore
from seqwise.errors import DataError
from seqwise.lens.errors import errors

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
CLASSIFY = {
    "one text": ["the film is good\tgood"],
    "one label": ["good\tgood", "bright, a joy\tgood", "dull\tgood"] * 5,
    "one token": ["good\tgood", "bad\tbad"] * 20,
    "unknown words only": ["xyz\tgood", "zyx\tbad"],
}
TAGS = {
    "one word": [["Ann B-PER"]],
    "no span": [["yes O"], ["it O", "rains O"]],
    "one word each": [["Ann B-PER"], ["yes O"], ["Oslo B-LOC"]] * 10,
    "unknown words only": [["xyz B-PER"], ["zyx O"]],
}


@pytest.mark.parametrize(("task", "family"), RUNS)
def test_one_example_is_enough(small_run, task: str, family: str):
    view = errors(small_run(task, family), max_examples=1)
    assert view.data["num_evaluated"] >= 1
    assert len(str(view)) > 100


@pytest.mark.parametrize("name", CLASSIFY)
def test_little_data_of_a_classifier(small_run, tmp_path: Path, name: str):
    data = tmp_path / "data.tsv"
    data.write_text("\n".join(CLASSIFY[name]) + "\n")
    view = errors(small_run("classify", "gru"), data=str(data), split="all")
    assert view.data["num_evaluated"] == len(CLASSIFY[name])
    assert 0 <= view.data["overall"]["value"] <= 1
    assert len(str(view)) > 100


@pytest.mark.parametrize("is_right", [True, False])
def test_a_classifier_that_is_always_or_never_right(small_run, tmp_path: Path, is_right: bool):
    run, texts = small_run("classify", "gru"), ["good", "a bore", "the film is fair", "so so"] * 8
    predicted = [run.predict(text).text.split()[0] for text in texts]
    others = {"good": "bad", "bad": "mixed", "mixed": "good"}
    lines = [f"{text}\t{label if is_right else others[label]}" for text, label in zip(texts, predicted)]
    data = tmp_path / "data.tsv"
    data.write_text("\n".join(lines) + "\n")
    view = errors(run, data=str(data), split="all")
    assert view.data["overall"]["value"] == is_right
    assert bool(view.data["worst"]["Worst examples"]["rows"]) != is_right
    assert len(str(view)) > 100


@pytest.mark.parametrize("name", TAGS)
def test_little_data_of_a_tagger(small_run, tmp_path: Path, name: str):
    data = tmp_path / "data.conll"
    data.write_text("\n".join("\n".join(sentence) + "\n" for sentence in TAGS[name]))
    view = errors(small_run("tag", "lstm"), data=str(data), split="all")
    assert view.data["num_evaluated"] == len(TAGS[name])
    assert len(str(view)) > 100


@pytest.mark.parametrize("text", ["the old", "the old gate", "xyzzy plugh xyzzy"])
@pytest.mark.parametrize("family", ["lstm", "transformer", "ngram"])
def test_few_tokens_of_a_language_model(small_run, tmp_path: Path, family: str, text: str):
    data = tmp_path / "data.txt"
    data.write_text(text)
    view = errors(small_run("language", family), data=str(data), split="all")
    assert view.data["num_evaluated"] == len(text.split()) - 1 + 1  # the end of the line is predicted, too
    assert len(str(view)) > 100


@pytest.mark.parametrize(("task", "family"), [("language", "lstm"), ("masked", "gru")])
def test_a_text_of_one_token_is_an_error(small_run, tmp_path: Path, monkeypatch, task: str, family: str):
    data = tmp_path / "data.txt"
    data.write_text("the")
    monkeypatch.setattr(TokenStore, "__len__", lambda self: 1)
    with pytest.raises(DataError, match="token"):
        errors(small_run(task, family), data=str(data), split="all")


@pytest.mark.parametrize("source", ["1\tone", "1\tone\n2\tzero zero zero"])
def test_few_pairs_of_a_translator(small_run, tmp_path: Path, source: str):
    data = tmp_path / "data.tsv"
    data.write_text(f"num\teng\n{source}\n")
    view = errors(small_run("translate", "transformer"), data=str(data), split="all")
    assert view.data["num_evaluated"] == len(source.splitlines())
    assert len(str(view)) > 100
