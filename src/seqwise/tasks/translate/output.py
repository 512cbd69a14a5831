"""What was translated: measured against references, written to a file, shown. It knows nothing of models or tokens."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from seqwise.data.findings import Findings
from seqwise.decoding.sequences import Hypothesis
from seqwise.files import write_text
from seqwise.metrics.evaluation import Evaluation, Table
from seqwise.metrics.example_scores import ExampleScores, ExampleText
from seqwise.metrics.translation import EXACT_MATCH_DEFINITION, bleu, chrf, compute_example_sums, exact_match
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.task import InferenceOptions, Prediction, ProgressCallback
from seqwise.tasks.translate.reader import Pair
from seqwise.tasks.translate.rouge import DEFINITIONS as ROUGE
from seqwise.tasks.translate.rouge import rouge
from seqwise.tasks.translate.translating import Translation
from seqwise.tasks.translate.vocabularies import encode

_WORD_OR_MARK = re.compile(r"\w+|[^\w\s]")

Outputs = dict[str, list[tuple[str, str]]]  # target → (output, reference) of each pair


def translate_all(
    translation: Translation, pairs: Sequence[Pair], findings: Findings, progress: ProgressCallback | None
) -> Outputs:
    """The best translation of each pair's source beside its reference, for each target asked for.

    A source that is cut is a remark.
    """
    rows = encode(translation.preprocessor.tokenizer, [pair.source for pair in pairs])
    for pair, row in zip(pairs, rows):
        if len(row) > translation.longest:
            what = f"sources of more than {translation.longest:,} tokens, which are cut there (--data.max-length)"
            findings.warn(what, pair.file, pair.line)
    names = [target.name for target in translation.targets]
    found: dict[str, list[tuple[str, str]]] = {name: [("", "")] * len(pairs) for name in names}
    for done, (number, targets) in enumerate(translation.of_ids(rows), start=1):
        for at, (target, best) in enumerate(zip(translation.targets, targets)):
            found[target.name][number] = (translation.text(target, best[0]), pairs[number].targets[at])
        if progress:
            progress(done, len(pairs))
    return found


def measured(outputs: Outputs, pairs: Sequence[Pair], on: str, how: str, remarks: Sequence[str] = ()) -> Evaluation:
    """All metrics; of several targets their means, with a table of each."""
    each: dict[str, dict[str, float]] = {}
    definitions: dict[str, str] = {}
    for name, texts in outputs.items():
        each[name], definitions = _metrics(texts)
    names = list(next(iter(each.values())))
    metrics = {metric: sum(found[metric] for found in each.values()) / len(each) for metric in names}
    tables: tuple[Table, ...] = ()
    if len(each) > 1:
        mean = f"mean over {', '.join(each)}: "
        definitions = {metric: mean + text for metric, text in definitions.items()}
        rows = {name: tuple(found.values()) for name, found in each.items()}
        tables = (Table("targets", tuple(names), rows),)
    definitions["pairs"] = "pairs that were translated and compared"
    short = ("BLEU counts runs of four words; most of these texts are shorter.",) if _short(outputs) else ()
    return Evaluation({**metrics, "pairs": len(pairs)}, definitions, on, how, tables, (*remarks, *short))


def one_by_one(metric: str, outputs: Outputs, pairs: Sequence[Pair]) -> ExampleScores:
    """What each pair adds to BLEU, or to the exact answers. The parts of several targets stand side by side."""
    parts = [
        compute_example_sums(metric, [output for output, _ in texts], [[reference] for _, reference in texts])
        for texts in outputs.values()
    ]
    marks = [f"{name}: " if len(outputs) > 1 else "" for name in outputs]

    def both(row: int, at: int) -> str:
        return " / ".join(f"{mark}{texts[row][at]}" for mark, texts in zip(marks, outputs.values()))

    shown = tuple(ExampleText.single_line(pair.source, both(row, 1), both(row, 0)) for row, pair in enumerate(pairs))
    return ExampleScores(metric, "pairs", np.concatenate(parts, axis=1), shown)


def _short(outputs: Outputs) -> bool:
    """Are most references too short for BLEU? Marks count as words for it: a date has five."""
    lengths = [len(_WORD_OR_MARK.findall(reference)) for texts in outputs.values() for _, reference in texts]
    return sum(length < 4 for length in lengths) > len(lengths) / 2


def _metrics(texts: Sequence[tuple[str, str]]) -> tuple[dict[str, float], dict[str, str]]:
    outputs, references = [output for output, _ in texts], [reference for _, reference in texts]
    lists = [[reference] for reference in references]
    words, characters = bleu(outputs, lists), chrf(outputs, lists)
    metrics = {"bleu": words.value, "chrf": characters.value, "exact_match": exact_match(outputs, lists)}
    definitions = {"bleu": words.signature, "chrf": characters.signature, "exact_match": EXACT_MATCH_DEFINITION}
    return metrics | rouge(outputs, references), definitions | ROUGE


def how(settings: ResolvedSettings, options: InferenceOptions) -> str:
    """How the translations were made, in words."""
    if options.sampling is not None:
        made = f"drawn at random, seed {options.seed}"
    elif options.beam_search.beam == 1:
        made = "greedy search"
    else:
        made = f"beam {options.beam_search.beam}, length penalty {options.beam_search.length_penalty:g}"
    attention = settings.translate.attention
    if settings.model == "transformer":
        return f"{made}; {settings.model}"
    return f"{made}; {settings.model}, {'no' if attention == 'none' else attention} attention"


def write_lines(path: Path, outputs: Outputs) -> None:
    """One translation per line; of several targets in one file each, NAME.de beside NAME.fr."""
    for name, texts in outputs.items():
        file = path if len(outputs) == 1 else path.with_name(f"{path.name}.{name}")
        write_text(file, "".join(f"{output}\n" for output, _ in texts), concurrent=True)


def prediction(source: str, found: dict[str, list[tuple[str, Hypothesis]]], unread: dict[str, int]) -> Prediction:
    """The best translation alone, or as many lines as there are targets and hypotheses.

    `unread` are numbers of tokens that the model could not read; they stand beside the source.
    """
    lines, many = [], len(found) > 1
    values: dict[str, object] = {"source": source, **unread}
    for name, best in found.items():
        mark = f"{name}: " if many else ""
        if len(best) > 1:
            lines += [f"{mark}{each.score:8.3f}  {text}" for text, each in best]
        else:
            lines += [f"{mark}{text}" for text, _ in best]
        answers = [
            {"text": text, "score": each.score, "log_probability": each.log_probability, "ended": each.ended}
            for text, each in best
        ]
        answer = {"translation": best[0][0] if best else "", "hypotheses": answers}
        values = {**values, name: answer} if many else {**values, **answer}
    return Prediction("\n".join(lines), values)
