"""Evaluation of a language model by other methods than the plain one, each with its own metrics and description.

A method changes what is measured: a temperature is fitted to held-out text, a cache and dynamic evaluation learn from
the text that is scored. Their results are published apart from the plain perplexity, so they never replace it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from seqwise.data.corpus.store import TokenStore
from seqwise.errors import UsageError
from seqwise.metric_names import TEXT_METRICS
from seqwise.metrics.evaluation import Perplexity
from seqwise.tasks.corpus_task import CorpusTask
from seqwise.tasks.language.cache import THETAS, WEIGHTS, CacheSettings, score_with_cache, search_cache
from seqwise.tasks.language.dynamic import (
    DECAYS,
    RATE_FACTORS,
    DynamicSettings,
    measure_rms_gradients,
    score_dynamically,
    search_dynamic,
)
from seqwise.tasks.language.ngram import NGramModel
from seqwise.tasks.language.temperature import TEMPERATURES, score_at_temperatures, search_temperature
from seqwise.tasks.task import InferenceOptions, ModelBundle

# Prefix of the metrics of a method → how its definitions end.
PHRASES = {
    "temperature": "with the softmax temperature",
    "cache": "with the continuous cache",
    "dynamic": "by dynamic evaluation",
}
FITTED = " (the very text that is scored: fitted to it, so better than on new text)"


@dataclass(frozen=True)
class MethodResult:
    """The loss of a text by one method."""

    prefix: str  # of its metrics: a key of PHRASES
    nats: float
    description: str
    notes: Sequence[str] = ()

    def compute_metrics(self, store: TokenStore) -> dict[str, float]:
        """Returns the metrics under names of their own, such as `cache_perplexity`."""
        metrics = Perplexity(self.nats, len(store) - 1, store.info.words, store.info.characters).compute_metrics()
        return {f"{self.prefix}_{name}": metrics[name] for name in TEXT_METRICS}

    @property
    def definitions(self) -> dict[str, str]:
        return {f"{self.prefix}_{name}": f"as {name}, {PHRASES[self.prefix]}" for name in TEXT_METRICS}


@dataclass(frozen=True)
class SearchedNumber:
    """A number that a search has chosen from a grid."""

    option: str
    value: float
    grid: Sequence[float]  # sorted

    @property
    def is_at_edge(self) -> bool:
        return self.value in (self.grid[0], self.grid[-1])

    def choose_next(self) -> float:
        """Returns the value to try next: at an edge the one with which the grid would continue, else the chosen one."""
        if not self.is_at_edge:
            return self.value
        neighbour = self.grid[1] if self.value == self.grid[0] else self.grid[-2]
        return self.value**2 / neighbour


def note_edges(search: str, numbers: Sequence[SearchedNumber]) -> list[str]:
    """Returns a note if a search has chosen a number at the edge of its grid."""
    edges = " and ".join(f"{each.option} {each.value:g}" for each in numbers if each.is_at_edge)
    if not edges:
        return []
    where = "at the edge of the searched values, beyond which a better one may exist"
    trial = " ".join(f"{each.option} {each.choose_next():.3g}" for each in numbers)
    return [f"{search} chose {edges}, {where}. Instead, try {trial} on the validation split."]


class MethodEvaluation:
    """Evaluates one text by the methods that the options ask for."""

    def __init__(
        self, task: type[CorpusTask], bundle: ModelBundle, data: str, store: TokenStore, options: InferenceOptions
    ):
        self.task, self.bundle, self.data, self.store, self.options = task, bundle, data, store, options
        self.model: nn.Module = bundle.model
        self.settings, self.progress, self.start_phase = bundle.settings, options.progress, options.start_phase

    def run(self) -> list[MethodResult]:
        """Returns the result of each method, in the order of PHRASES."""
        options, results = self.options, []
        if options.softmax_temperature is not None:
            results.append(self._apply_temperature())
        if options.cache:
            results.append(self._apply_cache())
        if options.dynamic:
            results.append(self._evaluate_dynamically())
        return results

    def _apply_temperature(self) -> MethodResult:
        temperature, origin, notes = self.options.softmax_temperature, "", []
        if temperature == "auto":
            valid, where = self._find_validation("--softmax-temperature auto", "Give a number")
            self.start_phase("searching the temperature")
            temperature = search_temperature(self.model, valid, self.settings, self.progress)
            origin = f", chosen on {where}"
            option = "--softmax-temperature"
            notes = note_edges(f"{option} auto", [SearchedNumber(option, temperature, TEMPERATURES)])
        assert isinstance(temperature, int | float)
        self.start_phase("evaluating with the temperature")
        nats = score_at_temperatures(self.model, self.store, self.settings, [temperature], self.progress)
        text = f"temperature: logits divided by {temperature:g}{origin}; otherwise as the plain perplexity"
        return MethodResult("temperature", float(nats), text, notes)

    def _apply_cache(self) -> MethodResult:
        options, origin, notes = self.options, "", []
        cache = CacheSettings(options.cache_window, options.cache_weight, options.cache_theta)
        if options.cache_search:
            valid, where = self._find_validation("--cache-search", "Give --cache-weight and --cache-theta")
            self.start_phase("searching the cache")
            cache = search_cache(self.model, valid, self.settings, cache.window, self.progress)
            origin = f", chosen on {where}"
            notes = _note_edges_of_cache(cache)
        self.start_phase("evaluating with the cache")
        nats = score_with_cache(self.model, self.store, self.settings, cache, self.progress)
        context = "one stream over the whole text"
        if not self.model.stateful:
            context = "windows as for the plain perplexity, in the order of the text"
        return MethodResult("cache", nats, f"cache: {cache.describe()}{origin}; {context}", notes)

    def _evaluate_dynamically(self) -> MethodResult:
        model, options, origin, rms, notes = self.model, self.options, "", [], []
        dynamic = DynamicSettings.from_options(options, model, self.settings)
        if dynamic.method == "rms":
            training, where = self._find_training()
            self.start_phase("gradient statistics")
            rms = measure_rms_gradients(model, training, self.settings, dynamic.segment, self.progress)
            origin = f"; gradient statistics of {where}"
        if options.dynamic_search:
            valid, where = self._find_validation("--dynamic-search", "Give --dynamic-rate")
            self.start_phase("searching dynamic evaluation")
            rates = [factor * dynamic.rate for factor in RATE_FACTORS]
            dynamic = search_dynamic(model, valid, self.settings, dynamic, rms, self.progress)
            origin += f"; rate{' and decay' if rms else ''} chosen on {where}"
            numbers = [SearchedNumber("--dynamic-rate", dynamic.rate, rates)]
            numbers += [SearchedNumber("--dynamic-decay", dynamic.decay, DECAYS)] if rms else []
            notes = note_edges("--dynamic-search", numbers)
        self.start_phase("dynamic evaluation")
        nats, _ = score_dynamically(model, self.store, self.settings, dynamic, rms, self.progress)
        return MethodResult("dynamic", nats, f"dynamic evaluation: {dynamic.describe()}{origin}", notes)

    def _find_validation(self, option: str, alternative: str) -> tuple[TokenStore, str]:
        """Returns the validation split, and what it is, in words, also whether it is the text that is scored."""
        found = self.task.find_split(self.bundle, self.data, "valid", is_own=False)
        if found is None:
            problem = f"{option} needs a validation split: that of {self.data}, or that of the training data of the run"
            raise UsageError(f"{problem} ({self._describe_training_data()}).", fix=f"{alternative} instead.")
        store, where = found
        return store, f"{where}{FITTED if store.path == self.store.path else ''}"

    def _find_training(self) -> tuple[TokenStore, str]:
        found = self.task.find_split(self.bundle, self.data, "train", is_own=True)
        if found is None:
            problem = "--dynamic-method rms needs the training data of the run, for the mean squares of gradients"
            fix = "Make that data available where it was, or evaluate with --dynamic-method sgd, which needs none."
            raise UsageError(f"{problem}; {self._describe_training_data()}.", fix=fix)
        return found

    def _describe_training_data(self) -> str:
        name = self.bundle.training_data
        return f"{name} cannot be read, or has changed" if name else "the run does not name it"


def _note_edges_of_cache(cache: CacheSettings) -> list[str]:
    if cache.weight == 0:  # no smaller weight exists, and theta has no effect
        return ["--cache-search chose --cache-weight 0: the cache does not help on the validation split."]
    weight = SearchedNumber("--cache-weight", cache.weight, WEIGHTS)
    return note_edges("--cache-search", [weight, SearchedNumber("--cache-theta", cache.theta, THETAS)])


def reject_methods_of_ngrams(model: object, options: InferenceOptions) -> None:
    """Raises an error if the options ask for a method that an n-gram model does not have."""
    if not isinstance(model, NGramModel):
        return
    if options.dynamic:
        raise UsageError("an n-gram model cannot be evaluated dynamically.", fix="Leave out --dynamic.")
    if options.cache:
        raise UsageError("an n-gram model has no vectors, which a cache compares.", fix="Leave out --cache.")
    if options.softmax_temperature is not None:
        raise UsageError("an n-gram model has no softmax.", fix="Leave out --softmax-temperature.")
