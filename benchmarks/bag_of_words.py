"""Bag-of-words baseline of `classify`: logistic regression on words, and on words and bigrams.

    python benchmarks/bag_of_words.py [DATA] [--columns text,label] [--json]

`seqwise evaluate` prints the first of the two; `seqwise/tasks/classify/bag_of_words.py` explains it. Words, splits and
metrics are those of `seqwise train --task classify`. No minimum accuracy is required.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence

from seqwise.config import Settings
from seqwise.tasks.classify.bag_of_words import fit_logistic_regression
from seqwise.tasks.classify.metrics import compute_accuracy, compute_confusion_matrix, compute_macro_f1
from seqwise.tasks.classify.task import Classify


def measure(task: Classify, bigrams: bool) -> dict[str, float]:
    """Returns the metrics on the test split, with the penalty that is best on the validation split."""
    started_at = time.perf_counter()
    labels, base = len(task.labels), len(task.preprocessor.tokenizer) if bigrams else 0
    vectorizer, model, penalty = fit_logistic_regression(task.token_ids, task.label_ids, labels, base)
    predicted = {split: model.predict(vectorizer.transform(task.token_ids[split])) for split in ("valid", "test")}
    tables = {
        split: compute_confusion_matrix(task.label_ids[split], label_ids, labels)
        for split, label_ids in predicted.items()
    }
    return {
        "features": len(vectorizer.features),
        "penalty": penalty,
        "valid_accuracy": compute_accuracy(tables["valid"]),
        "accuracy": compute_accuracy(tables["test"]),
        "macro_f1": compute_macro_f1(tables["test"]),
        "seconds": time.perf_counter() - started_at,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", default="builtin:modules")
    parser.add_argument("--columns", help="columns of text and label, by name or number")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of the table")
    options = parser.parse_args(arguments)
    task = Classify.prepare(options.data, Settings(task="classify", columns=options.columns))
    results = {"words": measure(task, False), "words and bigrams": measure(task, True)}
    if options.json:
        print(json.dumps({"data": options.data, "rows": results}))
        return
    print(f"{options.data}: logistic regression on bags of words; accuracy and macro-F1 on the test split")
    print(f"{'':17} {'features':>9} {'L2':>5} {'valid acc':>9} {'accuracy':>9} {'macro-F1':>9} {'seconds':>8}")
    for name, row in results.items():
        numbers = f"{row['valid_accuracy']:9.4f} {row['accuracy']:9.4f} {row['macro_f1']:9.4f} {row['seconds']:8.1f}"
        print(f"{name:17} {row['features']:9,} {row['penalty']:5g} {numbers}")


if __name__ == "__main__":
    main()
