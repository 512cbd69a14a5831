"""Compares translations with references, and writes them to a file. The module knows nothing of models or tokens.

ROUGE-1, ROUGE-2 and ROUGE-L (Lin 2004) measure the words that a summary shares with its reference: the F1 of each pair,
averaged over all pairs. Texts are lower-cased and split into runs of letters and digits; there is no stemming.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from reprlib import repr as abbreviate

import numpy as np

from seqwise.callbacks import ProgressCallback
from seqwise.errors import Findings
from seqwise.metrics.evaluation import Baseline, Evaluation, ExampleScores, ExampleText, Table
from seqwise.metrics.predictions import write_predictions
from seqwise.metrics.translation import (
    compute_bleu,
    compute_exact_match,
    compute_example_sums,
    compute_text_metrics,
)
from seqwise.tasks.translate.generation import TranslationPipeline
from seqwise.tasks.translate.reader import Pair

ROUGE_METHOD = "F1 per pair, mean over pairs; lower case, runs of letters and digits, no stemming"
ROUGE_DEFINITIONS = {
    "rouge_1": f"ROUGE-1, shared words: {ROUGE_METHOD}",
    "rouge_2": f"ROUGE-2, shared pairs of neighbouring words: {ROUGE_METHOD}",
    "rouge_l": f"ROUGE-L, longest common subsequence of words: {ROUGE_METHOD}",
}

_WORD = re.compile(r"[^\W_]+")
_WORD_OR_PUNCTUATION = re.compile(r"\w+|[^\w\s]")

Outputs = dict[str, list[tuple[str, tuple[str, ...]]]]  # target → (output, references) of each pair


def translate_pairs(
    pipeline: TranslationPipeline, pairs: Sequence[Pair], findings: Findings, progress: ProgressCallback
) -> Outputs:
    """Returns the best translation of each source with its references, for each requested target.

    Adds a warning for each source that is truncated.
    """
    source_ids = pipeline.encode_sources([pair.source for pair in pairs])
    warning = f"sources of more than {pipeline.max_length:,} tokens, which are truncated (--data.max-length)"
    for pair, ids in zip(pairs, source_ids):
        if len(ids) > pipeline.max_length:
            findings.warn(warning, pair.file, pair.line)
    outputs: Outputs = {target: [("", ("",))] * len(pairs) for target in pipeline.targets}
    for num_done, (index, hypotheses) in enumerate(pipeline.translate_ids(source_ids), start=1):
        for target, n_best, references in zip(pipeline.targets, hypotheses, pairs[index].references):
            outputs[target][index] = (pipeline.decode(target, n_best[0]), references)
        progress(num_done, len(pairs))
    return outputs


def compute_metrics(outputs: Outputs, data: str, method: str, warnings: Sequence[str] = ()) -> Evaluation:
    """Returns all metrics; with several targets the means over them, and a table with a row for each."""
    metrics_by_target: dict[str, dict[str, float]] = {}
    definitions: dict[str, str] = {}
    for target, texts in outputs.items():
        metrics_by_target[target], definitions = compute_text_metrics(*_unzip_texts(texts))
        lowercase = compute_bleu(*_unzip_texts(texts), lowercase=True)
        metrics_by_target[target]["bleu_lowercase"] = lowercase.value
        definitions["bleu_lowercase"] = lowercase.signature
        metrics_by_target[target] |= compute_rouge(*_unzip_texts(texts))
    definitions |= ROUGE_DEFINITIONS
    names = list(next(iter(metrics_by_target.values())))
    metrics = {
        name: sum(values[name] for values in metrics_by_target.values()) / len(metrics_by_target) for name in names
    }
    tables: tuple[Table, ...] = ()
    if len(metrics_by_target) > 1:
        prefix = f"mean over {', '.join(metrics_by_target)}: "
        definitions = {metric: prefix + text for metric, text in definitions.items()}
        rows = {target: tuple(values.values()) for target, values in metrics_by_target.items()}
        tables = (Table("targets", tuple(names), rows),)
    metrics["pairs"] = len(next(iter(outputs.values())))
    definitions["pairs"] = "pairs that were translated and compared"
    # BLEU counts punctuation as words: a date has five.
    references = [references[0] for texts in outputs.values() for _, references in texts]
    lengths = [len(_WORD_OR_PUNCTUATION.findall(reference)) for reference in references]
    if sum(length < 4 for length in lengths) > len(lengths) / 2:
        warnings = [*warnings, "BLEU counts 4-grams; most of these texts are shorter."]
    return Evaluation(metrics, definitions, data, method, tables, tuple(warnings))


def score_pairs(metric: str, outputs: Outputs, pairs: Sequence[Pair]) -> ExampleScores:
    """Returns what each pair adds to BLEU or exact match; the columns of several targets are concatenated."""
    sums = [compute_example_sums(metric, *_unzip_texts(texts)) for texts in outputs.values()]
    labels = [f"{name}: " if len(outputs) > 1 else "" for name in outputs]

    def join_targets(texts: Iterable[str]) -> str:
        return " / ".join(f"{label}{text}" for label, text in zip(labels, texts))

    texts = tuple(
        ExampleText.single_line(
            pair.source,
            join_targets(" | ".join(texts[index][1]) for texts in outputs.values()),
            join_targets(texts[index][0] for texts in outputs.values()),
        )
        for index, pair in enumerate(pairs)
    )
    return ExampleScores(metric, "pairs", np.concatenate(sums, axis=1), texts)


def _unzip_texts(texts: Sequence[tuple[str, tuple[str, ...]]]) -> tuple[list[str], list[tuple[str, ...]]]:
    """Returns the outputs, and the references of each."""
    return [output for output, _ in texts], [references for _, references in texts]


def compute_baselines(
    metric: str, outputs: Outputs, pairs: Sequence[Pair], frequent_targets: Mapping[str, str]
) -> list[Baseline]:
    """Returns the metric of copying the source and, if it is known, of the most frequent target of training."""
    compute = {"bleu": lambda *texts: compute_bleu(*texts).value, "exact_match": compute_exact_match}[metric]

    def score(predicted: Mapping[str, Sequence[str]]) -> float:
        references = {name: [each for _, each in texts] for name, texts in outputs.items()}
        values = (compute(*_unzip_texts(list(zip(predicted[name], references[name])))) for name in outputs)
        return sum(values) / len(outputs)

    copied = score({name: [pair.source for pair in pairs] for name in outputs})
    baselines = [Baseline("copy of the source", copied, "It repeats the source unchanged.")]
    if frequent_targets:
        value = score({name: [frequent_targets[name]] * len(pairs) for name in outputs})
        description = f"It always predicts {abbreviate(frequent_targets[next(iter(outputs))])}."
        baselines.append(Baseline("most frequent target", value, description))
    return baselines


def write_translations(path: Path, outputs: Outputs, pairs: Sequence[Pair]) -> None:
    """Writes the source, the reference (several: a list) and the translation of each pair; a row for each target."""
    rows = (
        {"input": pair.source, "expected": references[0] if len(references) == 1 else list(references)}
        | {"predicted": output}
        | ({"target": name} if len(outputs) > 1 else {})
        for name, texts in outputs.items()
        for pair, (output, references) in zip(pairs, texts)
    )
    write_predictions(path, rows)


# ROUGE


def compute_rouge(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float]:
    """Returns `rouge_1`, `rouge_2` and `rouge_l` of the outputs; of several references the most similar counts."""
    sums = np.zeros(3)
    for output, texts in zip(map(split_words, outputs), references, strict=True):
        sums += np.max([_compute_pair_rouge(output, split_words(text)) for text in texts], axis=0)
    return dict(zip(ROUGE_DEFINITIONS, (sums / max(1, len(outputs))).tolist()))


def _compute_pair_rouge(output: list[str], reference: list[str]) -> list[float]:
    values = []
    for n in (1, 2):
        ngrams, expected = (Counter(zip(*(words[i:] for i in range(n)))) for words in (output, reference))
        values.append(_compute_f1((ngrams & expected).total(), ngrams.total(), expected.total()))
    return [*values, _compute_f1(measure_common_subsequence(output, reference), len(output), len(reference))]


def split_words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def measure_common_subsequence(first: Sequence[str], second: Sequence[str]) -> int:
    """Returns the length of the longest common subsequence, by dynamic programming over the rows of a table.

    A cell is 1 more than its upper left neighbour where the words are equal, else the maximum of its upper and left
    neighbour; so a row is a running maximum.
    """
    if not first or not second:
        return 0
    word_ids: dict[str, int] = {}
    columns = np.array([word_ids.setdefault(word, len(word_ids)) for word in second])
    row = np.zeros(len(second) + 1, dtype=np.int64)
    for word in first:
        candidates = np.where(columns == word_ids.get(word, -1), row[:-1] + 1, row[1:])
        row[1:] = np.maximum.accumulate(candidates)
    return int(row[-1])


def _compute_f1(shared: int, num_output: int, num_reference: int) -> float:
    return 2.0 * shared / (num_output + num_reference) if shared else 0.0
