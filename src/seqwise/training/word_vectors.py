"""`--vectors FILE`: initialises the token embeddings of a new run with word vectors.

Training calls `WordVectors.read` before the data is read, `WordVectors.match_vocabularies` after the vocabularies are
built, and `initialize_embeddings` after the model is built. The matching vectors are saved in the run, which can resume
without the file. The file formats are in `vectors/formats`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from seqwise.callbacks import LogFunction, ProgressCallback
from seqwise.config import Settings
from seqwise.digests import check_digest
from seqwise.errors import RunError, UsageError
from seqwise.families import get_family
from seqwise.layers.embedding import Embedding
from seqwise.tasks.task import DAMAGED_RUN_FIX, Task
from seqwise.text.patterns import END, UNKNOWN
from seqwise.text.tokenizer import Tokenizer
from seqwise.training.run import INITIAL_EMBEDDINGS, Run

if TYPE_CHECKING:
    from seqwise.vectors.keyed import KeyedVectors

EXTENDABLE_TASKS = ("classify", "tag")  # tasks that predict no words: others would have to predict the added words
WORD_TOKENIZERS = ("words", "spaces")  # tokenisers whose tokens are words
# Initial norm of the vectors. Measured on validation with 100-dimensional vectors from 6 M words of film reviews, one
# seed; in brackets without vectors.
# SST-2, four epochs, accuracy at norms 1, 2, 4: LSTM 82.2, 84.5, 85.2 % (80.3); at 0.2, 1, 2: Transformer
# 80.3, 80.6, 82.2 % (79.6). CoNLL-2003, 250k tokens, F1 at 1, 2: LSTM 76.7, 78.3 % (74.5). PTB, 150k tokens, perplexity
# at 1, 2, 4: LSTM 300, 279, 277 (335); at 0.2, 1, 2: Transformer 372, 319, 315 (382).
INITIAL_NORM = 2.0
NO_WORDS_ADDED = (
    "--text.extend-vocabulary: no words were added: the vocabulary already has them, or they are not single tokens."
)
MIN_COVERAGE = 0.2  # share of the tokens with a vector; a note is logged if it is lower


def check_vectors(settings: Settings) -> None:
    """Raises an error if the settings cannot be combined with word vectors, before anything is read."""
    text, network = settings.text, settings.network
    if not settings.vectors:
        if network.freeze_embedding or text.extend_vocabulary:
            option = "--network.freeze-embedding" if network.freeze_embedding else "--text.extend-vocabulary"
            raise UsageError(f"{option} needs word vectors, and there are none.", fix="Add --vectors FILE.")
        return
    problem, fix = "", "Leave out --vectors."
    if settings.init is not None:
        problem, fix = "--init and --vectors both initialise the token vectors.", "Leave out one of them."
    elif settings.task == "forecast":
        problem = "the task forecast reads numbers: there are no words for --vectors."
    elif not (family := get_family(settings.model)).has_gradients:
        problem = f"the family {family.name} has no token vectors: it {family.description}."
    elif text.extend_vocabulary and settings.task not in EXTENDABLE_TASKS:
        reason = f"the task {settings.task} would have to predict words that are not in its training data"
        problem = f"--text.extend-vocabulary is for {' and '.join(EXTENDABLE_TASKS)}: {reason}."
        fix = "Leave out --text.extend-vocabulary."
    elif text.extend_vocabulary and text.tokenizer not in (None, *WORD_TOKENIZERS):
        problem = f"--text.extend-vocabulary adds words, but {text.tokenizer} tokens are not words."
        fix = "Leave out --text.tokenizer or --text.extend-vocabulary."
    if problem:
        raise UsageError(problem, fix=fix)


@dataclass(frozen=True)
class VocabularyMatch:
    """The tokens of one vocabulary that have a vector."""

    ids: np.ndarray  # (n,) int64
    vectors: np.ndarray  # (n, D) float32, as in the file
    num_composed: int  # number of vectors that are composed from n-grams
    num_words: int  # size of the vocabulary without special tokens
    token_coverage: float | None  # share of the tokens of the training split; None if they were not counted

    @property
    def word_coverage(self) -> float:
        """The share of the vocabulary that has a vector."""
        return len(self.ids) / max(1, self.num_words)

    @property
    def has_low_coverage(self) -> bool:
        """Whether few tokens have a vector, by frequency if the tokens were counted."""
        return (self.word_coverage if self.token_coverage is None else self.token_coverage) < MIN_COVERAGE

    def __str__(self) -> str:
        words = f"{len(self.ids):,} of {self.num_words:,} vocabulary words ({self.word_coverage:.1%})"
        composed = f", {self.num_composed:,} of them from their n-grams" if self.num_composed else ""
        tokens = "" if self.token_coverage is None else f", {self.token_coverage:.1%} of the training tokens"
        return words + composed + tokens


class WordVectors:
    """The word vectors of a file, which initialise the embeddings of a run."""

    def __init__(self, file: str, vectors: KeyedVectors, fingerprint: str, max_extra_words: int = 0):
        self.file, self.vectors, self.fingerprint = file, vectors, fingerprint
        self.max_extra_words = max_extra_words  # limit of the words of the file that are added to the vocabulary

    @classmethod
    def read(cls, settings: Settings, log: LogFunction, progress: ProgressCallback | None = None) -> WordVectors | None:
        """Reads the file of `--vectors`, if there is one. Its dimension must be `network.embedding`, if that is set."""
        if not settings.vectors:
            return None
        from seqwise.vectors.formats import load_vectors  # imported here, because most runs do not need it

        vectors = load_vectors(settings.vectors, progress=progress, log=log)
        width = settings.network.embedding
        if width not in (None, vectors.dim):
            problem = f"the vectors have {vectors.dim} numbers each, but --network.embedding is {width}."
            fix = "Leave out --network.embedding: it becomes the width of the vectors."
            raise UsageError(problem, fix=fix, file=settings.vectors)
        with Path(settings.vectors).open("rb") as content:
            digest = hashlib.file_digest(content, lambda: hashlib.blake2b(digest_size=16))
        return cls(settings.vectors, vectors, digest.hexdigest(), settings.text.extend_vocabulary)

    def match_vocabularies(self, task: Task, log: LogFunction) -> dict[str, Tensor]:
        """Returns ids and vectors for each vocabulary of the task, which the run saves, and logs the coverage."""
        vocabularies = _find_distinct_vocabularies(task)
        coverage = []
        tensors: dict[str, Tensor] = {}
        for name, (tokenizer, counts) in vocabularies.items():
            match = self.match_vocabulary(tokenizer, counts)
            tensors |= {f"ids.{name}": torch.from_numpy(match.ids), f"rows.{name}": torch.from_numpy(match.vectors)}
            coverage.append(f"{name}: {match}" if len(vocabularies) > 1 else str(match))
            log(f"{self.file}: {coverage[-1]}")
            if match.has_low_coverage:
                log(f"note: {_explain_low_coverage(name, tokenizer)}")
        if not any(len(tensor) for tensor in tensors.values()):
            fix = "Are these vectors of the same language, and of text that was tokenised in the same way?"
            raise UsageError("no token of the vocabulary is a word of the file.", fix=fix, file=self.file)
        num_added = sum(tokenizer.num_extra_words for tokenizer, _ in vocabularies.values())
        if self.max_extra_words:
            note = f"{self.file}: {num_added:,} of its words were added to the vocabulary"
            log(note if num_added else f"note: {NO_WORDS_ADDED}")
        attributes = {"file": self.file, "fingerprint": self.fingerprint, "found": coverage, "joined": num_added}
        task.preprocessor.attributes["vectors"] = attributes
        return tensors

    def match_vocabulary(self, tokenizer: Tokenizer, counts: Tensor | None = None) -> VocabularyMatch:
        """Returns the tokens that are words of the file, as they are or in lower case.

        Tokens that continue a word do not match. If the file has n-grams, vectors of other words are composed of them.
        """
        special = {*tokenizer.specials, UNKNOWN, END}
        word_ids = [token_id for token_id in range(len(tokenizer)) if tokenizer.token(token_id) not in special]
        found_vectors: dict[int, np.ndarray] = {}
        for token_id in word_ids:
            token = _get_word(tokenizer, token_id)
            word = next((form for form in (token, token and token.lower()) if form in self.vectors), None)
            if word is not None:
                found_vectors[token_id] = self.vectors[word]
        composed_vectors: dict[int, np.ndarray] = {}
        if self.vectors.subwords is not None and tokenizer.kind in WORD_TOKENIZERS:
            for token_id in word_ids:
                is_found = token_id in found_vectors
                vector = None if is_found else self.vectors.subwords.compose(tokenizer.token(token_id))
                if vector is not None:
                    composed_vectors[token_id] = vector
        vectors = found_vectors | composed_vectors
        ids = np.array(list(vectors), dtype=np.int64)
        matrix = np.array(list(vectors.values()), dtype=np.float32).reshape(-1, self.vectors.dim)
        coverage = None
        if counts is not None:  # the end of a line is not a word, but <unk> replaces words
            counted_ids = [*word_ids, *(() if tokenizer.unknown is None else (tokenizer.unknown,))]
            coverage = float(counts[ids].sum() / counts[counted_ids].sum().clamp(min=1))
        return VocabularyMatch(ids, matrix, len(composed_vectors), len(word_ids), coverage)


def _find_distinct_vocabularies(task: Task) -> dict[str, tuple[Tokenizer, Tensor | None]]:
    """Returns the vocabularies of a task with their token counts; a shared one only under the first of its names."""
    counts_by_name = task.token_counts()
    names_by_id: dict[int, list[str]] = {}
    for name, tokenizer in task.preprocessor.tokenizers.items():
        names_by_id.setdefault(id(tokenizer), []).append(name)
    vocabularies = {}
    for names in names_by_id.values():
        counts = [counts_by_name[name] for name in names if name in counts_by_name]
        tokenizer = task.preprocessor.tokenizers[names[0]]
        vocabularies[names[0]] = tokenizer, torch.stack(counts).sum(0) if counts else None
    return vocabularies


def _get_word(tokenizer: Tokenizer, token_id: int) -> str | None:
    """Returns the word that a token is or begins; None for a token that continues a word, and for a character."""
    token = tokenizer.token(token_id)
    if tokenizer.kind == "wordpiece":
        return None if token.startswith("##") and len(token) > 2 else token
    if tokenizer.kind == "bpe":
        text = tokenizer.decode([token_id])
        return text[1:] if text[:1] == " " and len(text) > 1 else None
    if tokenizer.kind == "characters":
        return None  # a letter may be a word, but is usually a part of one
    return token


def _explain_low_coverage(name: str, tokenizer: Tokenizer) -> str:
    if tokenizer.kind in WORD_TOKENIZERS:
        question = "is it of the same language, and tokenised in the same way?"
        return f"few words of the vocabulary {name!r} are in the file: {question}"
    problem = f"{tokenizer.kind} tokens are rarely words, and the file has vectors of words only"
    return f"{problem}. Try --text.tokenizer words."


@torch.no_grad()
def initialize_embeddings(embeddings: dict[str, Embedding], run: Run, is_new: bool) -> None:
    """Copies the saved vectors into the embeddings of a new run; in any run, freezes them if the settings say so.

    The vectors of a layer are scaled by one factor, so that their root mean square norm is `choose_initial_norm`.
    """
    path = run.folder / INITIAL_EMBEDDINGS
    should_freeze = run.settings.network.freeze_embedding
    try:
        check_digest(path)
        with safe_open(path, "pt") as file:
            names = set(file.keys())
            for name, layer in embeddings.items():
                if f"ids.{name}" not in names:  # it shares the layer of another vocabulary
                    continue
                ids = file.get_tensor(f"ids.{name}").to(layer.weight.device)
                if is_new and len(ids):
                    vectors = file.get_tensor(f"rows.{name}").to(layer.weight)
                    scale = choose_initial_norm(layer, run.settings) / _compute_rms_norm(vectors)
                    layer.weight[ids] = vectors * scale
                if should_freeze:
                    layer.freeze(ids)
    except (OSError, ValueError, SafetensorError) as error:
        problem = f"the initial token vectors cannot be read: {error}."
        raise RunError(problem, file=path, fix=DAMAGED_RUN_FIX) from None


def choose_initial_norm(layer: Embedding, settings: Settings) -> float:
    """Returns the initial norm of word vectors: the norm of the random vectors if positions are added to them.

    Otherwise it is larger: unlike random vectors, word vectors are information and need not be small.
    """
    adds_positions = settings.model == "transformer" and settings.transformer.positions in ("sinusoidal", "learned")
    return _compute_rms_norm(layer.weight) if adds_positions else INITIAL_NORM


def _compute_rms_norm(vectors: Tensor) -> float:
    """Returns the root mean square of the norms of vectors (N, D)."""
    return max(1e-30, float(vectors.double().square().sum(dim=1).mean().sqrt()))
