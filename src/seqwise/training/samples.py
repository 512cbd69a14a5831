"""Samples of what a model predicts as training progresses: `samples.jsonl`, with a line for some of the validations.

A line has the step, the seconds of training so far, what the samples took, and for a few fixed inputs of the validation
split the input, the model's output and what was expected, all as text. Samples are computed between two updates, where
the clock of training stands still, with the weights that are validated. They change nothing: no weight, no random
number. Together they take at most `MAX_SHARE` of the time of training, and one more at its end. Later samples are
further apart, because text changes most at first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from seqwise.clock import read_clock
from seqwise.decoding.options import BeamSearchOptions, SamplingOptions
from seqwise.decoding.sampling import choose_token
from seqwise.errors import MemoryLimitError, shorten
from seqwise.tasks.inspection import choose_evenly
from seqwise.tasks.task import InferenceOptions, ModelBundle, Task
from seqwise.training.loop import Trainer
from seqwise.training.run import Run, find_comparison
from seqwise.training.step import Step

if TYPE_CHECKING:
    from seqwise.text.tokenizer import Tokenizer

MAX_SHARE = 0.01  # of the time of training
FIRST_COST = 0.1  # seconds that the first samples are expected to take: they follow after 10 s of training
MIN_SECONDS, MIN_GAP = 2.0, 0.02  # between two samples: seconds of training, and share of the training so far
NUM_EXAMPLES = 2
MAX_CHARACTERS = 600  # of each text
MAX_SEARCHED = 4_000  # tokens in which a line is searched that is long enough for a prompt
MAX_WORDS = 40  # of a tagged sentence
MAX_VALUES = 8  # of a series
# Tokens of the prompt, and tokens that are generated.
PROMPT_TOKENS, NEW_TOKENS = {"characters": 32}, {"characters": 64}
DEFAULT_PROMPT_TOKENS, DEFAULT_NEW_TOKENS = 8, 28
MASK_DISTANCE = 6  # tokens between two masks


@dataclass(frozen=True)
class Sample:
    """What a model predicts for one input, and what was expected."""

    input: str
    output: str
    expected: str = ""


class SampleLog:
    """Writes samples of the model that a trainer trains."""

    def __init__(self, run: Run, task: Task, trainer: Trainer):
        self.run, self.task, self.trainer = run, task, trainer
        rows = run.read_samples()
        self.last_seconds = rows[-1]["seconds"] if rows else 0.0  # of training, at the last sample
        self.cost = sum(row["cost"] for row in rows)  # seconds that all samples took
        self.next_cost = rows[-1]["cost"] if rows else FIRST_COST  # seconds that the next ones will take
        self.is_stopped = False

    def is_due(self, step: Step) -> bool:
        """Returns whether there is a sample after this step."""
        if self.is_stopped or step.validation is None:
            return False
        gap = max(MIN_SECONDS, MIN_GAP * step.seconds)
        is_affordable = self.cost + self.next_cost <= MAX_SHARE * step.seconds
        return bool(step.ended) or (is_affordable and step.seconds - self.last_seconds >= gap)

    def add(self, step: Step) -> None:
        """Writes a line if one is due."""
        if not self.is_due(step):
            return
        start, trainer = read_clock(), self.trainer
        devices = [trainer.device] if trainer.device.type == "cuda" else []
        try:
            with torch.random.fork_rng(devices), torch.no_grad(), trainer.use_averaged_weights():
                samples = collect_samples(self.task, trainer.model, self.run)
        except (torch.OutOfMemoryError, MemoryLimitError):
            self.is_stopped = True
            trainer.notes.append("out of memory: samples are no longer written.")
            return
        except Exception as error:  # a sample that cannot be computed must not end the training
            self.is_stopped = True
            trainer.notes.append(f"samples are no longer written ({shorten(f'{type(error).__name__}: {error}')}).")
            return
        cost = read_clock() - start
        self.cost, self.next_cost, self.last_seconds = self.cost + cost, cost, step.seconds
        row = {"step": step.number, "tokens": step.tokens, "seconds": step.seconds, "cost": round(cost, 6)}
        self.run.log_samples({**row, "samples": [asdict(sample) for sample in samples]})


def open_samples(run: Run, task: Task, trainer: Trainer) -> SampleLog | None:
    """Returns the log of a run; None for a task without samples, and for the runs of a comparison, which are timed."""
    is_trial = find_comparison(run.folder) is not None
    return None if is_trial or run.settings.task not in SAMPLERS else SampleLog(run, task, trainer)


def collect_samples(task: Task, model: Any, run: Run) -> list[Sample]:
    """Returns the samples of a task with a model, whose texts are shortened."""
    model.eval()
    samples = SAMPLERS[run.settings.task](task, task.bundle(model, run.settings))
    return [Sample(*(_shorten(text) for text in asdict(sample).values())) for sample in samples]


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 1]}…"


def _choose(examples: Sequence[Any]) -> list[Any]:
    return [examples[index] for index in choose_evenly(len(examples), NUM_EXAMPLES)]


# Tasks on a text


def find_line(store: Any, tokenizer: Tokenizer, length: int) -> np.ndarray:
    """Returns the first `length` tokens of the first line that has so many, else of the text."""
    ids, line_break = store.read(0, min(MAX_SEARCHED, len(store))), tokenizer.encode("\n").ids
    if len(line_break) == 1:
        ends = np.flatnonzero(ids == line_break[0])
        starts = np.concatenate([[0], ends + 1])
        lengths = np.concatenate([ends, [len(ids)]]) - starts
        if (lengths >= length).any():
            return ids[starts[lengths >= length][0] :][:length]
    return ids[:length]


def sample_language(task: Any, bundle: ModelBundle) -> Iterator[Sample]:
    """Yields a continuation, sampled with a fixed seed, of the beginning of a line, beside the true one."""
    tokenizer, model = task.tokenizer, bundle.model
    num_prompt = PROMPT_TOKENS.get(tokenizer.kind, DEFAULT_PROMPT_TOKENS)
    num_new = NEW_TOKENS.get(tokenizer.kind, DEFAULT_NEW_TOKENS)
    line = find_line(task.stores["valid"], tokenizer, num_prompt + num_new)
    prompt, rest = line[:num_prompt], line[num_prompt:]
    device, sampling = model.embedding.weight.device, SamplingOptions(temperature=0.8)
    generator, state = torch.Generator(device).manual_seed(0), None
    ids, generated = torch.tensor(prompt[None], device=device), []
    # `generate` would be faster, but it may capture a CUDA graph, in the middle of training.
    for _ in range(num_new):
        scores, state = model.next(ids, state)
        token = choose_token(sampling, scores.float(), None, generator)
        ids = token[:, None]
        generated.append(int(token))
    whole, start = tokenizer.decode([*prompt, *generated]), tokenizer.decode(prompt)
    output = whole[len(start) :] if whole.startswith(start) else tokenizer.decode(generated)
    yield Sample(start, output, tokenizer.decode(line)[len(start) :] if len(rest) else "")


def sample_masked(task: Any, bundle: ModelBundle) -> Iterator[Sample]:
    """Yields a line in which every sixth token is masked, filled in by the model."""
    tokenizer = task.tokenizer
    ids = find_line(task.stores["valid"], tokenizer, DEFAULT_PROMPT_TOKENS + DEFAULT_NEW_TOKENS)
    starts = range(0, len(ids), MASK_DISTANCE)
    parts = [tokenizer.decode(ids[start : start + MASK_DISTANCE - 1]) for start in starts]
    text = " [MASK] ".join(parts)
    if len(parts) > 1:
        (prediction,) = task.predict(bundle, [text], InferenceOptions(top=1))
        yield Sample(text, prediction.values["filled"], tokenizer.decode(ids))


# Tasks on examples


def sample_classify(task: Any, bundle: ModelBundle) -> Iterator[Sample]:
    """Yields the most probable label of two texts."""
    examples = _choose(task.splits.parts["valid"])
    predictions = task.predict(bundle, [example.text for example in examples], InferenceOptions())
    for example, prediction in zip(examples, predictions):
        values = prediction.values
        yield Sample(example.text, f"{values['label']} ({values['probability']:.0%})", example.label)


def sample_tag(task: Any, bundle: ModelBundle) -> Iterator[Sample]:
    """Yields two sentences with their predicted spans or tags."""
    from seqwise.tasks.tag.spans import format_tags
    from seqwise.tasks.tag.task import predict_tags

    sentences = task.splits.parts["valid"]
    sentences = _choose([each for each in sentences if len(each.words) <= MAX_WORDS] or sentences)
    for sentence, predicted in zip(sentences, predict_tags(bundle, task.vocabulary, sentences)):
        text, ends = " ".join(sentence.words), np.cumsum([len(word) + 1 for word in sentence.words]) - 1
        offsets = [(int(end) - len(word), int(end)) for word, end in zip(sentence.words, ends)]
        true, answer = (
            format_tags(text, offsets, tags, task.vocabulary.has_spans) for tags in (sentence.tags, predicted)
        )
        yield Sample(text, answer, true)


def sample_translate(task: Any, bundle: ModelBundle) -> Iterator[Sample]:
    """Yields greedy translations of two sources."""
    pairs = _choose(task.splits.parts["valid"])
    options = InferenceOptions(beam_search=BeamSearchOptions(beam=1))
    for pair, prediction in zip(pairs, task.predict(bundle, [pair.source for pair in pairs], options)):
        names = [f"{name}: " for name in task.target_names] if len(pair.targets) > 1 else [""]
        yield Sample(
            pair.source, prediction.text, "\n".join(f"{name}{text}" for name, text in zip(names, pair.targets))
        )


def sample_caption(task: Any, bundle: ModelBundle) -> Iterator[Sample]:
    """Yields greedy captions of two images, which are named."""
    from seqwise.tasks.caption.generation import generate_captions

    examples = _choose(task.splits.parts["valid"])
    options = InferenceOptions(beam_search=BeamSearchOptions(beam=1))
    generated = generate_captions(bundle, task.splits.images, [example.index for example in examples], options)
    for example, captions in zip(examples, generated):
        yield Sample(example.image, captions[0].text, " / ".join(example.captions))


def sample_forecast(task: Any, bundle: ModelBundle) -> Iterator[Sample]:
    """Yields the first values of the forecasts of two windows."""
    from seqwise.tasks.forecast.evaluation import iterate_forecasts

    rolling, windows = task.rolling, task.windows["valid"]
    windows = windows[choose_evenly(len(windows), NUM_EXAMPLES)]
    for (origin, series), forecast in zip(windows.tolist(), iterate_forecasts(bundle.model, rolling, windows)):
        past, truth = rolling.original[:origin, series], rolling.original[origin : origin + rolling.horizon, series]
        name = f"{rolling.series.names[series]} from {forecast['timestamps'][0]}, after …"
        yield Sample(f"{name} {_format_values(past[-3:])}", *map(_format_values, (forecast["point"], truth)))


def _format_values(values: Sequence[float]) -> str:
    texts = ["–" if np.isnan(value) else f"{value:.4g}" for value in values[:MAX_VALUES]]
    return ", ".join([*texts, *(["…"] if len(values) > MAX_VALUES else [])])


# Task → its samples. Tasks of users have none.
SAMPLERS: dict[str | None, Callable[[Any, ModelBundle], Iterator[Sample]]] = {
    "language": sample_language,
    "masked": sample_masked,
    "classify": sample_classify,
    "tag": sample_tag,
    "translate": sample_translate,
    "caption": sample_caption,
    "forecast": sample_forecast,
}
