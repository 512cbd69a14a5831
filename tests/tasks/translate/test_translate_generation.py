"""Using a translator: which columns are read, warnings, tokens that are never generated, sampling, batching."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from seqwise.config import Settings
from seqwise.decoding.options import BeamSearchOptions, SamplingOptions
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.task import InferenceOptions
from seqwise.tasks.translate import generation
from seqwise.tasks.translate.generation import TranslationPipeline
from seqwise.tasks.translate.task import Translate

GREEDY = InferenceOptions(BeamSearchOptions())


def write_table(path: Path, header: str = "", separator: str = ",", sides: int = 2, rows: int = 40) -> str:
    lines = [separator.join(f"{side} {n} {side}" for side in ("one", "eins", "un")[:sides]) for n in range(rows)]
    path.write_text("".join(f"{line}\n" for line in [*([header] if header else []), *lines]))
    return str(path)


def prepare_task(spec: str, **overrides):
    values = {
        "task": "translate",
        "model": "gru",
        "network": {"width": 8, "depth": 1, "embedding": 8, "dropout": 0.0},
        "recurrent": {"bidirectional": True, "concat_directions": True, "weight_dropout": 0.0},
        "text": {"tokenizer": "words"},
        "data": {"max_tokens": 512},
    }
    settings = Settings.model_validate(values | overrides)
    task = Translate.prepare(spec, settings)
    torch.manual_seed(0)
    resolved = ResolvedSettings.from_settings(settings)
    return task, task.build(resolved).eval(), resolved


@pytest.fixture
def small_model(tmp_path: Path):
    """An untrained model for sources of at most 4 tokens."""
    return prepare_task(write_table(tmp_path / "two.csv", "source,target"), data={"max_tokens": 512, "max_length": 4})


# Columns and files of the training data


def test_numbered_columns_are_found_in_evaluation(tmp_path: Path):
    data = write_table(tmp_path / "three.tsv", separator="\t", sides=3)
    task, model, settings = prepare_task(data, columns="1,2,3")
    both_targets = Translate.evaluate(task.bundle(model, settings), data, "all", GREEDY)
    assert list(both_targets.tables[0].rows) == ["target2", "target3"]
    out = tmp_path / "out"
    one_target = InferenceOptions(BeamSearchOptions(), target="target3", out=out)
    evaluation = Translate.evaluate(task.bundle(model, settings), data, "all", one_target)
    assert evaluation.metrics["chrf"] == pytest.approx(both_targets.tables[0].rows["target3"][1])
    assert evaluation.metrics["pairs"] == len(out.read_text().splitlines()) - 1 == 40


def test_a_renamed_column_is_found_in_evaluation(tmp_path: Path):
    data = write_table(tmp_path / "two.csv", "en,de")
    task, model, settings = prepare_task(data, columns="en,de", target="german")
    assert task.target_names == ["german"]
    evaluation = Translate.evaluate(task.bundle(model, settings), data, "all", GREEDY)
    assert evaluation.metrics["pairs"] == 40


def test_parallel_files_are_found_by_suffix_in_evaluation(tmp_path: Path):
    for suffix, word in (("en", "one"), ("de", "eins"), ("fr", "un")):
        (tmp_path / f"train.{suffix}").write_text("".join(f"{word} {n} {word}\n" for n in range(40)))
    task, model, settings = prepare_task(str(tmp_path), columns="en,de,fr", target="fr")
    evaluation = Translate.evaluate(task.bundle(model, settings), str(tmp_path), "all", GREEDY)
    assert (task.target_names, evaluation.metrics["pairs"]) == (["fr"], 40)


# Warnings and inputs


def test_evaluation_warns_about_dropped_pairs_and_truncated_sources(small_model, tmp_path: Path):
    task, model, settings = small_model
    settings = settings.model_copy(deep=True)
    settings.data.on_empty = "drop"
    path = tmp_path / "more.csv"
    path.write_text("source,target\none 1 one,eins 1 eins\none 2,\none 1 2 3 4 5,eins eins\n")
    evaluation = Translate.evaluate(task.bundle(model, settings), str(path), "all", GREEDY)
    assert evaluation.metrics["pairs"] == 2
    assert evaluation.warnings[:2] == (
        f"1 pair with an empty text, which is dropped ({path}:3).",
        f"1 source of more than 4 tokens, which is truncated (--data.max-length) ({path}:4).",
    )


def test_a_prediction_says_how_many_tokens_were_truncated_or_unknown(small_model):
    task, model, settings = small_model
    counts = [
        {name: answer.values[name] for name in ("cut", "unknown") if name in answer.values}
        for answer in Translate.predict(task.bundle(model, settings), ["one", "one nothing", "one 1 2 3 4 5"], GREEDY)
    ]
    assert counts == [{}, {"unknown": 1}, {"cut": 2}]


def test_inputs_are_encoded_as_in_training(tmp_path: Path):
    path = tmp_path / "blanks.csv"
    path.write_text("source,target\n" + "".join(f"  a  {n} ,b {n}\n" for n in range(40)))
    task, model, settings = prepare_task(str(path), text={"tokenizer": "characters"})
    pairs = task.splits.parts["train"]
    encoded = TranslationPipeline(task.bundle(model, settings), GREEDY).encode_sources([f" {pairs[0].source}\n"])
    assert encoded[0].tolist() == task.token_ids["train"][0][0].tolist()
    assert "a  " in pairs[0].source


# Generated tokens


def test_the_unknown_token_is_never_generated(small_model):
    task, model, settings = small_model
    unknown = task.preprocessor.tokenizers["target"].unknown
    with torch.no_grad():
        model.get_decoder(0).output.bias[unknown] += 50
    rows = TranslationPipeline(task.bundle(model, settings), GREEDY).translate_ids(task.token_ids["train"][0])
    assert not any(unknown in best[0].ids for _, (best,) in rows)


def test_samples_differ_between_batches_and_are_reproducible(small_model, monkeypatch: pytest.MonkeyPatch):
    task, model, settings = small_model
    monkeypatch.setattr(generation, "DECODER_BATCH_SIZE", {"cpu": 1})
    monkeypatch.setattr("seqwise.tasks.translate.generation.CHUNK_SIZE", 4)

    def sample(seed: int) -> list[str]:
        options = InferenceOptions(BeamSearchOptions(min_length=4), sampling=SamplingOptions(), seed=seed)
        return [each.text for each in Translate.predict(task.bundle(model, settings), ["one 1 one"] * 8, options)]

    assert len(set(sample(0))) == 8
    assert sample(0) == sample(0) != sample(1)


def test_sources_are_encoded_in_small_batches_and_searched_together(small_model, monkeypatch: pytest.MonkeyPatch):
    task, model, settings = small_model
    texts = [" ".join(["one"] * (1 + n % 4)) for n in range(10)]
    pipeline = TranslationPipeline(task.bundle(model, settings), InferenceOptions(BeamSearchOptions(beam=2)))
    in_one_batch = dict(pipeline.translate_ids(pipeline.encode_sources(texts)))
    shapes = []

    def encode(ids, lengths, encode=model.encode):
        shapes.append(tuple(ids.shape))
        return encode(ids, lengths)

    monkeypatch.setattr(model, "encode", encode)
    monkeypatch.setattr(generation, "ENCODER_BATCH_SIZE", {"cpu": 4})
    in_small_batches = dict(pipeline.translate_ids(pipeline.encode_sources(texts)))
    assert shapes == [(4, 4), (4, 2), (2, 1)]
    for number, (best,) in in_one_batch.items():
        assert in_small_batches[number][0][0].ids == best[0].ids
        assert in_small_batches[number][0][0].score == pytest.approx(best[0].score, rel=1e-4)
