"""Names of the metrics that evaluations of each task have; `metrics/` and the tasks compute them."""

from __future__ import annotations

TEXT_METRICS = ("perplexity", "word_perplexity", "bits_per_character")  # of language, and of each method below
# Method of evaluating a language model, with which its metrics begin (cache_perplexity) → option that adds them.
METHOD_OPTIONS = {"temperature": "softmax_temperature", "cache": "cache", "dynamic": "dynamic"}
# Task → metrics of its evaluations. Some need certain data or settings, such as tags that mark spans.
TASK_METRICS: dict[str, tuple[str, ...]] = {
    "language": (*TEXT_METRICS, "tokens", "unknown_tokens"),
    "masked": (
        "perplexity", "accuracy", "masked_tokens",
        *(f"{direction}_perplexity" for direction in ("bidirectional", "forward", "backward")),
    ),
    "classify": ("accuracy", "macro_f1", "loss", "examples"),
    "tag": ("span_f1", "span_precision", "span_recall", "token_accuracy", "spans", "tokens"),
    "translate": ("bleu", "chrf", "exact_match", "bleu_lowercase", "rouge_1", "rouge_2", "rouge_l", "pairs"),
    "caption": ("bleu", "chrf", "exact_match", "distinct", "images"),
    "forecast": (
        *(f"{model}{error}" for model in ("", "linear_", "seasonal_naive_", "naive_")
          for error in ("mse", "mae", "mase")),
        "quantile_loss", "coverage", "windows",
    ),
}  # fmt: skip
