"""Language modelling: predict the next token, from raw text to generated text.

    text → tokens → streams or windows → embedding → backbone → next-token head → negative log likelihood
                                                                              └→ sampling → text

The page wires pieces; each piece is explained where it lives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import chain, islice
from typing import Protocol

import torch
from torch import Tensor, nn

from seqwise.backbones.build import build_backbone
from seqwise.backbones.states import Carry
from seqwise.config import Settings
from seqwise.data.batch import Batch
from seqwise.data.batching import Streams, Windows
from seqwise.data.prepare import prepare as prepare_stores
from seqwise.data.sources import Corpus, open_corpus
from seqwise.data.store import TokenStore
from seqwise.decoding.choice import Choice
from seqwise.decoding.generate import generate
from seqwise.errors import UsageError
from seqwise.heads.next_token import NextToken
from seqwise.layers.dropout import VariationalDropout
from seqwise.layers.embedding import Embedding
from seqwise.layers.initialise import SHORT
from seqwise.layers.output import AdaptiveSoftmax, FullSoftmax, SampledSoftmax
from seqwise.losses import Loss, total
from seqwise.metrics.perplexity import exp
from seqwise.ngram import NGram
from seqwise.tasks.checks import check_counting, check_memory, check_precision
from seqwise.tasks.counted import CountedModel
from seqwise.tasks.scoring import ROWS, evaluation_rows, score
from seqwise.text.choose import choose_kind
from seqwise.text.streaming import TextStream
from seqwise.text.tokenizer import Tokenizer

INTERIM = 250_000  # tokens of the validation split that are scored during training
LEAST_ADAPTIVE = 20  # tokens; the first cluster holds a tenth of them
MANY_UNKNOWN = 0.05  # share of held-out tokens from which on the user is told
LONG_LINE = 80  # characters; shorter lines occur twice by chance


class LanguageModel(nn.Module):
    """Embedding, backbone, next-token head.

    With the `counts` of the training tokens (V,) a new model already predicts each token by its frequency. Otherwise
    the first updates would teach recurrent states a constant for that, and saturate their gates. They also say how
    often the sampled softmax draws a token. A model whose weights are loaded needs no counts.
    """

    def __init__(self, settings: Settings, vocabulary: int, counts: Tensor | None = None):
        super().__init__()
        network = settings.network
        dropout, width = network.dropout or 0.0, network.embedding or network.width or 1
        self.embedding = Embedding(vocabulary, width)
        self.backbone = build_backbone(settings, width)
        self.carries: bool = self.backbone.carries  # type: ignore[assignment]
        self.head = NextToken(self._output(settings, vocabulary, counts))
        self._begin(counts)
        kind = VariationalDropout if self.carries else nn.Dropout
        self.drop_in, self.drop_out = kind(dropout), kind(dropout if self.carries else 0.0)

    def _output(self, settings: Settings, vocabulary: int, counts: Tensor | None) -> nn.Module:
        width: int = self.backbone.width  # type: ignore[assignment]
        tied = self.embedding.weight if settings.network.tied else None
        if settings.network.output == "adaptive":
            return AdaptiveSoftmax(width, vocabulary, [vocabulary // 10, vocabulary // 2])
        if settings.network.output == "sampled":
            return SampledSoftmax(width, vocabulary, settings.network.samples, tied, counts)
        return FullSoftmax(width, vocabulary, tied)

    @torch.no_grad()
    def _begin(self, counts: Tensor | None) -> None:
        """Initial weights that the layers cannot know of."""
        matrix, bias = getattr(self.head.output, "weight", None), getattr(self.head.output, "bias", None)
        if not self.carries:
            # States behind a final norm are long; short rows keep the first scores near the frequencies.
            # On PTB at 60 updates: validation perplexity 480 against 538 with rows of length 1.
            nn.init.normal_(self.embedding.weight, std=SHORT)
            if matrix is not None and matrix is not self.embedding.weight:
                nn.init.normal_(matrix, std=SHORT)
        if counts is not None and bias is not None:
            bias.copy_(torch.log((counts + 1) / (counts.sum() + len(counts))))

    def forward(self, batch: Batch, carry: Carry = None) -> tuple[Loss, Carry]:
        """Summed loss of the batch's targets, and the carry for the batch that continues it."""
        states = self.backbone(self.drop_in(self.embedding(batch.ids)), carry)
        losses = self.head.losses(self.drop_out(states.vectors), batch.targets)
        return total(losses, batch.mask), states.carry

    def next(self, ids: Tensor, carry: Carry = None) -> tuple[Tensor, Carry]:
        """Read ids (B, T); log-probabilities (B, V) of the token after them."""
        if not self.carries and carry is None:
            ids = ids[:, -self.backbone.window :]  # type: ignore[operator]
        states = self.backbone(self.embedding(ids), carry)
        return self.head(states.vectors[:, -1]), states.carry


Model = LanguageModel | CountedModel


