"""Language modelling: predict the next token, from raw text to generated text.

    text → tokens → streams or windows → embedding → backbone → next-token head → negative log likelihood
                                                                              └→ sampling → text

The page wires pieces; each piece is explained where it lives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from functools import cached_property
from time import perf_counter
from typing import Any, Self

import torch
from torch import Tensor

from seqwise.config import MAX_LENGTH, Settings
from seqwise.data.corpus.batching import StreamLoader, WindowLoader
from seqwise.data.corpus.prepare import prepare as prepare_stores
from seqwise.data.corpus.sources import Corpus, merge_splits, open_corpus, open_unsplit
from seqwise.data.corpus.store import TokenStore
from seqwise.data.splitting import TooShortError
from seqwise.data.tables import reject_columns
from seqwise.decoding.generate import generate
from seqwise.decoding.options import SamplingOptions
from seqwise.errors import UsageError, nearest
from seqwise.families import get_family
from seqwise.metrics.evaluation import Evaluation
from seqwise.metrics.perplexity import DEFINITIONS, exp_or_inf
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.language.blocks import blocks_of, examples_of
from seqwise.tasks.language.defaults import fill_language
from seqwise.tasks.language.model import LanguageModel as LanguageModel
from seqwise.tasks.language.model import Model as Model
from seqwise.tasks.language.model import build_model
from seqwise.tasks.language.model import write_on as write_on
from seqwise.tasks.language.ngram_model import NGramModel, check_counting
from seqwise.tasks.language.scoring import ROWS, evaluation_rows, perplexity, score, score_dynamically
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

INTERIM = 250_000  # tokens of the validation split that are scored during training
LEAST_ADAPTIVE = 20  # tokens; the first cluster holds a tenth of them
MANY_UNKNOWN = 0.05  # share of held-out tokens from which on the user is told
PROMPT = 64  # tokens that are read before the pace of writing on is measured
LONG_LINE = 80  # characters; shorter lines occur twice by chance


class Language(Task):
    """The task on one corpus: tokeniser and token stores are ready, a model can be built, trained and scored."""

    fill_defaults = staticmethod(fill_language)
    primary_metric = ("perplexity", "ppl")
    outputs = ("full", "adaptive", "sampled")

    def __init__(self, corpus: Corpus, tokenizer: Tokenizer, stores: dict[str, TokenStore]):
        self.corpus, self.tokenizer, self.stores = corpus, tokenizer, stores
        self.fingerprint, self.split_rule = corpus.fingerprint, corpus.split_rule
        self.preprocessor = Preprocessor({"text": tokenizer})

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
        if not get_family(settings.model).has_gradients:
            check_counting(len(self.stores["train"]), len(self.tokenizer), settings.context.length)
            return
        network, window = settings.network, settings.data.window
        if settings.recurrent.bidirectional:
            raise UsageError(
                "a language model must not see what it predicts: it reads in one direction.",
                repair="Leave out --recurrent.bidirectional, or use --task masked.",
            )
        if network.output == "adaptive" and self.tokenizer.kind in ("bpe", "wordpiece"):
            raise UsageError(
                f"the adaptive softmax needs ids sorted by frequency, which {self.tokenizer.kind} does not give.",
                repair="Use --text.tokenizer words, or --network.output full or sampled.",
            )
        if network.output == "adaptive" and len(self.tokenizer) < LEAST_ADAPTIVE:
            raise UsageError(
                f"the adaptive softmax is for large vocabularies: expected at least {LEAST_ADAPTIVE} tokens, "
                f"received {len(self.tokenizer)}.",
                repair="Use --network.output full.",
            )
        if settings.model == "transformer" and window == "full":
            raise UsageError("a Transformer needs a window of limited length.", repair="Set --data.window to a number.")

    def run_layers(self, model: LanguageModel) -> None:
        model.backbone(model.embedding(torch.zeros(1, 1, dtype=torch.int64, device="meta")))

    def report(self) -> Report:
        columns = ("lines", "words", "characters", "tokens", "unknown")
        rows = {split: tuple(getattr(store.info, name) for name in columns) for split, store in self.stores.items()}
        vocabulary = f"tokeniser: {self.tokenizer.kind}, vocabulary {len(self.tokenizer):,} (from the training split)"
        return Report(columns, rows, (vocabulary, f"split: {self.split_rule}"), tuple(self.remarks()))

    def remarks(self) -> list[str]:
        """What is no error, but makes a result worse or too good."""
        found = []
        for split, store in self.stores.items():
            share = store.info.unknown / max(1, store.info.tokens)
            if split != "train" and share > MANY_UNKNOWN:
                found.append(f"{share:.1%} of the {split} tokens are <unk>: the vocabulary does not have them.")
        for split, count in repeated_lines(self.corpus).items():
            lines = "line is" if count == 1 else "lines are"
            found.append(
                f"{count:,} long {lines} in {split} as well as in train: what was learned by heart is measured there."
            )
        return found

    def build(self, settings: ResolvedSettings) -> Model:
        """Returns an untrained model; a neural one already predicts each token by its frequency."""
        counts = self.counts if get_family(settings.model).has_gradients else None
        return build_model(settings, len(self.tokenizer), counts)

    def fit(self, model: NGramModel) -> int:
        model.fit(self.stores["train"], self.tokenizer.end)
        return len(self.stores["train"])

    @cached_property
    def counts(self) -> Tensor:
        """How often each token occurs in the training split, (V,)."""
        return torch.from_numpy(self.stores["train"].counts(len(self.tokenizer)))

    def token_counts(self) -> dict[str, Tensor]:
        return {"text": self.counts}

    def batches(self, settings: ResolvedSettings, rank: int = 0, world: int = 1) -> StreamLoader | WindowLoader:
        """Training batches in the order that suits the model."""
        kind = StreamLoader if settings.data.order == "streams" else WindowLoader
        rows, window = settings.training.batch_size, settings.data.window
        return kind(self.stores["train"], rows, window, settings.seed, rank, world)

    def validate(self, model: Model, settings: ResolvedSettings, world: Summing) -> dict[str, float]:
        """Loss and perplexity on the validation split, shared among the processes.

        Of a long split only a part is scored: the beginning of each of the 16 streams, or for a model without a state
        the beginning of the split.
        """
        store = self.stores["valid"]
        # The same rows whatever the number of processes; where they cannot be divided, the first one scores them all.
        carries = isinstance(model, NGramModel) or model.carries
        shared = (evaluation_rows(store) if carries else ROWS) % world.size == 0
        mine = (0.0, 0)
        if shared or world.rank == 0:
            rank, size = (world.rank, world.size) if shared else (0, 1)
            mine = score(model, store, settings, rank, size, longest=INTERIM)
        nats, tokens = world.sum(*mine)
        return {"loss": nats / tokens, "perplexity": exp_or_inf(nats / tokens)}

    # A trained model, without that data

    @classmethod
    def restore(cls, settings: ResolvedSettings, preprocessor: Preprocessor) -> Model:
        return build_model(settings, len(preprocessor.tokenizer))

    @classmethod
    def evaluate(
        cls,
        model: Model,
        settings: ResolvedSettings,
        preprocessor: Preprocessor,
        data: str,
        *,
        split: str | None = None,
        trained_on: str = "",
        options: InferenceOptions = InferenceOptions(),
        progress: ProgressCallback | None = None,
    ) -> Evaluation:
        """Perplexity on the test split of the training data, on that of a folder, or on a whole text."""
        corpus, split = text_to_score(data, settings, split, trained_on)
        store = prepare_stores(corpus, preprocessor.tokenizer)[split]
        on = f"{data}, {'all of it' if split == 'all' else f'the {split} split'}"
        blocks = blocks_of(store) if options.examples else None
        began = perf_counter()
        if options.dynamic:
            if isinstance(model, NGramModel):
                raise UsageError("an n-gram model cannot be evaluated dynamically.", repair="Leave out --dynamic.")
            scored = score_dynamically(deepcopy(model), store, settings, options.rate, progress, blocks)
            how = f"dynamic evaluation: each piece is scored, then learned from (SGD, rate {options.rate:g})"
        else:
            scored = score(model, store, settings, progress=progress, blocks=blocks)
            how = how_it_reads(model, settings, store)
        seconds = perf_counter() - began
        result, remarks = perplexity(scored, store), []
        if result.unknown:
            share = result.unknown / result.tokens
            remarks.append(
                f"{share:.1%} of the tokens ({result.unknown:,}) are <unk>: their spelling was not predicted."
            )
        examples = None if blocks is None else examples_of(blocks, store, preprocessor.tokenizer)
        return Evaluation(
            result.metrics(), DEFINITIONS, on, how, warnings=tuple(remarks), seconds=seconds, examples=examples
        )

    @classmethod
    def latency_inputs(
        cls,
        model: Model,
        settings: ResolvedSettings,
        preprocessor: Preprocessor,
        data: str,
        split: str,
        trained_on: str = "",
    ) -> tuple[Sequence[Any], Callable[[Any], object]]:
        """One token after the other, behind the beginning of the split; the first answer reads it."""
        corpus, split = text_to_score(data, settings, split, trained_on)
        store = prepare_stores(corpus, preprocessor.tokenizer)[split]
        prompt = torch.from_numpy(store.read(0, min(PROMPT, len(store)))[None].astype("int64"))
        if isinstance(model, LanguageModel):
            prompt = prompt.to(model.eval().embedding.weight.device)
        written = generate(model, prompt, SamplingOptions())
        return range(1), lambda _: next(written)

    @classmethod
    def predict(
        cls,
        model: Model,
        settings: ResolvedSettings,
        preprocessor: Preprocessor,
        inputs: Sequence[str],
        options: InferenceOptions = InferenceOptions(),
    ) -> Iterator[Prediction]:
        """The prompts with their continuations."""
        for prompt in inputs:
            text = "".join(cls.stream(model, preprocessor, prompt, options))
            yield Prediction(prompt + text, {"prompt": prompt, "continuation": text, "seed": options.seed})

    @classmethod
    def stream(cls, model: Model, preprocessor: Preprocessor, prompt: str, options: InferenceOptions) -> Iterator[str]:
        """Pieces of the continuation as they are chosen."""
        choice, longest = options.sampling or SamplingOptions(), options.max_length or MAX_LENGTH
        return write_on(model, preprocessor.tokenizer, prompt, choice, options.seed, longest)


def text_to_score(data: str, settings: ResolvedSettings, split: str | None, trained_on: str) -> tuple[Corpus, str]:
    """Which part of the data to score."""
    try:
        corpus = open_corpus(data, settings.data.valid_fraction, settings.data.test_fraction)
    except TooShortError:
        if split not in (None, "all"):
            raise
        return open_unsplit(data), "all"
    known = corpus.has_predefined_splits or corpus.fingerprint == trained_on
    if split == "all" or (split is None and not known):
        return merge_splits(corpus), "all"
    if split is not None and split not in corpus.parts:
        raise UsageError(f"there is no split {split!r}.", repair=nearest(split, [*corpus.parts, "all"]))
    return corpus, split or "test"


def how_it_reads(model: Model, settings: ResolvedSettings, store: TokenStore) -> str:
    """How the model reads the text, in words."""
    if isinstance(model, NGramModel):
        return model.describe()
    window = settings.data.window
    if not model.carries:
        reads = f"each token seen with {window // 2 if isinstance(window, int) else 0} to {window} tokens of context"
    elif (rows := evaluation_rows(store)) == 1:
        reads = "state carried over the whole text"
    else:
        reads = f"state carried over each of {rows} equal parts of the text"
    return f"{reads}; {model.head.output.describe()}"  # type: ignore[operator]


def learn_tokenizer(corpus: Corpus, settings: Settings, log: Callable[[str], None]) -> Tokenizer:
    """Fill in kind and size by rule, then learn the vocabulary from the training split alone."""
    text = settings.text
    if text.tokenizer is None:
        kind, size, why = choose_tokenizer(corpus.sample(), corpus.size("train"), settings.vectors is not None)
        text.tokenizer, text.vocabulary = kind, text.vocabulary or size  # type: ignore[assignment]
        log(f"tokeniser: {why}")
    tokenizer = Tokenizer.train(
        str(text.tokenizer), corpus.texts("train"), text.vocabulary, text.min_count, text.lowercase
    )
    text.vocabulary = len(tokenizer)
    return tokenizer


def repeated_lines(corpus: Corpus) -> dict[str, int]:
    """Held-out split → how many of its long lines are lines of the training split too; only where there are some."""
    held = {split: [hash(line) for line in _long_lines(corpus, split)] for split in corpus.parts if split != "train"}
    wanted = {line for lines in held.values() for line in lines}
    known = {line for line in map(hash, _long_lines(corpus, "train")) if line in wanted}
    counts = {split: sum(line in known for line in lines) for split, lines in held.items()}
    return {split: count for split, count in counts.items() if count}


def _long_lines(corpus: Corpus, split: str) -> Iterator[str]:
    return (line for text in corpus.texts(split) for line in text.splitlines() if len(line) >= LONG_LINE)
