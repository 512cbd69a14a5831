"""The masked task: losses and predictions equal their formulas; training, rejected settings, filling in text."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import seqwise
from seqwise.backbones.encoder import SeparateDirections
from seqwise.config import Settings, parse_settings
from seqwise.errors import DataError, UsageError
from seqwise.tasks.defaults import DefaultsContext, resolve
from seqwise.tasks.masked.filling import encode_masked_text, fill_masks
from seqwise.tasks.masked.masking import MaskedBatch
from seqwise.tasks.masked.model import BidirectionalLanguageModel, MaskedModel, build_model
from seqwise.tasks.masked.task import Masked
from seqwise.text.tokenizer import Tokenizer
from seqwise.training.distribution import World

FAMILIES = ("feedforward", "rnn", "gru", "lstm", "attentive-rnn", "transformer")
RECURRENT_FAMILIES = ("rnn", "gru", "lstm", "attentive-rnn")


def create_settings(model: str, **sections: dict) -> Settings:
    values = {
        "task": "masked",
        "model": model,
        "network": {"width": 12, "depth": 2, "embedding": 6, "dropout": 0.0},
        "transformer": {"heads": 2},
        "data": {"window": 9},
        "training": {"batch_size": 4},
        "budget": "1k-tokens",
        "device": "cpu",
    }
    values |= {name: values.get(name, {}) | section for name, section in sections.items()}
    return resolve(parse_settings(values), DefaultsContext(5000, 20, False, 1))[0]


def create_batch(rows: int = 3, length: int = 7, bidirectional: bool = False) -> MaskedBatch:
    generator = torch.Generator().manual_seed(0)
    targets = torch.randint(3, 20, (rows, length), generator=generator)
    target_mask = torch.rand(rows, length, generator=generator) < 0.3
    target_mask[:, 2] = True
    return MaskedBatch(targets.masked_fill(target_mask, 1), targets, target_mask, bidirectional=bidirectional)


def create_model(family: str, **sections: dict) -> MaskedModel | BidirectionalLanguageModel:
    torch.manual_seed(0)
    return build_model(create_settings(family, **sections), 20, torch.arange(20)).eval()


def test_the_loss_of_a_masked_model_is_the_cross_entropy_of_the_targets():
    model, batch = create_model("transformer"), create_batch()
    scores = model.output(model.states(batch.ids))
    losses = [
        -scores[row, position, batch.targets[row, position]]
        for row in range(3)
        for position in range(7)
        if batch.target_mask[row, position]
    ]
    loss, state = model(batch)
    assert loss.total.item() == pytest.approx(sum(losses).item(), rel=1e-5)
    assert (loss.count, state) == (batch.num_targets, None)


@pytest.mark.parametrize("family", RECURRENT_FAMILIES)
def test_the_loss_of_a_bidirectional_model_is_that_of_two_language_models(family: str):
    model, batch = create_model(family), create_batch(bidirectional=True)
    forward, backward = model.states(batch.ids).chunk(2, dim=-1)
    total = 0.0
    for row in range(3):
        total += F.cross_entropy(model.output.logits(forward[row, :-1]), batch.targets[row, 1:], reduction="sum").item()
        total += F.cross_entropy(
            model.output.logits(backward[row, 1:]), batch.targets[row, :-1], reduction="sum"
        ).item()
    loss, _ = model(batch)
    assert loss.total.item() == pytest.approx(total, rel=1e-5)
    assert loss.count == batch.num_targets == 2 * 3 * 6


@pytest.mark.parametrize("family", FAMILIES)
def test_the_loss_of_a_batch_is_the_sum_of_its_rows(family: str):
    model, batch = create_model(family), create_batch(bidirectional=family in RECURRENT_FAMILIES)
    row_losses = [model(batch.slice(row, row + 1))[0] for row in range(batch.num_sequences)]
    batch_loss = model(batch)[0]
    assert batch_loss.total.item() == pytest.approx(sum(loss.total.item() for loss in row_losses), rel=1e-5)
    assert batch_loss.count == sum(loss.count for loss in row_losses)


@pytest.mark.parametrize("family", RECURRENT_FAMILIES)
def test_neither_direction_reads_the_token_it_predicts(family: str):
    """A token changes the states from its position on, in each direction, and none of those that predict it."""
    model = create_model(family)
    assert isinstance(model.encoder, SeparateDirections)
    ids = torch.randint(3, 20, (1, 7), generator=torch.Generator().manual_seed(1))
    changed_ids = ids.clone()
    changed_ids[0, 3] = (ids[0, 3] + 1) % 17 + 3
    (forward, backward), (changed_forward, changed_backward) = (
        model.states(each).chunk(2, dim=-1) for each in (ids, changed_ids)
    )
    assert torch.equal(forward[:, :3], changed_forward[:, :3])
    assert torch.equal(backward[:, 4:], changed_backward[:, 4:])
    assert not torch.equal(forward[:, 3:], changed_forward[:, 3:])
    assert not torch.equal(backward[:, :4], changed_backward[:, :4])


@pytest.mark.parametrize("family", ["transformer", "feedforward"])
def test_a_state_depends_on_both_sides(family: str):
    model, ids = create_model(family), torch.full((1, 5), 4)
    left_changed, right_changed = ids.clone(), ids.clone()
    left_changed[0, 1] = right_changed[0, 3] = 7
    middle = model.states(ids)[0, 2]
    assert not torch.equal(model.states(left_changed)[0, 2], middle)
    assert not torch.equal(model.states(right_changed)[0, 2], middle)


def test_two_directions_are_combined_by_bayes_rule():
    model = create_model("lstm")
    states = model.states(torch.randint(3, 20, (1, 5), generator=torch.Generator().manual_seed(2)))
    forward, backward = (model.output(direction)[0].tolist() for direction in states.chunk(2, dim=-1))
    prior = [math.log((count + 1) / (190 + 20)) for count in range(20)]
    expected = [forward[1][x] + backward[3][x] - prior[x] for x in range(20)]
    log_total = math.log(sum(map(math.exp, expected)))
    scores = model.scores(states, torch.tensor([0]), torch.tensor([2]))
    assert scores[0].tolist() == pytest.approx([score - log_total for score in expected], abs=1e-4)
    scores_at_ends = model.scores(states, torch.tensor([0, 0]), torch.tensor([0, 4]))
    assert scores_at_ends[0].tolist() == pytest.approx(backward[1], abs=1e-4)  # there is no token before the first
    assert scores_at_ends[1].tolist() == pytest.approx(forward[3], abs=1e-4)


def test_bayes_rule_is_exact_if_both_sides_are_independent_given_the_token():
    """If l and r depend on x alone, then p(x | l, r) ∝ p(x | l) p(x | r) / p(x)."""
    x, l_given_x, r_given_x = np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.6, 0.3]), np.array([0.7, 0.2, 0.9])
    by_l, by_r, by_both = x * l_given_x, x * r_given_x, x * l_given_x * r_given_x
    combined = by_l / by_l.sum() * by_r / by_r.sum() / x
    assert combined / combined.sum() == pytest.approx(by_both / by_both.sum())


@pytest.mark.parametrize("family", FAMILIES)
def test_padding_changes_no_prediction(family: str):
    model = create_model(family)
    short_row = torch.randint(3, 20, (1, 5), generator=torch.Generator().manual_seed(3))
    long_row = torch.randint(3, 20, (1, 9), generator=torch.Generator().manual_seed(4))
    rows = torch.cat([F.pad(short_row, (0, 4)), long_row])
    lengths, row_indices = torch.tensor([5, 9]), torch.tensor([0, 0, 0])
    positions = torch.tensor([0, 2, 4])
    padded = model.scores(model.states(rows, lengths), row_indices, positions, lengths)
    unpadded = model.scores(model.states(short_row), row_indices, positions)
    assert torch.allclose(padded, unpadded, atol=1e-5)


@pytest.mark.parametrize("family", ["transformer", "gru"])
def test_gradients_equal_finite_differences(family: str):
    model = create_model(family, network={"width": 4, "depth": 1, "embedding": 3}).double()
    batch = create_batch(rows=2, length=4, bidirectional=family == "gru")

    def run_with_parameters(weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        parameters = {"embedding.weight": weight, "output.weight": weight, "output.bias": bias}
        return torch.func.functional_call(model, parameters, (batch,))[0].total

    inputs = (model.embedding.weight.detach().requires_grad_(), model.output.bias.detach().requires_grad_())
    assert torch.autograd.gradcheck(run_with_parameters, inputs)


@pytest.mark.parametrize("family", FAMILIES)
def test_an_untrained_model_predicts_by_frequency(family: str):
    torch.manual_seed(0)
    counts = torch.arange(20) * 50
    model = build_model(create_settings(family), 20, counts).eval()
    with torch.no_grad():
        model.embedding.weight.zero_()  # and the tied output weights: scores no longer depend on the state
    scores = model.scores(model.states(torch.full((1, 5), 4)), torch.tensor([0]), torch.tensor([2]))
    assert scores[0].exp().tolist() == pytest.approx(((counts + 1) / (counts.sum() + 20)).tolist(), rel=1e-4)


# Training and evaluation


SMALL = {
    "budget": "30k-tokens",
    "device": "cpu",
    "network": {"width": 32, "depth": 1},
    "data": {"window": 16},
    "training": {"batch_size": 16, "learning_rate": 0.02, "validate_every": 1000},
}


@pytest.fixture(scope="module")
def cycle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text in which the neighbours of a word determine it."""
    words = ["one", "two", "three", "four", "five", "six", "seven"]
    path = tmp_path_factory.mktemp("masked") / "cycle.txt"
    lines = [" ".join(words[(start + offset) % 7] for offset in range(7)) for start in range(7)]
    path.write_text("\n".join(lines * 40) + "\n")
    return path


