"""Who is compared: one contestant per family of `--models`, and one per name of a variants file.

    wide-gru: {model: gru, network: {width: 512}}
    deep-lstm:
      model: lstm
      network.depth: 3

A variant says what is special about it; everything else comes from the settings of the whole comparison. What would
give one contestant another tokeniser, split, evaluation or budget than the others is refused. This page knows nothing
of sizes or trials.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from seqwise.config import FAMILIES, Settings, parse_settings
from seqwise.errors import UsageError, nearest
from seqwise.families import families_for, get_family
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.task import Task

NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,58}[A-Za-z0-9_-])?")

_EXAMPLE = "wide-gru: {model: gru, network: {width: 512}}"
_FOR_ALL = "Set for all, on the command line, what is not for one variant alone."
_DATA = "the data is read, cut and split once for all"
_TEXT = "one tokeniser serves all"
_MEASURE = "all are measured alike"
_CHOICE = "the weights and rates of all are chosen by the same measure"
_BUDGET = "all have the same budget and are validated alike"
# What a variant may not set, and why. A section stands for everything in it.
REFUSED: dict[str, str] = {
    "task": "all do the same task",
    "budget": _BUDGET,
    "seed": "all are trained with the same seeds",
    "device": "all are trained on the same device",
    "init": "all start from scratch",
    "columns": _DATA,
    "target": _DATA,
    "horizon": _DATA,
    "text": _TEXT,
    **dict.fromkeys(("data.valid_fraction", "data.test_fraction", "data.max_length", "data.on_empty"), _DATA),
    **dict.fromkeys(
        (f"forecast.{key}" for key in ("known_future", "series", "time", "missing", "splits", "lookback")), _DATA
    ),
    "forecast.calendar": _DATA,
    "forecast.season": _MEASURE,
    "forecast.quantiles": _MEASURE,
    "classify.class_weights": _CHOICE,
    "masked.rate": _MEASURE,
    "tag.scheme": _MEASURE,
    "translate.vocabulary": _TEXT,
    "translate.targets": _TEXT,
    "caption.frames": _DATA,
    "caption.image_size": _DATA,
    **dict.fromkeys(("training.patience", "training.validate_every", "training.save_every"), _BUDGET),
}


@dataclass(frozen=True)
class _Variant:
    """A variant as it was written: settings by dotted key, and the lines they stand in, where there are lines."""

    name: str
    values: dict[str, Any]
    lines: dict[str, int]  # dotted key → line; "" is the name
    mistakes: tuple[str, ...] = ()

    def says(self, problem: str, key: str = "") -> str:
        """The problem as a line of a message."""
        inside = [line for path, line in self.lines.items() if key and f"{path}.".startswith(f"{key}.")]
        line = inside[0] if inside else self.lines.get("")
        return f"{self.name}: {problem}" if line is None else f"line {line}, {self.name}: {problem}"


def contestants(
    models: Sequence[str], variants: Path | str | Mapping[str, Any] | None, base: Settings
) -> dict[str, Settings]:
    """Name → settings with their gaps left open, families first.

    `base` are the settings of the whole comparison, with what reading the data has filled in.
    """
    if base.init is not None:
        raise UsageError("a comparison starts every family from scratch; received --init.", repair="Leave out --init.")
    found = {name: _of_family(name, base) for name in _families(models)}
    file = variants if isinstance(variants, Path | str) else None
    mistakes: list[str] = []
    repair = ""
    for variant in _read(variants):
        unfair = _unfair(variant)
        problems, settings = _judged(variant, base, found)
        mistakes += [*unfair, *problems]
        repair = _FOR_ALL if unfair else repair
        found[variant.name] = settings
    if mistakes:
        raise UsageError("\n".join(mistakes), file=file, repair=repair)
    if not found:
        raise UsageError("there is nothing to compare.", file=file, repair="Name families: --models rnn,gru,lstm")
    refuse_twins(found)
    return found


def refuse_twins(settings: Mapping[str, Settings]) -> None:
    """Contestants that do not differ in any setting would be compared with themselves."""
    seen: dict[str, str] = {}
    for name, each in settings.items():
        content = each.model_dump_json()
        if content in seen:
            raise UsageError(
                f"{seen[content]} and {name} have the same settings throughout: they would differ by nothing.",
                repair="Leave one of them out, or let it differ in something.",
            )
        seen[content] = name


def refuse_unable(task: Task, name: str, settings: ResolvedSettings) -> None:
    """Refuse a contestant whose resolved settings cannot work with the task, its data or this machine."""
    try:
        task.check(settings)
    except UsageError as error:
        repair = error.repair
        if not get_family(settings.model).can_do(settings.task):
            able = ", ".join(families_for(settings.task))
            repair = f"Leave it out. Families that can do the task {settings.task} are {able}."
        raise UsageError(f"{name}: {error.problem}", repair=repair) from None


def _families(models: Sequence[str]) -> list[str]:
    problems = [f"there is no family {name!r}. {nearest(name, FAMILIES)}" for name in models if name not in FAMILIES]
    twice = sorted({name for name in models if models.count(name) > 1})
    problems += [f"{name} is named more than once in --models." for name in twice]
    if problems:
        raise UsageError("\n".join(problems), repair="Write --models rnn,gru,lstm,attentive-rnn,transformer")
    return list(models)


def _of_family(family: str, base: Settings) -> Settings:
    """The base settings for a family. An n-gram model counts tokens: it has no use for vectors."""
    settings = base.model_copy(update={"model": family}, deep=True)
    if not get_family(family).has_gradients:
        settings.vectors, settings.network.freeze_embedding = None, False
    return settings


# One variant


def _unfair(variant: _Variant) -> list[str]:
    """What it sets and may not."""
    whys = {key: _refusal(key, value) for key, value in variant.values.items()}
    return [
        variant.says(f"{key} is not for one variant alone, because {why}.", key) for key, why in whys.items() if why
    ]


def _judged(variant: _Variant, base: Settings, others: Mapping[str, Settings]) -> tuple[list[str], Settings]:
    """What else is wrong with a variant, and its settings, which are those of the base where something is."""
    problems = [*variant.mistakes, *_wrong_name(variant, others)]
    values = {key: value for key, value in variant.values.items() if not _refusal(key, value)}
    if "model" not in values and variant.name not in FAMILIES and not variant.mistakes:
        problems.append(variant.says(f"it names no model. Add model: one of {', '.join(FAMILIES)}.", "model"))
    model = values.setdefault("model", variant.name if variant.name in FAMILIES else base.model)
    if isinstance(model, str) and model not in FAMILIES:
        problems.append(variant.says(f"there is no family {model!r}. {nearest(model, FAMILIES)}", "model"))
        model = values["model"] = base.model
    elif variant.name in FAMILIES and model != variant.name:
        problems.append(variant.says(f"it is named like a family, but its model is {model!r}. Rename it.", "model"))
    try:
        family = model if isinstance(model, str) else base.model  # what is no word is complained about here
        return problems, parse_settings(_merged(_of_family(family, base), values))
    except UsageError as error:
        problems += [variant.says(each, each.partition(": ")[0]) for each in error.problem.splitlines()]
        return problems, base


def _wrong_name(variant: _Variant, others: Mapping[str, Settings]) -> Iterator[str]:
    """Names become folders, also on disks that do not tell capital letters from small ones."""
    if not NAME.fullmatch(variant.name):
        yield variant.says(
            "a name has at most 60 letters (a to z), digits, - _ and ., with a letter or digit first and no . last, "
            "as a folder is named after it."
        )
    for other in others:
        if other == variant.name:
            yield variant.says("the name is taken by a family of --models or by another variant.")
        elif other.casefold() == variant.name.casefold():
            yield variant.says(f"the name differs from {other!r} in capital letters only.")


def _refusal(key: str, value: Any) -> str:
    """Why a variant may not set this, or nothing."""
    if key == "vectors":  # doing without is a fair question; other vectors would ask for other words
        return "" if value is None else "one file of vectors serves all; a variant can do without it (vectors: null)"
    section = key.partition(".")[0]
    return REFUSED.get(key) or REFUSED.get(section, "")


def _merged(settings: Settings, values: Mapping[str, Any]) -> dict[str, Any]:
    """Plain values of the settings with those of the variant, whose keys are dotted, laid over them."""
    merged = settings.model_dump()
    if values.get("vectors", "") is None:
        merged["vectors"], merged["network"]["freeze_embedding"] = None, False  # nothing is left to be frozen
    for key, value in values.items():
        *sections, last = key.split(".")
        home = merged
        for section in sections:
            if not isinstance(home.get(section), dict):
                home[section] = {}  # no such section: parsing complains about it
            home = home[section]
        home[last] = value
    return merged


# Reading


def _read(variants: Path | str | Mapping[str, Any] | None) -> Iterator[_Variant]:
    if variants is None:
        return
    if isinstance(variants, Mapping):
        for name, values in variants.items():
            yield _variant(str(name), values, {})
        return
    try:
        text = Path(variants).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError("the variants file does not exist.", file=variants) from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the variants file cannot be read: {error}.", file=variants) from None
    try:
        yield from _parsed(text, variants)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = None if mark is None else mark.line + 1
        raise UsageError(f"not valid YAML: {getattr(error, 'problem', error)}.", file=variants, line=line) from None


def _parsed(text: str, file: Path | str) -> Iterator[_Variant]:
    """The nodes of the file are read one by one, because they know their lines and do not hide a name given twice."""
    loader = yaml.SafeLoader(text)
    try:
        top = loader.get_single_node()
        if not isinstance(top, yaml.MappingNode) or not top.value:
            found = (
                "nothing" if top is None or not top.value else f"a {type(top).__name__.removesuffix('Node').lower()}"
            )
            raise UsageError(f"expected names with settings, found {found}.", file=file, repair=f"Write {_EXAMPLE}")
        for key, node in top.value:
            lines, twice = {"": key.start_mark.line + 1}, []
            for path, at in _places(node):
                if path in lines:
                    twice.append(f"line {at}, {key.value}: {path} is given twice.")
                lines[path] = at
            yield _variant(str(key.value), loader.construct_object(node, deep=True), lines, tuple(twice))
    finally:
        loader.dispose()


def _places(node: yaml.Node, prefix: str = "", depth: int = 0) -> Iterator[tuple[str, int]]:
    """Dotted keys of a mapping with their lines, as deep as settings go."""
    if isinstance(node, yaml.MappingNode) and depth < 2:
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                yield f"{prefix}{key.value}", key.start_mark.line + 1
                yield from _places(value, f"{prefix}{key.value}.", depth + 1)


def _variant(name: str, values: Any, lines: dict[str, int], mistakes: tuple[str, ...] = ()) -> _Variant:
    """Nested sections as dotted keys."""
    values = {} if values is None else values  # a name alone: nothing is special about it
    if not isinstance(values, Mapping):
        blank = _Variant(name, {}, lines)
        problem = blank.says(f"expected settings, found {values!r}; write {_EXAMPLE}")
        return _Variant(name, {}, lines, (*mistakes, problem))
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= {f"{key}.{inner}": each for inner, each in value.items()}
        else:
            flat[str(key)] = value
    return _Variant(name, flat, lines, mistakes)
