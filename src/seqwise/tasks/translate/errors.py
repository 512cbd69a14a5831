"""The errors of a translator: scores by length, unknown words and length ratio; probabilities of tokens."""

from __future__ import annotations

import numpy as np
import torch

from seqwise.data.batch import iterate_by_length
from seqwise.tasks.error_report import UNKNOWN_COUNTS, Confidences, ErrorReport, ErrorRequest
from seqwise.tasks.generation_errors import (
    build_items,
    compute_length_ratios,
    compute_metrics,
    group_ratios,
    list_worst,
)
from seqwise.tasks.inspection import get_device
from seqwise.tasks.task import InferenceOptions, ModelBundle
from seqwise.tasks.translate.evaluation import translate_pairs
from seqwise.tasks.translate.generation import TranslationPipeline
from seqwise.tasks.translate.model import collate
from seqwise.tasks.translate.task import Translate, request_targets
from seqwise.tasks.translate.vocabularies import encode

MAX_PAIRS = {"cpu": 500, "cuda": 5_000}  # translated unless set
BATCH_SIZE, MAX_BATCH_TOKENS = 32, 4_096  # of the batches whose probabilities are computed


def collect_errors(task: type[Translate], bundle: ModelBundle, data: str, request: ErrorRequest) -> ErrorReport:
    """Translates sources into the requested target language, or the first, and returns what went wrong."""
    names = bundle.preprocessor.attributes["targets"]
    target = request.target or names[0]
    requested = request_targets(bundle, target)
    splits, pairs, description = request.open(lambda split: task.select_examples(requested, data, split))
    limit = MAX_PAIRS.get(get_device(bundle.model).type, MAX_PAIRS["cpu"])
    chosen = [pairs[index] for index in request.choose(len(pairs), limit)]
    options = InferenceOptions(task.beam_search, target=target)
    pipeline = TranslationPipeline(bundle, options)
    texts = translate_pairs(pipeline, chosen, splits.findings, request.progress)[target]
    outputs, references = [output for output, _ in texts], [each for _, each in texts]
    sources = pipeline.encode_sources([pair.source for pair in chosen])
    items = build_items(bundle.choose_metric(options, task.primary_metric[0]), outputs, references, "pairs")
    lengths = np.array([len(ids) for ids in sources])
    groups = [items.group_bands("source length in tokens", "sources of {} tokens", lengths)]
    unknown = bundle.preprocessor.tokenizer.unknown
    num_unknown = np.array([0 if unknown is None else int((ids == unknown).sum()) for ids in sources])
    if num_unknown.any():
        unknown_names = [f"sources with {text}" for text in UNKNOWN_COUNTS]
        groups.append(items.group_counts("unknown words", unknown_names, num_unknown))
    ratios = compute_length_ratios(outputs, references)
    groups.append(group_ratios(items, ratios))
    notes = [f"{options.describe_decoding()}."]
    if len(names) > 1:
        notes.append(f"Translations into {target}, one of the targets {', '.join(names)}.")
    return ErrorReport(
        description,
        items,
        groups,
        len(chosen),
        len(pairs),
        "pairs",
        confidences=[score_references(pipeline, sources, [each[0] for each in references])],
        listings=[list_worst(items, [pair.source for pair in chosen], outputs, references, "source")],
        metrics=compute_metrics(outputs, references, ratios),
        notes=notes,
    )


@torch.no_grad()
def score_references(pipeline: TranslationPipeline, sources: list[np.ndarray], references: list[str]) -> Confidences:
    """Returns the most probable token at each position of the references, given the reference before it."""
    target, index = next(iter(pipeline.targets.items()))
    target_ids = encode(pipeline.preprocessor.tokenizers[target], references)
    decoder, parts = pipeline.model.get_decoder(index), []
    lengths = [max(len(a), len(b)) + 1 for a, b in zip(sources, target_ids)]
    for indices in iterate_by_length(lengths, BATCH_SIZE, MAX_BATCH_TOKENS):
        usable = [each for each in indices if len(sources[each])]
        if not usable:
            continue
        token_ids = [[sources[each] for each in usable], [target_ids[each] for each in usable]]
        batch = collate(token_ids, [pipeline.bos_eos_ids[index]], pipeline.max_length).to(pipeline.device)
        memory = pipeline.model.encode(batch.source, batch.lengths)
        mask = batch.mask[:, 0]
        best, predicted = decoder.head(decoder.decode(batch.inputs[:, 0], None, memory).vectors[mask]).max(-1)
        parts.append((best.double().exp().cpu().numpy(), (predicted == batch.targets[:, 0][mask]).cpu().numpy()))
    probabilities, is_correct = (np.concatenate(each) for each in zip(*parts)) if parts else (np.zeros(0), np.zeros(0))
    return Confidences("next token of the reference", probabilities, is_correct.astype(bool))
