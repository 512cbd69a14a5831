"""The caption task: training, evaluation, rejected settings, and independence of padding and batching."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import sacrebleu
import torch
from PIL import Image
from used_settings import keep_used

from seqwise.budget import Budget
from seqwise.config import Settings, parse_settings
from seqwise.decoding.options import BeamSearchOptions, SamplingOptions
from seqwise.errors import DataError, UsageError
from seqwise.layers.record import record
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.caption.generation import compute_metrics
from seqwise.tasks.caption.model import CaptionModel, shift_captions
from seqwise.tasks.caption.shapes import draw_shapes
from seqwise.tasks.caption.task import Caption
from seqwise.tasks.defaults import DefaultsContext, resolve
from seqwise.tasks.task import InferenceOptions, Preprocessor
from seqwise.training.distribution import World
from seqwise.training.loop import Trainer

BEAM = InferenceOptions(Caption.beam_search)
COLOURS = {"red": (220, 30, 30), "green": (30, 180, 50), "blue": (40, 60, 230)}
SMALL = {
    "network": {"width": 16, "embedding": 8, "dropout": 0.0},
    "training": {"batch_size": 8},
    "transformer": {"heads": 2},
}


def write_data(folder: Path, kind: str = "images") -> Path:
    """Writes 48 inputs, each of one colour; captions, clips and features have unequal lengths. Returns the folder."""
    rng, rows = np.random.RandomState(0), ["image,caption"]
    for number in range(48):
        name = list(COLOURS)[number % 3]
        shape = {"images": (8, 8, 3), "frames": (1 + number % 4, 8, 8, 3), "features": (1 + number % 4, 3)}[kind]
        values = np.clip(np.array(COLOURS[name]) + rng.randint(-20, 20, shape), 0, 255)
        if kind == "images":
            Image.fromarray(values.astype(np.uint8)).save(folder / f"{number}.png")
        else:
            np.save(folder / f"{number}.npy", values.astype(np.uint8) if kind == "frames" else values / 255 - 0.5)
        rows.append(f"{number},{name}")
        if number % 2:
            rows.append(f"{number},a square of {name} paint .")
    (folder / "captions.csv").write_text("\n".join(rows) + "\n")
    return folder


def prepare_task(data: Path | str, model: str = "gru", log=lambda line: None, **overrides) -> tuple[Caption, Settings]:
    settings = keep_used({"task": "caption", "model": model, "budget": "20-epochs", **SMALL, **overrides})
    task = Caption.prepare(str(data), settings, log=log)
    size = task.size()
    context = DefaultsContext(
        size.num_tokens, size.vocabulary_size, False, 2, 1, False, size.num_examples, size.max_length
    )
    return task, resolve(settings, context)[0]


@pytest.fixture(scope="module")
def images(tmp_path_factory) -> Path:
    return write_data(tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="module")
def trained_task(images: Path) -> tuple[Caption, Settings, CaptionModel]:
    task, settings = prepare_task(images, training={"batch_size": 8, "learning_rate": 0.01, "validate_every": 1000})
    torch.manual_seed(0)
    model = task.build(settings)
    trainer = Trainer(model, task.batches(settings), settings.training, Budget.parse("15-epochs"), None, 0)
    losses = [step.loss for step in trainer.steps()]
    assert losses[-1] < 0.5 < losses[0]
    return task, settings, model


# Training and inference


def test_a_trained_model_is_evaluated_against_all_captions(trained_task, images: Path):
    task, settings, model = trained_task
    evaluation = Caption.evaluate(task.bundle(model, settings), str(images), None, BEAM)
    assert evaluation.metrics["exact_match"] == 1.0
    assert evaluation.metrics["images"] == len(task.splits.parts["test"])
    assert evaluation.data.endswith("the test split")
    assert "sacreBLEU" in evaluation.definitions["bleu"]
    all_splits = Caption.evaluate(task.bundle(model, settings), str(images), "all", BEAM)
    assert all_splits.metrics["images"] == 48
    assert all_splits.metrics["exact_match"] > 0.95
    assert all_splits.metrics["distinct"] == pytest.approx(3 / 48, abs=0.001)


def test_the_captions_of_an_evaluation_can_be_written(trained_task, images: Path, tmp_path: Path):
    task, settings, model = trained_task
    options = InferenceOptions(BeamSearchOptions(beam=2), out=tmp_path / "captions.tsv")
    evaluation = Caption.evaluate(task.bundle(model, settings), str(images), "test", options)
    head, *lines = (line.split("\t") for line in (tmp_path / "captions.tsv").read_text().splitlines())
    assert head == ["input", "expected", "predicted"]
    examples = {Path(example.image).stem: example for example in task.splits.parts["test"]}
    assert [Path(name).stem for name, _, _ in lines] == list(examples)
    num_correct = sum(text.replace(".", " .") in examples[Path(name).stem].captions for name, _, text in lines)
    assert evaluation.metrics["exact_match"] == pytest.approx(num_correct / len(lines))
    with pytest.raises(UsageError, match="its folder does not exist"):
        Caption.evaluate(
            task.bundle(model, settings), "not read", None, InferenceOptions(out=tmp_path / "no" / "a.tsv")
        )


def test_captions_come_in_the_order_of_the_inputs(trained_task, images: Path):
    task, settings, model = trained_task
    names = [str(images / f"{number}.png") for number in (5, 0, 1, 3)]
    predictions = list(Caption.predict(task.bundle(model, settings), names, BEAM))
    assert [prediction.values["image"] for prediction in predictions] == names
    assert [next(c for c in COLOURS if c in p.values["caption"]) for p in predictions] == [
        "blue",
        "red",
        "green",
        "red",
    ]
    assert predictions[0].text == f"{names[0]}\t{predictions[0].values['caption']}"
    (prediction,) = Caption.predict(task.bundle(model, settings), names[:1], BEAM)
    assert prediction.text == prediction.values["caption"] == predictions[0].values["caption"]


def test_n_best_sampling_and_a_forced_start_are_applied(trained_task, images: Path):
    task, settings, model = trained_task
    name = [str(images / "1.png")]
    (n_best,) = Caption.predict(
        task.bundle(model, settings), name, InferenceOptions(BeamSearchOptions(beam=4, n_best=3))
    )
    scores = [(each["ended"], each["score"]) for each in n_best.values["captions"]]
    assert scores == sorted(scores, reverse=True)
    assert len({each["caption"] for each in n_best.values["captions"]}) == 3
    samples = [
        next(
            Caption.predict(
                task.bundle(model, settings),
                name,
                InferenceOptions(sampling=SamplingOptions(temperature=3.0), seed=seed),
            )
        )
        for seed in (1, 1, 2, 3, 4)
    ]
    assert samples[0].text == samples[1].text
    assert len({prediction.text for prediction in samples}) > 1
    (continued,) = Caption.predict(
        task.bundle(model, settings), name, InferenceOptions(BeamSearchOptions(start="a square"))
    )
    assert continued.text.startswith("a square")
    (truncated,) = Caption.predict(
        task.bundle(model, settings), name, InferenceOptions(BeamSearchOptions(start="a square"), max_length=3)
    )
    assert len(truncated.text.split()) == 3


def test_a_loaded_model_has_the_loss_of_the_saved_one(trained_task, images: Path, tmp_path: Path):
    task, settings, model = trained_task
    task.preprocessor.save(tmp_path)
    loaded = Caption.restore(settings, Preprocessor.load(tmp_path))
    loaded.load_state_dict(model.state_dict())
    batch = task.captions["valid"].collate(np.arange(3), task.max_length)
    assert torch.equal(loaded.eval()(batch)[0].total, model.eval()(batch)[0].total)


def test_validation_is_the_mean_over_all_tokens(trained_task):
    task, settings, model = trained_task
    metrics = task.validate(model, settings, World())
    with torch.no_grad():
        indices = np.arange(len(task.captions["valid"].token_ids))
        by_row = [model.eval()(task.captions["valid"].collate(np.array([n]), task.max_length))[0] for n in indices]
    expected = sum(float(loss.total) for loss in by_row) / sum(loss.count for loss in by_row)
    assert metrics["loss"] == pytest.approx(expected, rel=1e-5)
    assert metrics["exact_match"] == 1


def test_attention_weights_over_regions_can_be_recorded(trained_task, images: Path):
    task, _, model = trained_task
    with record(model, "*") as activations, torch.no_grad():
        model.eval()(task.captions["valid"].collate(np.arange(2), task.max_length))
    assert activations["encoder.regions"].shape[:2] == (2, 16)
    weights = [name for name in activations if name.endswith("weights") and activations[name].shape[-1] == 16]
    assert len(weights) == 1
    assert torch.allclose(activations[weights[0]].sum(-1), torch.ones(()), atol=1e-5)


# Batches


@pytest.mark.parametrize("family", ["gru", "transformer"])
@pytest.mark.parametrize("kind", ["images", "frames", "features"])
def test_the_loss_of_a_batch_is_the_sum_of_its_rows(tmp_path: Path, family: str, kind: str):
    """Neither the padding of captions nor that of clips and features changes anything."""
    task, settings = prepare_task(write_data(tmp_path, kind), family)
    torch.manual_seed(0)
    model = task.build(settings).eval()
    batch = task.captions["train"].collate(np.arange(6), task.max_length)
    with torch.no_grad():
        batch_loss = model(batch)[0]
        unpadded_losses = [
            model(task.captions["train"].collate(np.array([number]), task.max_length))[0] for number in range(6)
        ]
        sliced_losses = [model(batch.slice(number, number + 1))[0] for number in range(6)]
    assert batch_loss.count == batch.num_targets == sum(loss.count for loss in unpadded_losses)
    assert float(batch_loss.total) == pytest.approx(sum(float(loss.total) for loss in unpadded_losses), rel=1e-5)
    assert float(batch_loss.total) == pytest.approx(sum(float(loss.total) for loss in sliced_losses), rel=1e-5)


def test_a_batch_has_captions_between_bos_and_eos(images: Path):
    task, settings = prepare_task(images)
    batch = next(iter(task.batches(settings).epoch(0)))
    tokenizer = task.preprocessor.tokenizer
    for row in range(batch.num_sequences):
        is_target = batch.mask[row]
        assert batch.ids[row, 0] == tokenizer.id("<bos>")
        assert torch.equal(batch.ids[row][is_target][1:], batch.targets[row][is_target][:-1])
        assert batch.targets[row][is_target][-1] == tokenizer.end
        caption_index = int(batch.positions[row])
        example = task.captions["train"].examples[int(task.captions["train"].example_indices[caption_index])]
        assert tokenizer.decode(batch.targets[row][is_target][:-1]).replace(".", " .") in example.captions
        assert np.array_equal(batch.images[row].numpy(), task.splits.images.arrays[example.index])


def test_a_truncated_caption_has_no_end_token(images: Path):
    """Otherwise the model would learn to stop there."""
    settings = parse_settings({"task": "caption", "model": "gru", **SMALL, "data": {"max_length": 3}})
    task = Caption.prepare(str(images), settings)
    batch = task.captions["train"].collate(np.arange(len(task.captions["train"].token_ids)), task.max_length)
    end, has_end = task.preprocessor.tokenizer.end, []
    for row, ids in enumerate(task.captions["train"].token_ids):
        targets = batch.targets[row][batch.mask[row]].tolist()
        assert targets == [*ids.tolist(), end][:3]
        assert batch.ids[row][batch.mask[row]].tolist()[1:] == targets[:-1]
        has_end.append(end in targets)
    assert {True, False} == set(has_end)
    (complete, truncated), _, mask = shift_captions([np.array([5, 6]), np.array([7, 8, 9, 4])], 1, 2, 3)
    assert complete.tolist() == [1, 5, 6]
    assert truncated.tolist() == [1, 7, 8]
    assert mask.all()


def test_every_caption_is_in_an_epoch_once(images: Path):
    task, settings = prepare_task(images)
    indices = [int(number) for batch in task.batches(settings).epoch(1) for number in batch.positions]
    assert sorted(indices) == list(range(len(task.captions["train"].token_ids)))


def test_the_same_seed_gives_the_same_bits(images: Path):
    task, settings = prepare_task(images, caption={"shift": 2, "flip": True})
    results = []
    for _ in range(2):
        torch.manual_seed(5)
        model = task.build(settings)
        trainer = Trainer(model, task.batches(settings), settings.training, Budget.parse("200-tokens"), None, 5)
        results.append([step.loss for step in trainer.steps()])
    assert results[0] == results[1]


def test_saved_weights_are_those_of_encoder_and_decoder(images: Path):
    task, settings = prepare_task(images)
    names = task.build(settings).state_dict().keys()
    assert {name.partition(".")[0] for name in names} == {"encoder", "decoder"}


def test_an_untrained_model_predicts_by_frequency(images: Path):
    task, settings = prepare_task(images)
    end = task.preprocessor.tokenizer.end
    bias = task.build(settings).decoder.output.bias
    counts = np.bincount(np.concatenate(task.captions["train"].token_ids), minlength=len(bias))
    counts[end] = len(task.captions["train"].token_ids)
    assert torch.allclose(bias, torch.log(torch.tensor((counts + 1) / (counts.sum() + len(counts)))).float())


# Settings


def test_encoder_and_size_follow_from_the_data(tmp_path: Path):
    for kind in ("images", "frames", "features"):
        (tmp_path / kind).mkdir()
        messages: list[str] = []
        _, settings = prepare_task(write_data(tmp_path / kind, kind), log=messages.append)
        caption = settings.caption
        assert (caption.encoder, caption.frames) == (
            "features" if kind == "features" else "convolutional",
            kind == "frames",
        )
        assert caption.image_size == (0 if kind == "features" else 8)
        assert "train 43" in " ".join(messages) or "train 44" in " ".join(messages)


@pytest.mark.parametrize(
    ("overrides", "fragment"),
    [
        ({"caption": {"encoder": "features"}}, "features encoder cannot encode this data"),
        ({"caption": {"frames": True}}, "each row of the table names an image"),
    ],
)
def test_settings_that_contradict_the_data_are_rejected(images: Path, overrides: dict, fragment: str):
    with pytest.raises(UsageError, match=fragment):
        prepare_task(images, **overrides)


def test_invalid_models_are_rejected_before_training(images: Path):
    task, settings = prepare_task(images)
    settings.model = "ngram"
    with pytest.raises(UsageError, match="cannot do the task caption"):
        task.check(settings)
    task, settings = prepare_task(images, "transformer", network={"width": 15, "embedding": 15})
    with pytest.raises(UsageError):
        task.check(settings)


@pytest.mark.parametrize("encoder", ["convolutional", "patches"])
@pytest.mark.parametrize("family", ["lstm", "transformer"])
def test_lstm_and_transformer_pass_the_check_with_both_encoders(images: Path, family: str, encoder: str):
    task, settings = prepare_task(images, family, caption={"encoder": encoder, "patch": 4})
    task.check(settings)


def test_inputs_of_another_kind_than_in_training_are_rejected(trained_task, tmp_path: Path):
    task, settings, model = trained_task
    data = write_data(tmp_path, "features")
    with pytest.raises(UsageError, match="each input of this model is an image; received an array of features"):
        Caption.evaluate(task.bundle(model, settings), str(data), None, BEAM)
    with pytest.raises(DataError, match=r"0.npy: each input of this model is an image"):
        list(Caption.predict(task.bundle(model, settings), [str(data / "0.npy")], BEAM))


def test_rare_words_are_not_in_large_vocabularies(tmp_path: Path):
    rows = ["image,caption", *(f"{n % 20},common words {'rare' if n == 5 else 'again'}" for n in range(6000))]
    np.save(tmp_path / "features.npy", np.random.RandomState(0).random_sample((20, 3)))
    (tmp_path / "captions.csv").write_text("\n".join(rows))
    task, settings = prepare_task(tmp_path)
    assert settings.text.min_count == 3
    assert "rare" not in task.preprocessor.tokenizer.tokens(range(len(task.preprocessor.tokenizer)))
    task, settings = prepare_task(tmp_path, text={"min_count": 1})
    assert settings.text.min_count == 1, "a setting of the user is kept, also if it equals the default"
    assert "rare" in task.preprocessor.tokenizer.tokens(range(len(task.preprocessor.tokenizer)))


def test_a_path_is_expanded_to_inputs(tmp_path: Path, images: Path):
    settings = ResolvedSettings(caption={"encoder": "convolutional", "image_size": 8})
    inputs = Caption.read_inputs(str(images), settings)
    assert inputs is not None
    assert [Path(name).name for name in inputs][:3] == ["0.png", "1.png", "2.png"]
    assert Caption.read_inputs(str(images / "3.png"), settings) == [str(images / "3.png")]
    assert Caption.read_inputs(str(images / "captions.csv"), settings) is None
    assert Caption.read_inputs("a word", settings) is None
    with pytest.raises(DataError, match=r"contains no \.png"):
        Caption.read_inputs(str(tmp_path), settings)
    for clip in ("x", "y"):
        (tmp_path / clip).mkdir()
        Image.new("RGB", (8, 8)).save(tmp_path / clip / "0.png")
    settings.caption.frames = True
    assert Caption.read_inputs(str(tmp_path), settings) == [str(tmp_path / "x"), str(tmp_path / "y")]
    assert Caption.read_inputs(str(tmp_path / "x"), settings) == [str(tmp_path / "x")]


def test_a_builtin_image_is_named_by_its_number(trained_task, monkeypatch):
    monkeypatch.setattr("seqwise.tasks.caption.generation.draw_shapes", lambda: draw_shapes(400))
    task, settings, model = trained_task
    (prediction,) = Caption.predict(task.bundle(model, settings), ["builtin:shapes/7"], BEAM)
    assert prediction.values["image"] == "builtin:shapes/7"
    with pytest.raises(DataError, match="builtin:shapes/399"):
        list(Caption.predict(task.bundle(model, settings), ["builtin:shapes/400"], BEAM))


# Metrics, and what `seqwise check` reports


def test_scores_use_all_references():
    outputs = ["a dog runs on grass .", "two cats"]
    references = [["a dog runs on grass.", "the dog is running"], ["a bird", "2 cats", "two small cats sleep"]]
    metrics, definitions = compute_metrics(outputs, references)
    streams = [["a dog runs on grass.", "a bird"], ["the dog is running", "2 cats"], [None, "two small cats sleep"]]
    expected = sacrebleu.BLEU().corpus_score(["a dog runs on grass.", "two cats"], streams)
    assert metrics["bleu"] == pytest.approx(expected.score)
    assert metrics["exact_match"] == 0.5
    assert metrics["distinct"] == 1
    assert compute_metrics(["same", "same"], references)[0]["distinct"] == 0.5
    assert set(metrics) == set(definitions)


def test_check_counts_images_captions_and_tokens(images: Path):
    task, _ = prepare_task(images)
    counts = task.count_data()
    assert list(counts["train"]) == ["images", "captions", "tokens", "unknown"]
    assert sum(row["images"] for row in counts.values()) == 48
    assert sum(row["captions"] for row in counts.values()) == 72


def test_the_longest_caption_can_end(trained_task, images: Path):
    """A caption as long as the longest of training is followed by its end, not cut before it."""
    task, settings, model = trained_task
    assert settings.data.max_length == 7  # a square of green paint . and the end
    name = [str(images / "1.png")]
    expected = "a square of green paint."
    options = InferenceOptions(BeamSearchOptions(beam=4, n_best=4, start="a square of green paint"))
    (prediction,) = Caption.predict(task.bundle(model, settings), name, options)
    assert {each["caption"]: each["ended"] for each in prediction.values["captions"]}[expected]
