"""Translators with several targets: a view shows one of them, by its own decoder, and names it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import seqwise
from seqwise.errors import UsageError
from seqwise.layers.diagnostics import LayerName, make_label
from seqwise.lens import attention, attribution, decoding, errors, gates, health
from seqwise.lens.attention_layers import list_attention
from seqwise.lens.health_checks.interior import measure_heads
from seqwise.lens.subject import inspect_split, open_subject
from seqwise.training.api import TrainedModel

NUMBERS = {"de": ["null", "eins", "zwei", "drei"], "fr": ["zéro", "un", "deux", "trois"]}


@pytest.fixture(scope="module")
def train(tmp_path_factory):
    def train(family: str, targets: str = "decoders") -> TrainedModel:
        folder = tmp_path_factory.mktemp("targets")
        lines = ["en\tde\tfr"]
        for number in range(60):
            digits = [number % 4, number // 4 % 4]
            names = [" ".join(NUMBERS[language][digit] for digit in digits) for language in ("de", "fr")]
            lines.append("\t".join([" ".join(map(str, digits)), *names]))
        (folder / "data.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        settings = {
            "network.width": 16, "network.embedding": 8, "training.batch_size": 8, "text.tokenizer": "words",
            "translate.targets": targets, "columns": "en,de,fr", "target": "de,fr", "device": "cpu",
        }  # fmt: skip
        if family == "transformer":
            settings |= {"transformer.heads": 2, "transformer.hidden": 16}
        return seqwise.train(
            str(folder / "data.tsv"),
            task="translate",
            model=family,
            budget="2k-tokens",
            settings=settings,
            out=folder / "run",
        )

    return train


@pytest.mark.parametrize(("family", "targets"), [("gru", "decoders"), ("transformer", "token")])
def test_each_target_is_shown_as_predict_translates_it(train, family: str, targets: str):
    run = train(family, targets)
    for target, other in (("de", "fr"), ("fr", "de")):
        view = decoding(run, "1 2", target=target)
        assert view.title.endswith(f"target {target}")
        assert view.data["target"] == target
        assert view.data["output"] == run.predict("1 2", options=make_options(run, target)).text
        assert {each.name.split(": ")[1] for each in inspect(run, target).answers[:-1]} <= {*NUMBERS[target]}
        assert not {*view.data["output"].split()} & {*NUMBERS[other]}
        scores = [step["log_probability"] for step in view.data["steps"]]
        shown = [float(answer.score(run.model)) for answer in inspect(run, target).answers[: len(scores)]]
        assert shown == pytest.approx(scores, abs=1e-4), "the decoder of this target"
        assert f"target {target}" in attribution(run, "1 2", target=target).title
        assert f"target {target}" in attention(run, "1 2", target=target).title
        assert any(f"into {target}," in sentence for sentence in errors(run, target=target).summary)
    assert decoding(run).data["target"] == "de"
    assert decoding(run, target="fr").data["text"] == decoding(run).data["text"], "the same example"


def make_options(run: TrainedModel, target: str):
    from seqwise.tasks.task import InferenceOptions

    return InferenceOptions(run.task.beam_search, target=target)


def inspect(run: TrainedModel, target: str):
    return open_subject(run, "1 2", target=target).inspected


def test_wrong_targets_are_explained(train, small_run):
    run = train("gru")
    for view in (decoding, attention, attribution):
        with pytest.raises(UsageError, match="does not translate into 'it'; its targets are de, fr"):
            view(run, "1 2", target="it")
    with pytest.raises(UsageError, match="does not translate into 'it'"):
        errors(run, target="it")
    with pytest.raises(UsageError, match="is no translator"):
        decoding(small_run("language", "gru"), "the old", target="de")
    with pytest.raises(UsageError, match="is no translator"):
        errors(small_run("classify", "gru"), target="de")


def test_layers_of_each_decoder_have_their_own_label(train):
    run = train("transformer")
    labels = [layer.label for layer in list_attention(open_subject(run, "1 2"))]
    assert len(labels) == len({*labels})
    assert make_label("decoders.0.decoder.layer.1.attention") == "decoder, layer 2"
    assert make_label("decoders.1.decoder.layer.0.attention") == "decoder 2, layer 1"


@pytest.mark.parametrize("family", ["gru", "transformer"])
def test_views_of_the_inside_show_the_layers_that_ran(train, family: str):
    run = train(family)
    assert len(str(health(run))) > 100
    if family == "gru":
        assert {"encoder, layer 1, forward", "decoder, layer 1"} <= {*gates(run, "1 2").data}


def test_heads_of_layers_with_equal_labels_are_not_added_up(train, monkeypatch):
    run = train("transformer", "token")
    subjects = [open_subject(run, "1 2")]
    expected = measure_heads(subjects)
    monkeypatch.setattr("seqwise.lens.attention_layers.name_layer", lambda path: LayerName(1))
    assert inspect_split(run, 2)
    values = measure_heads(subjects)
    assert [each.tolist() for each in values.values()] == [each.tolist() for each in expected.values()]
    assert all(np.isfinite(each).all() for each in values.values())


def test_a_run_with_one_target_is_named_as_before(small_run: object, tmp_path: Path):
    run = small_run("translate", "gru")  # type: ignore[operator]
    assert "target" not in decoding(run, "1 2").title
    assert decoding(run, "1 2", target="eng").data["output"] == decoding(run, "1 2").data["output"]
