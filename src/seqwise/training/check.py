"""`seqwise.check(...)` and the `DataReport` that it returns: what the data contains, or what is wrong with it.

The command `seqwise check` calls `read_and_check` too. Nothing is trained or written to a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Unpack

from seqwise.applicability import check_effects, list_changed
from seqwise.callbacks import LogFunction, ProgressCallback, no_log
from seqwise.config import SettingKeywords, Settings, combine_settings
from seqwise.data.python_messages import explain_in_python, name_rows, rewrite, rewrite_error
from seqwise.data.records import Data
from seqwise.errors import DataError, combine_errors
from seqwise.tasks import get_task
from seqwise.tasks.guess import detect_task
from seqwise.training.api import add_keywords, save_data
from seqwise.training.initialization import inherit_from_run


@dataclass(frozen=True, repr=False)
class DataReport:
    """What training would read; `print` shows it as a table. If there are `errors`, there is nothing else."""

    data: str  # which data was checked, in words
    task: str | None = None
    split_rule: str = ""  # how the splits were made, as a sentence
    tokenizer: str | None = None  # the kind of tokens; None for tasks without text
    vocabulary: Mapping[str, int] | None = None  # tokeniser → size of its vocabulary
    splits: Mapping[str, Mapping[str, int]] | None = None  # split → counts, such as its examples and tokens
    fingerprint: str = ""  # digest of the content and the splits
    description: tuple[str, ...] = ()  # sentences about the data
    notes: tuple[str, ...] = ()  # how correct data was read, such as its encoding
    warnings: tuple[str, ...] = ()
    errors: tuple[DataError, ...] = ()

    @property
    def conclusion(self) -> str:
        """The number of errors and warnings, as a sentence."""
        errors = f"{len(self.errors):,} error{'s' * (len(self.errors) != 1)}" if self.errors else "no errors"
        count = len(self.warnings)
        return f"{errors}, {count} warning{'s' * (count != 1)}." if count else f"{errors}."

    def format_table(self) -> list[str]:
        """Returns the counts of the splits as aligned lines."""
        counts = self.splits or {}
        header = ["split", *next(iter(counts.values()), ())]
        rows = [header, *([f"{split:6}", *(f"{count:,}" for count in row.values())] for split, row in counts.items())]
        widths = [max(map(len, column)) for column in zip(*rows)]
        return ["  ".join([f"{row[0]:{widths[0]}}", *map(str.rjust, row[1:], widths[1:])]) for row in rows]

    def __str__(self) -> str:
        if self.errors:
            return str(combine_errors(self.errors))
        notes, warnings = (f"note: {note}" for note in self.notes), (f"warning: {text}" for text in self.warnings)
        return "\n".join([*self.format_table(), *self.description, *notes, *warnings, self.conclusion])

    def __repr__(self) -> str:
        return f"<DataReport {self.data}: {self.task or 'no task'}, {self.conclusion.rstrip('.')}>"


def check(
    data: Data,
    *,
    task: str | None = None,
    settings: Settings | Mapping[str, Any] | None = None,
    **overrides: Unpack[SettingKeywords],
) -> DataReport:
    """Reads `data` as `train` would and reports what it contains, or what is wrong with it: `print(check("a.csv"))`.

    data: a path, a DataFrame, an array, a list of rows or texts, or a dictionary of these by split (docs/python.md)
    task: language, masked, classify, tag, translate, caption, forecast, or one of your own; detected unless set
    settings, overrides: as of `seqwise.train`

    Errors in the data are in `errors` of the report; wrong arguments raise an error.
    """
    with explain_in_python(data):
        parsed = combine_settings(settings, add_keywords(overrides, task=task))
        report = read_and_check(save_data(data, parsed), parsed)
    for error in report.errors:
        rewrite_error(error, data)
    notes, warnings = (tuple(rewrite(text, data) for text in texts) for texts in (report.notes, report.warnings))
    return replace(report, data=name_rows(report.data, data), notes=notes, warnings=warnings)


def read_and_check(
    path: str,
    settings: Settings,
    names: Iterable[str] | None = None,
    log: LogFunction = no_log,
    progress: ProgressCallback | None = None,
) -> DataReport:
    """Returns the report about a file. Settings among `names` (those that are set, if None) must have an effect."""
    try:
        settings = detect_task(settings, path, log)
        check_effects([settings], list_changed(settings) if names is None else names)
        settings, preprocessor = inherit_from_run(settings, log)
        task = get_task(settings.task).prepare(path, settings, preprocessor, progress=progress)
    except DataError as error:
        return DataReport(path, settings.task, errors=error.parts or (error,))
    return DataReport(
        path,
        settings.task,
        task.split_rule,
        settings.text.tokenizer,
        {name: len(tokenizer) for name, tokenizer in task.preprocessor.tokenizers.items()},
        task.count_data(),
        task.fingerprint,
        (*task.describe_data(), f"split: {task.split_rule}"),
        tuple(task.notes()),
        tuple(task.warnings()),
    )
