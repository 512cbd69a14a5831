"""Classification: one label for a whole text, many-to-one.

    text → tokens → buckets → embedding → encoder → pooling → label scores → negative log likelihood
                                                                        └→ probabilities of the labels

The page wires pieces; each piece is explained where it lives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from reprlib import repr as short
from time import perf_counter
from typing import Any, Self

import numpy as np
import torch

from seqwise.config import Settings
from seqwise.data.buckets import BucketLoader
from seqwise.data.examples import Splits, select_evaluation_examples
from seqwise.data.findings import Findings
from seqwise.data.reading import get_format_suffix
from seqwise.data.tables import SUFFIXES, read_input_column
from seqwise.files import check_output_path, write_text
from seqwise.metrics.evaluation import Baseline, Evaluation
from seqwise.metrics.example_scores import ExampleScores, ExampleText, count_correct
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.classify.defaults import fill_classify
from seqwise.tasks.classify.metrics import DEFINITIONS, accuracy, confusion_table, label_table, macro_f1
from seqwise.tasks.classify.model import MOST_TOKENS, Classifier, TextBatch, collate, measure, score
from seqwise.tasks.classify.reader import LabelledText, check_labels, labels_of, open_labelled, refuse_unknown_labels
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
from seqwise.text.tokenizer import Tokenizer

PAD = "<pad>"
MOST_WORDS = 50_000  # vocabulary unless set
LONG_WORDS = 15  # mean letters between blanks from which on a script seems to have no blanks
AT_ONCE = 2_048  # inputs that are read before answers come
MANY_UNKNOWN = 0.1  # share of held-out tokens from which on the user is told


class Classify(Task):
    """The task on some labelled texts: a vocabulary and labels are known, a model can be built, trained and scored."""

    fill_defaults = staticmethod(fill_classify)
    primary_metric = ("accuracy", "acc")
    example = "a text"

    def __init__(self, splits: Splits[LabelledText], preprocessor: Preprocessor, longest: int):
        self.splits, self.preprocessor, self.longest = splits, preprocessor, longest
        self.fingerprint, self.split_rule = splits.fingerprint, splits.split_rule
        self.labels: list[str] = preprocessor.facts["labels"]
        self.ids = {split: encode(preprocessor.tokenizer, examples) for split, examples in splits.parts.items()}
        numbers = {label: number for number, label in enumerate(self.labels)}
        self.targets = {
            split: np.array([numbers[example.label] for example in examples], dtype=np.int64)
            for split, examples in splits.parts.items()
        }

    @classmethod
    def prepare(
        cls,
        data: str,
        settings: Settings,
        preprocessor: Preprocessor | None = None,
        log: LogFunction = no_log,
        progress: ProgressCallback | None = None,
    ) -> Self:
        """Read and check the data; learn vocabulary and labels from the training split unless they are given."""
        fractions = (settings.data.valid_fraction, settings.data.test_fraction)
        splits = open_labelled(data, settings.columns, settings.data.on_empty, fractions)
        check_labels(splits)
        extra_words = preprocessor.extra_words if preprocessor else ()
        preprocessor = (
            Preprocessor(dict(preprocessor.tokenizers), dict(preprocessor.facts)) if preprocessor else Preprocessor()
        )
        if "text" not in preprocessor.tokenizers:
            preprocessor.tokenizers["text"] = learn_tokenizer(splits.parts["train"], settings, log, extra_words)
        preprocessor.facts.setdefault("labels", labels_of(splits))
        refuse_unknown_labels(splits.all_examples(), preprocessor.facts["labels"], splits.findings)
        splits.findings.raise_errors()
        task = cls(splits, preprocessor, settings.data.max_length or MOST_TOKENS)
        if settings.data.max_length is None:
            settings.data.max_length = min(MOST_TOKENS, max(1, task.size().longest))
        task.longest = settings.data.max_length
        task.count_long()
        task.introduce(log)
        return task

    def count_long(self) -> None:
        """A remark for every text that will be cut."""
        for split, examples in self.splits.parts.items():
            for ids, example in zip(self.ids[split], examples):
                if len(ids) > self.longest:
                    what = f"texts of more than {self.longest:,} tokens, which are cut there (--data.max-length)"
                    self.splits.findings.warn(what, example.file, example.line)

    def introduce(self, log: LogFunction) -> None:
        sizes = ", ".join(f"{split} {len(examples):,}" for split, examples in self.splits.parts.items())
        rule = f"{self.split_rule[0].upper()}{self.split_rule[1:]}"
        log(f"texts: {sizes}; vocabulary {len(self.preprocessor.tokenizer):,}; {self.shares()}. {rule}")
        for sentence in self.remarks():
            log(f"note: {sentence}")

    def shares(self) -> str:
        """The labels with their shares of the training split, the most frequent first."""
        counts = Counter(example.label for example in self.splits.parts["train"])
        shown = [f"{label} {count / counts.total():.0%}" for label, count in counts.most_common(6)]
        return f"{len(counts)} labels ({', '.join(shown)}{', …' if len(counts) > 6 else ''})"

    def remarks(self) -> list[str]:
        """What was let pass, with its number and the policy."""
        unknown = self.preprocessor.tokenizer.unknown
        found = self.splits.findings.warning_messages()
        for split in ("valid", "test"):
            rows = self.ids.get(split, [])
            share = sum(int((row == unknown).sum()) for row in rows) / max(1, sum(map(len, rows)))
            if share > MANY_UNKNOWN:
                found.append(f"{share:.1%} of the {split} tokens are <unk>: the vocabulary does not have them.")
        return found

    def size(self) -> Size:
        lengths = [len(row) for row in self.ids["train"]]
        return Size(sum(lengths), len(self.preprocessor.tokenizer), len(lengths), max(lengths), len(self.labels))

    def run_layers(self, model: Classifier) -> None:
        model.encoder(model.embedding(torch.zeros(1, 1, dtype=torch.int64, device="meta")))

    def build(self, settings: ResolvedSettings) -> Classifier:
        """An untrained model, whose first guess is the frequency of each label."""
        tokenizer, labels = self.preprocessor.tokenizer, len(self.labels)
        counts = torch.from_numpy(np.bincount(self.targets["train"], minlength=labels))
        return Classifier(settings, len(tokenizer), labels, tokenizer.unknown, counts)

    def token_counts(self) -> dict[str, torch.Tensor]:
        ids = np.concatenate(self.ids["train"])
        return {"text": torch.from_numpy(np.bincount(ids, minlength=len(self.preprocessor.tokenizer)))}

    def batches(self, settings: ResolvedSettings, rank: int = 0, world: int = 1) -> BucketLoader[TextBatch]:
        """Training batches of texts of alike length."""
        rows = [row[: self.longest] for row in self.ids["train"]]
        targets = self.targets["train"]

        def batch(numbers: np.ndarray) -> TextBatch:
            return collate([rows[number] for number in numbers], targets[numbers], numbers)

        batch_rows, lengths = settings.training.batch_size, [len(row) for row in rows]
        return BucketLoader(lengths, batch, batch_rows, settings.data.max_tokens, settings.seed, rank, world)

    def validate(self, model: Classifier, settings: ResolvedSettings, world: Summing) -> dict[str, float]:
        """Loss, accuracy and macro-F1 on the validation split, shared among the processes.

        The best weights are those of the best accuracy, of the best macro-F1 where labels weigh alike; among equal ones
        those of the smaller loss.
        """
        rows, size = self.ids["valid"], len(self.labels)
        scored = measure(model, rows, self.targets["valid"], self.longest, world.rank, world.size)
        nats, *cells = world.sum(scored.nats, *scored.counts.flatten().tolist())
        counts = np.array(cells).reshape(size, size)
        found = {"loss": nats / max(1, len(rows)), "accuracy": accuracy(counts), "macro_f1": macro_f1(counts)}
        chosen_by = "macro_f1" if settings.classify.class_weights == "balanced" else "accuracy"
        # The loss counts for less than one text, so it decides between equals only.
        tie = found["loss"] / (1 + found["loss"]) / max(1, len(rows))
        return found | {"goal": 1 - found[chosen_by] + tie}

    def baselines(self, split: str) -> tuple[Baseline, ...]:
        """Always the most frequent label of the training split, the first of several."""
        number = int(np.bincount(self.targets["train"], minlength=len(self.labels)).argmax())
        share = float((self.targets[split] == number).mean())
        about = f"It always answers {short(self.labels[number])}, the most frequent label of the training split."
        return (Baseline("most frequent label", share, about),)

    def report(self) -> Report:
        unknown = self.preprocessor.tokenizer.unknown
        rows: dict[str, tuple[int, ...]] = {
            split: (len(rows), sum(map(len, rows)), max(map(len, rows)), sum(int((r == unknown).sum()) for r in rows))
            for split, rows in self.ids.items()
        }
        tokenizer = self.preprocessor.tokenizer
        sentences = (
            f"tokeniser: {tokenizer.kind}, vocabulary {len(tokenizer):,} (from the training split)",
            f"training: {self.shares()}",
            f"split: {self.split_rule}",
        )
        return Report(("texts", "tokens", "longest", "unknown"), rows, sentences, tuple(self.remarks()))

    # A trained model, without that data

    @classmethod
    def restore(cls, settings: ResolvedSettings, preprocessor: Preprocessor) -> Classifier:
        return Classifier(
            settings, len(preprocessor.tokenizer), len(preprocessor.facts["labels"]), preprocessor.tokenizer.unknown
        )

    @classmethod
    def evaluate(
        cls,
        model: Classifier,
        settings: ResolvedSettings,
        preprocessor: Preprocessor,
        data: str,
        *,
        split: str | None = None,
        trained_on: str = "",
        options: InferenceOptions = InferenceOptions(),
        progress: ProgressCallback | None = None,
    ) -> Evaluation:
        """Accuracy, macro-F1, and who is mistaken for whom."""
        check_output_path(options.out)
        labels: list[str] = preprocessor.facts["labels"]
        found = Findings()

        def open_with(valid: float, test: float) -> Splits[LabelledText]:
            nonlocal found
            splits = open_labelled(data, settings.columns, settings.data.on_empty, (valid, test))
            found = splits.findings
            return splits

        fractions = (settings.data.valid_fraction, settings.data.test_fraction)
        examples, part = select_evaluation_examples(open_with, fractions, split, trained_on)
        refuse_unknown_labels(examples, labels, found)
        found.raise_errors()
        rows, longest = encode(preprocessor.tokenizer, examples), settings.data.max_length
        targets = np.array([labels.index(example.label) for example in examples], dtype=np.int64)
        began = perf_counter()
        scored = measure(model, rows, targets, longest, progress=progress)
        seconds = perf_counter() - began
        if options.out is not None:
            write_answers(options.out, examples, [labels[number] for number in scored.predicted], scored.chances)
        cut = sum(len(row) > longest for row in rows)
        remarks = [
            *found.warning_messages(),
            *([f"{cut:,} texts of more than {longest:,} tokens were cut there."] if cut else []),
        ]
        counts = scored.counts
        metrics = {
            "accuracy": accuracy(counts),
            "macro_f1": macro_f1(counts),
            "loss": scored.nats / len(rows),
            "examples": len(rows),
        }
        how = f"{settings.classify.pooling} pooling over the states of the {settings.model}; {len(labels)} labels"
        tables = (label_table(counts, labels), confusion_table(counts, labels))
        each = one_by_one(examples, labels, scored.predicted) if options.examples else None
        return Evaluation(metrics, DEFINITIONS, f"{data}, {part}", how, tables, tuple(remarks), seconds, each)

    @classmethod
    def latency_inputs(
        cls,
        model: Classifier,
        settings: ResolvedSettings,
        preprocessor: Preprocessor,
        data: str,
        split: str,
        trained_on: str = "",
    ) -> tuple[Sequence[Any], Callable[[Any], object]]:
        def open_with(valid: float, test: float) -> Splits[LabelledText]:
            return open_labelled(data, settings.columns, settings.data.on_empty, (valid, test))

        fractions = (settings.data.valid_fraction, settings.data.test_fraction)
        texts = [example.text for example in select_evaluation_examples(open_with, fractions, split, trained_on)[0]]
        return texts, lambda text: list(cls.predict(model, settings, preprocessor, [text]))

    @classmethod
    def read_inputs(cls, text: str, settings: ResolvedSettings) -> list[str] | None:
        """The text column of a table; anything else is read line by line."""
        path = Path(text)
        if text == "-" or get_format_suffix(path) not in SUFFIXES or not path.is_file():
            return None
        return read_input_column(path, ("text", "label"), settings.columns)

    @classmethod
    def predict(
        cls,
        model: Classifier,
        settings: ResolvedSettings,
        preprocessor: Preprocessor,
        inputs: Sequence[str],
        options: InferenceOptions = InferenceOptions(),
    ) -> Iterator[Prediction]:
        """The most probable label with its probability, then the next ones."""
        labels: list[str] = preprocessor.facts["labels"]
        for begin in range(0, len(inputs), AT_ONCE):
            texts = inputs[begin : begin + AT_ONCE]
            rows = preprocessor.tokenizer.encode_many([text.strip() for text in texts])
            chances = np.zeros((len(texts), len(labels)))
            for numbers, logs in score(model, rows, settings.data.max_length):
                chances[numbers] = np.exp(logs)
            for text, ids, row in zip(texts, rows, chances):
                likely = {labels[at]: float(row[at]) for at in np.argsort(-row, kind="stable")}
                known = bool((ids != preprocessor.tokenizer.unknown).any())
                yield _prediction(text, likely, options.top, known)


def _prediction(text: str, chances: dict[str, float], top: int, known: bool) -> Prediction:
    label, chance = next(iter(chances.items()))
    shown = [f"{name}  {value:.3f}" for name, value in list(chances.items())[: max(1, top)]]
    values = {"text": text, "label": label, "probability": chance, "probabilities": chances}
    if not known:  # nothing of the text tells anything: this is what the model says without one
        values["nothing_known"] = True
    return Prediction("    ".join(shown), values)


def learn_tokenizer(
    examples: Sequence[LabelledText], settings: Settings, log: LogFunction, extra_words: Sequence[str] = ()
) -> Tokenizer:
    """Fill in the kind by rule, then learn the vocabulary from the training split and the words that are offered."""
    text = settings.text
    if text.tokenizer is None and settings.vectors is not None:
        text.tokenizer = "words"
        log("tokeniser: words, because --vectors has vectors of words.")
    if text.tokenizer is None:
        chunks = " ".join(example.text for example in examples[:1_000]).split()
        blanks = sum(map(len, chunks)) < LONG_WORDS * max(1, len(chunks))
        text.tokenizer = "words" if blanks else "characters"
        log(f"tokeniser: {'words.' if blanks else 'characters, because the texts have hardly any blanks.'}")
    size = text.vocabulary or (MOST_WORDS if text.tokenizer in ("words", "spaces", "characters") else None)
    texts = (example.text for example in examples)
    tokenizer = Tokenizer.train(text.tokenizer, texts, size, text.min_count, text.lowercase, (PAD,), extra_words)
    text.vocabulary = len(tokenizer)
    return tokenizer


def encode(tokenizer: Tokenizer, examples: Sequence[LabelledText]) -> list[np.ndarray]:
    return tokenizer.encode_many([example.text for example in examples])


def one_by_one(examples: Sequence[LabelledText], labels: Sequence[str], predicted: np.ndarray) -> ExampleScores:
    """Which texts were labelled right."""
    answers = [labels[number] for number in predicted]
    right = count_correct(example.label == answer for example, answer in zip(examples, answers))
    shown = tuple(
        ExampleText.single_line(example.text, example.label, answer) for example, answer in zip(examples, answers)
    )
    return ExampleScores("accuracy", "texts", right, shown)


def write_answers(path: Path, examples: Sequence[LabelledText], labels: Sequence[str], chances: np.ndarray) -> None:
    """Text, true label, predicted label and its probability, separated by tabs; blanks inside a text become one."""
    rows = zip(examples, labels, chances.tolist())
    lines = (f"{' '.join(e.text.split())}\t{e.label}\t{label}\t{chance:.4f}\n" for e, label, chance in rows)
    write_text(path, "text\tlabel\tpredicted\tprobability\n" + "".join(lines), concurrent=True)
