"""Language modelling: predict the next token, from raw text to generated text.

    text → tokens → streams or windows → embedding → backbone → next-token head → negative log likelihood
                                                                              └→ sampling → text

The page wires pieces; each piece is explained where it lives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from seqwise import environment
from seqwise.backbones.build import build_backbone
from seqwise.backbones.states import Carry, detach
from seqwise.config import Settings
from seqwise.data.batch import Batch
from seqwise.data.batching import EvaluationStreams, EvaluationWindows, Streams, Windows
from seqwise.data.prepare import prepare as prepare_stores
from seqwise.data.sources import Corpus, open_corpus
from seqwise.data.store import TokenStore
from seqwise.decoding.generate import generate
from seqwise.decoding.sampling import Choice
from seqwise.errors import NonFiniteError, UsageError
from seqwise.heads.next_token import NextToken
from seqwise.layers.dropout import VariationalDropout
from seqwise.layers.embedding import Embedding
from seqwise.layers.output import AdaptiveSoftmax, FullSoftmax, SampledSoftmax
from seqwise.losses import Loss, total
from seqwise.metrics.perplexity import Perplexity, exp
from seqwise.ngram import NGram
from seqwise.text.choose import choose_kind
from seqwise.text.streaming import TextStream
from seqwise.text.tokenizer import Tokenizer

INTERIM = 250_000  # tokens of the validation split that are scored during training
EVALUATION_ROWS = 16  # streams scored side by side; each begins with an empty state
LEAST_ADAPTIVE = 20  # tokens; the first cluster holds a tenth of them
MANY_UNKNOWN = 0.05  # share of held-out tokens from which on the user is told
LONG_LINE = 80  # characters; shorter lines occur twice by chance
COPIES = 4  # of each weight while training: itself, its gradient, two moments of Adam


class LanguageModel(nn.Module):
    """Embedding, backbone, next-token head."""

    def __init__(self, settings: Settings, vocabulary: int):
        super().__init__()
        network = settings.network
        dropout, width = network.dropout or 0.0, network.embedding or network.width or 1
        self.embedding = Embedding(vocabulary, width)
        self.backbone = build_backbone(settings, width)
        self.carries: bool = self.backbone.carries  # type: ignore[assignment]
        if not self.carries:
            # States behind a final norm are long; short rows keep the first scores near the frequencies. 0.02 is
            # GPT-2's. On PTB at 60 updates: validation perplexity 480 against 538 with rows of length 1.
            nn.init.normal_(self.embedding.weight, std=0.02)
        self.head = NextToken(self._output(settings, vocabulary))
        kind = VariationalDropout if self.carries else nn.Dropout
        self.drop_in, self.drop_out = kind(dropout), kind(dropout if self.carries else 0.0)

    def _output(self, settings: Settings, vocabulary: int) -> nn.Module:
        width: int = self.backbone.width  # type: ignore[assignment]
        tied = self.embedding.weight if settings.network.tied else None
        if settings.network.output == "adaptive":
            return AdaptiveSoftmax(width, vocabulary, [vocabulary // 10, vocabulary // 2])
        if settings.network.output == "sampled":
            return SampledSoftmax(width, vocabulary, settings.network.samples, tied)
        return FullSoftmax(width, vocabulary, tied)

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


class CountedModel:
    """The n-gram model behind the same two doors: scoring and `next`."""

    def __init__(self, counts: NGram):
        self.counts = counts

    def next(self, ids: Tensor, carry: Carry = None) -> tuple[Tensor, Carry]:
        """The carry is the history: as many tokens as the longest n-gram looks back."""
        history = ids if carry is None else torch.cat([carry, ids], dim=1)
        history = history[:, -max(1, self.counts.order - 1) :]
        scores = np.stack([np.log(self.counts.distribution(row.numpy())) for row in history])
        return torch.from_numpy(scores), history


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
        if isinstance(window, int) and window < 1:
            raise UsageError(f"--data.window: expected at least 1, or full; received {window}.")
        self.batches(settings)
        check_precision(settings)
        check_memory(settings, len(self.tokenizer))
        self.build(settings).next(torch.zeros(1, 2, dtype=torch.int64))  # some layers complain when they first run

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
        """An untrained model that already predicts each token by its frequency.

        Otherwise the first updates would teach recurrent states a constant for that, and saturate their gates.
        """
        model = LanguageModel(settings, len(self.tokenizer))
        bias = getattr(model.head.output, "bias", None)
        if isinstance(bias, nn.Parameter):
            counts = torch.from_numpy(self.stores["train"].counts(len(self.tokenizer)))
            with torch.no_grad():
                bias.copy_(torch.log((counts + 1) / (counts.sum() + len(counts))))
        return model

    def count(self, settings: Settings) -> CountedModel:
        """The n-gram model of the training split."""
        store = self.stores["train"]
        ids = store.read(0, len(store))
        return CountedModel(NGram.count(ids, len(self.tokenizer), settings.window.order, self.tokenizer.end))

    def batches(self, settings: Settings, rank: int = 0, world: int = 1) -> Streams | Windows:
        """Training batches in the order that suits the model."""
        kind = Streams if settings.data.order == "streams" else Windows
        rows, window = settings.training.batch or 1, settings.data.window or 1
        return kind(self.stores["train"], rows, window, settings.seed, rank, world)

    def validate(self, model: LanguageModel, settings: Settings, world: Summing) -> dict[str, float]:
        """Loss and perplexity on the beginning of the validation split, shared among the processes."""
        store = self.stores["valid"]
        # The same rows whatever the number of processes; where they cannot be divided, the first one scores them all.
        shared = (evaluation_rows(store) if model.carries else EVALUATION_ROWS) % world.size == 0
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


def check_precision(settings: Settings) -> None:
    """Some processors advertise bfloat16 and kill the process at its first product, so it is tried in a child."""
    cpu = settings.device == "cpu" or (settings.device == "auto" and not torch.cuda.is_available())
    if cpu and settings.training.precision == "bfloat16" and not environment.probe_cpu_bfloat16():
        raise UsageError(
            "this CPU does not survive bfloat16: a trial in a child process failed.",
            repair="Leave out --training.precision, or set it to float32.",
        )


def check_memory(settings: Settings, vocabulary: int) -> None:
    """Refuse a model that cannot fit. It is built without memory, so that asking costs nothing."""
    try:
        with torch.device("meta"):
            model = LanguageModel(settings, vocabulary)
        weights = sum(parameter.numel() for parameter in model.parameters())
        size = f"{weights:,} weights, which take {4 * COPIES * weights / 1e9:,.0f} GB to train"
    except RuntimeError:  # a matrix with more bytes than a number can say
        weights, size = 2**60, "more weights than any machine holds"
    there = (environment.gpu() or {}).get("memory") if settings.device != "cpu" else None
    there = there or environment.memory()[0]
    if there is not None and 4 * COPIES * weights > there:
        raise UsageError(
            f"the model would have {size}; there are {there / 1e9:,.0f} GB.",
            repair="Choose a smaller --network.width or --network.depth, or a smaller --text.vocabulary.",
        )


def repeated_lines(corpus: Corpus) -> dict[str, int]:
    """Held-out split → how many of its long lines are lines of the training split too; only where there are some."""
    held = {split: [hash(line) for line in _long_lines(corpus, split)] for split in corpus.parts if split != "train"}
    wanted = {line for lines in held.values() for line in lines}
    known = {line for line in map(hash, _long_lines(corpus, "train")) if line in wanted}
    counts = {split: sum(line in known for line in lines) for split, lines in held.items()}
    return {split: count for split, count in counts.items() if count}


def _long_lines(corpus: Corpus, split: str) -> Iterator[str]:
    return (line for text in corpus.texts(split) for line in text.splitlines() if len(line) >= LONG_LINE)


@torch.no_grad()
def score(
    model: Model,
    store: TokenStore,
    settings: Settings,
    rank: int = 0,
    world: int = 1,
    longest: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[float, int]:
    """Summed negative log likelihood of this process's share of a store, and its number of tokens."""
    if isinstance(model, CountedModel):
        return _score_counts(model.counts, store)
    model.eval()
    device = model.embedding.weight.device
    carry, nats, tokens = None, 0.0, 0
    batches = _evaluation_batches(model, store, settings, rank, world)
    for batch in batches.epoch():
        batch = batch.to(device)
        loss, carry = model(batch, None if batch.fresh else carry)
        nats, tokens = nats + float(loss.total), tokens + loss.count
        if progress:
            progress(tokens * world, len(store) - 1)
        if longest is not None and tokens * world >= longest:
            break
    return nats, tokens


