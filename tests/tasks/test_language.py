"""The language task for every family and several tokenisers: scoring, generation, checks."""

from __future__ import annotations

import math
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from used_settings import keep_used

import seqwise
from seqwise import environment
from seqwise.config import FAMILIES, Settings, parse_settings
from seqwise.data.corpus.preparation import prepare_stores
from seqwise.data.corpus.sources import open_corpus, open_unsplit
from seqwise.data.corpus.store import TokenStore
from seqwise.decoding.generate import generate
from seqwise.decoding.options import SamplingOptions
from seqwise.errors import UsageError
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.language import ngram
from seqwise.tasks.language.scoring import score_text
from seqwise.tasks.language.task import Language, generate_text
from seqwise.training.api import TrainedModel

NEURAL = [family for family in FAMILIES if family != "ngram"]
GREEDY = SamplingOptions(greedy=True)
SMALL = {
    "budget": "2k-tokens",
    "device": "cpu",
    "network": {"width": 16, "depth": 2, "dropout": 0.0},
    "data": {"window": 48},
    "training": {"batch_size": 4, "learning_rate": 0.01, "validate_every": 1000},
    "transformer": {"heads": 2},
    "recurrent": {"attention_span": 8},
}
PAIRS = [(family, "characters") for family in FAMILIES]
PAIRS += [("lstm", "words"), ("lstm", "bpe"), ("lstm", "wordpiece"), ("transformer", "bpe"), ("ngram", "words")]
SIZES = {"bpe": 300, "wordpiece": 60}


@pytest.fixture(scope="module")
def get_trained_model(book, tmp_path_factory):
    """A function that returns a run of a family and tokeniser, trained once for a few steps."""
    runs: dict[tuple[str, str], TrainedModel] = {}

    def get(family: str, tokenizer: str = "characters") -> TrainedModel:
        if (family, tokenizer) not in runs:
            text = {"tokenizer": tokenizer, "vocabulary": SIZES.get(tokenizer)}
            out = tmp_path_factory.mktemp("run") / family
            runs[family, tokenizer] = seqwise.train(book, out=out, settings=keep_used(SMALL, model=family, text=text))
        return runs[family, tokenizer]

    return get


def prepare_test_split(loaded: TrainedModel, book: Path):
    corpus = open_corpus(str(book))
    return prepare_stores(corpus, loaded.run.preprocessor.tokenizer)["test"]


# Scoring


@pytest.mark.parametrize(("family", "tokenizer"), PAIRS)
def test_metrics_of_every_family_follow_their_definitions(get_trained_model, book, family, tokenizer):
    loaded = get_trained_model(family, tokenizer)
    store = prepare_test_split(loaded, book)
    nats, tokens = score_text(loaded.model, store, loaded.settings)
    metrics = loaded.evaluate(book).metrics
    text = book.read_text()[-store.info.characters :]
    assert tokens == len(store) - 1 == metrics["tokens"]
    assert metrics["perplexity"] == pytest.approx(math.exp(nats / tokens))
    assert metrics["bits_per_character"] == pytest.approx(nats / math.log(2) / len(text))
    num_words = len(text.split()) + text.count("\n")
    assert metrics["word_perplexity"] == pytest.approx(math.exp(nats / num_words))
    assert 1 < metrics["perplexity"] < 1.2 * len(loaded.run.preprocessor.tokenizer)


@pytest.mark.parametrize("family", [family for family in NEURAL if family != "transformer"])
def test_scoring_by_segments_equals_one_long_pass(get_trained_model, book, family):
    loaded = get_trained_model(family)
    store = prepare_test_split(loaded, book)
    ids = torch.from_numpy(store.read(0, len(store)))[None]
    with torch.no_grad():
        states = loaded.model.backbone(loaded.model.embedding(ids[:, :-1]))
        expected = float(loaded.model.head.losses(states.vectors, ids[:, 1:]).sum())
    assert score_text(loaded.model, store, loaded.settings)[0] == pytest.approx(expected, rel=1e-5)


