"""Filling in: predict hidden tokens from both sides, from raw text to filled text and contextual vectors.

    text → tokens → windows with hidden tokens → embedding → encoder → softmax → negative log likelihood
                                                                         └→ the likeliest fillings

The page wires pieces: which tokens are hidden is in `tasks/masked/masking.py`, the models are in `model.py`, and
filling in `[MASK]` is in `filling.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from time import perf_counter
from typing import Any, Self

import torch
from torch import Tensor

from seqwise.config import Settings
from seqwise.data.corpus.batching import WindowLoader
from seqwise.data.corpus.prepare import prepare as prepare_stores
from seqwise.data.corpus.sources import Corpus, open_corpus
from seqwise.data.corpus.store import TokenStore
from seqwise.data.tables import reject_columns
from seqwise.errors import DataError, UsageError
from seqwise.metrics.evaluation import Evaluation
from seqwise.metrics.perplexity import exp_or_inf
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.language.task import Language, text_to_score
from seqwise.tasks.masked.blocks import Fillings
from seqwise.tasks.masked.defaults import fill_masked
from seqwise.tasks.masked.filling import MASK, PAD, fill_in
from seqwise.tasks.masked.masking import EvaluationMasks, MaskedWindows, Masks
from seqwise.tasks.masked.model import AT_ONCE, MaskedModel, TwoWayModel, build_model
from seqwise.tasks.task import (
    InferenceOptions,
    LogFunction,
    Prediction,
    Preprocessor,
    ProgressCallback,
    Report,
    Size,
    Summing,
    Task,
    no_log,
)
from seqwise.text.choose import choose_tokenizer
from seqwise.text.tokenizer import Tokenizer

ROWS = 32  # windows scored at once
INTERIM = 100_000  # tokens of the validation split that are scored during training; 15,000 of them are hidden
ASKED = 100  # texts of the split that can be asked for the pace of an answer
LEAST_WINDOW = 3  # a hidden token and one on each side
EXAMPLE = "the [MASK] of"  # what the model card proposes to ask

DEFINITIONS = {
    "perplexity": "exp(N / masked_tokens), N the nats of the hidden tokens; depends on the tokeniser",
    "accuracy": "share of the hidden tokens that were the model's first choice",
    "masked_tokens": "tokens hidden by fixed masks: the same for every run with this tokeniser, rate and text",
    "two_way_perplexity": "exp of the mean nats per token of both directions, nothing hidden",
    "forward_perplexity": "of each token from those before it in the window",
    "backward_perplexity": "of each token from those behind it in the window",
}


class Masked(Task):
    """The task on one corpus: tokeniser and token stores are ready."""

    fill_defaults = staticmethod(fill_masked)
    primary_metric = ("perplexity", "masked ppl")

    def __init__(self, corpus: Corpus, tokenizer: Tokenizer, stores: dict[str, TokenStore]):
        self.corpus, self.tokenizer, self.stores = corpus, tokenizer, stores
        self.fingerprint, self.split_rule = corpus.fingerprint, corpus.split_rule
        self.preprocessor = Preprocessor({"text": tokenizer}, {"example": EXAMPLE})

    @classmethod
    def prepare(
        cls,
        data: str,
        settings: Settings,
        preprocessor: Preprocessor | None = None,
        log: LogFunction = no_log,
        progress: ProgressCallback | None = None,
    ) -> Self:
        """Read the data; learn the tokeniser from the training split unless there is one already."""
        reject_columns(settings.columns, "It reads plain text, and `text` of .jsonl: leave --columns out.")
        corpus = open_corpus(data, settings.data.valid_fraction, settings.data.test_fraction)
        tokenizer = learn_tokenizer(corpus, settings, log) if preprocessor is None else preprocessor.tokenizer
        stores = prepare_stores(corpus, tokenizer, progress)
        sizes = ", ".join(f"{split} {len(store):,}" for split, store in stores.items())
        log(f"tokens: {sizes}; vocabulary {len(tokenizer):,}. {corpus.split_rule[0].upper()}{corpus.split_rule[1:]}")
        return cls(corpus, tokenizer, stores)

    def size(self) -> Size:
        return Size(len(self.stores["train"]), len(self.tokenizer))

    def check_settings(self, settings: ResolvedSettings) -> None:
        recurrent = settings.recurrent
        if settings.model not in AT_ONCE and (not recurrent.bidirectional or recurrent.concat_directions):
            raise UsageError(
                "to fill in, a recurrent model reads in two directions that do not see each other: otherwise it would "
                "see what it predicts.",
                repair="Leave out --recurrent.bidirectional and --recurrent.concat-directions.",
            )
        if settings.data.window == "full" or settings.data.window < LEAST_WINDOW:
            raise UsageError(
                f"--data.window: expected a number from {LEAST_WINDOW} on; received {settings.data.window}.",
                repair="Leave it out, or set it to 64.",
            )
        self._scored(self.stores["valid"], settings)

    def run_layers(self, model: MaskedModel | TwoWayModel) -> None:
        model.states(torch.zeros(1, LEAST_WINDOW, dtype=torch.int64, device="meta"))

    def build(self, settings: ResolvedSettings) -> MaskedModel | TwoWayModel:
        """An untrained model that already predicts each token by its frequency."""
        return build_model(settings, len(self.tokenizer), self.counts)

    @cached_property
    def counts(self) -> Tensor:
        """How often each token occurs in the training split, (V,)."""
        return torch.from_numpy(self.stores["train"].counts(len(self.tokenizer)))

    def token_counts(self) -> dict[str, Tensor]:
        return {"text": self.counts}

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
        some = -(-2 * INTERIM // (batches.rows * batches.window))
        sums = world.sum(*score(model, batches, world.rank, world.size, some))
        found = {"loss": sums[0] / sums[1], "perplexity": exp_or_inf(sums[2] / sums[4]), "accuracy": sums[3] / sums[4]}
        return found | {"goal": sums[2] / sums[4]}

    def report(self) -> Report:
        return Language(self.corpus, self.tokenizer, self.stores).report()

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
        """Perplexity and accuracy of hidden tokens, on the test split of the data of the run or on a whole text."""
        corpus, split = text_to_score(data, settings, split, trained_on)
        store = prepare_stores(corpus, preprocessor.tokenizer)[split]
        batches = _batches_to_score(store, preprocessor.tokenizer, settings)
        fillings = Fillings() if options.examples else None
        began = perf_counter()
        _, _, nats, hits, hidden = score(model, batches, progress=progress, fillings=fillings)
        seconds = perf_counter() - began
        metrics = {"perplexity": exp_or_inf(nats / hidden), "accuracy": hits / hidden, "masked_tokens": hidden}
        how = f"{settings.masked.rate:.0%} of the tokens hidden, in windows of {batches.window}; "
        if isinstance(model, TwoWayModel):
            how += "both directions together: p(x | left) · p(x | right) / p(x), normalised; "
            metrics |= score_ways(model, batches)
        remarks: tuple[str, ...] = ()
        if unknown := store.info.unknown:
            remarks = (f"{unknown / len(store):.1%} of the tokens ({unknown:,}) are <unk>, which is never hidden.",)
        on = f"{data}, {'all of it' if split == 'all' else f'the {split} split'}"
        examples = None if fillings is None else fillings.examples(store, preprocessor.tokenizer)
        how += model.output.describe()
        return Evaluation(metrics, DEFINITIONS, on, how, warnings=remarks, seconds=seconds, examples=examples)

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
        """Windows of the split with the token in the middle hidden."""
        corpus, split = text_to_score(data, settings, split, trained_on)
        store = prepare_stores(corpus, preprocessor.tokenizer)[split]
        window = min(settings.data.window if isinstance(settings.data.window, int) else LEAST_WINDOW, len(store))

        def text(start: int) -> str:
            ids, middle = store.read(start, window), window // 2
            left, right = preprocessor.tokenizer.decode(ids[:middle]), preprocessor.tokenizer.decode(ids[middle + 1 :])
            return f"{left} [MASK] {right}"

        texts = [text(start) for start in range(0, len(store) - window + 1, max(window, len(store) // ASKED))]
        return texts, lambda given: list(cls.predict(model, settings, preprocessor, [given]))

    @classmethod
    def predict(
        cls,
        model: MaskedModel | TwoWayModel,
        settings: ResolvedSettings,
        preprocessor: Preprocessor,
        inputs: Sequence[str],
        options: InferenceOptions = InferenceOptions(),
    ) -> Iterator[Prediction]:
        """The likeliest fillings of each [MASK], and the text with the first of them."""
        window = settings.data.window if isinstance(settings.data.window, int) else LEAST_WINDOW
        return fill_in(model, preprocessor.tokenizer, inputs, window, options.top)

    def _scored(self, store: TokenStore, settings: ResolvedSettings) -> EvaluationMasks:
        return _batches_to_score(store, self.tokenizer, settings)


def learn_tokenizer(corpus: Corpus, settings: Settings, log: LogFunction) -> Tokenizer:
    """Words or parts of words unless the user says otherwise: hiding a letter teaches spelling."""
    text = settings.text
    if text.tokenizer is None:
        kind, size, why = choose_tokenizer(corpus.sample(), corpus.size("train"), settings.vectors is not None)
        if kind == "characters":
            kind, why = "words", "words that occur at least twice, because the text is smaller than 2 MB."
            text.min_count = max(2, text.min_count)  # a word seen once has taught nobody what it means
        elif kind == "bpe":
            kind, why = "wordpiece", why.replace("bpe", "wordpiece")
        text.tokenizer, text.vocabulary = kind, text.vocabulary or size  # type: ignore[assignment]
        log(f"tokeniser: {why}")
    tokenizer = Tokenizer.train(
        str(text.tokenizer), corpus.texts("train"), text.vocabulary, text.min_count, text.lowercase, (PAD, MASK)
    )
    text.vocabulary = len(tokenizer)
    return tokenizer


def masks_of(tokenizer: Tokenizer, settings: ResolvedSettings) -> Masks:
    return Masks(settings.masked.rate, tokenizer.id(MASK), len(tokenizer.specials), len(tokenizer), tokenizer.unknown)


def _batches_to_score(store: TokenStore, tokenizer: Tokenizer, settings: ResolvedSettings) -> EvaluationMasks:
    """Batches with fixed masks; an error if they hide nothing."""
    window = settings.data.window if isinstance(settings.data.window, int) else LEAST_WINDOW
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
def score_ways(model: TwoWayModel, batches: EvaluationMasks) -> dict[str, float]:
    """The perplexity of each direction as a language model, and of both together."""
    sums = torch.zeros(4, dtype=torch.float64)
    for batch in batches.epoch():
        ahead, back = model.ways(batch.to(model.embedding.weight.device))
        sums += torch.tensor([float(ahead.total), ahead.count, float(back.total), back.count], dtype=torch.float64)
    ahead_nats, ahead_count, back_nats, back_count = sums.tolist()
    return {
        "two_way_perplexity": exp_or_inf((ahead_nats + back_nats) / (ahead_count + back_count)),
        "forward_perplexity": exp_or_inf(ahead_nats / ahead_count),
        "backward_perplexity": exp_or_inf(back_nats / back_count),
    }
