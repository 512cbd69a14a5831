"""Temperature, cache and dynamic evaluation of language models, against slow reference implementations."""

from __future__ import annotations

import math
import shutil
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from used_settings import keep_used

import seqwise
from seqwise.data.corpus.preparation import prepare_stores
from seqwise.data.corpus.sources import open_corpus
from seqwise.data.corpus.store import TokenStore
from seqwise.errors import NonFiniteError, UsageError
from seqwise.metric_names import METHOD_OPTIONS, TASK_METRICS, TEXT_METRICS
from seqwise.metrics.options import DYNAMIC_RATES, DYNAMIC_SEGMENTS, TextEvaluationOptions
from seqwise.tasks.language import cache as cache_module
from seqwise.tasks.language import dynamic as dynamic_module
from seqwise.tasks.language import methods
from seqwise.tasks.language.cache import CacheSettings, ContinuousCache, score_with_cache, search_cache
from seqwise.tasks.language.dynamic import (
    DynamicSettings,
    RMSUpdate,
    SegmentRunner,
    SGDUpdate,
    iterate_segments,
    list_parameters,
    measure_rms_gradients,
    score_dynamically,
    search_dynamic,
)
from seqwise.tasks.language.methods import SearchedNumber, note_edges
from seqwise.tasks.language.scoring import score_text
from seqwise.tasks.language.temperature import TEMPERATURES, score_at_temperatures, search_temperature
from seqwise.tasks.task import InferenceOptions
from seqwise.training.api import TrainedModel, override_options

SMALL = {
    "budget": "3k-tokens",
    "device": "cpu",
    "network": {"width": 16, "depth": 1, "dropout": 0.0},
    "data": {"window": 48},
    "training": {"batch_size": 4, "learning_rate": 0.01, "validate_every": 1000},
    "transformer": {"heads": 2},
    "text": {"tokenizer": "characters"},
}
METHODS = {
    "temperature": {"softmax_temperature": 0.9},
    "cache": {"cache": True, "cache_window": 60},
    "dynamic": {"dynamic": True},
}


@pytest.fixture(scope="module")
def get_trained_model(book, tmp_path_factory):
    """A function that returns a run of a family, or of an output layer, trained once for a few steps."""
    runs: dict[tuple[str, str], TrainedModel] = {}

    def get(family: str = "lstm", output: str = "full") -> TrainedModel:
        if (family, output) not in runs:
            out = tmp_path_factory.mktemp("run") / family
            network = SMALL["network"] | {"output": output}
            runs[family, output] = seqwise.train(
                book, out=out, settings=keep_used(SMALL | {"network": network}, model=family)
            )
        return runs[family, output]

    return get


class Beginning:
    """The first tokens of a store, which keeps loops over tokens short."""

    def __init__(self, store: TokenStore, length: int):
        self.store, self.length, self.info = store, length, store.info
        self.read, self.read_sequences = store.read, store.read_sequences

    def __len__(self) -> int:
        return self.length


def get_store(loaded: TrainedModel, book, split: str = "test", length: int | None = 601) -> Any:
    store = prepare_stores(open_corpus(str(book)), loaded.run.preprocessor.tokenizer)[split]
    return store if length is None else Beginning(store, min(length, len(store)))