def test_the_transformer_scores_every_token_once_after_half_a_window_of_context(get_trained_model, book):
    loaded = get_trained_model("transformer")
    store, window = prepare_test_split(loaded, book), loaded.settings.data.window
    ids = torch.from_numpy(store.read(0, len(store)))
    nats, num_scored = 0.0, 0  # targets before this position are scored
    with torch.no_grad():
        for start in range(0, len(ids), window - window // 2 + 1):
            start = min(start, len(ids) - 1 - window)
            segment = ids[start : start + window + 1][None]
            states = loaded.model.backbone(loaded.model.embedding(segment[:, :-1]))
            losses = loaded.model.head.losses(states.vectors, segment[:, 1:])[0]
            nats, num_scored = nats + float(losses[num_scored - start :].sum()), start + window
            if num_scored == len(ids) - 1:
                break
    result = score_text(loaded.model, store, loaded.settings)
    assert result[1] == len(ids) - 1
    assert result[0] == pytest.approx(nats, rel=1e-5)


def test_the_ngram_model_has_the_same_score_for_any_chunk_size(get_trained_model, book, monkeypatch):
    loaded = get_trained_model("ngram", "words")
    store, model = prepare_test_split(loaded, book), loaded.model
    expected = -model.ngram.score_tokens(store.read(0, len(store)))[1:].sum()
    for chunk in (1, 7, 10**6):
        monkeypatch.setattr(ngram, "CHUNK_TOKENS", chunk)
        assert model.score(store)[0] == pytest.approx(expected)


@pytest.mark.parametrize(("family", "tied"), [*((family, True) for family in NEURAL), ("transformer", False)])
def test_an_untrained_model_predicts_approximately_by_frequency(book, family, tied):
    network = SMALL["network"] | {"tie_weights": tied}
    settings = parse_settings(SMALL | {"model": family, "network": network, "text": {"tokenizer": "characters"}})
    task = Language.prepare(str(book), settings)
    torch.manual_seed(0)
    resolved = ResolvedSettings.from_settings(settings)
    nats, tokens = score_text(task.build(resolved), task.stores["valid"], resolved)
    counts = task.stores["train"].count_tokens(len(task.tokenizer))
    valid = task.stores["valid"].read(0, len(task.stores["valid"]))[1:]
    unigram = -np.log((counts[valid] + 1) / (counts.sum() + len(counts))).mean()
    assert nats / tokens == pytest.approx(unigram, abs=0.15)
    assert nats / tokens < math.log(len(task.tokenizer)) - 0.2  # a uniform guess is worse


@pytest.mark.parametrize(
    ("positions", "norm"),
    [
        *((positions, "pre") for positions in ("sinusoidal", "learned", "rotary", "none")),
        ("sinusoidal", "post"),
        *(pytest.param(positions, "post", marks=pytest.mark.slow) for positions in ("learned", "rotary", "none")),
    ],
)
def test_a_transformer_learns_with_every_kind_of_positions_and_norm(book, tmp_path, positions, norm):
    """The small text is repetitive: after a few updates the model is much better than frequencies."""
    transformer = {"heads": 2, "positions": positions, "norm": norm}
    network = {"width": 32, "depth": 2, "embedding": 24, "dropout": 0.0}
    values = SMALL | {"model": "transformer", "transformer": transformer, "network": network, "budget": "20k-tokens"}
    values["training"] = SMALL["training"] | {"batch_size": 8, "learning_rate": 0.005}
    del values["recurrent"]  # a Transformer does not use them
    run = seqwise.train(book, out=tmp_path / "run", settings=values, text={"tokenizer": "characters"})
    assert run.evaluate(book).metrics["perplexity"] < 8


def test_the_sampled_softmax_samples_by_the_counts_of_training_tokens(book):
    network = SMALL["network"] | {"output": "sampled", "samples": 8}
    settings = parse_settings(SMALL | {"network": network, "text": {"tokenizer": "bpe", "vocabulary": 300}})
    task = Language.prepare(str(book), settings)
    expected = task.stores["train"].count_tokens(len(task.tokenizer)).clip(min=1) ** 0.75
    probabilities = task.build(ResolvedSettings.from_settings(settings)).head.output.probability.numpy()
    assert probabilities == pytest.approx(expected / expected.sum(), rel=1e-5)


def test_training_tokens_are_counted_once_and_not_by_check(book, monkeypatch):
    counted_paths = []
    original = TokenStore.count_tokens
    monkeypatch.setattr(
        TokenStore, "count_tokens", lambda self, size: counted_paths.append(self.path) or original(self, size)
    )
    settings = parse_settings(SMALL | {"data": {"window": 48, "order": "streams"}})
    task = Language.prepare(str(book), settings)
    task.check(ResolvedSettings.from_settings(settings))
    assert counted_paths == []
    task.build(ResolvedSettings.from_settings(settings))
    task.build(ResolvedSettings.from_settings(settings))
    assert len(counted_paths) == 1


@pytest.mark.parametrize("family", ["lstm", "transformer"])
def test_the_score_of_a_part_is_the_same_on_several_ranks(get_trained_model, tmp_path, family):
    text = tmp_path / "long.txt"
    text.write_text("the old gate forgets a word.\n" * 700)
    loaded = get_trained_model(family)
    store = prepare_stores(open_unsplit(text), loaded.run.preprocessor.tokenizer)["all"]
    share = 2000 / len(store)
    on_one_rank = score_text(loaded.model, store, loaded.settings, share=share)
    by_rank = [score_text(loaded.model, store, loaded.settings, rank, 4, share=share) for rank in range(4)]
    assert sum(tokens for _, tokens in by_rank) == on_one_rank[1]
    assert sum(nats for nats, _ in by_rank) == pytest.approx(on_one_rank[0], rel=1e-5)
    assert abs(on_one_rank[1] - 2000) < 16 * 48


@pytest.mark.parametrize(("family", "repeats"), [("lstm", 120), ("lstm", 1200), ("transformer", 1200)])
def test_the_loss_of_a_share_is_close_to_that_of_a_text_whose_halves_differ(
    get_trained_model, tmp_path, family, repeats
):
    text = tmp_path / "two.txt"
    text.write_text("the old gate forgets a word.\n" * repeats + "zebra xylophone quiz, jazz\n" * repeats)
    loaded = get_trained_model(family)
    store = prepare_stores(open_unsplit(text), loaded.run.preprocessor.tokenizer)["all"]
    full, *parts = (score_text(loaded.model, store, loaded.settings, share=share) for share in (1.0, 0.2, 0.5))
    beginning = [score_text(loaded.model, store, loaded.settings, share=0.2) for _ in range(2)]
    assert beginning[0] == beginning[1] == parts[0], "the same tokens in every validation"
    for nats, tokens in parts:
        assert nats / tokens == pytest.approx(full[0] / full[1], rel=0.06)


# Generation


@pytest.mark.parametrize(("family", "tokenizer"), PAIRS)
def test_generation_with_a_state_equals_generation_without_one(get_trained_model, family, tokenizer):
    loaded = get_trained_model(family, tokenizer)
    prompt = "the old model reads"
    ids = loaded.run.preprocessor.tokenizer.encode(prompt).ids.tolist()
    start = len(ids)
    for _ in range(28 if tokenizer == "characters" else 30):  # 19 + 28 characters fit into the window of 48
        with torch.inference_mode():
            scores, _ = loaded.model.next(torch.tensor([ids]))
        ids.append(int(scores.argmax()))
    generated = generate(loaded.model, torch.tensor([ids[:start]]), GREEDY)
    assert [int(number) for number in islice(generated, len(ids) - start)] == ids[start:]
    expected = loaded.run.preprocessor.tokenizer.decode(ids)
    continuation = "".join(loaded.predict(prompt, sampling=GREEDY, max_length=len(ids) - start))
    assert prompt + continuation == expected


@pytest.mark.parametrize("family", ["feedforward", "rnn", "gru", "lstm", "attentive-rnn", "ngram"])
def test_the_cost_of_a_token_is_constant(get_trained_model, family, monkeypatch):
    model, input_lengths, sizes = get_trained_model(family).model, [], []
    original = type(model).next

    def record_sizes(self, ids, state=None):
        scores, state = original(self, ids, state)
        input_lengths.append(ids.shape[1])
        sizes.append(sum(tensor.numel() for tensor in list_tensors(state)))
        return scores, state

    monkeypatch.setenv("SEQWISE_KERNELS", "off")  # `next` reads every token; steps have memory of a fixed size
    monkeypatch.setattr(type(model), "next", record_sizes)
    list(
        generate_text(
            model, get_trained_model(family).run.preprocessor.tokenizer, "the old model", SamplingOptions(), 0, 40
        )
    )
    assert input_lengths == [len("the old model")] + [1] * 39
    assert len(set(sizes[10:])) == 1  # the state has a fixed size


def list_tensors(state):
    return [state] if isinstance(state, torch.Tensor) else [t for part in state for t in list_tensors(part)]


@pytest.mark.parametrize("family", FAMILIES)
def test_prompts_of_every_length_are_continued(get_trained_model, family):
    loaded = get_trained_model(family)
    for prompt in ("", "t", "the old model reads every word. " * 10):
        assert len("".join(loaded.predict(prompt, max_length=3))) == 3
    assert len("".join(loaded.predict("the", max_length=1))) == 1
    assert len("".join(loaded.predict("the", max_length=120))) == 120  # beyond the window


@pytest.mark.parametrize(("family", "tokenizer"), [("lstm", "characters"), ("lstm", "wordpiece"), ("ngram", "words")])
def test_the_seed_determines_the_text(get_trained_model, family, tokenizer):
    def predict(seed: int, **options) -> str:
        return "".join(
            get_trained_model(family, tokenizer).predict(
                "the", sampling=SamplingOptions(**options), seed=seed, max_length=40
            )
        )

    assert predict(1) == predict(1) != predict(2)
    assert predict(1, greedy=True) == predict(2, greedy=True) == predict(3, top_k=1)


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_a_seed_out_of_range_is_rejected(get_trained_model, seed):
    with pytest.raises(UsageError, match="seed must lie between"):
        get_trained_model("lstm").predict("the", seed=seed)


def test_no_second_space_follows_a_prompt_that_ends_in_a_space(get_trained_model):
    loaded = get_trained_model("lstm", "words")
    without_space, with_space = (
        "".join(loaded.predict(prompt, sampling=GREEDY, max_length=9)) for prompt in ("the old", "the old ")
    )
    assert with_space == without_space.removeprefix(" ")
    assert not with_space.startswith(" ")


def test_an_empty_prompt_starts_a_line(get_trained_model):
    for kind in ("characters", "words", "bpe"):
        loaded = get_trained_model("lstm", kind)
        line_break = loaded.run.preprocessor.tokenizer.encode("\n").ids
        expected = [
            int(n) for n in islice(generate(loaded.model, torch.tensor(line_break[None]), SamplingOptions(), 4), 12)
        ]
        assert (
            "".join(loaded.predict("", seed=4, max_length=12))
            == loaded.run.preprocessor.tokenizer.decode([*line_break, *expected])[1:]
        )


# Settings rejected before anything is written


def check(book: Path, **values) -> None:
    settings = parse_settings({**SMALL, **values})
    task = Language.prepare(str(book), settings)
    settings.data.order = "windows" if settings.model == "transformer" else "streams"
    task.check(ResolvedSettings.from_settings(settings))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"model": "transformer", "transformer": {"heads": 3}}, "multiple of the heads"),
        ({"model": "transformer", "network": {"width": 6}}, "rotary"),
        ({"model": "transformer", "data": {"window": "full"}}, "limited length"),
        (
            {"network": {"output": "adaptive"}, "text": {"tokenizer": "words", "vocabulary": 9}},
            "a vocabulary of at least 20",
        ),
        ({"network": {"output": "adaptive"}, "text": {"tokenizer": "bpe", "vocabulary": 300}}, "sorted by frequency"),
        ({"network": {"width": 10**9}}, "less than or equal to 1000000"),
        ({"network": {"width": 10**6}}, "weights, which take .* GB to train; there are"),
        ({"data": {"window": 10**9}}, "the train text has"),
    ],
)
def test_invalid_settings_are_rejected(book, values, expected):
    with pytest.raises(UsageError, match=expected):
        check(book, **values)


