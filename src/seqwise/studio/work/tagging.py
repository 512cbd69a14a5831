"""Tags words, with the probability of each tag."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from seqwise.errors import UsageError
from seqwise.heads.tag import compute_marginals
from seqwise.studio.work.predictions import load_task, warn_about_unknown
from seqwise.studio.worker import Context
from seqwise.tasks.inspection import get_device
from seqwise.tasks.tag.model import EncodedSentences, TagModel, TagVocabulary
from seqwise.tasks.tag.reader import find_token_offsets
from seqwise.tasks.tag.spans import OUTSIDE, Sentence, split_long_sentences

NUM_ALTERNATIVES = 5


def tag(context: Context, run: str, text: str) -> dict[str, Any]:
    """Returns the words of a text with their tags, and the spans that the tags mark."""
    trained = load_task(context, run, "tag")
    preprocessor, limit = trained.run.preprocessor, trained.settings.data.max_length
    vocabulary = TagVocabulary.from_preprocessor(preprocessor)
    offsets = find_token_offsets(text, preprocessor)
    if not offsets:
        raise UsageError("the text has no words.", fix="Write a sentence.")
    (prediction,) = trained.predict_all([text])
    words = tuple(text[start:stop] for start, stop in offsets)
    segments = split_long_sentences([Sentence(words, (OUTSIDE,) * len(words))], limit)
    rows = np.concatenate(
        [compute_tag_probabilities(trained.bundle.model, vocabulary, segment) for segment in segments]
    )
    unknown = [word for word in words if vocabulary.get_word_id(word) == vocabulary.tokenizer.unknown]
    warnings = [] if trained.settings.tag.characters else warn_about_unknown(unknown)  # else it reads their characters
    if trained.settings.tag.features:
        warnings.append(
            "The model reads how words are cased elsewhere in a document. This text, or each part of it, counts as one."
        )
    if len(segments) > 1:
        warnings.append(f"The model reads {limit:,} words at once: the text is tagged in {len(segments)} parts.")
    described = [
        describe_word(offset, name, row, vocabulary)
        for offset, name, row in zip(offsets, prediction.values["tags"], rows)
    ]
    return {
        "words": described,
        "spans": prediction.values.get("spans", []),
        "has_spans": vocabulary.has_spans,
        "types": list(dict.fromkeys(get_type(name, vocabulary) for name in vocabulary.tags if name != OUTSIDE)),
        "warnings": warnings,
    }


@torch.no_grad()
def compute_tag_probabilities(model: TagModel, vocabulary: TagVocabulary, sentence: Sentence) -> np.ndarray:
    """Returns the probability of each tag of each word (T, K), whatever the tags of the other words."""
    batch = EncodedSentences([sentence], vocabulary).collate(np.arange(1)).to(get_device(model))
    scores = model.head.scores(model.eval().states(batch))
    return compute_marginals(scores, batch.lengths, model.head.transitions())[0].cpu().numpy()


def describe_word(offset: tuple[int, int], name: str, row: np.ndarray, vocabulary: TagVocabulary) -> dict[str, Any]:
    """Returns a word with its tag and the most probable types of span, or tags, of it."""
    probabilities: dict[str, float] = {}
    for each, value in zip(vocabulary.tags, row.tolist()):
        key = get_type(each, vocabulary)
        probabilities[key] = probabilities.get(key, 0.0) + value
    own = get_type(name, vocabulary)
    ranking = sorted(probabilities, key=lambda key: -probabilities[key])[:NUM_ALTERNATIVES]
    alternatives = [{"name": each, "probability": probabilities[each]} for each in ranking]
    return {
        "start": offset[0],
        "stop": offset[1],
        "tag": name,
        "type": own,
        "probability": probabilities[own],
        "alternatives": alternatives,
    }


def get_type(name: str, vocabulary: TagVocabulary) -> str:
    """Returns the type of span that a tag such as B-LOC belongs to; of a plain tag the tag itself."""
    return name.partition("-")[2] or name if vocabulary.has_spans else name