@pytest.mark.parametrize("family", ["transformer", "lstm", "feedforward"])
def test_a_trained_model_fills_in_words_that_their_neighbours_determine(cycle: Path, tmp_path: Path, family: str):
    run = seqwise.train(cycle, out=tmp_path / family, settings=SMALL, task="masked", model=family)
    evaluation = run.evaluate(cycle, split="test")
    assert evaluation.metrics["accuracy"] > 0.8
    assert evaluation.metrics["perplexity"] < 2.5
    assert ("forward_perplexity" in evaluation.metrics) is (family == "lstm")
    answer = run.predict("one two [MASK] four five six seven", top=2)
    assert answer.values["filled"] == "one two three four five six seven"
    assert len(answer.values["masks"][0]) == 2
    assert answer.values["masks"][0][0]["probability"] > 0.5
    same_text_in_a_batch = run.predict(["two [MASK] four", "one two [MASK] four five six seven"], top=2)[1]
    assert same_text_in_a_batch.values == answer.values
    assert evaluation.metrics == seqwise.load(tmp_path / family).evaluate(cycle, split="test").metrics


@pytest.mark.parametrize("family", ["gru", "transformer"])
def test_the_objective_is_the_loss_of_masked_tokens(cycle: Path, family: str):
    """The loss of a bidirectional model is over other tokens, so families could not be compared by it."""
    settings = parse_settings(SMALL | {"task": "masked", "model": family})
    task = Masked.prepare(str(cycle), settings)
    settings = resolve(settings, DefaultsContext(5000, 20, False, 1))[0]
    torch.manual_seed(0)
    metrics = task.validate(task.build(settings), settings, World())
    assert math.exp(metrics["objective"]) == pytest.approx(metrics["perplexity"])
    assert (metrics["objective"] == pytest.approx(metrics["loss"])) is (family == "transformer")


