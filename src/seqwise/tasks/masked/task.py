"""Filling in: predict hidden tokens from both sides, from raw text to filled text and contextual vectors.

    text → tokens → windows with hidden tokens → embedding → encoder → softmax → negative log likelihood
                                                                         └→ the likeliest fillings

The page wires pieces: which tokens are hidden is in `tasks/masked/masking.py`, the models are in `model.py`, and
filling in `[MASK]` is in `filling.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import torch

from seqwise.config import Settings
from seqwise.data.corpus.batching import WindowLoader
from seqwise.data.corpus.sources import Corpus
from seqwise.data.corpus.store import TokenStore
from seqwise.errors import DataError, UsageError
from seqwise.metrics.evaluation import Evaluation
from seqwise.metrics.perplexity import exp_or_inf
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.corpus_task import CorpusTask
from seqwise.tasks.latency import Stopwatch
from seqwise.tasks.masked.blocks import Fillings
from seqwise.tasks.masked.defaults import fill_masked
from seqwise.tasks.masked.filling import MASK, PAD, fill_in
from seqwise.tasks.masked.masking import EvaluationMasks, MaskedWindows, Masks
from seqwise.tasks.masked.model import AT_ONCE, MaskedModel, TwoWayModel, build_model
from seqwise.tasks.task import (
    InferenceOptions,
    Prediction,
    Preprocessor,
    ProgressCallback,
    Summing,
)
from seqwise.text.tokenizer import Tokenizer

ROWS = 32  # windows scored at once
MAX_VALIDATION_TOKENS = 100_000  # of the validation split, scored during training; 15,000 of them are hidden
MAX_LATENCY_INPUTS = 100
MIN_WINDOW = 3  # a hidden token and one on each side
EXAMPLE = "the [MASK] of"  # input on the model card

DEFINITIONS = {
    "perplexity": "exp(N / masked_tokens), N the nats of the hidden tokens; depends on the tokeniser",
    "accuracy": "share of the hidden tokens that were the model's first choice",
    "masked_tokens": "tokens hidden by fixed masks: the same for every run with this tokeniser, rate and text",
    "two_way_perplexity": "exp of the mean nats per token of both directions, nothing hidden",
    "forward_perplexity": "of each token from those before it in the window",
    "backward_perplexity": "of each token from those behind it in the window",
}


class Masked(CorpusTask):
    """Masked language modelling of one corpus."""

    special_tokens = (PAD, MASK)
    fill_defaults = staticmethod(fill_masked)
    primary_metric = ("perplexity", "masked ppl")

    def __init__(self, corpus: Corpus, tokenizer: Tokenizer, stores: dict[str, TokenStore]):
        super().__init__(corpus, tokenizer, stores)
        self.preprocessor.facts["example"] = EXAMPLE

    @classmethod
    def adapt_tokenizer(cls, kind: str, reason: str, settings: Settings) -> tuple[str, str]:
        """Words or parts of words: hiding a letter would teach spelling."""
        if kind == "characters":
            settings.text.min_count = max(2, settings.text.min_count)  # one occurrence does not teach a meaning
            return "words", "words that occur at least twice, because the text is smaller than 2 MB."
        return ("wordpiece", reason.replace("bpe", "wordpiece")) if kind == "bpe" else (kind, reason)

    def check_settings(self, settings: ResolvedSettings) -> None:
        recurrent = settings.recurrent
        if settings.model not in AT_ONCE and (not recurrent.bidirectional or recurrent.concat_directions):
            raise UsageError(
                "to fill in, a recurrent model reads in two directions that do not see each other: otherwise it would "
                "see what it predicts.",
                repair="Leave out --recurrent.bidirectional and --recurrent.concat-directions.",
            )
        if settings.data.window == "full" or settings.data.window < MIN_WINDOW:
            raise UsageError(
                f"--data.window: expected a number from {MIN_WINDOW} on; received {settings.data.window}.",
                repair="Leave it out, or set it to 64.",
            )
        self._scored(self.stores["valid"], settings)

    def run_layers(self, model: MaskedModel | TwoWayModel) -> None:
        model.states(torch.zeros(1, MIN_WINDOW, dtype=torch.int64, device="meta"))

    def build(self, settings: ResolvedSettings) -> MaskedModel | TwoWayModel:
        """Returns an untrained model that already predicts each token by its frequency."""
        return build_model(settings, len(self.tokenizer), self.counts)

    def batches(self, settings: ResolvedSettings, rank: int = 0, world: int = 1) -> MaskedWindows:
        rows, window = settings.training.batch_size, settings.data.window
        windows = WindowLoader(self.stores["train"], rows, window, settings.seed, rank, world)
        return MaskedWindows(windows, masks_of(self.tokenizer, settings), settings.model not in AT_ONCE)

    def validate(
        self, model: MaskedModel | TwoWayModel, settings: ResolvedSettings, world: Summing
    ) -> dict[str, float]:
        """Loss, perplexity and accuracy on the validation split, batch by batch among the processes.

        Of a long split only the beginning is scored. The best weights are those that fill in best: the loss of a model
        that reads in two directions is about other tokens, and about each direction by itself.
        """
        batches = self._scored(self.stores["valid"], settings)
        some = -(-2 * MAX_VALIDATION_TOKENS // (batches.rows * batches.window))
        sums = world.sum(*score(model, batches, world.rank, world.size, some))
        found = {"loss": sums[0] / sums[1], "perplexity": exp_or_inf(sums[2] / sums[4]), "accuracy": sums[3] / sums[4]}
        return found | {"goal": sums[2] / sums[4]}

    # A trained model, without that data

    @classmethod
    def restore(cls, settings: ResolvedSettings, preprocessor: Preprocessor) -> MaskedModel | TwoWayModel:
        return build_model(settings, len(preprocessor.tokenizer))

    @classmethod
    def evaluate(
        cls,
        model: MaskedModel | TwoWayModel,
        settings: ResolvedSettings,
        preprocessor: Preprocessor,
        data: str,
        *,
        split: str | None = None,
        trained_on: str = "",
        options: InferenceOptions = InferenceOptions(),
        progress: ProgressCallback | None = None,
    ) -> Evaluation:
        """Returns perplexity and accuracy of hidden tokens, on the test split of the training data or a whole text."""
        store, on = cls.open_store(data, settings, preprocessor.tokenizer, split, trained_on)
        batches = _batches_to_score(store, preprocessor.tokenizer, settings)
        fillings = Fillings() if options.examples else None
        with Stopwatch() as watch:
            _, _, nats, hits, hidden = score(model, batches, progress=progress, fillings=fillings)
        metrics = {"perplexity": exp_or_inf(nats / hidden), "accuracy": hits / hidden, "masked_tokens": hidden}
        how = f"{settings.masked.rate:.0%} of the tokens hidden, in windows of {batches.window}; "
        if isinstance(model, TwoWayModel):
            how += "both directions together: p(x | left) · p(x | right) / p(x), normalised; "
            metrics |= score_directions(model, batches)
        warnings: tuple[str, ...] = ()
        if unknown := store.info.unknown:
            warnings = (f"{unknown / len(store):.1%} of the tokens ({unknown:,}) are <unk>, which is never hidden.",)
        examples = None if fillings is None else fillings.examples(store, preprocessor.tokenizer)
        how += model.output.describe()
        return Evaluation(metrics, DEFINITIONS, on, how, warnings=warnings, seconds=watch.seconds, examples=examples)

    @classmethod
    def latency_inputs(
        cls,
        model: MaskedModel | TwoWayModel,
        settings: ResolvedSettings,
        preprocessor: Preprocessor,
        data: str,
        split: str,
        trained_on: str = "",
    ) -> tuple[Sequence[Any], Callable[[Any], object]]:
        """Returns windows of the split with the token in the middle hidden."""
        store, _ = cls.open_store(data, settings, preprocessor.tokenizer, split, trained_on)
        window = min(settings.data.window if isinstance(settings.data.window, int) else MIN_WINDOW, len(store))

        def text(start: int) -> str:
            ids, middle = store.read(start, window), window // 2
            left, right = preprocessor.tokenizer.decode(ids[:middle]), preprocessor.tokenizer.decode(ids[middle + 1 :])
            return f"{left} [MASK] {right}"

        texts = [
            text(start) for start in range(0, len(store) - window + 1, max(window, len(store) // MAX_LATENCY_INPUTS))
        ]
        return texts, lambda masked: list(cls.predict(model, settings, preprocessor, [masked]))

    @classmethod
    def predict(
        cls,
        model: MaskedModel | TwoWayModel,
        settings: ResolvedSettings,
        preprocessor: Preprocessor,
        inputs: Sequence[str],
        options: InferenceOptions = InferenceOptions(),
    ) -> Iterator[Prediction]:
        """Yields the most probable fillings of each [MASK], and the text with the best of them."""
        window = settings.data.window if isinstance(settings.data.window, int) else MIN_WINDOW
        return fill_in(model, preprocessor.tokenizer, inputs, window, options.top)

    def _scored(self, store: TokenStore, settings: ResolvedSettings) -> EvaluationMasks:
        return _batches_to_score(store, self.tokenizer, settings)


def masks_of(tokenizer: Tokenizer, settings: ResolvedSettings) -> Masks:
    return Masks(settings.masked.rate, tokenizer.id(MASK), len(tokenizer.specials), len(tokenizer), tokenizer.unknown)


def _batches_to_score(store: TokenStore, tokenizer: Tokenizer, settings: ResolvedSettings) -> EvaluationMasks:
    """Returns batches with fixed masks; rejects a text in which they hide nothing."""
    window = settings.data.window if isinstance(settings.data.window, int) else MIN_WINDOW
    batches = EvaluationMasks(store, masks_of(tokenizer, settings), ROWS, window, settings.model not in AT_ONCE)
    if not any(bool(batch.chosen.any()) for batch in batches.epoch()):
        raise DataError(
            f"the {store.info.split or 'data'} text has {len(store):,} tokens, and the fixed masks hide none of them.",
            repair="Give more text, or a larger --data.valid-fraction, --data.test-fraction or --masked.rate.",
        )
    return batches


@torch.no_grad()
def score(
    model: MaskedModel | TwoWayModel,
    batches: EvaluationMasks,
    rank: int = 0,
    world: int = 1,
    some: int | None = None,
    progress: ProgressCallback | None = None,
    fillings: Fillings | None = None,
) -> tuple[float, int, float, int, int]:
    """(nats and targets of the training loss; nats, hits and number of the hidden tokens) of this process's batches.

    Where there are `fillings`, they also hear of every hidden token.
    """
    model.eval()
    device = model.embedding.weight.device
    total, targets, nats, hits, hidden = 0.0, 0, 0.0, 0, 0
    for number, batch in enumerate(islice(batches.epoch(), some)):
        if number % world == rank:
            filled = model.judge(batch.to(device))
            if fillings is not None:
                fillings.add(batch, filled)
            total, targets = total + float(filled.loss.total), targets + filled.loss.count
            nats, hits, hidden = nats + filled.nats, hits + filled.hits, hidden + filled.count
        if progress:
            progress(number + 1, batches.steps)
    return total, targets, nats, hits, hidden


@torch.no_grad()
def score_directions(model: TwoWayModel, batches: EvaluationMasks) -> dict[str, float]:
    """Returns the perplexity of each direction as a language model, and of both together."""
    sums = torch.zeros(4, dtype=torch.float64)
    for batch in batches.epoch():
        ahead, back = model.direction_losses(batch.to(model.embedding.weight.device))
        sums += torch.tensor([float(ahead.total), ahead.count, float(back.total), back.count], dtype=torch.float64)
    ahead_nats, ahead_count, back_nats, back_count = sums.tolist()
    return {
        "two_way_perplexity": exp_or_inf((ahead_nats + back_nats) / (ahead_count + back_count)),
        "forward_perplexity": exp_or_inf(ahead_nats / ahead_count),
        "backward_perplexity": exp_or_inf(back_nats / back_count),
    }
