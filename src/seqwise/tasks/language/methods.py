"""Evaluation of a language model by other methods than the plain one, each with its own metrics and description.

A method changes what is measured: a temperature is fitted to held-out text, a cache and dynamic evaluation learn from
the text that is scored. Their results are published apart from the plain perplexity, so they never replace it.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from seqwise.data.corpus.store import TokenStore
from seqwise.errors import UsageError
from seqwise.metrics.evaluation import Perplexity
from seqwise.tasks.corpus_task import CorpusTask
from seqwise.tasks.language.cache import CacheSettings, score_with_cache, search_cache
from seqwise.tasks.language.dynamic import (
    DynamicSettings,
    measure_rms_gradients,
    score_dynamically,
    search_dynamic,
)
from seqwise.tasks.language.ngram import NGramModel
from seqwise.tasks.language.temperature import score_at_temperatures, search_temperature
from seqwise.tasks.task import InferenceOptions, ModelBundle

METRICS = ("perplexity", "word_perplexity", "bits_per_character")
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

    def compute_metrics(self, store: TokenStore) -> dict[str, float]:
        """Returns the metrics under names of their own, such as `cache_perplexity`."""
        metrics = Perplexity(self.nats, len(store) - 1, store.info.words, store.info.characters).compute_metrics()
        return {f"{self.prefix}_{name}": metrics[name] for name in METRICS}

    @property
    def definitions(self) -> dict[str, str]:
        return {f"{self.prefix}_{name}": f"as {name}, {PHRASES[self.prefix]}" for name in METRICS}


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
        temperature, origin = self.options.softmax_temperature, ""
        if temperature == "auto":
            valid, where = self._find_validation("--softmax-temperature auto", "Give a number")
            self.start_phase("searching the temperature")
            temperature = search_temperature(self.model, valid, self.settings, self.progress)
            origin = f", chosen on {where}"
        assert isinstance(temperature, int | float)
        self.start_phase("evaluating with the temperature")
        nats = score_at_temperatures(self.model, self.store, self.settings, [temperature], self.progress)
        text = f"temperature: logits divided by {temperature:g}{origin}; otherwise as the plain perplexity"
        return MethodResult("temperature", float(nats), text)

    def _apply_cache(self) -> MethodResult:
        options, origin = self.options, ""
        cache = CacheSettings(options.cache_window, options.cache_weight, options.cache_theta)
        if options.cache_search:
            valid, where = self._find_validation("--cache-search", "Give --cache-weight and --cache-theta")
            self.start_phase("searching the cache")
            cache = search_cache(self.model, valid, self.settings, cache.window, self.progress)
            origin = f", chosen on {where}"
        self.start_phase("evaluating with the cache")
        nats = score_with_cache(self.model, self.store, self.settings, cache, self.progress)
        context = "one stream over the whole text"
        if not self.model.stateful:
            context = "windows as for the plain perplexity, in the order of the text"
        return MethodResult("cache", nats, f"cache: {cache.describe()}{origin}; {context}")

    def _evaluate_dynamically(self) -> MethodResult:
        model, options, origin, rms = self.model, self.options, "", []
        dynamic = DynamicSettings.from_options(options, model, self.settings)
        if dynamic.method == "rms":
            training, where = self._find_training()
            self.start_phase("gradient statistics")
            rms = measure_rms_gradients(model, training, self.settings, dynamic.segment, self.progress)
            origin = f"; gradient statistics of {where}"
        if options.dynamic_search:
            valid, where = self._find_validation("--dynamic-search", "Give --dynamic-rate")
            self.start_phase("searching dynamic evaluation")
            dynamic = search_dynamic(model, valid, self.settings, dynamic, rms, self.progress)
            origin += f"; rate{' and decay' if rms else ''} chosen on {where}"
        self.start_phase("dynamic evaluation")
        nats, _ = score_dynamically(model, self.store, self.settings, dynamic, rms, self.progress)
        return MethodResult("dynamic", nats, f"dynamic evaluation: {dynamic.describe()}{origin}")

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
