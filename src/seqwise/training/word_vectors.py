"""`--vectors FILE`: initialises the token embeddings of a new run with word vectors.

Training calls `WordVectors.read` before the data is read, `WordVectors.match_vocabularies` once the vocabularies are
known, and `initialize_embeddings` once the model is built. The matching rows are saved in the run, which can resume
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
from seqwise.errors import RunError, UsageError
from seqwise.families import get_family
from seqwise.layers.embedding import Embedding
from seqwise.tasks.task import Task
from seqwise.text.patterns import END, UNKNOWN
from seqwise.text.tokenizer import Tokenizer
from seqwise.training.run import START, Run

if TYPE_CHECKING:
    from seqwise.vectors.keyed import KeyedVectors

EXTENDABLE_TASKS = ("classify", "tag")  # they predict no words, so that words outside the training split do no harm
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
    """Raises an error if the settings cannot start from word vectors, before anything is read."""
    text, network = settings.text, settings.network
    if not settings.vectors:
        if network.freeze_embedding or text.extend_vocabulary:
            option = "--network.freeze-embedding" if network.freeze_embedding else "--text.extend-vocabulary"
            raise UsageError(f"{option} needs word vectors, and there are none.", repair="Add --vectors FILE.")
        return
    problem, repair = "", "Leave out --vectors."
    if settings.init is not None:
        problem, repair = "--init and --vectors both initialise the token vectors.", "Leave out one of them."
    elif settings.task == "forecast":
        problem = "the task forecast reads numbers: there are no words for --vectors."
    elif not (family := get_family(settings.model)).has_gradients:
        problem = f"the family {family.name} has no token vectors: it {family.description}."
    elif text.extend_vocabulary and settings.task not in EXTENDABLE_TASKS:
        reason = f"the task {settings.task} would have to predict words that are not in its training data"
        problem = f"--text.extend-vocabulary is for {' and '.join(EXTENDABLE_TASKS)}: {reason}."
        repair = "Leave out --text.extend-vocabulary."
    elif text.extend_vocabulary and text.tokenizer not in (None, *WORD_TOKENIZERS):
        problem = f"--text.extend-vocabulary adds words, but {text.tokenizer} tokens are not words."
        repair = "Leave out --text.tokenizer or --text.extend-vocabulary."
    if problem:
        raise UsageError(problem, repair=repair)


@dataclass(frozen=True)
class VocabularyMatch:
    """The tokens of one vocabulary that have a vector."""

    ids: np.ndarray  # (n,) int64
    rows: np.ndarray  # (n, D) float32, as in the file
    composed: int  # how many of them have a vector composed from n-grams
    words: int  # number of tokens of the vocabulary without the special ones
    share: float | None  # of the tokens of the training split; None if they were not counted

    @property
    def has_low_coverage(self) -> bool:
        """Whether few tokens have a vector, by frequency if the tokens were counted."""
        return (len(self.ids) / max(1, self.words) if self.share is None else self.share) < MIN_COVERAGE

    def __str__(self) -> str:
        matches = f"{len(self.ids):,} of {self.words:,} vocabulary words ({len(self.ids) / max(1, self.words):.1%})"
        composed = f", {self.composed:,} of them from their n-grams" if self.composed else ""
        return matches + composed + ("" if self.share is None else f", {self.share:.1%} of the training tokens")


class WordVectors:
    """The word vectors of a file, from which a run starts."""

    def __init__(self, file: str, keyed: KeyedVectors, fingerprint: str, max_extra_words: int = 0):
        self.file, self.keyed, self.fingerprint = file, keyed, fingerprint
        self.max_extra_words = max_extra_words  # words of the file to add to the vocabulary

    @classmethod
    def read(cls, settings: Settings, log: LogFunction, progress: ProgressCallback | None = None) -> WordVectors | None:
        """Reads the file of the settings, if there is one. Its dimension must be that of the embedding, if set."""
        if not settings.vectors:
            return None
        from seqwise.vectors.formats import load_vectors  # imported here, because most runs do not need it

        keyed = load_vectors(settings.vectors, progress=progress, log=log)
        width = settings.network.embedding
        if width not in (None, keyed.dim):
            problem = f"the vectors have {keyed.dim} numbers each, but --network.embedding is {width}."
            repair = "Leave out --network.embedding: it becomes the width of the vectors."
            raise UsageError(problem, repair=repair, file=settings.vectors)
        with Path(settings.vectors).open("rb") as content:
            digest = hashlib.file_digest(content, lambda: hashlib.blake2b(digest_size=16))
        return cls(settings.vectors, keyed, digest.hexdigest(), settings.text.extend_vocabulary)

    def match_vocabularies(self, task: Task, log: LogFunction) -> dict[str, Tensor]:
        """Returns the ids and rows of each vocabulary of the task, which the run saves, and logs the coverage."""
        vocabularies = _find_distinct_vocabularies(task)
        coverage = []
        tensors: dict[str, Tensor] = {}
        for name, (tokenizer, counts) in vocabularies.items():
            match = self.match(tokenizer, counts)
            tensors |= {f"ids.{name}": torch.from_numpy(match.ids), f"rows.{name}": torch.from_numpy(match.rows)}
            coverage.append(f"{name}: {match}" if len(vocabularies) > 1 else str(match))
            log(f"{self.file}: {coverage[-1]}")
            if match.has_low_coverage:
                log(f"note: {_explain_low_coverage(name, tokenizer)}")
        if not any(len(tensor) for tensor in tensors.values()):
            repair = "Are these vectors of the same language, and of text that was tokenised in the same way?"
            raise UsageError("no token of the vocabulary is a word of the file.", repair=repair, file=self.file)
        num_added = sum(tokenizer.num_extra_words for tokenizer, _ in vocabularies.values())
        if self.max_extra_words:
            note = f"{self.file}: {num_added:,} of its words were added to the vocabulary"
            log(note if num_added else f"note: {NO_WORDS_ADDED}")
        about = {"file": self.file, "fingerprint": self.fingerprint, "found": coverage, "joined": num_added}
        task.preprocessor.facts["vectors"] = about
        return tensors

    def match(self, tokenizer: Tokenizer, counts: Tensor | None = None) -> VocabularyMatch:
        """Returns the tokens that are words of the file, as they are or in lower case; parts of words do not match.

        If the file has n-grams, the vectors of other words are composed from them.
        """
        special = {*tokenizer.specials, UNKNOWN, END}
        word_ids = [token_id for token_id in range(len(tokenizer)) if tokenizer.token(token_id) not in special]
        matched: dict[int, np.ndarray] = {}
        for token_id in word_ids:
            token = _get_word(tokenizer, token_id)
            word = next((form for form in (token, token and token.lower()) if form in self.keyed), None)
            if word is not None:
                matched[token_id] = self.keyed[word]
        composed: dict[int, np.ndarray] = {}
        if self.keyed.subwords is not None and tokenizer.kind in WORD_TOKENIZERS:
            for token_id in word_ids:
                vector = None if token_id in matched else self.keyed.subwords.compose(tokenizer.token(token_id))
                if vector is not None:
                    composed[token_id] = vector
        ids = np.array([*matched, *composed], dtype=np.int64)
        rows = np.array([*matched.values(), *composed.values()], dtype=np.float32).reshape(-1, self.keyed.dim)
        share = None
        if counts is not None:  # the end of a line is not a word, but <unk> replaces words
            counted_ids = [*word_ids, *(() if tokenizer.unknown is None else (tokenizer.unknown,))]
            share = float(counts[ids].sum() / counts[counted_ids].sum().clamp(min=1))
        return VocabularyMatch(ids, rows, len(composed), len(word_ids), share)


def _find_distinct_vocabularies(task: Task) -> dict[str, tuple[Tokenizer, Tensor | None]]:
    """Returns the vocabularies of a task with their token counts; one with several names under the first of them."""
    counts = task.token_counts()
    names: dict[int, list[str]] = {}
    for name, tokenizer in task.preprocessor.tokenizers.items():
        names.setdefault(id(tokenizer), []).append(name)
    vocabularies = {}
    for first, *others in names.values():
        summands = [counts[name] for name in (first, *others) if name in counts]
        vocabularies[first] = task.preprocessor.tokenizers[first], torch.stack(summands).sum(0) if summands else None
    return vocabularies


def _get_word(tokenizer: Tokenizer, token_id: int) -> str | None:
    """Returns the word of a token; None for a token that continues a word, or may do so."""
    token = tokenizer.token(token_id)
    if tokenizer.kind == "wordpiece":
        return None if token.startswith("##") and len(token) > 2 else token
    if tokenizer.kind == "bpe":
        text = tokenizer.decode([token_id])
        return text[1:] if text[:1] == " " and len(text) > 1 else None
    if tokenizer.kind == "characters":
        return None  # a letter can be a word, but mostly is a part of one
    return token


def _explain_low_coverage(name: str, tokenizer: Tokenizer) -> str:
    if tokenizer.kind in WORD_TOKENIZERS:
        question = "is it of the same language, and tokenised in the same way?"
        return f"few words of the vocabulary {name!r} are in the file: {question}"
    problem = f"{tokenizer.kind} tokens are rarely words, and the file has vectors of words only"
    return f"{problem}. Try --text.tokenizer words."


@torch.no_grad()
def initialize_embeddings(embeddings: dict[str, Embedding], run: Run, is_new: bool) -> None:
    """Copies the saved rows into the embeddings of a new run, and freezes them if the settings say so.

    The rows of a layer are scaled by one factor to the norm that suits the model.
    """
    path = run.folder / START
    should_freeze = run.settings.network.freeze_embedding
    try:
        with safe_open(path, "pt") as file:
            names = set(file.keys())
            for name, layer in embeddings.items():
                if f"ids.{name}" not in names:  # it shares the layer of another vocabulary
                    continue
                ids = file.get_tensor(f"ids.{name}").to(layer.weight.device)
                if is_new and len(ids):
                    rows = file.get_tensor(f"rows.{name}").to(layer.weight)
                    layer.weight[ids] = rows * (choose_initial_norm(layer, run.settings) / _compute_rms_norm(rows))
                if should_freeze:
                    layer.freeze(ids)
    except (OSError, SafetensorError) as error:
        problem = f"the initial token vectors cannot be read: {error}."
        raise RunError(problem, file=path, repair="Copy the run folder again, or train again.") from None


def choose_initial_norm(layer: Embedding, settings: Settings) -> float:
    """Returns the initial norm of word vectors: that of the random rows if positions are added to them.

    Otherwise larger: unlike random rows, word vectors are information and need not be kept small.
    """
    adds_positions = settings.model == "transformer" and settings.transformer.positions in ("sinusoidal", "learned")
    return _compute_rms_norm(layer.weight) if adds_positions else INITIAL_NORM


def _compute_rms_norm(rows: Tensor) -> float:
    """Returns the root mean square of the rows' norms."""
    return max(1e-30, float(rows.double().square().sum(dim=1).mean().sqrt()))