def test_the_same_seed_gives_the_same_bits(cycle: Path, tmp_path: Path):
    settings = SMALL | {"budget": "2k-tokens"}
    first, second = (
        seqwise.train(cycle, out=tmp_path / name, settings=settings, task="masked", model="gru") for name in "ab"
    )
    for name, tensor in first.run.read_weights().items():
        assert torch.equal(tensor, second.run.read_weights()[name]), name


def prepare_task(content: str, tmp_path: Path, **values: object) -> tuple[Masked, Settings]:
    (tmp_path / "a.txt").write_text(content)
    settings = parse_settings({"task": "masked", **values})
    return Masked.prepare(str(tmp_path / "a.txt"), settings), settings


def test_words_that_occur_once_are_unknown_by_default(tmp_path: Path):
    text = "the cat sat on the mat\n" * 60 + "a zebra came\n" + "the cat sat on the mat\n" * 60
    task, settings = prepare_task(text, tmp_path)
    assert (task.tokenizer.kind, settings.text.min_count, settings.text.vocabulary) == ("words", 2, len(task.tokenizer))
    assert task.tokenizer.id("zebra") == task.tokenizer.unknown
    assert task.tokenizer.specials == ("<pad>", "<mask>")
    for chosen in ({"tokenizer": "words"}, {"min_count": 1}):
        task, _ = prepare_task(text, tmp_path, text=chosen)
        assert task.tokenizer.id("zebra") != task.tokenizer.unknown


def test_a_large_text_gets_wordpieces(monkeypatch: pytest.MonkeyPatch):
    class LargeCorpus:
        def sample(self) -> str:
            return "the cat"

        def size(self, split: str) -> int:
            return 3_000_000

        def texts(self, split: str, progress: object = None) -> list[str]:
            return ["the cat sat on the mats\n" * 50]

    messages: list[str] = []
    settings = Settings()
    tokenizer = Masked.train_tokenizer(LargeCorpus(), settings, messages.append)  # type: ignore[arg-type]
    assert tokenizer.kind == "wordpiece"
    assert messages == [
        "tokeniser: wordpiece with 2,048 tokens: one per 1,000 bytes of text, rounded down to a power of two, "
        "between 1,024 and 16,384."
    ]


