"""`--vectors FILE`: initialises the token embeddings of a new run with word vectors.

Training calls three functions in this order: `WordVectors.read` before the data is read, `WordVectors.found` once the
vocabularies are known, `initialize_embeddings` once the model is built. The matching rows are saved in the run, which
can resume without the file. The file formats are in `vectors/formats`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from seqwise.config import Settings
from seqwise.errors import RunError, UsageError
from seqwise.families import get_family
from seqwise.layers.embedding import Embedding
from seqwise.tasks.task import LogFunction, ProgressCallback, Task
from seqwise.text.patterns import END, UNKNOWN
from seqwise.text.tokenizer import Tokenizer
from seqwise.training.run import START, Run

if TYPE_CHECKING:
    from seqwise.vectors.keyed import KeyedVectors

EXTENDABLE_TASKS = ("classify", "tag")  # tasks that predict no words: a word that training never saw costs them nothing
WORD_TOKENIZERS = ("words", "spaces")  # tokenisers whose tokens are words
# Length of the vectors. All on validation, 100 numbers from 6 M words of film reviews, one seed; without vectors (…):
# SST-2, four epochs, accuracy at lengths 1, 2, 4: LSTM 82.2, 84.5, 85.2 % (80.3); at 0.2, 1, 2: Transformer
# 80.3, 80.6, 82.2 % (79.6). CoNLL-2003, 250k tokens, F1 at 1, 2: LSTM 76.7, 78.3 % (74.5). PTB, 150k tokens, perplexity
# at 1, 2, 4: LSTM 300, 279, 277 (335); at 0.2, 1, 2: Transformer 372, 319, 315 (382).
INITIAL_NORM = 2.0
NONE_JOINED = (
    "--text.extend-vocabulary: no word joined the vocabulary, which has them already or cannot hold them as one token."
)
MIN_COVERAGE = 0.2  # share of the tokens with a vector below which the user is told


def check_vectors(settings: Settings) -> None:
    """Refuse what cannot start from word vectors, before anything is read."""
    text, network = settings.text, settings.network
    if not settings.vectors:
        if network.freeze_embedding or text.extend_vocabulary:
            option = "--network.freeze-embedding" if network.freeze_embedding else "--text.extend-vocabulary"
            raise UsageError(f"{option} is about word vectors, and there are none.", repair="Add --vectors FILE.")
        return
    leave = "Leave out --vectors."
    if settings.init is not None:
        problem = "--init and --vectors both say where the token vectors start."
        raise UsageError(problem, repair="Leave out one of them.")
    if settings.task == "forecast":
        raise UsageError("the task forecast reads numbers: there are no words for --vectors.", repair=leave)
    family = get_family(settings.model)
    if not family.has_gradients:
        raise UsageError(f"the family {family.name} has no token vectors: it {family.description}.", repair=leave)
    if text.extend_vocabulary and settings.task not in EXTENDABLE_TASKS:
        raise UsageError(
            f"--text.extend-vocabulary is for {' and '.join(EXTENDABLE_TASKS)}: "
            f"the task {settings.task} would have to predict words that it never saw.",
            repair="Leave out --text.extend-vocabulary.",
        )
    if text.extend_vocabulary and text.tokenizer not in (None, *WORD_TOKENIZERS):
        raise UsageError(
            f"--text.extend-vocabulary adds words; tokens of kind {text.tokenizer} are none.",
            repair="Leave out --text.tokenizer or --text.extend-vocabulary.",
        )


@dataclass(frozen=True)
class VocabularyMatch:
    """The tokens of one vocabulary that have a vector."""

    ids: np.ndarray  # (n,) int64
    rows: np.ndarray  # (n, D) float32, as in the file
    composed: int  # of them, how many are no words of the file and have the vector of their n-grams
    words: int  # tokens that could have one: all but the special ones
    share: float | None  # of the tokens of the training split; None where nobody counted them

    @property
    def has_low_coverage(self) -> bool:
        """Is there hardly anything to start from? Frequent words count for more, where they were counted."""
        return (len(self.ids) / max(1, self.words) if self.share is None else self.share) < MIN_COVERAGE

    def __str__(self) -> str:
        found = f"{len(self.ids):,} of {self.words:,} vocabulary words ({len(self.ids) / max(1, self.words):.1%})"
        composed = f", {self.composed:,} of them from their n-grams" if self.composed else ""
        return found + composed + ("" if self.share is None else f", {self.share:.1%} of the training tokens")


class WordVectors:
    """A file of word vectors that was read, and what a run makes of it."""

    def __init__(self, file: str, keyed: KeyedVectors, fingerprint: str, extend: int = 0):
        self.file, self.keyed, self.fingerprint = file, keyed, fingerprint
        self.extend = extend  # how many of its words were offered to the vocabulary

    @classmethod
    def read(cls, settings: Settings, log: LogFunction, progress: ProgressCallback | None = None) -> WordVectors | None:
        """The file that the settings name; None if they name none. Its width must be that of the embedding, if set."""
        if not settings.vectors:
            return None
        from seqwise.vectors.formats import load_vectors  # here, because most runs need none

        keyed = load_vectors(settings.vectors, progress=progress, log=log)
        width = settings.network.embedding
        if width not in (None, keyed.dim):
            raise UsageError(
                f"the vectors have {keyed.dim} numbers each, but --network.embedding is {width}.",
                repair="Leave out --network.embedding: it becomes the width of the vectors.",
                file=settings.vectors,
            )
        with Path(settings.vectors).open("rb") as content:
            digest = hashlib.file_digest(content, lambda: hashlib.blake2b(digest_size=16))
        return cls(settings.vectors, keyed, digest.hexdigest(), settings.text.extend_vocabulary)

    def found(self, task: Task, log: LogFunction) -> dict[str, Tensor]:
        """Ids and rows for each vocabulary of the task, as the run keeps them. Says how many words were found."""
        vocabularies, said = _find_distinct_vocabularies(task), []
        tensors: dict[str, Tensor] = {}
        for name, (tokenizer, counts) in vocabularies.items():
            found = self.find(tokenizer, counts)
            tensors |= {f"ids.{name}": torch.from_numpy(found.ids), f"rows.{name}": torch.from_numpy(found.rows)}
            said.append(f"{name}: {found}" if len(vocabularies) > 1 else str(found))
            log(f"{self.file}: {said[-1]}")
            if found.has_low_coverage:
                log(f"note: {_explain_low_coverage(name, tokenizer)}")
        if not any(len(tensor) for tensor in tensors.values()):
            raise UsageError(
                "no token of the vocabulary is a word of the file.",
                repair="Are these vectors of the same language, and is the text split as theirs was?",
                file=self.file,
            )
        joined = sum(tokenizer.num_extra_words for tokenizer, _ in vocabularies.values())
        if self.extend:
            log(f"{self.file}: {joined:,} of its words joined the vocabulary" if joined else f"note: {NONE_JOINED}")
        about = {"file": self.file, "fingerprint": self.fingerprint, "found": said, "joined": joined}
        task.preprocessor.facts["vectors"] = about
        return tensors

    def find(self, tokenizer: Tokenizer, counts: Tensor | None = None) -> VocabularyMatch:
        """The tokens that are words of the file, as they are written or else in lower case; parts of words are none.

        Vectors made of n-grams have one for every other word too.
        """
        special = {*tokenizer.specials, UNKNOWN, END}
        numbers = [number for number in range(len(tokenizer)) if tokenizer.token(number) not in special]
        known = dict(self._known(tokenizer, numbers))
        ids, rows = np.array(list(known), dtype=np.int64), self.keyed.matrix[list(known.values())]
        composed = {} if tokenizer.kind not in WORD_TOKENIZERS else dict(self._composed(tokenizer, numbers, known))
        if composed:
            ids, rows = np.concatenate([ids, list(composed)]), np.concatenate([rows, np.stack(list(composed.values()))])
        share = None
        if counts is not None:  # the end of a line is no word, what became <unk> was one
            words = [*numbers, *(() if tokenizer.unknown is None else (tokenizer.unknown,))]
            share = float(counts[ids].sum() / counts[words].sum().clamp(min=1))
        return VocabularyMatch(ids, np.ascontiguousarray(rows, dtype=np.float32), len(composed), len(numbers), share)

    def _known(self, tokenizer: Tokenizer, numbers: list[int]) -> Iterator[tuple[int, int]]:
        """(id, row of the file) of each token that the file has."""
        for number in numbers:
            token = _get_word(tokenizer, number)
            for word in () if token is None else (token, token.lower()):
                if word in self.keyed:
                    yield number, self.keyed.index(word)
                    break

    def _composed(
        self, tokenizer: Tokenizer, numbers: list[int], known: dict[int, int]
    ) -> Iterator[tuple[int, np.ndarray]]:
        """(id, mean of the n-grams' vectors) of each word that the file does not have."""
        parts = self.keyed.subwords
        if parts is None:
            return
        for number in numbers:
            vector = None if number in known else parts.compose(tokenizer.token(number))
            if vector is not None:
                yield number, vector


def _find_distinct_vocabularies(task: Task) -> dict[str, tuple[Tokenizer, Tensor | None]]:
    """The vocabularies of a task with the counts of their tokens; one with several names under the first of them."""
    counts = task.token_counts()
    names: dict[int, list[str]] = {}
    for name, tokenizer in task.preprocessor.tokenizers.items():
        names.setdefault(id(tokenizer), []).append(name)
    found = {}
    for same in names.values():
        counted = [counts[name] for name in same if name in counts]
        found[same[0]] = task.preprocessor.tokenizers[same[0]], torch.stack(counted).sum(0) if counted else None
    return found


def _get_word(tokenizer: Tokenizer, number: int) -> str | None:
    """What a token is as a word; None for one that only goes on with a word, or cannot be told from such."""
    token = tokenizer.token(number)
    if tokenizer.kind == "wordpiece":
        return None if token.startswith("##") and len(token) > 2 else token
    if tokenizer.kind == "bpe":
        text = tokenizer.decode([number])
        return text[1:] if text[:1] == " " and len(text) > 1 else None
    if tokenizer.kind == "characters":
        return None  # a letter may be a word, but here it mostly stands inside others
    return token


def _explain_low_coverage(name: str, tokenizer: Tokenizer) -> str:
    if tokenizer.kind in WORD_TOKENIZERS:
        return f"few words of the vocabulary {name!r} are in the file: is it of the same language, and split alike?"
    return (
        f"tokens of kind {tokenizer.kind} are hardly ever words, and vectors are found for words alone. "
        "Try --text.tokenizer words."
    )


@torch.no_grad()
def initialize_embeddings(embeddings: dict[str, Embedding], run: Run, fresh: bool) -> None:
    """Copy the rows that a new run starts from, and freeze them where they are to stay.

    One factor for all rows of a layer brings them to a length that suits the model.
    """
    path, frozen = run.folder / START, run.settings.network.freeze_embedding
    try:
        with safe_open(path, "pt") as file:
            names = set(file.keys())
            for name, layer in embeddings.items():
                if f"ids.{name}" not in names:  # it shares the layer of another
                    continue
                ids = file.get_tensor(f"ids.{name}").to(layer.weight.device)
                if fresh and len(ids):
                    rows = file.get_tensor(f"rows.{name}").to(layer.weight)
                    layer.weight[ids] = rows * (choose_initial_norm(layer, run.settings) / _compute_rms_norm(rows))
                if frozen:
                    layer.freeze(ids)
    except (OSError, SafetensorError) as error:
        raise RunError(
            f"what the token vectors started from cannot be read: {error}.",
            file=path,
            repair="Copy the folder again from where it was made, or train again.",
        ) from None


def choose_initial_norm(layer: Embedding, settings: Settings) -> float:
    """How long the vectors of words begin in a layer: as long as its random rows where positions are added to them.

    Elsewhere longer than these: what is known of a word need not be kept small, as noise must be.
    """
    added = settings.model == "transformer" and settings.transformer.positions in ("sinusoidal", "learned")
    return _compute_rms_norm(layer.weight) if added else INITIAL_NORM


def _compute_rms_norm(rows: Tensor) -> float:
    """Root of the mean square of the rows' lengths."""
    return max(1e-30, float(rows.double().square().sum(dim=1).mean().sqrt()))