def _evaluation_batches(
    model: LanguageModel, store: TokenStore, settings: Settings, rank: int, world: int
) -> EvaluationStreams | EvaluationWindows:
    window = settings.data.window if isinstance(settings.data.window, int) else 256
    if not model.carries:
        return EvaluationWindows(store, EVALUATION_ROWS, window, window // 2, rank, world)
    return EvaluationStreams(store, evaluation_rows(store), window, rank, world)


def evaluation_rows(store: TokenStore) -> int:
    """How many streams a text is read in: one, or several where each is long enough to forget its empty beginning."""
    return EVALUATION_ROWS if len(store) > 1000 * EVALUATION_ROWS else 1


def _score_counts(counts: NGram, store: TokenStore, chunk: int = 1_000_000) -> tuple[float, int]:
    nats, back = 0.0, counts.order - 1
    for start in range(1, len(store), chunk):
        begin = max(0, start - back)
        ids = store.read(begin, min(len(store), start + chunk) - begin)
        nats -= float(counts.log_probabilities_of(ids)[start - begin :].sum())
    return nats, len(store) - 1


def score_dynamically(
    model: LanguageModel,
    store: TokenStore,
    settings: Settings,
    rate: float,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[float, int]:
    """Score each piece of the text, then learn from it (dynamic evaluation: Mikolov et al. 2010; Krause et al. 2018).

    Every token is scored before the model has learned from it. The model is left as the text has made it.
    """
    if not (0 <= rate < math.inf):
        raise UsageError(f"--dynamic-rate: expected a number from 0 on; received {rate:g}.")
    model.eval()
    device = model.embedding.weight.device
    window = settings.data.window if isinstance(settings.data.window, int) else 256
    batches: EvaluationStreams | EvaluationWindows = (
        EvaluationStreams(store, 1, 20) if model.carries else EvaluationWindows(store, 1, window, window // 2)
    )
    optimiser = torch.optim.SGD(model.parameters(), lr=rate)
    carry, nats, tokens = None, 0.0, 0
    for batch in batches.epoch():
        batch = batch.to(device)
        optimiser.zero_grad()
        loss, carry = model(batch, None if batch.fresh else carry)
        (loss.total / loss.count).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        carry = detach(carry)
        nats, tokens = nats + float(loss.total.detach()), tokens + loss.count
        if progress:
            progress(tokens, len(store) - 1)
    if not math.isfinite(nats):
        raise NonFiniteError(
            f"the loss became {nats:g} while learning from the text.", repair="Choose a smaller --dynamic-rate."
        )
    return nats, tokens


def perplexity(scored: tuple[float, int], store: TokenStore) -> Perplexity:
    facts = store.facts
    return Perplexity(*scored, words=facts.words, characters=facts.characters, unknown=facts.unknown)


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