@pytest.mark.parametrize(
    ("values", "fragments"),
    [
        ({"model": "ngram"}, ["ngram cannot do the task masked"]),
        ({"model": "lstm", "recurrent": {"bidirectional": False}}, ["two directions", "--recurrent.bidirectional"]),
        (
            {"model": "lstm", "recurrent": {"concat_directions": True}},
            ["see what it predicts", "--recurrent.concat-directions"],
        ),
        ({"network": {"output": "sampled"}}, ["full softmax", "sampled"]),
        ({"data": {"window": "full"}}, ["--data.window", "received full"]),
        ({"data": {"window": 2}}, ["--data.window", "at least 3", "received 2"]),
    ],
)
def test_invalid_settings_are_rejected(values: dict, fragments: list[str], tmp_path: Path):
    task, settings = prepare_task("the cat sat on the mat\n" * 60, tmp_path, **values)
    settings, _ = resolve(settings, DefaultsContext(5000, 20, False, 1))
    with pytest.raises(UsageError) as caught:
        task.check(settings)
    assert [part for part in fragments if part not in str(caught.value)] == []


def test_a_text_without_any_masked_token_is_rejected(tmp_path: Path):
    task, settings = prepare_task("the cat sat on the mat\n" * 20, tmp_path, masked={"rate": 0.001})
    settings, _ = resolve(settings, DefaultsContext(5000, 20, False, 1))
    with pytest.raises(DataError, match=r"the valid text has \d+ tokens, and the fixed masks mask none"):
        task.check(settings)


# Filling in text


TEXT = ["the cat sat on the mat.\n", "cats play; playing cats.\n"] * 30


@pytest.mark.parametrize("kind", ["words", "spaces", "wordpiece", "bpe", "characters"])
def test_every_tokeniser_encodes_a_masked_text_between_line_breaks(kind: str):
    tokenizer = Tokenizer.train(kind, TEXT, 300, specials=("<pad>", "<mask>"))
    masked = encode_masked_text(tokenizer, "the [MASK] sat on <mask>")
    line_break = int(tokenizer.encode("\n").ids[0])
    assert masked.ids[0] == masked.ids[-1] == line_break
    assert [int(masked.ids[position]) for position in masked.positions] == [1, 1]
    assert masked.unknown == []
    assert (
        tokenizer.encode("the").ids.tolist()
        == masked.ids[1 : masked.positions[0]].tolist()[: 3 if kind == "characters" else 1]
    )


@pytest.mark.parametrize(
    ("kind", "token", "filled"),
    [
        ("words", "cat", "the cat sat"),
        ("wordpiece", "##s", "thes sat"),
        ("bpe", "Ġcat", "the cat sat"),
        ("characters", "m", "the m sat"),
    ],
)
def test_the_best_prediction_is_inserted_into_the_text(kind: str, token: str, filled: str):
    tokenizer = Tokenizer.train(kind, TEXT, 300, specials=("<pad>", "<mask>"))
    model = build_model(create_settings("transformer"), len(tokenizer))
    with torch.no_grad():
        model.output.bias[tokenizer._ids[token]] = 50.0
        model.output.bias[:2] = 90.0  # special tokens are never predicted
    (answer,) = fill_masks(model, tokenizer, ["the [MASK] sat"], 8, 3)
    assert answer.values["filled"] == filled
    assert answer.text.splitlines()[0] == filled
    assert len(answer.values["masks"][0]) == 3


def test_a_long_text_is_read_around_its_masks():
    tokenizer = Tokenizer.train("words", TEXT, specials=("<pad>", "<mask>"))
    model = build_model(create_settings("transformer", transformer={"positions": "learned"}), len(tokenizer)).eval()
    text = "the cat sat on " * 20 + "[MASK] " + "the mat . " * 20 + "[MASK]"
    (answer,) = fill_masks(model, tokenizer, [text], 9, 2)
    assert len(answer.values["masks"]) == 2
    assert "[MASK] 1: " in answer.text
    (excerpt,) = fill_masks(model, tokenizer, ["cat sat on [MASK] the mat."], 6, 2)
    assert len(excerpt.values["masks"]) == 1


def test_unknown_words_are_reported():
    tokenizer = Tokenizer.train("words", TEXT, specials=("<pad>", "<mask>"))
    (answer,) = fill_masks(build_model(create_settings("gru"), len(tokenizer)), tokenizer, ["the zebra [MASK]"], 8, 1)
    assert answer.values["unknown"] == ["zebra"]
    assert "does not know 'zebra'" in answer.text


@pytest.mark.parametrize(
    ("text", "top", "problem"), [("the cat", 5, "nothing to fill in"), ("[MASK]", 0, "received 0")]
)
def test_a_text_without_masks_and_a_request_for_no_predictions_are_rejected(text: str, top: int, problem: str):
    tokenizer = Tokenizer.train("words", TEXT, specials=("<pad>", "<mask>"))
    with pytest.raises(UsageError, match=problem):
        list(fill_masks(build_model(create_settings("gru"), len(tokenizer)), tokenizer, [text], 8, top))
