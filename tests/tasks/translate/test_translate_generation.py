"""Using a translator that knows little: which columns are read, what is told, what is never written, how it draws."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from seqwise.config import Settings
from seqwise.decoding.options import BeamSearchOptions, SamplingOptions
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.task import InferenceOptions
from seqwise.tasks.translate import generation
from seqwise.tasks.translate.generation import TranslationGenerator
from seqwise.tasks.translate.task import Translate

GREEDY = InferenceOptions(BeamSearchOptions())


def put(path: Path, header: str = "", mark: str = ",", sides: int = 2, rows: int = 40) -> str:
    lines = [mark.join(f"{side} {n} {side}" for side in ("one", "eins", "un")[:sides]) for n in range(rows)]
    path.write_text("".join(f"{line}\n" for line in [*([header] if header else []), *lines]))
    return str(path)


def prepared(spec: str, **more):
    values = {
        "task": "translate",
        "model": "gru",
        "network": {"width": 8, "depth": 1, "embedding": 8, "dropout": 0.0},
        "recurrent": {"bidirectional": True, "concat_directions": True, "weight_dropout": 0.0},
        "text": {"tokenizer": "words"},
        "data": {"max_tokens": 512},
    }
    chosen = Settings.model_validate(values | more)
    task = Translate.prepare(spec, chosen)
    torch.manual_seed(0)
    resolved = ResolvedSettings.from_settings(chosen)
    return task, task.build(resolved).eval(), resolved


@pytest.fixture
def small(tmp_path: Path):
    """A new model for sources of at most 4 tokens."""
    return prepared(put(tmp_path / "two.csv", "source,target"), data={"max_tokens": 512, "max_length": 4})


# The columns of the run's own data


def test_columns_without_names_are_found_again(tmp_path: Path):
    data = put(tmp_path / "three.tsv", mark="\t", sides=3)
    task, model, chosen = prepared(data, columns="1,2,3")
    both = Translate.evaluate(task.bundle(model, chosen), data, "all", GREEDY)
    assert list(both.tables[0].rows) == ["target2", "target3"]
    out = tmp_path / "out"
    one = InferenceOptions(BeamSearchOptions(), target="target3", out=out)
    found = Translate.evaluate(task.bundle(model, chosen), data, "all", one)
    assert found.metrics["chrf"] == pytest.approx(both.tables[0].rows["target3"][1])
    assert found.metrics["pairs"] == len(out.read_text().splitlines()) == 40


def test_a_column_under_another_name_is_found_again(tmp_path: Path):
    data = put(tmp_path / "two.csv", "en,de")
    task, model, chosen = prepared(data, columns="en,de", target="german")
    assert task.target_names == ["german"]
    found = Translate.evaluate(task.bundle(model, chosen), data, "all", GREEDY)
    assert found.metrics["pairs"] == 40


def test_files_are_found_again_by_their_endings(tmp_path: Path):
    for ending, word in (("en", "one"), ("de", "eins"), ("fr", "un")):
        (tmp_path / f"train.{ending}").write_text("".join(f"{word} {n} {word}\n" for n in range(40)))
    task, model, chosen = prepared(str(tmp_path), columns="en,de,fr", target="fr")
    found = Translate.evaluate(task.bundle(model, chosen), str(tmp_path), "all", GREEDY)
    assert (task.target_names, found.metrics["pairs"]) == (["fr"], 40)


# What is told


def test_evaluation_tells_what_was_dropped_and_what_was_cut(small, tmp_path: Path):
    task, model, chosen = small
    chosen = chosen.model_copy(deep=True)
    chosen.data.on_empty = "drop"
    path = tmp_path / "more.csv"
    path.write_text("source,target\none 1 one,eins 1 eins\none 2,\none 1 2 3 4 5,eins eins\n")
    found = Translate.evaluate(task.bundle(model, chosen), str(path), "all", GREEDY)
    assert found.metrics["pairs"] == 2
    assert found.warnings[:2] == (
        f"1 pairs with an empty side, which are dropped ({path}:3).",
        f"1 sources of more than 4 tokens, which are truncated (--data.max-length) ({path}:4).",
    )


def test_an_answer_tells_how_much_of_its_source_was_not_read(small):
    task, model, chosen = small
    told = [
        {name: answer.values[name] for name in ("cut", "unknown") if name in answer.values}
        for answer in Translate.predict(task.bundle(model, chosen), ["one", "one nothing", "one 1 2 3 4 5"], GREEDY)
    ]
    assert told == [{}, {"unknown": 1}, {"cut": 2}]


def test_use_reads_a_text_as_training_does(tmp_path: Path):
    path = tmp_path / "blanks.csv"
    path.write_text("source,target\n" + "".join(f"  a  {n} ,b {n}\n" for n in range(40)))
    task, model, chosen = prepared(str(path), text={"tokenizer": "characters"})
    pairs = task.splits.parts["train"]
    read = TranslationGenerator(task.bundle(model, chosen), GREEDY).encode_sources([f" {pairs[0].source}\n"])
    assert read[0].tolist() == task.sides["train"][0][0].tolist()
    assert "a  " in pairs[0].source


# What is written


def test_the_token_for_what_is_unknown_is_never_written(small):
    task, model, chosen = small
    unknown = task.preprocessor.tokenizers["target"].unknown
    with torch.no_grad():
        model.writer(0).output.bias[unknown] += 50
    rows = TranslationGenerator(task.bundle(model, chosen), GREEDY).translate_ids(task.sides["train"][0])
    assert not any(unknown in best[0].ids for _, (best,) in rows)


def test_draws_differ_between_batches_and_come_again_with_the_seed(small, monkeypatch: pytest.MonkeyPatch):
    task, model, chosen = small
    monkeypatch.setattr(generation, "SEARCH_ROWS", {"cpu": 1})
    monkeypatch.setattr("seqwise.tasks.translate.generation.CHUNK", 4)

    def drawn(seed: int) -> list[str]:
        options = InferenceOptions(BeamSearchOptions(min_length=4), sampling=SamplingOptions(), seed=seed)
        return [each.text for each in Translate.predict(task.bundle(model, chosen), ["one 1 one"] * 8, options)]

    assert len(set(drawn(0))) == 8
    assert drawn(0) == drawn(0) != drawn(1)


def test_sources_are_encoded_in_groups_and_searched_together(small, monkeypatch: pytest.MonkeyPatch):
    task, model, chosen = small
    texts = [" ".join(["one"] * (1 + n % 4)) for n in range(10)]
    generator = TranslationGenerator(task.bundle(model, chosen), InferenceOptions(BeamSearchOptions(beam=2)))
    whole = dict(generator.translate_ids(generator.encode_sources(texts)))
    shapes = []

    def encode(ids, lengths, encode=model.encode):
        shapes.append(tuple(ids.shape))
        return encode(ids, lengths)

    monkeypatch.setattr(model, "encode", encode)
    monkeypatch.setattr(generation, "ENCODER_ROWS", {"cpu": 4})
    parts = dict(generator.translate_ids(generator.encode_sources(texts)))
    assert shapes == [(4, 4), (4, 2), (2, 1)]
    for number, (best,) in whole.items():
        assert parts[number][0][0].ids == best[0].ids
        assert parts[number][0][0].score == pytest.approx(best[0].score, rel=1e-4)
