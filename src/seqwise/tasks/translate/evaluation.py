"""Translations: compared with references, written to a file, printed. The module knows nothing of models or tokens."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from seqwise.errors import Findings
from seqwise.files import write_text
from seqwise.metrics.evaluation import Evaluation, ExampleScores, ExampleText, Table
from seqwise.metrics.translation import EXACT_MATCH_DEFINITION, bleu, chrf, compute_example_sums, exact_match
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.task import InferenceOptions, Prediction, ProgressCallback
from seqwise.tasks.translate.generation import TranslationGenerator, Translations
from seqwise.tasks.translate.reader import Pair
from seqwise.tasks.translate.rouge import DEFINITIONS as ROUGE_DEFINITIONS
from seqwise.tasks.translate.rouge import rouge
from seqwise.tasks.translate.vocabularies import encode

_WORD_OR_PUNCTUATION = re.compile(r"\w+|[^\w\s]")

Outputs = dict[str, list[tuple[str, str]]]  # target → (output, reference) of each pair


def translate_pairs(
    generator: TranslationGenerator, pairs: Sequence[Pair], findings: Findings, progress: ProgressCallback
) -> Outputs:
    """Return the best translation of each source with its reference, for each requested target.

    Adds a warning for each source that is truncated.
    """
    rows = encode(generator.preprocessor.tokenizer, [pair.source for pair in pairs])
    what = f"sources of more than {generator.max_length:,} tokens, which are truncated (--data.max-length)"
    for pair, row in zip(pairs, rows):
        if len(row) > generator.max_length:
            findings.warn(what, pair.file, pair.line)
    outputs: Outputs = {target.name: [("", "")] * len(pairs) for target in generator.targets}
    for done, (number, hypotheses) in enumerate(generator.translate_ids(rows), start=1):
        for target, best, reference in zip(generator.targets, hypotheses, pairs[number].targets):
            outputs[target.name][number] = (generator.decode(target, best[0]), reference)
        progress(done, len(pairs))
    return outputs


def compute_metrics(outputs: Outputs, on: str, how: str, warnings: Sequence[str] = ()) -> Evaluation:
    """Return all metrics; with several targets their means, and a table of each."""
    by_target: dict[str, dict[str, float]] = {}
    definitions: dict[str, str] = {}
    for name, texts in outputs.items():
        by_target[name], definitions = _compute_target_metrics(texts)
    names = list(next(iter(by_target.values())))
    metrics = {name: sum(values[name] for values in by_target.values()) / len(by_target) for name in names}
    tables: tuple[Table, ...] = ()
    if len(by_target) > 1:
        mean = f"mean over {', '.join(by_target)}: "
        definitions = {metric: mean + text for metric, text in definitions.items()}
        tables = (Table("targets", tuple(names), {name: tuple(values.values()) for name, values in by_target.items()}),)
    metrics["pairs"] = len(next(iter(outputs.values())))
    definitions["pairs"] = "pairs that were translated and compared"
    if _has_short_references(outputs):
        warnings = [*warnings, "BLEU counts 4-grams; most of these texts are shorter."]
    return Evaluation(metrics, definitions, on, how, tables, tuple(warnings))


def _compute_target_metrics(texts: Sequence[tuple[str, str]]) -> tuple[dict[str, float], dict[str, str]]:
    outputs, references = [output for output, _ in texts], [reference for _, reference in texts]
    lists = [[reference] for reference in references]
    words, characters = bleu(outputs, lists), chrf(outputs, lists)
    metrics = {"bleu": words.value, "chrf": characters.value, "exact_match": exact_match(outputs, lists)}
    definitions = {"bleu": words.signature, "chrf": characters.signature, "exact_match": EXACT_MATCH_DEFINITION}
    return metrics | rouge(outputs, references), definitions | ROUGE_DEFINITIONS


def _has_short_references(outputs: Outputs) -> bool:
    """Return whether most references are too short for BLEU, which counts punctuation as words: a date has five."""
    lengths = [len(_WORD_OR_PUNCTUATION.findall(reference)) for texts in outputs.values() for _, reference in texts]
    return sum(length < 4 for length in lengths) > len(lengths) / 2


def score_pairs(metric: str, outputs: Outputs, pairs: Sequence[Pair]) -> ExampleScores:
    """Return what each pair adds to BLEU or exact match, with the sums of several targets side by side."""
    sums = [
        compute_example_sums(metric, [output for output, _ in texts], [[reference] for _, reference in texts])
        for texts in outputs.values()
    ]
    labels = [f"{name}: " if len(outputs) > 1 else "" for name in outputs]

    def join_targets(row: int, side: int) -> str:
        return " / ".join(f"{label}{texts[row][side]}" for label, texts in zip(labels, outputs.values()))

    texts = tuple(
        ExampleText.single_line(pair.source, join_targets(row, 1), join_targets(row, 0))
        for row, pair in enumerate(pairs)
    )
    return ExampleScores(metric, "pairs", np.concatenate(sums, axis=1), texts)


def describe_decoding(settings: ResolvedSettings, options: InferenceOptions) -> str:
    """Return how the translations were generated, in words."""
    if options.sampling is not None:
        method = f"sampled, seed {options.seed}"
    elif options.beam_search.beam == 1:
        method = "greedy search"
    else:
        method = f"beam {options.beam_search.beam}, length penalty {options.beam_search.length_penalty:g}"
    if settings.model == "transformer":
        return f"{method}; {settings.model}"
    attention = settings.translate.attention
    return f"{method}; {settings.model}, {'no' if attention == 'none' else attention} attention"


def write_translations(path: Path, outputs: Outputs) -> None:
    """Write one translation per line; several targets in one file each, NAME.de beside NAME.fr."""
    for name, texts in outputs.items():
        file = path if len(outputs) == 1 else path.with_name(f"{path.name}.{name}")
        write_text(file, "".join(f"{output}\n" for output, _ in texts), concurrent=True)


def format_prediction(source: str, by_target: dict[str, Translations], unread: dict[str, int]) -> Prediction:
    """Return the best translation alone, or a line for each target and hypothesis.

    `unread` counts tokens of the source that the model could not read.
    """
    lines, has_several = [], len(by_target) > 1
    values: dict[str, object] = {"source": source, **unread}
    for name, best in by_target.items():
        label = f"{name}: " if has_several else ""
        if len(best) > 1:
            lines += [f"{label}{hypothesis.score:8.3f}  {text}" for text, hypothesis in best]
        else:
            lines += [f"{label}{text}" for text, _ in best]
        hypotheses = [
            {"text": text, "score": each.score, "log_probability": each.log_probability, "ended": each.ended}
            for text, each in best
        ]
        answer = {"translation": best[0][0] if best else "", "hypotheses": hypotheses}
        values |= {name: answer} if has_several else answer
    return Prediction("\n".join(lines), values)
