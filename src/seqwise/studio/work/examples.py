"""Examples of the validation split of a run's data, as inputs of the page, with what the data says about them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate
from typing import Any
from weakref import WeakKeyDictionary

from seqwise.errors import DataError, UsageError
from seqwise.studio.worker import Context
from seqwise.tasks.caption.images import ImageSet
from seqwise.tasks.inspection import choose_evenly
from seqwise.tasks.language.inspection import read_segments
from seqwise.tasks.tag.spans import OUTSIDE, Sentence, format_tags
from seqwise.training.api import TrainedModel

NUM_EXAMPLES = 97  # different ones; a prime, so that steps of any size visit all of them
STRIDE = 37  # neighbouring examples are often alike
PROMPT_TOKENS, CONTINUED_TOKENS = 24, 24
MASKED_TOKENS = 20
MIN_MASKED_LETTERS = 3

_data: WeakKeyDictionary[TrainedModel, Any] = WeakKeyDictionary()  # that was read: a corpus, or splits and examples


def choose_example(context: Context, run: str, number: int = 0) -> dict[str, Any]:
    """Returns the text of an example of the validation split, and the truth about it."""
    trained = context.load(run)
    task = trained.settings.task
    try:
        if task == "language":
            return split_prompt(read_corpus(trained, number, PROMPT_TOKENS + CONTINUED_TOKENS), trained)
        if task == "masked":
            return mask_word(trained.run.preprocessor.tokenizer.decode(read_corpus(trained, number, MASKED_TOKENS)))
        if task in ("classify", "tag", "translate"):
            return describe_example(trained, number)
    except DataError as error:
        problem = f"the data of the run cannot be read. {error.problem}"
        raise DataError(problem, fix="Write a text instead.", file=error.file) from None
    raise UsageError(f"the task {task} has no examples of text.")


def read_corpus(trained: TrainedModel, number: int, length: int) -> list[int]:
    """Returns the ids of a segment of the validation text: it begins with a line and has no unknown word if it can."""
    tokenizer = trained.run.preprocessor.tokenizer
    if trained not in _data:
        _data[trained], _ = trained.task.open_store(trained.bundle, trained.run.metadata.data, "valid")  # type: ignore[attr-defined]
    segments = [ids.tolist() for _, ids in read_segments(_data[trained], length, NUM_EXAMPLES, tokenizer)]
    known = [ids for ids in segments if tokenizer.unknown not in ids] or segments
    return known[number * STRIDE % len(known)]


def split_prompt(ids: list[int], trained: TrainedModel) -> dict[str, Any]:
    """Returns the first half of a segment as the prompt; the second is how the data continues it."""
    decode, half = trained.run.preprocessor.tokenizer.decode, len(ids) // 2
    prompt = decode(ids[:half])
    return {"text": prompt, "truth": decode(ids)[len(prompt) :].strip(), "truth_label": "In the data it continues"}


def mask_word(text: str) -> dict[str, Any]:
    """Returns a text in which a word in the middle is masked."""
    text = " ".join(text.split())
    words = [match for match in re.finditer(r"\w+", text) if len(match[0]) >= MIN_MASKED_LETTERS and match[0] != "unk"]
    if not words:
        return {"text": f"{text} [MASK]", "truth": "", "truth_label": ""}
    word = words[len(words) // 2]
    masked = f"{text[: word.start()]}[MASK]{text[word.end() :]}"
    return {"text": masked, "truth": word[0], "truth_label": "In the data"}


def describe_example(trained: TrainedModel, number: int) -> dict[str, Any]:
    """Returns the input of an example of a task whose data are examples, and its label, tags or translation."""
    _, examples = read_examples(trained)
    example, task = examples[choose_index(len(examples), number)], trained.settings.task
    if task == "classify":
        truth = example.label
    else:
        truth = example.targets[0] if task == "translate" else format_sentence(example)
    return {"text": trained.task.input_text(example), "truth": truth, "truth_label": "In the data"}  # type: ignore[attr-defined]


def format_sentence(sentence: Sentence) -> str:
    """Returns a tagged sentence in one line: [PER Ada] lives, or Ada/NNP lives/VBZ."""
    stops = list(accumulate(len(word) + 1 for word in sentence.words))
    offsets = [(stop - len(word) - 1, stop - 1) for word, stop in zip(sentence.words, stops)]
    has_spans = all(tag == OUTSIDE or tag[1:2] == "-" for tag in sentence.tags)
    return format_tags(" ".join(sentence.words), offsets, sentence.tags, has_spans)


def read_examples(trained: TrainedModel) -> tuple[Any, Sequence[Any]]:
    """Returns the splits of a run's data and the examples of the validation split; they are read once."""
    if trained not in _data:
        read = trained.task.select_examples  # type: ignore[attr-defined]
        splits, examples, _ = read(trained.bundle, trained.run.metadata.data, "valid")
        if not examples:
            raise DataError("the validation split has no examples.", file=trained.run.metadata.data)
        _data[trained] = splits, examples
    return _data[trained]


def choose_index(total: int, number: int) -> int:
    """Returns the index of an example; those of consecutive numbers are far from each other."""
    indices = choose_evenly(total, NUM_EXAMPLES)
    return indices[number * STRIDE % len(indices)]


def open_image_example(trained: TrainedModel, number: int) -> tuple[ImageSet, int, str, list[str]]:
    """Returns the images of a run's data, the index and the name of an example, and its captions."""
    try:
        splits, examples = read_examples(trained)
    except DataError as error:
        problem = f"the data of the run cannot be read. {error.problem}"
        raise DataError(problem, fix="Choose an image of your own.", file=error.file) from None
    example = examples[choose_index(len(examples), number)]
    return splits.images, example.index, example.image, list(example.captions)