def test_ngrams_that_may_not_fit_into_memory_are_rejected(book, monkeypatch):
    monkeypatch.setattr(environment, "get_memory", lambda: (10**9, 100_000))
    with pytest.raises(UsageError, match=r"counting 5-grams of [\d,]+ tokens can take [\d.]+ GB; 0.0 GB .* free"):
        check(book, model="ngram")


@pytest.mark.parametrize("output", ["full", "adaptive", "sampled", "mixture"])
@pytest.mark.parametrize("tied", [True, False])
def test_valid_settings_are_accepted(book, output, tied):
    check(book, network={"width": 16, "embedding": 12, "depth": 1, "output": output, "tie_weights": tied})


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary", "none"])
def test_a_window_of_one_token_is_accepted(book, positions):
    check(book, model="transformer", data={"window": 1}, transformer={"heads": 2, "positions": positions})


@pytest.mark.parametrize("is_supported", [True, False])
def test_bfloat16_is_rejected_if_the_cpu_does_not_support_it(book, is_supported, monkeypatch):
    monkeypatch.setattr(environment, "probe_cpu_bfloat16", lambda: is_supported)
    training = SMALL["training"] | {"precision": "bfloat16"}
    if is_supported:
        check(book, training=training)
    else:
        with pytest.raises(UsageError, match="bfloat16 does not work"):
            check(book, training=training)


