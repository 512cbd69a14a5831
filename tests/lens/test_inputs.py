"""Each task gives the views its inputs as the model reads them, with answers that are the model's own."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from seqwise.errors import DataError, UsageError
from seqwise.lens.attention import find_token
from seqwise.lens.attribution import attribution
from seqwise.lens.spans import find_span
from seqwise.lens.subject import choose_example, find_typical_example, inspect_split, inspect_text
from seqwise.lens.token_features import compute_text_features
from seqwise.tasks.example_task import ExampleTask
from seqwise.tasks.forecast.inspection import name_patches
from seqwise.tasks.tag.inspection import score_tag


def check(trained, inspected) -> None:
    """Checks what holds for every task: the batch can be read, answers are scalars with gradients, names fit."""
    loss, _ = trained.model(inspected.batch)
    assert torch.isfinite(loss.total)
    assert inspected.batch.num_sequences == 1
    assert inspected.tokens
    assert inspected.answers
    module = trained.model.get_submodule(inspected.features)
    vectors: list[torch.Tensor] = []

    def replace_by_leaf(module: torch.nn.Module, inputs: object, output: torch.Tensor) -> torch.Tensor:
        vectors.append(output.detach().requires_grad_())  # the input of a forecaster has no gradient of its own
        return vectors[-1]

    hook = module.register_forward_hook(replace_by_leaf)
    score = inspected.answers[0].score(trained.model)
    hook.remove()
    assert score.ndim == 0
    assert vectors[0].shape[:2] == (1, len(inspected.tokens)), "one vector per token"
    (gradient,) = torch.autograd.grad(score, vectors[0])
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("family", ["lstm", "transformer"])
def test_answers_of_a_language_model_are_the_tokens_after_each_token(small_run, family):
    trained = small_run("language", family)
    inspected = inspect_text(trained, "the old model reads every word")
    check(trained, inspected)
    assert inspected.tokens == ["the", "old", "model", "reads", "every", "word"]
    assert inspected.targets[:-1] == inspected.tokens[1:]
    following, second, *_ = inspected.answers
    assert following.name == f"next token: {inspected.targets[-1]}"
    assert following.position == 5
    assert following.is_correct is None, "the truth is not known"
    assert second.name == "token 2: old"
    with torch.no_grad():
        total = sum(float(answer.score(trained.model)) for answer in inspected.answers[1:])
        assert float(trained.model(inspected.batch)[0].total) == pytest.approx(-total, rel=1e-4)
        scores = trained.model.next(inspected.batch.ids)[0][0]
    assert trained.run.tokenizer.token(int(scores.argmax())) == inspected.targets[-1]


@pytest.mark.parametrize("family", ["lstm", "transformer"])
def test_segments_of_a_text_are_spread_over_the_split(small_run, family, book):
    trained = small_run("language", family)
    examples = trained.task.inspect_split(trained.bundle, str(book), "valid", 5)
    assert len({example.text for example in examples}) == 5
    assert all(len(example.tokens) == 16 for example in examples), "as many tokens as the window"
    assert all(example.tokens[0] in "the a small old model every word state gate vector of in and learns reads "
               "writes forgets" for example in examples), "they begin with a line"  # fmt: skip
    for example in examples:
        check(trained, example)
        assert all(answer.is_correct is not None for answer in example.answers)


def test_an_ngram_model_has_answers_without_gradients(small_run):
    trained = small_run("language", "ngram")
    inspected = inspect_text(trained, "the old model reads")
    scores = [float(answer.score(trained.model)) for answer in inspected.answers]
    assert all(score < 0 for score in scores)
    assert float(trained.model(inspected.batch)[0].total) == pytest.approx(-sum(scores[1:]), rel=1e-6)
    assert choose_example(trained).description.startswith("tokens ")


def test_text_that_is_too_long_is_an_error_that_says_the_limit(small_run):
    with pytest.raises(UsageError, match="17 tokens; the model reads at most 16 at once"):
        inspect_text(small_run("language", "transformer"), "the " * 17)
    assert len(inspect_text(small_run("language", "lstm"), "the " * 40).tokens) == 40


def test_an_example_is_chosen_and_named(small_run):
    example = choose_example(small_run("language", "lstm"))
    assert "the valid split" in example.description


def test_empty_text_is_an_error(small_run):
    with pytest.raises(UsageError, match="the text is empty"):
        inspect_text(small_run("language", "lstm"), " \n")


@pytest.mark.parametrize("family", ["lstm", "transformer"])
def test_answers_of_a_classifier_are_its_labels(small_run, family):
    trained = small_run("classify", family)
    inspected = inspect_text(trained, "the film is dull")
    check(trained, inspected)
    assert list(inspected.tokens) == ["the", "film", "is", "dull"]
    probabilities = [math.exp(float(answer.score(trained.model))) for answer in inspected.answers]
    assert probabilities == sorted(probabilities, reverse=True)
    assert sum(probabilities) == pytest.approx(1, rel=1e-5)
    best = trained.predict("the film is dull").values["label"]
    assert inspected.answers[0].name == f"label: {best}"
    example = choose_example(trained)
    check(trained, example)
    assert [answer.is_correct for answer in example.answers].count(True) == 1


@pytest.mark.parametrize("family", ["lstm", "transformer"])
def test_answers_of_a_tagger_are_marginal_probabilities_of_tags(small_run, family):
    trained = small_run("tag", family)
    inspected = inspect_text(trained, "Ann lives")
    check(trained, inspected)
    assert list(inspected.tokens) == ["Ann", "lives"]
    assert sorted(answer.position for answer in inspected.answers) == [0, 1]
    model, batch = trained.model, inspected.batch
    num_tags = model.head.output.out_features
    totals = torch.zeros(2, num_tags)  # the probability of every pair of tags, summed by the tag of each word
    with torch.no_grad():
        for first in range(num_tags):
            for second in range(num_tags):
                pair = replace(batch, tag_ids=torch.tensor([[first, second]]))
                probability = torch.exp(-model(pair)[0].total)
                totals[0, first] += probability
                totals[1, second] += probability
        for position in range(2):
            for tag in range(num_tags):
                score = score_tag(model, batch, position, tag)
                assert float(score.exp()) == pytest.approx(float(totals[position, tag]), rel=1e-4)
    check(trained, choose_example(trained))
    with pytest.raises(UsageError, match="600 words; the model reads at most 512"):
        inspect_text(trained, "Ann " * 600)


@pytest.mark.parametrize("family", ["lstm", "transformer"])
def test_answers_of_a_translator_are_the_tokens_of_its_own_output(small_run, family):
    trained = small_run("translate", family)
    inspected = inspect_text(trained, "1 2")
    check(trained, inspected)
    assert list(inspected.tokens) == ["1", "2"]
    assert inspected.outputs[0] == "<bos>"
    assert list(inspected.outputs[1:]) == list(inspected.targets[:-1])
    total = sum(float(answer.score(trained.model)) for answer in inspected.answers)
    (hypothesis,) = trained.predict("1 2").values["hypotheses"]
    if inspected.targets[-1] == "<eos>" and hypothesis["ended"]:
        assert total == pytest.approx(hypothesis["log_probability"], rel=1e-4)
    assert float(trained.model(inspected.batch)[0].total) == pytest.approx(-total, rel=1e-4)
    check(trained, choose_example(trained))


@pytest.mark.parametrize("family", ["lstm", "transformer", "feedforward"])
def test_answers_of_a_forecaster_are_the_values_that_it_predicts(small_run, family):
    trained = small_run("forecast", family)
    table = str(trained.run.folder.parent / "data" / "long.csv")
    inspected = inspect_text(trained, table)
    check(trained, inspected)
    assert len(inspected.tokens) == (1 if family == "feedforward" else 6), "24 hours in patches of 4"
    assert inspected.tokens[-1].endswith("05:00"), "the last hour of the table"
    forecast = trained.predict(table).values["series"]["load"]
    assert [float(answer.score(trained.model)) for answer in inspected.answers] == pytest.approx(forecast["point"])
    assert inspected.answers[0].name == f"load at {forecast['timestamps'][0]}"
    assert all(answer.is_value for answer in inspected.answers)
    check(trained, choose_example(trained))


def test_patches_are_named_by_their_first_and_last_time():
    assert name_patches(["1", "2", "3", "4", "5"], 2) == ["1", "2 to 3", "4 to 5"]
    assert name_patches(["1", "2"], 1) == ["1", "2"]


@pytest.mark.parametrize("family", ["lstm", "transformer"])
def test_answers_of_a_masked_model_are_the_tokens_of_its_masks(small_run, family):
    trained = small_run("masked", family)
    text = "the [MASK] sat on [MASK]"
    inspected = inspect_text(trained, text)
    check(trained, inspected)
    expected = trained.predict(text).values["masks"]
    for answer, (best, *_) in zip(inspected.answers, expected):
        assert answer.name.endswith(f": {best['token']}")
        assert math.exp(float(answer.score(trained.model))) == pytest.approx(best["probability"], rel=1e-4)
    assert [inspected.tokens[answer.position] for answer in inspected.answers] == ["<mask>", "<mask>"]
    example = choose_example(trained)
    check(trained, example)
    assert all(answer.is_correct is not None for answer in example.answers)
    with pytest.raises(UsageError, match="expected \\[MASK\\]"):
        inspect_text(trained, "the cat")
    with pytest.raises(UsageError, match="the model reads at most 12"):
        inspect_text(trained, "the [MASK] " * 12)


@pytest.mark.parametrize("family", ["lstm", "transformer"])
def test_answers_of_a_captioner_are_the_tokens_of_its_own_caption(small_run, family):
    trained = small_run("caption", family)
    image = str(trained.run.folder.parent / "data" / "images" / "0.png")
    inspected = inspect_text(trained, image)
    check(trained, inspected)
    side = int(len(inspected.tokens) ** 0.5)
    assert inspected.tokens[0] == "(1, 1)"
    assert inspected.tokens[-1] == f"({side}, {side})"
    assert inspected.image is not None
    assert inspected.image.shape[2] == 3
    assert list(inspected.outputs[1:]) == list(inspected.targets[:-1])
    check(trained, choose_example(trained))
    with pytest.raises(UsageError, match="60 images; one is inspected"):
        inspect_text(trained, str(trained.run.folder.parent / "data" / "images"))


def test_missing_data_is_an_error_that_says_to_pass_a_text(small_run, tmp_path):
    trained = small_run("classify", "gru")
    data = Path(trained.run.metadata.data)
    data.rename(tmp_path / "moved.tsv")
    try:
        with pytest.raises(DataError, match=r"no validation example can be chosen.*\n.*Pass a text"):
            find_typical_example(trained)
        assert inspect_text(trained, "a joy").tokens, "with a text it works"
    finally:
        (tmp_path / "moved.tsv").rename(data)


def test_a_task_of_the_user_that_says_nothing_is_an_error(small_run):
    class Regress(ExampleTask):
        name = "regress"

    with pytest.raises(UsageError, match=r"'regress' cannot be inspected.*\n.*inspect_text"):
        Regress.inspect_text(small_run("classify", "gru").bundle, "1+2")
    with pytest.raises(UsageError, match=r"'regress' cannot be inspected.*\n.*inspect_examples"):
        Regress.inspect_examples(small_run("classify", "gru").bundle, None, [], [])


@pytest.mark.parametrize("task", ["language", "masked", "classify", "tag", "translate", "caption", "forecast"])
def test_reading_a_sample_reports_its_progress(small_run, task):
    reports: list[tuple[int, int]] = []
    examples = inspect_split(small_run(task, "gru"), 40, progress=lambda done, total: reports.append((done, total)))
    assert reports[-1] == (len(examples), len(examples))
    assert len(reports) == (len(examples) if task in ("language", "masked", "forecast") else -(-len(examples) // 32))


def test_a_task_without_a_progress_callback_can_be_read(small_run, monkeypatch: pytest.MonkeyPatch):
    trained = small_run("classify", "gru")
    read = trained.task.inspect_split
    monkeypatch.setattr(
        trained.task, "inspect_split", lambda bundle, data, split, count: read(bundle, data, split, count)
    )
    assert len(inspect_split(trained, 3)) == 3


@pytest.mark.parametrize(
    ("task", "text", "position"),
    [("language", "the zebra model", 1), ("masked", "the [MASK] zebra", 3), ("classify", "a zebra film", 1)],
)
def test_a_word_outside_the_vocabulary_keeps_its_spelling(small_run, task, text, position):
    tokens = inspect_text(small_run(task, "lstm"), text).tokens
    assert tokens[position] == "zebra (unk)"
    assert sum(token.endswith("(unk)") for token in tokens) == 1


def test_an_unknown_word_is_found_by_its_spelling_and_has_no_other_features():
    tokens = ["the", "Zebra (unk)", "sat"]
    assert find_token("Zebra", tokens, "query") == 1
    assert find_span(tokens, "the zebra") == (0, 2)
    features = compute_text_features(tokens, is_spaced=True)
    assert features["unknown word"].tolist() == [0, 1, 0]
    assert not features["capital"].any()
    assert not features["bracket depth"].any()


def test_the_number_of_an_answer_is_that_in_its_name(small_run):
    trained = small_run("language", "lstm")
    names = [attribution(trained, "the old model", answer=number).data["answer"] for number in (1, 2, 3)]
    assert names[0].startswith("next token: ")
    assert names[1:] == ["token 2: old", "token 3: model"]