class Language:
    """The task on one corpus: tokeniser and token stores are ready, a model can be built, trained and scored."""

    def __init__(self, corpus: Corpus, tokenizer: Tokenizer, stores: dict[str, TokenStore]):
        self.corpus, self.tokenizer, self.stores = corpus, tokenizer, stores

    @classmethod
    def prepare(
        cls,
        data: str,
        settings: Settings,
        tokenizer: Tokenizer | None = None,
        say: Callable[[str], None] = lambda message: None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Language:
        """Read the data; learn the tokeniser from the training split unless there is one already."""
        corpus = open_corpus(data, settings.data.valid_fraction, settings.data.test_fraction)
        if tokenizer is None:
            tokenizer = learn_tokenizer(corpus, settings, say)
        stores = prepare_stores(corpus, tokenizer, progress)
        sizes = ", ".join(f"{split} {len(store):,}" for split, store in stores.items())
        say(f"tokens: {sizes}; vocabulary {len(tokenizer):,}. {corpus.rule[0].upper()}{corpus.rule[1:]}")
        return cls(corpus, tokenizer, stores)

    def check(self, settings: Settings) -> None:
        """Refuse settings that cannot work with this data or this machine before anything is written."""
        if settings.model == "ngram":
            check_counting(len(self.stores["train"]), len(self.tokenizer), settings.context.length)
            return
        network, window = settings.network, settings.data.window
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
        self.batches(settings)
        check_precision(settings)
        model = check_memory(lambda: LanguageModel(settings, len(self.tokenizer)), settings)
        # Some layers complain only when they first run.
        model.eval().backbone(model.embedding(torch.zeros(1, 1, dtype=torch.int64, device="meta")))

    def remarks(self) -> list[str]:
        """What is no error, but makes a result worse or too good."""
        found = []
        for split, store in self.stores.items():
            share = store.facts.unknown / max(1, store.facts.tokens)
            if split != "train" and share > MANY_UNKNOWN:
                found.append(f"{share:.1%} of the {split} tokens are <unk>: the training split does not have them.")
        for split, count in repeated_lines(self.corpus).items():
            lines = "line is" if count == 1 else "lines are"
            found.append(
                f"{count:,} long {lines} in {split} as well as in train: what was learned by heart is measured there."
            )
        return found

    def build(self, settings: Settings) -> LanguageModel:
        """An untrained model that already predicts each token by its frequency."""
        return LanguageModel(settings, len(self.tokenizer), self.counts)

    @cached_property
    def counts(self) -> Tensor:
        """How often each token occurs in the training split, (V,)."""
        return torch.from_numpy(self.stores["train"].counts(len(self.tokenizer)))

    def count(self, settings: Settings) -> CountedModel:
        """The n-gram model of the training split."""
        store, vocabulary, length = self.stores["train"], len(self.tokenizer), settings.context.length
        check_counting(len(store), vocabulary, length)
        return CountedModel(NGram.count(store.read(0, len(store)), vocabulary, length, self.tokenizer.end))

    def batches(self, settings: Settings, rank: int = 0, world: int = 1) -> Streams | Windows:
        """Training batches in the order that suits the model."""
        kind = Streams if settings.data.order == "streams" else Windows
        rows, window = settings.training.batch or 1, settings.data.window or 1
        return kind(self.stores["train"], rows, window, settings.seed, rank, world)

    def validate(self, model: LanguageModel, settings: Settings, world: Summing) -> dict[str, float]:
        """Loss and perplexity on the validation split, shared among the processes.

        Of a long split only a part is scored: the beginning of each of the 16 streams, or for a model without a state
        the beginning of the split.
        """
        store = self.stores["valid"]
        # The same rows whatever the number of processes; where they cannot be divided, the first one scores them all.
        shared = (evaluation_rows(store) if model.carries else ROWS) % world.size == 0
        mine = (0.0, 0)
        if shared or world.rank == 0:
            rank, size = (world.rank, world.size) if shared else (0, 1)
            mine = score(model, store, settings, rank, size, longest=INTERIM)
        nats, tokens = world.sum(*mine)
        return {"loss": nats / tokens, "perplexity": exp(nats / tokens)}


class Summing(Protocol):
    """What validation needs to know of the processes (`training/distribution.py`)."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    def sum(self, *numbers: float) -> list[float]: ...


def learn_tokenizer(corpus: Corpus, settings: Settings, say: Callable[[str], None]) -> Tokenizer:
    """Fill in kind and size by rule, then learn the vocabulary from the training split alone."""
    text = settings.text
    if text.tokenizer is None:
        kind, size, why = choose_kind(corpus.sample(), corpus.size("train"))
        text.tokenizer, text.vocabulary = kind, text.vocabulary or size  # type: ignore[assignment]
        say(f"tokeniser: {why}")
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


def write_on(model: Model, tokenizer: Tokenizer, prompt: str, choice: Choice, seed: int, longest: int) -> Iterator[str]:
    """Continue the prompt; pieces of text as they come, at most `longest` tokens. An empty prompt begins a line."""
    ids = tokenizer.encode(prompt).ids
    if not len(ids):
        ids = tokenizer.encode("\n").ids
    device: torch.device | str = "cpu"
    if isinstance(model, LanguageModel):
        device = model.eval().embedding.weight.device
    chosen = islice(generate(model, torch.tensor(ids[None], device=device), choice, seed), longest)
    return _as_text(chosen, TextStream(tokenizer, ids), blank=not prompt[-1:].isspace())


def _as_text(chosen: Iterator[Tensor], stream: TextStream, blank: bool) -> Iterator[str]:
    """Pieces that are not empty. After a prompt that ends in a blank, words bring no second one."""
    texts = chain((stream.add(int(number)) for number in chosen), (stream.end() for _ in range(1)))
    for number, text in enumerate(filter(None, texts)):
        yield text if blank or number or stream.exact else text.removeprefix(" ")
