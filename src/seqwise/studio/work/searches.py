"""Translations and captions by beam search: what it found, each step of it, and where the model attends to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from seqwise.decoding.options import BeamSearchOptions
from seqwise.decoding.sequences import Hypothesis
from seqwise.decoding.trace import DecodingTrace, trace_decoding
from seqwise.errors import UsageError
from seqwise.lens.attention_layers import get_image_side, list_attention, measure_layers
from seqwise.lens.beam_tree import build_candidates, get_path
from seqwise.lens.decoding import DecodingResult, decode_text, summarize_beam_search
from seqwise.lens.decoding_figures import draw_tree
from seqwise.lens.subject import build_subject, name_run
from seqwise.page.figures import ImageOverlay
from seqwise.page.packing import pack_figure
from seqwise.studio.work.continuations import PieceStream, list_alternatives
from seqwise.studio.work.examples import open_image_example
from seqwise.studio.work.predictions import load_task, warn_about_length, warn_about_unknown
from seqwise.studio.worker import Context
from seqwise.tasks.caption.generation import generate_captions, load_inputs
from seqwise.tasks.caption.inspection import inspect_caption
from seqwise.tasks.inspection import InspectedInput, list_unknown, name_tokens
from seqwise.tasks.task import InferenceOptions
from seqwise.tasks.translate.generation import TranslationPipeline
from seqwise.tasks.translate.inspection import inspect_ids
from seqwise.tasks.translate.reader import join_lines
from seqwise.text.tokenizer import Tokenizer
from seqwise.training.api import TrainedModel

NUM_ALTERNATIVES = 8


def build_search(beam: int, length_penalty: float, n_best: int | None, start: str) -> BeamSearchOptions:
    """Returns the options of a search; unless `n_best` is set, it returns as many sequences as it has beams."""
    n_best = beam if n_best is None else min(n_best, beam)
    return BeamSearchOptions(beam=beam, length_penalty=length_penalty, n_best=n_best, start=start)


def translate(
    context: Context,
    run: str,
    text: str,
    beam: int = 5,
    length_penalty: float = 1.0,
    n_best: int | None = None,
    start: str = "",
    target: str | None = None,
) -> dict[str, Any]:
    """Returns the translation of a text with its alternatives, and its attention to the words of the source."""
    trained = load_task(context, run, "translate")
    tokenizers = trained.run.preprocessor.tokenizers
    target = target or trained.run.preprocessor.attributes["targets"][0]
    options = InferenceOptions(build_search(beam, length_penalty, n_best, start), target=target)
    pipeline = TranslationPipeline(trained.bundle, options)
    (source,) = pipeline.encode_sources([text])
    if not len(source):
        raise UsageError("the text is empty.", fix="Write a text to translate.")
    with trace_decoding(NUM_ALTERNATIVES) as trace:
        ((_, (hypotheses,)),) = pipeline.translate_ids([source])
    text, limit = join_lines(text), trained.settings.data.max_length
    warnings = warn_about_unknown(list_unknown(tokenizers["text"], text)) + warn_about_length(len(source), limit)
    output = np.array(hypotheses[0].ids, dtype=np.int64)
    inspected = inspect_ids(pipeline, source, output, text, "")
    texts = [pipeline.decode(target, hypothesis) for hypothesis in hypotheses]
    offsets = tokenizers["text"].encode(text).offsets[:limit].tolist()
    return {
        **describe_search(trained, trace, tokenizers[target], hypotheses, texts, options),
        "source": [{"text": text[start:stop], "start": start, "stop": stop} for start, stop in offsets],
        "attention": read_attention(trained, inspected),
        "warnings": warnings,
    }


def caption(
    context: Context,
    run: str,
    upload: str | None = None,
    number: int = 0,
    beam: int = 5,
    length_penalty: float = 1.0,
    n_best: int | None = None,
    start: str = "",
) -> dict[str, Any]:
    """Returns the caption of an image, and the regions that each of its words attends to."""
    trained = load_task(context, run, "caption")
    options = InferenceOptions(build_search(beam, length_penalty, n_best, start))
    if upload is None:
        images, index, name, truth = open_image_example(trained, number)
    else:
        attributes = trained.run.preprocessor.attributes
        images, index = load_inputs([upload], trained.settings.caption.image_size, attributes), 0
        name, truth = Path(upload).suffix.removeprefix("."), []
    context.check_cancelled()
    with trace_decoding(NUM_ALTERNATIVES) as trace:
        (captions,) = generate_captions(trained.bundle, images, [index], options)
    hypotheses, texts = [each.hypothesis for each in captions], [each.text for each in captions]
    output = np.array(hypotheses[0].ids, dtype=np.int64)
    inspected = inspect_caption(trained.bundle, images, index, output, name, "")
    tokenizer = trained.run.preprocessor.tokenizer
    return {
        **describe_search(trained, trace, tokenizer, hypotheses, texts, options),
        "name": name,
        "truth": truth,
        "figure": draw_regions(trained, inspected),
        "warnings": [] if inspected.image is not None else ["The input is no single image, so none is shown."],
    }


def describe_search(
    trained: TrainedModel,
    trace: DecodingTrace,
    tokenizer: Tokenizer,
    hypotheses: Sequence[Hypothesis],
    texts: Sequence[str],
    options: InferenceOptions,
) -> dict[str, Any]:
    """Returns what a search found, best first, the steps of the best, and the tree of all."""
    decoded = DecodingResult(name_run(trained), "", texts[0], trace, options.describe_decoding(), tokenizer)
    is_tree, start = options.beam_search.beam > 1, PieceStream(tokenizer, (), strip_space=False)
    return {
        "hypotheses": [{"text": text, **each.as_dict()} for text, each in zip(texts, hypotheses)],
        "prefix": [{"text": start.add(token)} for token in trace.prefix],
        "steps": list_steps(trace, tokenizer),
        "tree": pack_figure(draw_tree(summarize_beam_search(decoded))) if is_tree else None,
    }


def list_steps(trace: DecodingTrace, tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """Returns the tokens of the best hypothesis; each alternative has the text with which a search for it starts."""
    nodes = build_candidates(trace)
    best = next((index for index, node in enumerate(nodes) if node.state == "best"), 0)
    ids, pieces, steps = list(trace.prefix), PieceStream(tokenizer, trace.prefix, strip_space=False), []
    for index in get_path(nodes, best):
        node, record = nodes[index], trace.beam_steps[nodes[index].step - 1]
        alternatives = list_alternatives(tokenizer, record.next_tokens, node.beam)
        for alternative, is_forbidden in zip(alternatives, record.is_forbidden[node.beam].tolist()):
            can_start = not is_forbidden and alternative["id"] != trace.end
            alternative["start"] = decode_text(tokenizer, [*ids, alternative["id"]], trace.end) if can_start else None
        is_end = node.token == trace.end
        steps.append(
            {
                "token": name_tokens(tokenizer, [node.token])[0],
                "text": "" if is_end else pieces.add(node.token),
                "is_end": is_end,
                "probability": float(np.exp(node.token_log_prob)),
                "rank": node.rank,
                "alternatives": alternatives,
            }
        )
        ids.append(node.token)
    return steps


def read_attention(trained: TrainedModel, inspected: InspectedInput) -> list[dict[str, Any]]:
    """Returns the attention (T, S) of the tokens of the output to those of the input, of each layer that has it."""
    subject = build_subject(trained, inspected)
    shape = len(inspected.targets), len(inspected.tokens)
    layers = list_attention(subject)
    measured = measure_layers(subject, layers) if layers else []
    return [
        {"label": each.layer.label, "weights": each.mean.numpy()}
        for each in measured
        if each.mean is not None and each.shape == shape
    ]


def draw_regions(trained: TrainedModel, inspected: InspectedInput) -> dict[str, Any] | None:
    """Returns the image with the attention of each word to its regions, the mean over all layers; packed."""
    side, attention = get_image_side(len(inspected.tokens)), read_attention(trained, inspected)
    if inspected.image is None or side is None or not attention:
        return None
    mean = np.mean([each["weights"] for each in attention], axis=0)
    figure = ImageOverlay(
        title="Regions that each word attends to",
        image=inspected.image,
        weights=mean.reshape(len(mean), side, side),
        captions=list(inspected.targets),
        value_label="attention weight",
    )
    return pack_figure(figure)
