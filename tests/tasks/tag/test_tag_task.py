"""The tag task: training, batching, metrics compared with seqeval, and predictions with character offsets."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from seqeval.metrics import f1_score

import seqwise
from seqwise.callbacks import no_log
from seqwise.config import Settings, TextSettings
from seqwise.errors import DataError, UsageError
from seqwise.heads.tag import IndependentTagHead, LinearChainCRF
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.tag.model import EncodedSentences, TagVocabulary, build_word_vocabulary, normalize_word
from seqwise.tasks.tag.reader import read_tagged_data
from seqwise.tasks.tag.spans import Sentence, convert_to_bioes, extract_spans
from seqwise.tasks.tag.task import MAX_LENGTH, Tag, predict_tags
from seqwise.tasks.task import InferenceOptions, ModelBundle, Preprocessor
from seqwise.text.tokenizer import Tokenizer
from seqwise.training.distribution import World

NAMES = ["Ann", "Bob", "Carla", "Dan", "Eve"]
PLACES = ["Oslo", "New York", "Rome", "Lima"]
SMALL = {"network": {"width": 16, "embedding": 8, "dropout": 0.0, "depth": 1}, "tag": {"characters": 6}}


def create_sentences(count: int = 120) -> str:
    sentences = []
    for i in range(count):
        name, location = NAMES[i % 5], PLACES[i % 4].split()
        words = [
            (name, "B-PER"),
            ("lives", "O"),
            ("in", "O"),
            (location[0], "B-LOC"),
            *((w, "I-LOC") for w in location[1:]),
        ]
        sentences.append(words if i % 3 else [(name, "B-PER"), ("sleeps", "O"), (str(i), "O")])
    return "\n".join("".join(f"{word} {tag}\n" for word, tag in sentence) for sentence in sentences)


@pytest.fixture
def data(tmp_path: Path) -> str:
    path = tmp_path / "names.conll"
    path.write_text(create_sentences())
    return str(path)


def create_settings(**overrides: object) -> Settings:
    values = {**SMALL, "task": "tag", "data": {"max_length": 64}, "training": {"batch_size": 8}, **overrides}
    settings = Settings(**values)  # type: ignore[arg-type]
    settings.recurrent.bidirectional = True
    return settings


def prepare_task(path: str, **overrides: object) -> tuple[Tag, ResolvedSettings]:
    settings = create_settings(**overrides)
    task = Tag.prepare(path, settings)
    return task, ResolvedSettings.from_settings(settings)


@pytest.fixture(scope="module")
def trained_model(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("trained")
    (folder / "names.conll").write_text(create_sentences())
    settings = {**SMALL, "training": {"batch_size": 4, "learning_rate": 0.02}}
    return seqwise.train(folder / "names.conll", task="tag", out=folder / "run", budget="6-epochs", settings=settings)


def test_a_trained_tagger_finds_all_names(trained_model):
    result = trained_model.evaluate(trained_model.run.metadata.data)
    assert result.metrics["span_f1"] == result.metrics["token_accuracy"] == 1.0
    assert set(result.metrics) == {"span_f1", "span_precision", "span_recall", "token_accuracy", "spans", "tokens"}
    assert result.definitions.keys() == result.metrics.keys()
    assert "BIO" in result.method
    assert "Viterbi" in result.method
    assert set(result.tables[0].rows) == {"LOC", "PER"}
    assert result.data.endswith("the test split")


def test_a_prediction_has_brackets_and_character_offsets(trained_model):
    text = "Ann  lives in New York"
    (answer,) = trained_model.predict_all([text])
    assert answer.text == "[PER Ann]  lives in [LOC New York]"
    assert answer.values["tags"] == ["B-PER", "O", "O", "B-LOC", "I-LOC"]
    for span in answer.values["spans"]:
        assert text[span["start"] : span["end"]] == span["text"]
    assert [(span["type"], span["text"]) for span in answer.values["spans"]] == [("PER", "Ann"), ("LOC", "New York")]
    json.dumps(answer.values)


def test_predictions_keep_the_order_of_the_inputs(trained_model):
    inputs = ["Bob lives in Rome", "", "Eve", "Dan lives in New York", "Ann sleeps"]
    batched = [answer.text for answer in trained_model.predict_all(inputs)]
    assert batched == [next(iter(trained_model.predict_all([text]))).text for text in inputs]
    assert batched[1] == ""
    assert batched[0] == "[PER Bob] lives in [LOC Rome]"


def test_the_output_file_gives_the_same_f1_in_seqeval(trained_model, tmp_path: Path):
    path = tmp_path / "answers.txt"
    result = trained_model.evaluate(trained_model.run.metadata.data, split="all", options=InferenceOptions(out=path))
    blocks = [[line.split() for line in block.split("\n")] for block in path.read_text().strip().split("\n\n")]
    true, predicted = [[row[1] for row in block] for block in blocks], [[row[2] for row in block] for block in blocks]
    assert len(blocks) == 120
    assert result.metrics["span_f1"] == pytest.approx(f1_score(true, predicted))


def test_validation_is_shared_among_processes(data: str):
    task, settings = prepare_task(data, data={"max_length": 64, "valid_fraction": 0.4})
    torch.manual_seed(0)
    model = task.build(settings)
    of_one_process = task.validate(model, settings, World())
    sums = []

    class Process:
        def __init__(self, rank: int):
            self.rank, self.size = rank, 3

        def sum(self, *numbers: float) -> list[float]:
            sums.append(numbers)
            return list(numbers) if numbers[-1] else [*numbers[:-1], 1.0]  # never divide by 0 tokens

    for rank in range(3):
        task.validate(model, settings, Process(rank))
    totals = np.sum(sums, axis=0)
    assert totals[-1] == of_one_process["tokens"]
    assert totals[0] / totals[-1] == pytest.approx(of_one_process["loss"])
    assert of_one_process["objective"] == pytest.approx(1 - of_one_process["span_f1"])


@pytest.mark.parametrize("model", ["feedforward", "lstm", "transformer"])
@pytest.mark.parametrize("crf", [True, False])
def test_the_loss_of_a_batch_is_the_sum_of_the_losses_of_its_rows(data: str, model: str, crf: bool):
    task, settings = prepare_task(data, model=model, tag={"characters": 6, "crf": crf})
    torch.manual_seed(0)
    network = task.build(settings).double().eval()
    encoded = task._encode_split("train", 64)[1]
    batch = encoded.collate(np.arange(6))
    assert len(set(batch.lengths.tolist())) == 3
    batch_loss = network(batch)[0]
    sliced = sum(network(batch.slice(row, row + 1))[0].total for row in range(batch.num_sequences))
    without_padding = sum(network(encoded.collate(np.array([number])))[0].total for number in batch.positions.tolist())
    torch.testing.assert_close(batch_loss.total, sliced, rtol=1e-10, atol=0)
    torch.testing.assert_close(batch_loss.total, without_padding, rtol=1e-10, atol=0)
    assert batch_loss.count == batch.num_targets == int(batch.lengths.sum())
    tags = network.decode(batch)
    for row, number in enumerate(batch.positions.tolist()):
        assert torch.equal(network.decode(encoded.collate(np.array([number])))[0], tags[row, : batch.lengths[row]])


def test_the_same_seed_gives_the_same_bits(data: str):
    task, settings = prepare_task(data, network={**SMALL["network"], "dropout": 0.3})
    results = []
    for _ in range(2):
        torch.manual_seed(3)
        model = task.build(settings)
        batch = next(task.batches(settings).epoch(1))
        loss, _ = model(batch)
        loss.total.backward()
        results.append([loss.total, *(parameter.grad for parameter in model.parameters())])
    assert all(torch.equal(a, b) for a, b in zip(*results))


def test_gradients_of_the_whole_model_match_finite_differences(data: str):
    task, settings = prepare_task(
        data, model="gru", network={"width": 4, "embedding": 2, "depth": 1, "dropout": 0.0}, tag={"characters": 2}
    )
    torch.manual_seed(0)
    model = task.build(settings).double().eval()
    batch = task._encode_split("train", 64)[1].collate(np.arange(2))
    names, values = zip(*model.named_parameters())

    def run_with_parameters(*weights: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(model, dict(zip(names, weights)), (batch,))[0].total

    assert torch.autograd.gradcheck(
        run_with_parameters, tuple(value.detach().requires_grad_() for value in values), fast_mode=True
    )


def test_word_dropout_applies_in_training_only(data: str):
    task, settings = prepare_task(data)
    model = task.build(settings)
    unknown = task.vocabulary.tokenizer.unknown
    word_id = task.vocabulary.get_word_id("lives")
    model.word_dropout.zero_()[word_id] = 0.5
    ids = torch.full((100, 100), word_id)
    share = (model.drop_words(ids) == unknown).float().mean()
    assert 0.45 < share < 0.55
    assert torch.equal(model.eval().drop_words(ids), ids)


def test_word_dropout_applies_to_words_that_occur_once(tmp_path: Path):
    path = tmp_path / "a.conll"
    path.write_text("".join(f"often X\nonce{i:c} Y\n\n" for i in range(97, 117)))
    task, settings = prepare_task(str(path))
    model = task.build(settings)
    assert model.word_dropout[task.vocabulary.get_word_id("often")] == 0
    assert {model.word_dropout[task.vocabulary.get_word_id(f"once{i:c}")].item() for i in range(97, 117)} == {0.5}


def test_the_crf_is_on_for_spans_and_off_for_plain_tags(data: str, tmp_path: Path):
    task, settings = prepare_task(data)
    assert isinstance(task.build(settings).head, LinearChainCRF)
    path = tmp_path / "plain.conll"
    path.write_text(create_sentences().replace("B-", "").replace("I-", ""))
    task, settings = prepare_task(str(path))
    assert isinstance(task.build(settings).head, IndependentTagHead)
    assert task.primary_metric[0] == "token_accuracy"
    metrics = task.validate(task.build(settings), settings, World())
    assert "span_f1" not in metrics
    assert metrics["objective"] == pytest.approx(1 - metrics["token_accuracy"])


def test_all_schemes_give_the_same_targets(tmp_path: Path):
    bio = create_sentences()
    versions = {"bio": bio, "iob1": bio.replace("B-", "I-")}
    versions["bioes"] = "\n".join(
        "".join(
            f"{row.split()[0]} {tag}\n"
            for row, tag in zip(
                block.strip().split("\n"),
                convert_to_bioes(
                    extract_spans([row.split()[1] for row in block.strip().split("\n")]), block.strip().count("\n") + 1
                ),
            )
        )
        for block in bio.split("\n\n")
    )
    encoded = {}
    for scheme, text in versions.items():
        (tmp_path / f"{scheme}.conll").write_text(text)
        task, _ = prepare_task(str(tmp_path / f"{scheme}.conll"))
        assert task.splits.scheme == scheme
        encoded[scheme] = [row.tolist() for row in task._encode_split("train", 64)[1].tag_ids]
    assert encoded["bio"] == encoded["iob1"] == encoded["bioes"]


def test_a_tag_unknown_to_training_counts_as_an_error(tmp_path: Path):
    (tmp_path / "train.conll").write_text(create_sentences())
    (tmp_path / "valid.conll").write_text("Acme B-ORG\nis O\n")
    task, settings = prepare_task(str(tmp_path))
    metrics = task.validate(task.build(settings), settings, World())
    assert metrics["spans"] == 1
    assert metrics["span_recall"] == 0


def test_long_sentences_get_all_their_tags(data: str):
    task, settings = prepare_task(data)
    words = tuple(["Ann", "lives", "in", "New", "York"] * 3)
    settings.data.max_length = 4
    bundle = task.bundle(task.build(settings), settings)
    (tags,) = predict_tags(bundle, task.vocabulary, [Sentence(words, ("O",) * 15)])
    assert len(tags) == 15


def test_evaluation_rejects_tags_of_another_kind(trained_model, tmp_path: Path):
    path = tmp_path / "plain.conll"
    path.write_text(create_sentences().replace("B-", "").replace("I-", ""))
    with pytest.raises(DataError, match="trained on tags that mark spans, but this data has plain tags"):
        trained_model.evaluate(path)


def test_data_without_a_span_can_be_evaluated(trained_model, tmp_path: Path):
    path = tmp_path / "bare.conll"
    path.write_text("it O\nrains O\n\nit O\nsnows O\n")
    evaluation = trained_model.evaluate(path)
    assert evaluation.metrics["tokens"] == 4
    assert evaluation.metrics["spans"] == 0
    assert "data read as BIO" in evaluation.method


def test_an_output_path_that_cannot_be_written_is_rejected_first(trained_model, tmp_path: Path):
    with pytest.raises(UsageError, match="its folder does not exist"):
        trained_model.evaluate("not read", options=InferenceOptions(out=tmp_path / "nowhere" / "a.txt"))


def test_invalid_sizes_are_rejected_before_training(data: str):
    network = {**SMALL["network"], "width": 30}
    task, settings = prepare_task(data, model="transformer", network=network, transformer={"heads": 2})
    with pytest.raises(UsageError, match="even"):
        task.check(settings)
    task, settings = prepare_task(data, model="transformer", network=network, transformer={"heads": 3})
    task.check(settings)


@pytest.mark.parametrize(
    ("text", "fragment"),
    [({"tokenizer": "bpe"}, "received --text.tokenizer bpe"), ({"lowercase": True}, "ignores case anyway")],
)
def test_text_settings_without_effect_are_rejected(data: str, text: dict, fragment: str):
    with pytest.raises(UsageError, match=fragment):
        prepare_task(data, text=text)


def test_without_characters_words_keep_their_case(data: str):
    case_sensitive, lowercased = (
        prepare_task(data, tag={"characters": 0}, text={"lowercase": lowercase})[0].vocabulary
        for lowercase in (False, True)
    )
    assert case_sensitive.get_word_id("ann") == case_sensitive.tokenizer.unknown != case_sensitive.get_word_id("Ann")
    assert lowercased.get_word_id("ann") == lowercased.get_word_id("Ann") != lowercased.tokenizer.unknown


def test_a_word_with_whitespace_is_found_without_normalisation():
    sentence = Sentence(("'A b'", "x"), ("O", "O"))
    vocabulary = TagVocabulary(
        build_word_vocabulary([sentence], TextSettings(), normalizes=False),
        "",
        ["O", "X"],
        has_spans=False,
        normalizes=False,
    )
    assert vocabulary.get_word_id("'A b'") == vocabulary.tokenizer.id("'A_b'") != vocabulary.tokenizer.unknown


def test_the_maximum_length_is_filled_in(data: str):
    _, settings = prepare_task(data, data={})
    assert settings.data.max_length == MAX_LENGTH


def test_an_ngram_cannot_tag(data: str):
    task, settings = prepare_task(data)
    with pytest.raises(UsageError, match="cannot do the task tag"):
        task.check(settings.model_copy(update={"model": "ngram"}))


def test_an_existing_vocabulary_can_be_used(data: str):
    tokenizer = Tokenizer.train("words", ["ann lives in oslo", "Ann sleeps"])
    task = Tag.prepare(data, settings := create_settings(tag={"characters": 0}), Preprocessor({"text": tokenizer}))
    assert settings.text.vocabulary == len(tokenizer)
    assert task.vocabulary.get_word_id("Ann") == tokenizer.id("Ann") != tokenizer.id("ann")
    assert task.vocabulary.get_word_id("Oslo") == tokenizer.id("oslo")
    assert task.build(settings).embedding.weight.shape == (len(tokenizer), 8)
    with pytest.raises(UsageError, match="one token per word"):
        Tag.prepare(data, create_settings(), Preprocessor({"text": Tokenizer.train("bpe", ["ann lives"], 300)}))


def test_normalisation_affects_word_ids_but_not_characters():
    assert normalize_word("USA-1996 x") == "usa-0000_x"
    vocabulary = TagVocabulary(Tokenizer.train("spaces", ["usa 0000"]), "AUSsua", ["O", "X"], has_spans=False)
    assert vocabulary.get_word_id("USA") == vocabulary.get_word_id("usa") == vocabulary.tokenizer.id("usa")
    assert vocabulary.get_character_ids("USA") != vocabulary.get_character_ids("usa")
    assert len(vocabulary.get_character_ids("a" * 100)) == 32
    assert vocabulary.get_character_ids("é") == [1]


def test_each_distinct_word_of_a_batch_has_one_row_of_characters(data: str):
    task, settings = prepare_task(data)
    batch = next(task.batches(settings).epoch(0))
    assert len(batch.characters) == len({tuple(row.tolist()) for row in batch.characters})
    assert batch.characters[batch.character_rows].shape == (*batch.word_ids.shape, batch.characters.shape[1])
    part = batch.slice(0, 2)
    assert part.num_sequences == 2
    assert torch.equal(part.characters, batch.characters)


def test_check_counts_sentences_words_and_spans(data: str):
    task, _ = prepare_task(data)
    counts = task.count_data()
    assert list(counts["train"]) == ["sentences", "words", "spans", "unknown"]
    assert sum(row["sentences"] for row in counts.values()) == 120
    assert any("BIO, because" in sentence for sentence in task.describe_data())


def test_a_run_on_code_tokenises_its_input_as_python(tmp_path: Path):
    splits = read_tagged_data("builtin:code", Settings())
    small_splits = replace(splits, parts={split: sentences[:60] for split, sentences in splits.parts.items()})
    settings = create_settings()
    preprocessor = Tag.fit_preprocessor(small_splits, settings, no_log, Preprocessor())
    model = Tag.restore(settings, preprocessor)
    (answer,) = Tag.predict(ModelBundle(model, settings, preprocessor), ["x = f('a b')"], InferenceOptions())
    assert answer.values["tokens"] == ["x", "=", "f", "(", "'a b'", ")"]
    assert answer.text.startswith("x/")


def test_an_unknown_word_gets_the_unknown_id():
    vocabulary = TagVocabulary(Tokenizer.train("spaces", ["a b"]), "ab", ["O", "X"], has_spans=False)
    batch = EncodedSentences([Sentence(("zzz",), ("Y",))], vocabulary).collate(np.array([0]))
    assert batch.word_ids.item() == vocabulary.tokenizer.unknown
    assert batch.tag_ids.item() == 0
