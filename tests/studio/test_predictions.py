"""The worker's predictions: those of `TrainedModel.predict`, with probabilities, alternatives and attention."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError
from small_runs import train_small_run

import seqwise
from seqwise.errors import SeqwiseError, UsageError
from seqwise.studio.functions.predictions import FUNCTIONS
from seqwise.studio.work.continuations import PieceStream, continue_text
from seqwise.studio.work.examples import choose_example
from seqwise.studio.work.forecasts import forecast, read_table, shorten_timestamps
from seqwise.studio.work.predictions import describe_model, predict
from seqwise.studio.work.searches import caption, translate
from seqwise.studio.work.tagging import tag
from seqwise.studio.work.text_predictions import classify, explain_label, fill_masks
from seqwise.studio.worker import Cancelled, Context
from seqwise.text.tokenizer import Tokenizer

FAMILIES = ("rnn", "gru", "lstm", "attentive-rnn", "transformer", "feedforward", "ngram")
SENTENCE = "Ann lives in New York."


class RecordingContext(Context):
    """A context that keeps what is emitted."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        super().__init__(self.events.append)

    def take_emitted(self) -> list[dict[str, Any]]:
        emitted = [event["emitted"] for event in self.events if "emitted" in event]
        self.events.clear()
        return emitted


@pytest.fixture(scope="module")
def context() -> RecordingContext:
    return RecordingContext()


@pytest.fixture(scope="module")
def language_runs(tmp_path_factory: pytest.TempPathFactory, book: Path) -> dict[str, str]:
    """A small language model of each family."""
    folder = tmp_path_factory.mktemp("families")
    for family in FAMILIES:
        train_small_run("language", family, book, folder / "data", folder / family)
    return {family: str(folder / family) for family in FAMILIES}


