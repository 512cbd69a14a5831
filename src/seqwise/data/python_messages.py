"""Rewrites messages for callers from Python: rows of their data instead of cached files, arguments instead of flags.

    …/data/1f0c…/data.jsonl:6: the label is empty.    →   row 5 of the DataFrame: the label is empty.
    pass --data.on-empty drop to drop it              →   pass settings={"data.on_empty": "drop"} to drop it
    --task classify --columns review,stars            →   task="classify", columns=["review", "stars"]
    set --forecast.missing to previous                →   set forecast.missing to previous

Rows are counted from 0, as in `data[5]` and `frame.iloc[5]`. Errors of commands keep their flags.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from seqwise.config import Settings
from seqwise.data.reading import SAVED_DATA
from seqwise.environment import get_cache_folder
from seqwise.errors import DataError, SeqwiseError, combine_errors, format_location, in_command

# A flag, the word after it, whether that word ends a phrase, and whether another flag follows.
FLAG = re.compile(
    r"--(?P<flag>[a-z][a-z-]*(?:\.[a-z-]+)?)"
    r"(?: (?!-)(?P<word>'[^']*'|\S*[^\s.,;:)])(?P<end>(?=[.,;:)]*(?:$|\n| or | --)))?(?P<next>(?= --))?)?"
)
NO_VALUES = ("and", "or", "only")  # words after a flag without a value
COMMAND = re.compile(r"\bseqwise [a-z]+ ")
ARGUMENTS = (
    *("out", "models", "variants", "seeds", "match", "parameters", "lr_trials", "examples", "strict", "resume"),
    *("engine", "workers", "recipe"),
)  # of `train` and `compare` that are no settings
FILE_ARGUMENTS = ("recipe",)  # of these, that are followed by a file
LISTS = ("columns", "target")  # settings that are lists in Python


@contextmanager
def explain_in_python(data: object = None) -> Iterator[None]:
    """Rewrites errors that are raised inside the block; `data` is the data that the caller passed."""
    try:
        yield
    except SeqwiseError as error:
        if not in_command.get():
            rewrite_error(error, data)
        raise


def rewrite_error(error: SeqwiseError, data: object) -> None:
    """Rewrites an error in place."""
    parts = error.parts if isinstance(error, DataError) else ()
    common = combine_errors(parts).fix if parts else ""
    added = error.fix.removeprefix(common) if error.fix.startswith(common) else ""  # by a handler of the whole error
    for part in parts:
        rewrite_error(part, data)
    if parts:
        combined = combine_errors(parts)
        error.problem, error.fix = combined.problem, combined.fix + rewrite(added, data)
    else:
        error.problem, error.fix = rewrite(error.problem, data), rewrite(error.fix, data)
        location = format_location(error.file, error.line)
        if (row := name_rows(location, data)) != location:
            error.file, error.line = row, None
    error.args = (str(error),)


def rewrite(message: str, data: object = None) -> str:
    """Returns a message that names rows of `data` and arguments; whole commands in it are left as they are."""
    lines = name_rows(message, data).split("\n")
    return "\n".join(line if COMMAND.search(line) else _replace_flags(line) for line in lines)


def _replace_flags(line: str) -> str:
    line = FLAG.sub(_name_argument, line)
    return re.sub(r"\b(\w+)=\{([^{}]*)\}, \1=\{", r"\1={\2, ", line)  # two settings of a section are one argument


def name_rows(message: str, data: object) -> str:
    """Returns a message that names rows of `data` instead of the files in the cache that hold them."""

    def name_row(match: re.Match[str]) -> str:
        stem, image, suffix, line = match.groups()
        source = name_data(data, stem or "data")
        if image is not None:
            return f"the image of row {int(image):,} of {source}"
        if line is None:
            return source
        return f"line {line} of {source}" if suffix == "txt" else f"row {int(line) - 1:,} of {source}"

    folder = re.escape(str(get_cache_folder() / SAVED_DATA))
    return re.sub(rf"{folder}/\.?[0-9a-f]+(?:/(\w+?)(?:-(\d{{6}}))?\.(\w+))?(?::(\d+))?", name_row, message)


def name_data(data: object, split: str = "data") -> str:
    """Returns how messages call the data that a caller passed, or one of its splits: the DataFrame, data["valid"]."""
    if isinstance(data, Mapping) and split != "data":
        return f'data["{split}"]'
    if isinstance(data, str):  # the copy in the cache, as a run names it
        return "the data"
    name = type(data).__name__
    return f"the {'array' if name == 'ndarray' else name}"


def _name_argument(match: re.Match[str]) -> str:
    """Returns the argument for a flag and its value; the name alone for a flag without one."""
    name, word = match["flag"].replace("-", "_"), match["word"]
    section, _, key = name.rpartition(".")
    settings: Any = Settings.model_fields[section].annotation if section in Settings.model_fields else Settings
    if name in FILE_ARGUMENTS and word is not None and word not in NO_VALUES:
        file = word.strip("'")
        return f'{name}="{file}"'
    if (section != "" and settings is Settings) or key not in getattr(settings, "model_fields", ()):
        return match[0].replace(f"--{match['flag']}", name) if name in ARGUMENTS else match[0]
    if word is None or not _is_value(word, str(settings.model_fields[key].annotation), match["end"] is not None):
        return name if word is None else f"{name} {word}"
    word = word.strip("'")
    value = json.dumps(
        [_parse_number(each) for each in word.split(",")] if name in LISTS else _parse_number(word), ensure_ascii=False
    )
    comma = "," if match["next"] is not None else ""
    if section == "data":  # no keyword, since the first argument of `train` has that name
        return f'settings={{"{name}": {value}}}{comma}'
    return f'{section}={{"{key}": {value}}}{comma}' if section else f"{name}={value}{comma}"


def _is_value(word: str, annotation: str, ends_phrase: bool) -> bool:
    """Returns whether the word after a flag is its value, rather than the next word of the sentence."""
    is_choice = repr(word) in annotation  # of typing.Literal['stop', 'drop']
    is_list_or_placeholder = word.isupper() or re.search(r"[,'\d]", word) is not None
    return word not in NO_VALUES and (is_choice or is_list_or_placeholder or ends_phrase)


def _parse_number(text: str) -> int | float | str:
    if re.fullmatch(r"\d+", text):
        return int(text)
    return float(text) if re.fullmatch(r"\d+\.\d+", text) else text