@torch.no_grad()
def compute_vectors(loaded: TrainedModel, store) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the vectors of the whole text, read from its beginning, and its targets."""
    ids = torch.from_numpy(store.read(0, len(store)))[None]
    return loaded.model.backbone(loaded.model.embedding(ids[:, :-1])).vectors[0], ids[0, 1:]


# Layout of the report


@pytest.mark.parametrize("method", METHODS)
def test_a_method_adds_metrics_and_leaves_the_plain_ones_as_they_are(get_trained_model, book, method):
    loaded = get_trained_model()
    plain, other = loaded.evaluate(book), loaded.evaluate(book, **METHODS[method])
    added = other.metrics.keys() - plain.metrics.keys()
    assert added == {f"{method}_{name}" for name in ("perplexity", "word_perplexity", "bits_per_character")}
    assert {name: other.metrics[name] for name in plain.metrics} == plain.metrics
    assert added <= other.definitions.keys()
    assert other.method.startswith(f"{plain.method}\n{method}")
    nats = other.metrics["tokens"] * math.log(other.metrics[f"{method}_perplexity"])
    characters = get_store(loaded, book, length=None).info.characters
    assert other.metrics[f"{method}_bits_per_character"] == pytest.approx(nats / math.log(2) / characters)
    assert other.metrics[f"{method}_perplexity"] != pytest.approx(plain.metrics["perplexity"], rel=1e-4)


def test_all_methods_together_have_the_values_of_each_alone(get_trained_model, book):
    loaded = get_trained_model("transformer")
    everything = loaded.evaluate(book, **{name: value for each in METHODS.values() for name, value in each.items()})
    for method, options in METHODS.items():
        name = f"{method}_perplexity"
        assert everything.metrics[name] == loaded.evaluate(book, **options).metrics[name]
    assert [line.partition(":")[0] for line in everything.method.splitlines()[1:]] == [
        "temperature", "cache", "dynamic evaluation"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"softmax_temperature": 0.0}, "--softmax-temperature: expected a finite number, above 0; received 0"),
        ({"softmax_temperature": "warm"}, "received 'warm'"),
        ({"cache_weight": 1.0}, r"--cache-weight must lie in \[0, 1\); received 1"),
        ({"cache_theta": 0.0}, "--cache-theta: expected a finite number, above 0"),
        ({"cache_window": 0}, "--cache-window must be at least 1; received 0"),
        ({"dynamic_method": "adam"}, "expected sgd or rms; received adam"),
        ({"dynamic_rate": -1.0}, "--dynamic-rate: expected a finite number, at least 0; received -1"),
        ({"dynamic_rate": math.nan}, "--dynamic-rate"),
        ({"dynamic_rate": math.inf}, "--dynamic-rate"),
        ({"dynamic_decay": -0.1}, "--dynamic-decay"),
        ({"dynamic_epsilon": 0.0}, "--dynamic-epsilon"),
        ({"dynamic_segment": 0}, "--dynamic-segment must be at least 1"),
        ({"dynamic_search": True, "dynamic_rate": 0.05}, "--dynamic-rate is chosen by --dynamic-search"),
        ({"cache_search": True, "cache_theta": 2.0}, "--cache-theta is chosen by --cache-search"),
    ],
)
def test_invalid_options_are_rejected(values, expected):
    with pytest.raises(UsageError, match=expected):
        InferenceOptions(**values)


def test_the_old_name_of_the_dynamic_rate_is_accepted_with_a_warning():
    with pytest.warns(FutureWarning, match="the option 'rate' is now called 'dynamic_rate'"):
        options = override_options(InferenceOptions(), {"rate": 0.5})
    assert options.dynamic_rate == 0.5


def test_a_number_at_the_edge_of_its_grid_is_noted_with_the_next_one():
    weight, theta = SearchedNumber("--a", 0.3, (0.1, 0.3, 0.5)), SearchedNumber("--b", 2.0, (0.5, 2.0, 8.0))
    assert note_edges("--search", [weight, theta]) == []
    where = "at the edge of the searched values, beyond which a better one may exist"
    assert note_edges("--search", [weight, replace(theta, value=8.0)]) == [
        f"--search chose --b 8, {where}. Instead, try --a 0.3 --b 32 on the validation split."
    ]
    assert note_edges("--search", [replace(weight, value=0.5), replace(theta, value=0.5)]) == [
        f"--search chose --a 0.5 and --b 0.5, {where}. Instead, try --a 0.833 --b 0.125 on the validation split."
    ]


def test_each_search_notes_a_number_at_the_edge(get_trained_model, book, monkeypatch):
    loaded = get_trained_model()
    monkeypatch.setattr(methods, "search_temperature", lambda *_: 1.3)
    monkeypatch.setattr(methods, "search_cache", lambda *_: CacheSettings(500, 0.2, 3.3))
    monkeypatch.setattr(methods, "search_dynamic", lambda _, __, ___, dynamic, *____: replace(dynamic, rate=0.05))
    options = {"softmax_temperature": "auto", "cache": True, "cache_search": True, "dynamic": True}
    evaluation = loaded.evaluate(book, **options, dynamic_search=True)
    trials = ["--softmax-temperature 1.32", "--cache-weight 0.2 --cache-theta 4.95", "--dynamic-rate 0.025"]
    for note, trial in zip(evaluation.data_notes, trials, strict=True):
        assert note.endswith(f"Instead, try {trial} on the validation split.")
    monkeypatch.setattr(methods, "search_cache", lambda *_: CacheSettings(500, 0.0, 0.05))
    (note,) = loaded.evaluate(book, cache=True, cache_search=True).data_notes
    assert note == "--cache-search chose --cache-weight 0: the cache does not help on the validation split."


def test_the_documented_grids_and_segments_are_those_of_the_code(get_trained_model):
    page = " ".join((Path(__file__).parents[2] / "docs/language.md").read_text(encoding="utf-8").split())
    first, second, *_, last = TEMPERATURES
    assert f"searches T in [{first:g}, {last:g}]" in page
    assert f"T = {first:.2f}, {second:.2f} … {last:.2f}; λ up to {cache_module.WEIGHTS[-1]} and" in page
    assert f"θ between {cache_module.THETAS[0]} and {cache_module.THETAS[-1]};" in page
    loaded = get_trained_model("transformer")
    settings = loaded.settings.model_copy(update={"data": loaded.settings.data.model_copy(update={"window": 64})})
    for method in ("sgd", "rms"):
        options = TextEvaluationOptions(dynamic_method=method)
        segment = DynamicSettings.from_options(options, loaded.model, settings).segment
        assert f"half a window and one, which is {segment} with a window of 64" in page


@pytest.mark.parametrize("method", METHODS)
def test_an_ngram_model_has_no_other_method(get_trained_model, book, method):
    with pytest.raises(UsageError, match="an n-gram model"):
        get_trained_model("ngram").evaluate(book, **METHODS[method])


# Temperature


@pytest.mark.parametrize("output", ["full", "mixture", "sampled"])
def test_losses_at_temperatures_equal_explicit_probabilities(get_trained_model, book, output):
    loaded = get_trained_model("lstm", output)
    layer, store = loaded.model.head.output, get_store(loaded, book)
    vectors, targets = compute_vectors(loaded, store)
    expected = []
    with torch.no_grad():
        for temperature in (0.8, 1.0, 1.3):
            if output == "mixture":
                logits = layer.compute_contexts(vectors) @ layer.weight.T + layer.bias
                probabilities = (layer.log_priors(vectors).exp()[..., None] * (logits / temperature).softmax(-1)).sum(1)
            else:
                probabilities = (layer.logits(vectors) / temperature).softmax(-1)
            expected.append(-probabilities[range(len(targets)), targets].double().log().sum())
    actual = score_at_temperatures(loaded.model, store, loaded.settings, [0.8, 1.0, 1.3])
    torch.testing.assert_close(actual, torch.stack(expected), rtol=1e-5, atol=0.0)
    assert actual[1] == pytest.approx(score_text(loaded.model, store, loaded.settings)[0], rel=1e-6)


def test_a_temperature_that_sharpens_is_found_for_a_flattened_model(get_trained_model, book):
    loaded = get_trained_model("lstm", "mixture")
    store, model = get_store(loaded, book), deepcopy(loaded.model)
    before = search_temperature(model, store, loaded.settings)
    with torch.no_grad():
        model.embedding = deepcopy(model.embedding)  # of the input, which stays as it is
        model.head.output.weight = torch.nn.Parameter(model.head.output.weight * 0.9)
        model.head.output.bias *= 0.9
    after = search_temperature(model, store, loaded.settings)
    losses = score_at_temperatures(model, store, loaded.settings, TEMPERATURES)
    assert after == TEMPERATURES[int(losses.argmin())] < before
    assert after == pytest.approx(max(0.8, 0.9 * before), abs=0.011)
    assert (TEMPERATURES[0], TEMPERATURES[10], TEMPERATURES[-1]) == (0.8, 1.0, 1.3)


def test_the_temperature_is_chosen_on_the_validation_split(get_trained_model, book):
    loaded = get_trained_model()
    best = search_temperature(loaded.model, get_store(loaded, book, "valid", None), loaded.settings)
    evaluation = loaded.evaluate(book, softmax_temperature="auto")
    assert f"logits divided by {best:g}, chosen on the valid split of {book};" in evaluation.method
    assert evaluation.metrics["temperature_perplexity"] == pytest.approx(
        loaded.evaluate(book, softmax_temperature=best).metrics["temperature_perplexity"]
    )
    fitted = loaded.evaluate(book, split="valid", softmax_temperature="auto")
    assert f"chosen on the valid split of {book} (the very text that is scored: fitted to it" in fitted.method


def test_an_adaptive_softmax_has_no_temperature(get_trained_model, book):
    with pytest.raises(UsageError, match="no single temperature"):
        get_trained_model("lstm", "adaptive").evaluate(book, softmax_temperature=0.9)


# Cache


def test_the_probability_of_a_cached_word_equals_a_hand_computed_one():
    cache = ContinuousCache(2, [math.log(2)])
    vectors = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [2.0, 0.0], [1.0, 0.0]])
    targets = torch.tensor([7, 8, 7, 7, 8])
    # Products with the two vectors before: -, (0), (1, 1), (0, 2), (1, 2); powers of 2 are their votes.
    first, second = cache.score(vectors[:2], targets[:2]), cache.score(vectors[2:], targets[2:])
    expected = [0.0, 0.0, 2 / (2 + 2), 4 / (1 + 4), 0.0]  # words before: -, 7, (7, 8), (8, 7), (7, 7)
    torch.testing.assert_close(torch.cat((first, second), 1)[0], torch.tensor(expected))


def score_token_by_token(loaded, vectors, targets, cache: CacheSettings) -> float:
    """Returns the summed negative log likelihood with a full distribution over the vocabulary at each token."""
    nats, vectors = 0.0, vectors.double()
    with torch.no_grad():
        probabilities = loaded.model.head(vectors.float()).double().exp()
    for t, target in enumerate(targets.tolist()):
        distribution, start = probabilities[t], max(0, t - cache.window)
        if t > 0:
            votes = torch.softmax(cache.theta * (vectors[start:t] @ vectors[t]), 0)
            cached = torch.zeros_like(distribution).index_add_(0, targets[start:t], votes)
            distribution = (1 - cache.weight) * distribution + cache.weight * cached
        nats -= math.log(distribution[target])
    return nats


@pytest.mark.parametrize("window", [1, 37, 10**6])
@pytest.mark.parametrize("block", [16, 512])
def test_the_cache_in_blocks_equals_a_loop_over_tokens(get_trained_model, book, window, block, monkeypatch):
    monkeypatch.setattr(cache_module, "BLOCK_TOKENS", block)
    monkeypatch.setattr(cache_module, "SEGMENT_TOKENS", 100)
    loaded, cache = get_trained_model(), CacheSettings(window, 0.2, 0.7)
    store = get_store(loaded, book)
    expected = score_token_by_token(loaded, *compute_vectors(loaded, store), cache)
    assert score_with_cache(loaded.model, store, loaded.settings, cache) == pytest.approx(expected, rel=1e-6)


def test_the_cache_of_windows_is_in_the_order_of_the_text(get_trained_model, book):
    loaded, cache = get_trained_model("transformer"), CacheSettings(50, 0.3, 0.5)
    store, window = get_store(loaded, book), loaded.settings.data.window
    ids = torch.from_numpy(store.read(0, len(store)))
    vectors, num_scored = [], 0
    with torch.no_grad():
        for start in range(0, len(ids), window - window // 2 + 1):
            start = min(start, len(ids) - 1 - window)
            read = loaded.model.backbone(loaded.model.embedding(ids[start : start + window][None])).vectors[0]
            vectors.append(read[num_scored - start :])
            num_scored = start + window
            if num_scored == len(ids) - 1:
                break
    expected = score_token_by_token(loaded, torch.cat(vectors), ids[1:], cache)
    assert score_with_cache(loaded.model, store, loaded.settings, cache) == pytest.approx(expected, rel=1e-6)


def test_a_cache_without_weight_is_the_model_in_one_stream(get_trained_model, book):
    loaded = get_trained_model()
    store = get_store(loaded, book, "train", 20_000)
    vectors, targets = compute_vectors(loaded, store)
    with torch.no_grad():
        expected = float(loaded.model.head.output.loss(vectors, targets).double().sum())
    actual = score_with_cache(loaded.model, store, loaded.settings, CacheSettings(9, 0.0, 1.0))
    assert actual == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("method", [None, *METHODS])
def test_the_metrics_of_each_method_are_listed(get_trained_model, tmp_path, method):
    """Recipes are checked against the list before training."""
    text = tmp_path / "short.txt"
    text.write_text("the old gate forgets a word.\n" * 20)
    options = {} if method is None else METHODS[method]
    added = [] if method is None else [f"{method}_{each}" for each in TEXT_METRICS]
    assert list(get_trained_model().evaluate(text, **options).metrics) == [*TASK_METRICS["language"], *added]
    assert method is None or METHOD_OPTIONS[method] in options
    assert {*METHOD_OPTIONS} == {*METHODS}


def test_the_cache_helps_where_a_rare_text_is_repeated(get_trained_model, tmp_path):
    text = tmp_path / "again.txt"
    text.write_text("zx qj kv wz, zq\n" * 60)
    metrics = get_trained_model().evaluate(text, cache=True, cache_weight=0.5).metrics
    assert metrics["cache_perplexity"] < 0.5 * metrics["perplexity"]


def test_the_search_finds_the_best_pair_of_the_grid(get_trained_model, book, monkeypatch):
    monkeypatch.setattr(cache_module, "WEIGHTS", (0.0, 0.1, 0.6))
    monkeypatch.setattr(cache_module, "THETAS", (0.1, 0.5, 2.0))
    loaded = get_trained_model()
    store = get_store(loaded, book, "valid", None)
    grid = [CacheSettings(40, weight, theta) for weight in (0.0, 0.1, 0.6) for theta in (0.1, 0.5, 2.0)]
    found = search_cache(loaded.model, store, loaded.settings, 40)
    losses = {each: score_with_cache(loaded.model, store, loaded.settings, each) for each in grid}
    assert losses[found] == pytest.approx(min(losses.values()), rel=1e-9)
    assert len({round(loss) for loss in losses.values()}) >= 7  # a weight of 0 has one loss for all θ
    evaluation = loaded.evaluate(book, cache=True, cache_window=40, cache_search=True)
    assert f"cache: {found.describe()}, chosen on the valid split of {book}; one stream" in evaluation.method


# Dynamic evaluation


def create_settings(method: str = "sgd", segment: int | None = None, **values: float) -> DynamicSettings:
    segment = segment or DYNAMIC_SEGMENTS[method]
    return DynamicSettings(
        method, **{"rate": DYNAMIC_RATES[method], "decay": 0.002, "epsilon": 2e-5} | values, segment=segment
    )


@pytest.mark.parametrize("family", ["lstm", "transformer"])
def test_dynamic_evaluation_with_a_rate_of_zero_is_static_evaluation(get_trained_model, book, family):
    loaded = get_trained_model(family)
    store = get_store(loaded, book)
    options = TextEvaluationOptions(dynamic_rate=0.0)
    dynamic = DynamicSettings.from_options(options, loaded.model, loaded.settings)
    nats, tokens = score_dynamically(loaded.model, store, loaded.settings, dynamic)
    static = score_text(loaded.model, store, loaded.settings)
    assert tokens == static[1]
    assert nats == pytest.approx(static[0], rel=1e-5)


@pytest.mark.parametrize("family", ["gru", "transformer"])
def test_dynamic_evaluation_learns_a_repetitive_text_and_restores_the_model(get_trained_model, tmp_path, family):
    loaded = get_trained_model(family)
    text = tmp_path / "again.txt"
    text.write_text("a gate of the old state forgets.\n" * 60)
    before = {name: tensor.clone() for name, tensor in loaded.model.state_dict().items()}
    metrics = loaded.evaluate(text, dynamic=True).metrics
    assert metrics["dynamic_perplexity"] < 0.8 * metrics["perplexity"]
    assert all(torch.equal(tensor, before[name]) for name, tensor in loaded.model.state_dict().items())


def test_the_first_segment_is_scored_before_any_update(get_trained_model, tmp_path):
    text = tmp_path / "short.txt"
    text.write_text("the old gate.\n")  # less than one segment
    metrics = get_trained_model().evaluate(text, dynamic=True, dynamic_rate=5.0).metrics
    assert metrics["dynamic_perplexity"] == pytest.approx(metrics["perplexity"], rel=1e-6)


def test_a_dynamic_rate_that_is_too_large_is_an_error(get_trained_model, book):
    with pytest.raises(NonFiniteError, match="smaller --dynamic-rate"):
        get_trained_model("rnn").evaluate(book, dynamic=True, dynamic_rate=1e38)


def run_plainly(loaded, store, segment: int, batch_size: int, change) -> tuple[float, int]:
    """Scores segment after segment and calls `change(model)` with the gradients in `.grad`; one tensor at a time."""
    model, state, nats, count = deepcopy(loaded.model).eval(), None, 0.0, 0
    length = (len(store) - 1) // batch_size
    starts = [row * length for row in range(batch_size)]
    for offset in range(0, length, segment):
        size = min(segment, length - offset)
        rows = torch.stack([torch.from_numpy(store.read(start + offset, size + 1)) for start in starts])
        output = model.backbone(model.embedding(rows[:, :-1]), state)
        logits = model.head.output.logits(output.vectors)
        loss = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        model.zero_grad()
        loss.backward()
        nats, count = nats + loss.item() * rows[:, 1:].numel(), count + 1
        state = tuple(tuple(part.detach() for part in layer) for layer in output.state)
        change(model)
    return nats, count


def test_sgd_equals_pytorchs_optimiser_with_clipping(get_trained_model, book):
    loaded = get_trained_model()
    store = get_store(loaded, book)

    def change(model) -> None:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        torch.optim.SGD(model.parameters(), lr=0.3).step()

    expected, _ = run_plainly(loaded, store, 20, 1, change)
    dynamic = create_settings(rate=0.3)
    nats, _ = score_dynamically(loaded.model, store, loaded.settings, dynamic)
    assert nats == pytest.approx(expected, rel=1e-5)
    assert nats != pytest.approx(score_text(loaded.model, store, loaded.settings)[0], rel=1e-3)


def test_mean_squares_of_gradients_equal_a_plain_loop(get_trained_model, book, monkeypatch):
    monkeypatch.setattr(dynamic_module, "STATISTICS_BATCH", 10)
    loaded = get_trained_model()
    store = get_store(loaded, book)
    assert (len(store) - 1) % 10 == 0, "streams of equal length"
    squares: list[torch.Tensor] = []

    def change(model) -> None:
        grads = [parameter.grad.double() ** 2 for parameter in model.parameters()]
        squares[:] = [old + new for old, new in zip(squares, grads)] if squares else grads

    _, count = run_plainly(loaded, store, 5, 10, change)
    rms = measure_rms_gradients(loaded.model, store, loaded.settings, 5)
    assert count > 10
    for ours, theirs in zip(rms, squares, strict=True):
        torch.testing.assert_close(ours.double(), (theirs / count).sqrt(), rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize(
    ("factor", "problem", "fix"),
    [(math.nan, "the loss of", "Check the weights"), (1.0, "gradients on", "Use --dynamic-method sgd")],
)
def test_statistics_that_are_not_finite_are_not_blamed_on_the_rate(factor, problem, fix, get_trained_model, book):
    loaded = get_trained_model()
    model = deepcopy(loaded.model)
    model.embedding.weight.data *= factor
    model.embedding.weight.register_hook(lambda grad: grad * 1e25)  # finite, but not its square
    with pytest.raises(NonFiniteError, match=rf"{problem} the training split .*not finite") as error:
        measure_rms_gradients(model, get_store(loaded, book, "train"), loaded.settings, 5)
    assert error.value.fix.startswith(fix)


def test_the_rms_update_equals_a_plain_loop(get_trained_model, book):
    loaded = get_trained_model()
    store = get_store(loaded, book)
    dynamic = create_settings("rms", rate=2e-3, decay=0.4, epsilon=1e-4)
    rms = measure_rms_gradients(loaded.model, get_store(loaded, book, "train"), loaded.settings, 5)
    initial = [parameter.detach().clone() for parameter in loaded.model.parameters()]
    mean = sum(float(each.mean()) for each in rms) / len(rms)
    num_clipped = 0

    @torch.no_grad()
    def change(model) -> None:
        nonlocal num_clipped
        for parameter, start, root in zip(model.parameters(), initial, rms, strict=True):
            relative = root / mean
            num_clipped += int((relative > 1 / 0.4).sum())
            relative[relative > 1 / 0.4] = 1 / 0.4
            step = 0.4 * relative * (start - parameter) - 2e-3 * parameter.grad / (root + 1e-4)
            parameter += step

    expected, _ = run_plainly(loaded, store, 5, 1, change)
    nats, tokens = score_dynamically(loaded.model, store, loaded.settings, dynamic, rms)
    assert tokens == len(store) - 1
    assert num_clipped > 0
    assert nats == pytest.approx(expected, rel=1e-4)
    assert nats != pytest.approx(score_text(loaded.model, store, loaded.settings)[0], rel=1e-3)


def test_the_rms_update_equals_hand_computed_numbers():
    weights = [torch.nn.Parameter(torch.tensor([1.0, 2.0])), torch.nn.Parameter(torch.tensor([3.0]))]
    rms = [torch.tensor([1.0, 3.0]), torch.tensor([6.0])]  # means 2 and 6, of which the mean is 4
    update = RMSUpdate(weights, rms, create_settings("rms", rate=0.5, decay=0.8, epsilon=1.0))
    with torch.no_grad():
        weights[0].copy_(torch.tensor([2.0, 0.0]))
        weights[1].copy_(torch.tensor([5.0]))
    update((torch.tensor([1.0, 4.0]), torch.tensor([7.0])))
    # 2 − 0.2 · 1 − 0.5 · 1/2; 0 + 0.6 · 2 − 0.5 · 4/4; 5 − min(1, 1.2) · 2 − 0.5 · 7/7
    torch.testing.assert_close([weight.data for weight in weights], [torch.tensor([1.55, 0.7]), torch.tensor([2.5])])


@pytest.mark.parametrize("family", ["lstm", "transformer"])
def test_rms_uses_the_training_split_of_the_run(get_trained_model, book, tmp_path, family):
    loaded = get_trained_model(family)
    text = tmp_path / "again.txt"
    text.write_text("a gate of the old state forgets.\n" * 30)
    evaluation = loaded.evaluate(text, dynamic=True, dynamic_method="rms", dynamic_rate=1e-3)
    assert evaluation.metrics["dynamic_perplexity"] < 0.95 * evaluation.metrics["perplexity"]
    segment = 5 if family == "lstm" else 25
    rule = f"each segment of {segment} tokens is scored, then trained on (RMS, rate 0.001, decay 0.002, epsilon 2e-05)"
    where = f"gradient statistics of the train split of {book}"
    assert evaluation.method.endswith(f"dynamic evaluation: {rule}; one stream; {where}")


def test_missing_training_data_is_explained(book, tmp_path):
    copy = tmp_path / "copy.txt"
    shutil.copy(book, copy)
    loaded = seqwise.train(
        copy, out=tmp_path / "run", settings=keep_used(SMALL | {"budget": "300-tokens"}, model="gru")
    )
    other = tmp_path / "other.txt"
    other.write_text("the old gate forgets a word.\n" * 20)
    assert loaded.evaluate(other, cache=True, cache_search=True).metrics["cache_perplexity"] > 1
    copy.write_text(book.read_text() + "changed\n")
    with pytest.raises(UsageError, match=r"rms needs the training data of the run.*copy\.txt cannot be read, or has"):
        loaded.evaluate(other, dynamic=True, dynamic_method="rms")
    with pytest.raises(UsageError, match="--cache-search needs a validation split"):
        loaded.evaluate(other, cache=True, cache_search=True)


def test_the_search_of_dynamic_evaluation_tries_rates_and_decays(get_trained_model, book, monkeypatch):
    monkeypatch.setattr(dynamic_module, "SEARCH_TOKENS", 100)
    loaded, dynamic = get_trained_model(), create_settings("rms", rate=1e-3)
    store = get_store(loaded, book, "valid")
    rms = measure_rms_gradients(loaded.model, get_store(loaded, book, "train"), loaded.settings, 5)
    candidates = [replace(dynamic, rate=rate, decay=decay)
                  for rate in (5e-4, 1e-3, 2e-3) for decay in (0.001, 0.002, 0.005)]  # fmt: skip
    losses = [score_dynamically(loaded.model, store, loaded.settings, each, rms, max_tokens=100) for each in candidates]
    assert {tokens for _, tokens in losses} == {100}
    assert search_dynamic(loaded.model, store, loaded.settings, dynamic, rms) == candidates[losses.index(min(losses))]


def test_a_segment_longer_than_the_window_is_rejected(get_trained_model, book):
    with pytest.raises(UsageError, match="windows of 48 tokens; received --dynamic-segment 49"):
        get_trained_model("transformer").evaluate(book, dynamic=True, dynamic_segment=49)


class FakeGraph:
    """An imitation of a CUDA graph: the work is done at each replay, not at its capture."""

    replays = 0

    def __init__(self, device):
        self.work = lambda: None

    def capture(self, work) -> None:
        self.work = work

    def replay(self) -> None:
        FakeGraph.replays += 1
        self.work()


@pytest.mark.parametrize("family", ["lstm", "transformer"])
def test_replayed_segments_have_the_same_sums_to_the_bit(get_trained_model, book, family, monkeypatch):
    loaded = get_trained_model(family)
    store, sums = get_store(loaded, book), []
    monkeypatch.setattr(dynamic_module, "CudaGraph", FakeGraph)
    monkeypatch.setattr(FakeGraph, "replays", 0)
    for can_capture in (False, True):
        model = deepcopy(loaded.model).eval()
        runner = SegmentRunner(model, SGDUpdate(list_parameters(model), create_settings(rate=0.3)))
        runner.can_capture = can_capture
        for segment in iterate_segments(model, store, loaded.settings, 7, 1):
            runner.advance(segment)
        sums.append(runner.read_sums())
    assert sums[0] == sums[1]
    assert 0 < FakeGraph.replays >= sums[0].num_segments - dynamic_module.WARMUP_SEGMENTS - 1


# On a GPU


@pytest.mark.gpu
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("output", ["full", "mixture"])
@pytest.mark.parametrize("family", ["lstm", "gru", "transformer"])
def test_on_a_gpu_all_methods_have_the_results_of_the_cpu(get_trained_model, book, family, output, monkeypatch):
    loaded = get_trained_model(family, output)
    store, model, settings = get_store(loaded, book), loaded.model, loaded.settings
    on_gpu, replays = deepcopy(model).cuda(), []
    replay = dynamic_module.CudaGraph.replay
    monkeypatch.setattr(dynamic_module.CudaGraph, "replay", lambda graph: (replays.append(1), replay(graph)))
    cache, dynamic = CacheSettings(50, 0.2, 0.7), create_settings("rms", 7, rate=1e-3)
    for score in (
        lambda each: float(score_at_temperatures(each, store, settings, [0.9])),
        lambda each: score_with_cache(each, store, settings, cache),
        lambda each: score_dynamically(each, store, settings, dynamic, measure_rms_gradients(each, store, settings, 7))[
            0
        ],
    ):
        assert score(on_gpu) == pytest.approx(score(model), rel=1e-3)
    assert len(replays) > 50, "segments are replayed as a CUDA graph"