def generate(
    context: RecordingContext, run: str, text: str, **options: Any
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Returns what is emitted about the prompt, and the steps."""
    continue_text(context, run, text, **options)
    first, *rest = context.take_emitted()
    return first, [event["step"] for event in rest]


# Language


@pytest.mark.parametrize("family", FAMILIES)
def test_a_continuation_is_that_of_predict(family, context, language_runs):
    run, text = language_runs[family], "the cat "
    prompt, steps = generate(context, run, text, length=12, seed=3, temperature=0.8, top_k=5)
    expected = "".join(context.load(run).predict(text, seed=3, temperature=0.8, top_k=5, max_length=12))
    assert "".join(step["text"] for step in steps) == expected
    assert "".join(token["text"] for token in prompt["prompt"]) == text
    for step in steps:
        chances = [each["probability"] for each in step["alternatives"]]
        assert chances == sorted(chances, reverse=True)
        assert sum(chances) <= 1 + 1e-5
        assert step["rank"] <= 5
        (own,) = (each for each in step["alternatives"] if each["id"] == step["id"])
        assert own["text"] == step["text"]
        assert own["probability"] == pytest.approx(step["probability"], abs=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_branch_reproduces_its_prefix_and_continues_it(family, context, language_runs):
    run = language_runs[family]
    _, steps = generate(context, run, "the", length=10, greedy=True)
    _, rest = generate(context, run, "the", prefix=[step["id"] for step in steps[:4]], length=6, greedy=True)
    assert [step["id"] for step in rest] == [step["id"] for step in steps[4:]]
    assert [step["text"] for step in rest] == [step["text"] for step in steps[4:]]
    assert np.allclose([step["probability"] for step in rest], [step["probability"] for step in steps[4:]], atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_words_of_a_prompt_have_the_probability_with_which_they_would_be_generated(family, context, language_runs):
    run = language_runs[family]
    _, steps = generate(context, run, "the", length=3, greedy=True)
    text = "the" + "".join(step["text"] for step in steps)
    prompt, _ = generate(context, run, text, length=1)
    tokens = prompt["prompt"]
    assert tokens[0]["probability"] is None
    assert np.allclose([each["probability"] for each in tokens[1:]], [step["probability"] for step in steps], atol=1e-4)


def test_samples_of_a_branch_differ_from_those_of_its_parent(context, language_runs):
    run = language_runs["lstm"]
    _, steps = generate(context, run, "the", length=30, temperature=3.0)
    _, other = generate(context, run, "the", prefix=[steps[0]["id"]], length=29, temperature=3.0)
    assert [step["id"] for step in other] != [step["id"] for step in steps[1:]]


def test_unknown_words_of_a_prompt_are_named(context, language_runs):
    prompt, _ = generate(context, language_runs["lstm"], "the zyxwv the", length=1)
    assert [token["is_unknown"] for token in prompt["prompt"]] == [False, True, False]
    assert "“zyxwv”" in prompt["warnings"][0]


def test_an_empty_prompt_begins_a_line(context, language_runs):
    prompt, steps = generate(context, language_runs["lstm"], "", length=5, greedy=True)
    assert prompt["prompt"] == []
    assert "".join(step["text"] for step in steps) == "".join(
        context.load(language_runs["lstm"]).predict("", greedy=True, max_length=5)
    )


def test_generation_stops_when_the_page_no_longer_waits(context, language_runs):
    context.request = 99
    context.load(language_runs["lstm"])
    sent: list[dict[str, Any]] = []

    def send(event: dict[str, Any]) -> None:
        sent.append(event)
        if len(sent) == 4:
            context.cancelled.add(99)

    context._send = send
    with pytest.raises(Cancelled):
        continue_text(context, language_runs["lstm"], "the", length=500)
    assert len(sent) == 4
    context.cancelled.clear()
    context._send = context.events.append


@pytest.mark.parametrize("kind", ["characters", "words", "spaces", "bpe", "wordpiece"])
def test_pieces_of_all_tokenizers_spell_the_text(kind, book):
    text = "the cat sat on the mat.\nthe dog"
    tokenizer = Tokenizer.train(kind, [book.read_text(), text], 300)
    pieces, ids = PieceStream(tokenizer, [], strip_space=False), tokenizer.encode(text).ids.tolist()
    previews = [(pieces.spell(token), pieces.add(token)) for token in ids]
    assert all(preview == text for preview, text in previews)
    spelled = "".join(text for _, text in previews)
    if kind == "wordpiece":  # punctuation marks are words of their own
        spelled, text = spelled.replace(" .", "."), text.strip()
    assert spelled == text


def test_a_token_outside_the_vocabulary_is_refused(context, language_runs):
    with pytest.raises(UsageError, match="the vocabulary has"):
        continue_text(context, language_runs["lstm"], "the", prefix=[10_000_000])


# Masked, classify, tag


def test_masks_are_filled_as_by_predict(context, runs_folder):
    run, text = str(runs_folder / "fill-transformer"), "the [MASK] sat on the [MASK]"
    result = fill_masks(context, run, text)
    values = context.load(run).predict(text, top=10).values
    assert result["filled"] == values["filled"]
    assert [[each["probability"] for each in mask] for mask in result["masks"]] == [
        [each["probability"] for each in mask] for mask in values["masks"]
    ]
    assert [mask[0]["word"] for mask in result["masks"]] == [mask[0]["token"] for mask in values["masks"]]


def test_a_text_without_a_mask_says_what_to_do(context, runs_folder):
    with pytest.raises(UsageError, match=r"expected \[MASK\]"):
        fill_masks(context, str(runs_folder / "fill-transformer"), "the cat sat")


def test_a_text_with_too_many_masks_is_refused(context, runs_folder):
    with pytest.raises(UsageError, match="more than 50 masks"):
        fill_masks(context, str(runs_folder / "fill-transformer"), "[MASK] " * 51)


def test_labels_have_the_probabilities_of_predict(context, runs_folder):
    run = str(runs_folder / "labels-gru")
    result = classify(context, run, "the film is lovely zyxwv")
    ranking = context.load(run).predict("the film is lovely zyxwv").values["probabilities"]
    assert {each["name"]: each["probability"] for each in result["labels"]} == ranking
    assert sum(each["probability"] for each in result["labels"]) == pytest.approx(1)
    assert result["labels"][0]["probability"] == max(ranking.values())
    assert "“zyxwv”" in result["warnings"][0]


def test_each_word_has_a_contribution_to_a_label(context, runs_folder):
    run, text = str(runs_folder / "labels-gru"), "the film is lovely"
    result = explain_label(context, run, text, "bad")
    assert result["figure"]["tokens"] == text.split()
    assert len(result["figure"]["values"]) == 4
    assert "bad" in result["figure"]["title"]


def test_tags_are_those_of_predict_and_their_probabilities_sum_to_one(context, runs_folder):
    run = str(runs_folder / "tags-lstm")
    result = tag(context, run, SENTENCE)
    values = context.load(run).predict(SENTENCE).values
    assert [word["tag"] for word in result["words"]] == values["tags"]
    assert result["spans"] == values["spans"]
    assert result["has_spans"]
    assert set(result["types"]) == {"PER", "LOC"}
    for word, expected in zip(result["words"], values["tokens"], strict=True):
        assert SENTENCE[word["start"] : word["stop"]] == expected
        assert sum(each["probability"] for each in word["alternatives"]) == pytest.approx(1, abs=1e-4)


def test_a_tagger_of_documents_says_that_it_reads_the_text_alone(context, tmp_path):
    (tmp_path / "names.conll").write_text("Ann B-PER\nsleeps O\n\nRome B-LOC\nwaits O\n\n" * 20)
    settings = {"task": "tag", "model": "lstm", "budget": "20-tokens", "device": "cpu", "network": {"width": 8},
                "tag": {"features": 4}}  # fmt: skip
    seqwise.train(str(tmp_path / "names.conll"), settings=settings, out=tmp_path / "run")
    (warning,) = tag(context, str(tmp_path / "run"), "Ann waits")["warnings"]
    assert "This text, or each part of it, counts as one" in warning


def test_a_long_text_is_tagged_in_parts(context, runs_folder):
    run = str(runs_folder / "tags-lstm")
    limit = context.load(run).settings.data.max_length
    result = tag(context, run, "Ann met Bob . " * (limit // 4 + 1))
    assert len(result["words"]) == 4 * (limit // 4 + 1)
    assert "in 2 parts" in result["warnings"][-1]


# Translate and caption


@pytest.mark.parametrize("name", ["translate-attention", "translate-transformer"])
def test_a_translation_is_that_of_predict_with_its_attention(name, context, runs_folder):
    run = str(runs_folder / name)
    result = translate(context, run, "1 2 3", beam=4, n_best=3, length_penalty=0.6)
    values = context.load(run).predict("1 2 3", beam=4, n_best=3, length_penalty=0.6).values
    assert result["hypotheses"] == values["hypotheses"]
    assert "".join(step["text"] for step in result["steps"]).strip() == values["translation"]
    assert result["tree"]["kind"] == "Tree"
    assert result["attention"]
    for layer in result["attention"]:
        assert layer["weights"].shape == (len(result["steps"]), len(result["source"]))
        assert np.allclose(layer["weights"].sum(axis=1), 1, atol=1e-4)


def test_an_alternative_word_starts_another_search(context, runs_folder):
    run = str(runs_folder / "translate-transformer")
    first = translate(context, run, "1 2", beam=2)["steps"][0]
    other = next(each for each in first["alternatives"] if each["start"] and each["token"] != first["token"])
    result = translate(context, run, "1 2", beam=2, start=other["start"])
    assert result["hypotheses"][0]["text"].startswith(other["start"])
    assert "".join(each["text"] for each in result["prefix"]) == other["start"]
    assert len(result["attention"][0]["weights"]) == len(result["prefix"]) + len(result["steps"])


def test_a_beam_of_one_has_no_tree(context, runs_folder):
    result = translate(context, str(runs_folder / "translate-attention"), "4 5", beam=1)
    assert result["tree"] is None
    assert len(result["hypotheses"]) == 1


def test_an_image_gets_the_caption_of_predict_and_a_region_for_each_word(context, runs_folder, tmp_path):
    run, path = str(runs_folder / "captions-lstm"), tmp_path / "red.png"
    Image.fromarray(np.full((16, 16, 3), (220, 30, 30), np.uint8)).save(path)
    result = caption(context, run, upload=str(path), beam=3, n_best=2)
    values = context.load(run).predict(str(path), beam=3, n_best=2).values
    assert [each["text"] for each in result["hypotheses"]] == [each["caption"] for each in values["captions"]]
    assert len(result["figure"]["weights"]) == len(result["steps"])
    assert result["truth"] == []


def test_an_example_image_has_the_captions_of_the_data(context, runs_folder):
    results = [caption(context, str(runs_folder / "captions-lstm"), number=number) for number in (0, 1)]
    assert results[0]["name"] != results[1]["name"]
    assert all(any(colour in result["truth"][0] for colour in ("red", "green", "blue")) for result in results)


# Forecast


def test_a_forecast_from_a_table_is_that_of_predict(context, runs_folder):
    run = str(runs_folder / "series-gru")
    table = read_table(context, run, number=2)
    result = forecast(context, run, table["text"], "load", truth=table["truth"]["load"].tolist())
    expected = context.load(run).predict(table["text"]).values["series"]["load"]
    assert result["names"] == ["load", "heat"]
    assert result["point"] == expected["point"]
    names = [line["name"] for line in result["chart"]["series"]]
    assert names == ["history", "forecast", "true values"]
    assert len(result["table"]["rows"]) == 6
    band = result["chart"]["series"][1]
    assert all(low <= high for low, high in zip(band["low"], band["high"]))


def test_an_edited_value_changes_the_forecast(context, runs_folder):
    run = str(runs_folder / "series-gru")
    lines = read_table(context, run)["text"].splitlines()
    before = forecast(context, run, "\n".join(lines), "load")["point"]
    last = max(index for index, line in enumerate(lines) if line.split(",")[1])
    fields = lines[last].split(",")
    lines[last] = ",".join([fields[0], "40", *fields[2:]])
    result = forecast(context, run, "\n".join(lines), "load", before=before)
    assert result["point"] != before
    assert [row[-1] for row in result["table"]["rows"]] == pytest.approx(before, rel=1e-5)


def test_an_uploaded_table_is_read_to_its_end(context, runs_folder):
    upload = runs_folder.parent / "data" / "series-gru" / "long.csv"
    table = read_table(context, str(runs_folder / "series-gru"), upload=str(upload))
    assert table["num_steps"] == 150
    result = forecast(context, str(runs_folder / "series-gru"), table["text"], "heat")
    expected = context.load(str(runs_folder / "series-gru")).predict(str(upload)).values["series"]["heat"]
    assert result["point"] == pytest.approx(expected["point"], rel=1e-4)


def test_a_path_is_no_table(context, runs_folder):
    path = runs_folder.parent / "data" / "series-gru" / "long.csv"
    with pytest.raises(SeqwiseError) as error:
        forecast(context, str(runs_folder / "series-gru"), str(path))
    assert "header, but no row" in error.value.problem


def test_timestamps_lose_what_all_of_them_share():
    assert shorten_timestamps(["2024-01-01 00:00:00", "2024-01-01 01:00:00"]) == (
        ["01-01 00:00", "01-01 01:00"],
        "2024",
    )
    assert shorten_timestamps(["2023-12-31", "2024-01-01"]) == (["2023-12-31", "2024-01-01"], "")


# All tasks


@pytest.mark.parametrize("name", ["book-gru", "fill-transformer", "labels-gru", "tags-lstm", "translate-attention"])
def test_examples_are_those_of_the_validation_split(name, context, runs_folder):
    run = str(runs_folder / name)
    first, second = (choose_example(context, run, number) for number in (0, 1))
    assert first["text"] != second["text"]
    assert first["truth"]
    task = describe_model(context, run)["task"]
    assert ("[MASK]" in first["text"]) == (task == "masked")
    if task == "classify":
        assert first["truth"] in ("good", "bad", "mixed")


@pytest.mark.parametrize("name", ["captions-lstm", "series-gru"])
def test_a_path_is_no_input_of_the_page(name, context, runs_folder):
    with pytest.raises(UsageError, match="the task of the run is"):
        predict(context, str(runs_folder / name), "/etc/passwd")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("continue_text", {"text": "a" * 20_001}),
        ("continue_text", {"text": "a", "length": 501}),
        ("continue_text", {"text": "a", "temperature": 0.0}),
        ("continue_text", {"text": "a", "top_p": 1.5}),
        ("continue_text", {"text": "a", "prefix": [0] * 501}),
        ("continue_text", {"text": "a", "prefix": [-1]}),
        ("translate", {"text": "a", "beam": 21}),
        ("translate", {"text": "a", "beam": 0}),
        ("translate", {"text": "a", "length_penalty": -1.0}),
        ("caption", {"upload": "../../etc/passwd"}),
        ("read_table", {"upload": "/etc/passwd"}),
        ("forecast", {"text": "a", "other": 1}),
        ("classify", {"text": 3}),
    ],
)
def test_requests_beyond_the_limits_are_refused(name, values):
    with pytest.raises(ValidationError):
        FUNCTIONS[name].request.model_validate({"run": "runs/a", **values})


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_every_function_exists(name):
    from importlib import import_module

    module, _, function = FUNCTIONS[name].target.partition(":")
    assert callable(getattr(import_module(f"seqwise.studio.work.{module}"), function))
