"""A trained captioner in use: captions for pictures, the inputs that a path stands for, and how good captions are.

It knows nothing of training or of splits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqwise.data.corpus.sources import list_files
from seqwise.decoding.beam import Hypothesis, beam_search, sample_sequences
from seqwise.errors import DataError, UsageError
from seqwise.files import write_text
from seqwise.metrics.example_scores import ExampleScores, ExampleText
from seqwise.metrics.translation import EXACT_MATCH_DEFINITION, bleu, chrf, compute_example_sums, exact_match
from seqwise.resolved_settings import ResolvedCaptionSettings, ResolvedSettings
from seqwise.tasks.caption.image_store import ARRAY, ENDINGS, PICTURES, natural
from seqwise.tasks.caption.images import KINDS, Pictures, from_array, read_paths
from seqwise.tasks.caption.model import Captioner
from seqwise.tasks.caption.reader import BUILTIN, Captioned
from seqwise.tasks.caption.shapes import shapes
from seqwise.tasks.task import InferenceOptions, Preprocessor, ProgressCallback
from seqwise.text.patterns import END, join_words

PAD, BEGIN = "<pad>", "<bos>"
SPECIALS = (PAD, BEGIN, END)
LONGEST = 64  # tokens of one caption, its end included, unless set
ROWS = 128  # pictures that are looked at together


@torch.no_grad()
def write(
    model: Captioner,
    settings: ResolvedSettings,
    preprocessor: Preprocessor,
    pictures: Pictures,
    numbers: np.ndarray,
    options: InferenceOptions = InferenceOptions(),
    progress: ProgressCallback | None = None,
) -> list[list[Hypothesis]]:
    """The captions of these pictures, each with the best first."""
    tokenizer, device = preprocessor.tokenizer, next(model.parameters()).device
    longest = options.max_length or settings.data.max_length  # one more than the longest caption: it may end
    never = [tokenizer.id(PAD), tokenizer.id(BEGIN), *([] if tokenizer.unknown is None else [tokenizer.unknown])]
    known: dict[str, Any] = {"begin": tokenizer.id(BEGIN), "end": tokenizer.end, "longest": longest, "never": never}
    known |= {"how": options.beam_search, "start": tokenizer.encode(options.beam_search.start).ids.tolist()}
    model.eval()
    found: list[list[Hypothesis]] = []
    for begin in range(0, len(numbers), ROWS):
        taken, lengths = pictures.take(numbers[begin : begin + ROWS])
        given: list[Tensor | None] = [torch.from_numpy(taken).to(device)]
        given.append(None if lengths is None else torch.from_numpy(lengths).to(device))
        memory = model.look(*given)  # type: ignore[arg-type]
        if options.sampling is not None:
            found += sample_sequences(model.writer, memory, choice=options.sampling, seed=options.seed + begin, **known)
        else:
            found += beam_search(model.writer, memory, **known)
        if progress:
            progress(len(found), len(numbers))
    return found


def texts(found: Sequence[Sequence[Hypothesis]], preprocessor: Preprocessor) -> list[list[str]]:
    """Hypotheses as text, without what only marks a place."""
    marks = {preprocessor.tokenizer.id(special) for special in SPECIALS}
    return [
        [preprocessor.tokenizer.decode(number for number in h.ids if number not in marks).strip() for h in best]
        for best in found
    ]


def references_of(examples: Sequence[Captioned]) -> list[list[str]]:
    """The captions of each picture, with blanks where our tokenisers put them."""
    return [[join_words(caption.split()) for caption in example.captions] for example in examples]


def measured(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> tuple[dict[str, float], dict[str, str]]:
    """Numbers, and what they mean."""
    outputs = tidy(outputs)
    by_bleu, by_chrf = bleu(outputs, references), chrf(outputs, references)
    metrics = {
        "bleu": by_bleu.value,
        "chrf": by_chrf.value,
        "exact_match": exact_match(outputs, references),
        "distinct": len(set(outputs)) / max(1, len(outputs)),
        "pictures": len(outputs),
    }
    firsts = len({texts[0] for texts in references}) / max(1, len(references))
    most = Counter(len(texts) for texts in references).most_common(1)[0][0]
    definitions = {
        "bleu": f"BLEU-4 against all captions of a picture (mostly {most}), {by_bleu.signature}",
        "chrf": f"chrF2 against the same, {by_chrf.signature}",
        "exact_match": EXACT_MATCH_DEFINITION,
        "distinct": f"different captions divided by pictures; of the first captions in the data: {firsts:.2f}",
        "pictures": "pictures that were captioned",
    }
    return metrics, definitions


def tidy(outputs: Sequence[str]) -> list[str]:
    """Captions with blanks where those of the data have them."""
    return [join_words(output.split()) for output in outputs]


def one_by_one(
    metric: str, examples: Sequence[Captioned], outputs: Sequence[str], references: Sequence[Sequence[str]]
) -> ExampleScores:
    """What each picture adds to BLEU, or to the exact answers."""
    outputs = tidy(outputs)
    shown = tuple(
        ExampleText.single_line(example.image, " / ".join(texts), output)
        for example, texts, output in zip(examples, references, outputs)
    )
    return ExampleScores(metric, "pictures", compute_example_sums(metric, outputs, references), shown)


def write_captions(path: Path, examples: Sequence[Captioned], outputs: Sequence[str]) -> None:
    """A line for each picture: its name, a tab, its caption."""
    lines = [f"{example.image}\t{' '.join(text.split())}\n" for example, text in zip(examples, outputs)]
    write_text(path, "".join(lines), concurrent=True)


def how(settings: ResolvedSettings, options: InferenceOptions) -> str:
    """How captions were made, in words."""
    encoder = f"{settings.caption.encoder} encoder, {settings.model} decoder"
    if options.sampling is not None:
        return f"{encoder}; drawn at random, seed {options.seed}"
    beam = options.beam_search.beam
    return (
        f"{encoder}; {f'beam {beam}, length penalty {options.beam_search.length_penalty:g}' if beam > 1 else 'greedy'}"
    )


def inputs_at(path: Path, settings: ResolvedCaptionSettings) -> list[str] | None:
    """The inputs at a path: one picture or array, or all of a folder. None where it holds neither.

    For clips a folder of frames is one input, and a folder of such folders as many.
    """
    if path.is_file():
        return [str(path)] if path.suffix.lower() in ENDINGS else None
    if not path.is_dir():
        return None
    wanted = (ARRAY,) if settings.encoder == "features" else PICTURES
    files = sorted(list_files(path), key=lambda file: natural(str(file)))
    found = [str(file) for file in files if file.suffix.lower() in wanted]
    if settings.frames:
        folders = {str(file.parent): None for file in files if file.suffix.lower() in PICTURES}
        found = [*folders, *(str(file) for file in files if file.suffix.lower() == ARRAY)]
    if not found:
        raise DataError(f"the folder holds no {', '.join(wanted)}.", repair="Name another folder.", file=path)
    return found


def pictures_of(names: Sequence[str], settings: ResolvedSettings, facts: Mapping[str, Any]) -> Pictures:
    """The pictures, clips or arrays at these paths; `builtin:shapes/7` is the drawn one of that number."""
    drawn = [name for name in names if name.startswith(f"{BUILTIN}/")]
    paths = [Path(name) for name in names if name not in drawn]
    size = settings.caption.image_size
    read = iter(read_paths(paths, size, facts["kind"]))
    arrays = [_drawn(name, size) if name in drawn else next(read) for name in names]
    pictures = Pictures("pictures" if drawn else facts["kind"], arrays)
    require_alike(pictures, facts)
    return pictures


def _drawn(name: str, size: int) -> np.ndarray:
    number, pictures = name.rpartition("/")[2], shapes()[0]
    if not number.isdigit() or int(number) >= len(pictures):
        repair = f"They are {BUILTIN}/0 … {BUILTIN}/{len(pictures) - 1}."
        raise DataError(f"there is no picture {name!r}.", repair=repair)
    return from_array(pictures[int(number)], size).array


def require_alike(pictures: Pictures, facts: Mapping[str, Any]) -> None:
    """Refuse pictures that are not of the kind that the model was made for."""
    kind, width, regions = facts["kind"], facts["width"], facts["regions"]
    if pictures.kind != kind:
        raise UsageError(f"this model was trained on {KINDS[kind]} per row; received {KINDS[pictures.kind]}.")
    if kind == "features" and (pictures.width != width or pictures.longest > regions):
        raise UsageError(
            f"this model was trained on at most {regions:,} regions of width {width:,}; "
            f"received {pictures.longest:,} of width {pictures.width:,}.",
            repair="Compute the features as for training.",
        )