def test_the_contexts_of_a_mixture_have_the_output_dropout_with_one_mask_per_sequence(book):
    network = {"width": 16, "depth": 1, "dropout": 0.5, "output": "mixture", "softmaxes": 3}
    settings = parse_settings(SMALL | {"model": "lstm", "network": network, "text": {"tokenizer": "characters"}})
    model = Language.prepare(str(book), settings).build(ResolvedSettings.from_settings(settings))
    torch.manual_seed(0)
    contexts = model.train().head.output.compute_contexts(torch.randn(2, 7, 16))
    assert contexts.shape == (2, 7, 3, 16)
    is_dropped = contexts == 0
    assert torch.equal(is_dropped, is_dropped[:, :1].expand_as(is_dropped))
    assert 0.3 < is_dropped.float().mean() < 0.7
    assert not (model.eval().head.output.compute_contexts(torch.randn(2, 7, 16)) == 0).any()


# Warnings about the data


def write_splits(tmp_path: Path, **texts: str) -> str:
    for split, text in texts.items():
        (tmp_path / f"{split}.txt").write_text(text)
    return str(tmp_path)


def test_long_lines_shared_between_splits_are_counted(tmp_path):
    line, other_line = "a line that is long enough to be no accident, for it goes on and on, " * 2, "b" * 100
    data = write_splits(
        tmp_path, train=f"{line}\nshort\n{other_line}\n", valid=f"{line}\nshort\n{line}\n", test="short\nelse\n"
    )
    assert Language.prepare(data, Settings()).warnings() == [
        "2 long lines are in valid as well as in train: memorised lines make the result there too good."
    ]


def test_many_unknown_tokens_are_reported(tmp_path):
    data = write_splits(tmp_path, train="a b c\n" * 9, valid="a b x\n" * 9, test="a b c\n")
    messages: list[str] = []
    task = Language.prepare(data, parse_settings({"text": {"tokenizer": "words"}}), log=messages.append)
    assert task.warnings() == ["25.0% of the valid tokens are <unk>: the vocabulary does not have them."]
    assert messages[-1] == f"warning: {task.warnings()[0]}"  # training shows what `seqwise check` does


def test_an_ordinary_text_has_no_warnings(book):
    assert Language.prepare(str(book), Settings()).warnings() == []
