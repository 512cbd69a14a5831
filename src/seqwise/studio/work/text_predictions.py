"""Fills masks, and classifies texts, with the words that decide a label."""

from __future__ import annotations

from typing import Any

from seqwise.errors import UsageError
from seqwise.lens.attribution import attribution
from seqwise.page.packing import pack_figure
from seqwise.studio.work.predictions import load_task, warn_about_length, warn_about_unknown
from seqwise.studio.worker import Context
from seqwise.tasks.inspection import list_unknown
from seqwise.tasks.masked.filling import CONTINUATION_PREFIX
from seqwise.tasks.task import InferenceOptions

MAX_MASKS = 50
NUM_FILLINGS = 10


def fill_masks(context: Context, run: str, text: str) -> dict[str, Any]:
    """Returns the most probable words for each [MASK]."""
    trained = load_task(context, run, "masked")
    if text.count("[MASK]") > MAX_MASKS:
        raise UsageError(f"the text has more than {MAX_MASKS} masks.", fix="Use a part of the text.")
    (prediction,) = trained.predict_all([text], InferenceOptions(top=NUM_FILLINGS))
    values = prediction.values
    masks = [
        [
            {
                "word": each["token"].removeprefix(CONTINUATION_PREFIX).strip() or each["token"],
                "is_continuation": each["token"].startswith(CONTINUATION_PREFIX),  # of the word before it
                "probability": each["probability"],
            }
            for each in mask
        ]
        for mask in values["masks"]
    ]
    return {"filled": values["filled"], "masks": masks, "warnings": warn_about_unknown(values["unknown"])}


def classify(context: Context, run: str, text: str) -> dict[str, Any]:
    """Returns the probability of each label, the most probable first."""
    trained = load_task(context, run, "classify")
    tokenizer = trained.run.preprocessor.tokenizer
    (prediction,) = trained.predict_all([text])
    warnings = warn_about_unknown(list_unknown(tokenizer, text))
    warnings += warn_about_length(len(tokenizer.encode(text.strip())), trained.settings.data.max_length)
    if prediction.values.get("nothing_known"):
        warnings.append("The model knows no word of the text: the answer does not depend on it.")
    labels = [{"name": name, "probability": value} for name, value in prediction.values["probabilities"].items()]
    return {"labels": labels, "warnings": warnings}


def explain_label(context: Context, run: str, text: str, label: str) -> dict[str, Any]:
    """Returns a figure of the text in which each word has its contribution to a label."""
    trained = load_task(context, run, "classify")
    view = attribution(trained, text, answer=f"label: {label}", progress=context.report_progress)
    return {"figure": pack_figure(view.figures[0]), "summary": list(view.summary)}
