"""Inputs of a tagger for the views of `seqwise.lens`. Each answer is the tag of a word."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, repeat

import numpy as np
from torch import Tensor

from seqwise.heads.tag import compute_log_marginal
from seqwise.tasks.inspection import USER_TEXT, Answer, InspectedInput, check_length, get_device
from seqwise.tasks.tag.model import EncodedSentences, TagBatch, TagModel, TagVocabulary, find_document_casings
from seqwise.tasks.tag.reader import find_token_offsets
from seqwise.tasks.tag.spans import OUTSIDE, Sentence
from seqwise.tasks.task import ModelBundle


def inspect_text(bundle: ModelBundle, text: str) -> InspectedInput:
    """Returns a sentence, which is a document of its own; its tags are those that the model predicts."""
    words = tuple(text[start:end] for start, end in find_token_offsets(text, bundle.preprocessor))
    check_length(len(words), bundle.settings.data.max_length, "words")
    sentence = Sentence(words, (OUTSIDE,) * len(words))
    return inspect_sentence(bundle, sentence, None, USER_TEXT, is_tagged=False)


def inspect_examples(
    bundle: ModelBundle,
    parts: Mapping[str, Sequence[Sentence]],
    sentences: Sequence[Sentence],
    descriptions: Sequence[str],
) -> list[InspectedInput]:
    """Returns tagged sentences of the splits `parts`; of a long one the words that the model reads at once."""
    limit, chosen = bundle.settings.data.max_length, set(sentences)
    documents = chain.from_iterable(part for part in parts.values() if not chosen.isdisjoint(part))
    pieces = [replace(sentence, words=sentence.words[:limit], tags=sentence.tags[:limit]) for sentence in sentences]
    vocabulary = TagVocabulary.from_preprocessor(bundle.preprocessor)
    found = find_document_casings(vocabulary, pieces, list(documents), limit)
    casings: Iterable[np.ndarray | None] = repeat(None) if found is None else found
    return [inspect_sentence(bundle, *each, is_tagged=True) for each in zip(pieces, casings, descriptions)]


def inspect_sentence(
    bundle: ModelBundle, sentence: Sentence, casings: np.ndarray | None, description: str, is_tagged: bool
) -> InspectedInput:
    """Returns a sentence with an answer for each word, those in spans first; with `is_tagged` its tags are true."""
    model, vocabulary = bundle.model, TagVocabulary.from_preprocessor(bundle.preprocessor)
    encoded = EncodedSentences([sentence], vocabulary, None if casings is None else [casings])
    batch = encoded.collate(np.arange(1)).to(get_device(model))
    predicted = model.decode(batch)
    true = batch.tag_ids if is_tagged else predicted
    batch = replace(batch, tag_ids=true)
    tags = [vocabulary.tags[index] for index in predicted[0].tolist()]
    answers = [
        Answer(
            f"tag of {word}: {tag}",
            partial(score_tag, batch=batch, position=position, tag=int(predicted[0, position])),
            position,
            is_correct=bool(predicted[0, position] == true[0, position]) if is_tagged else None,
        )
        for position, (word, tag) in enumerate(zip(sentence.words, tags))
    ]
    return InspectedInput(
        description,
        " ".join(sentence.words),
        batch,
        sentence.words,
        targets=[vocabulary.tags[index] for index in true[0].tolist()],
        answers=sorted(answers, key=lambda answer: tags[answer.position or 0] == OUTSIDE),
        features="input_dropout",  # word vectors, and what is read from the characters of a word
    )


def score_tag(model: TagModel, batch: TagBatch, position: int, tag: int) -> Tensor:
    """Returns the log-probability of a word's tag, whatever the tags of the others."""
    scores = model.head.scores(model.states(batch))
    return compute_log_marginal(scores, batch.lengths, model.head.transitions(), position, tag)[0]
