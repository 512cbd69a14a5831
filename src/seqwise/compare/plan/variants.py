"""The families of a comparison: one per name in `--models`, and one per variant in a variants file.

    wide-gru: {model: gru, network: {width: 512}}
    deep-lstm:
      model: lstm
      network.depth: 3

A variant has settings of its own; the others are those of the whole comparison. Settings that would give one variant
another tokeniser, split, evaluation or budget than the others are errors. The module knows nothing of sizes or trials.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from seqwise.applicability import check_effects, find_unused, list_changed
from seqwise.config import RENAMED_SETTINGS, Settings, parse_settings
from seqwise.errors import UsageError, suggest
from seqwise.families import NAME_PATTERN, get_family, list_families_for, list_family_names
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.task import Task
from seqwise.yaml_files import SafeLoader, parse_yaml, read_yaml_text

_EXAMPLE = "wide-gru: {model: gru, network: {width: 512}}"
_SAME_DATA = "the data is read, cut and split once for all"
_SAME_TOKENIZER = "one tokeniser serves all"
_SAME_EVALUATION = "all are evaluated in the same way"
_SAME_SELECTION = "the best weights and learning rates of all are selected by the same loss"
_SAME_BUDGET = "all have the same budget and the same validations"
# Settings that a variant may not change, and why. A section stands for everything in it.
COMMON_SETTINGS: dict[str, str] = {
    "task": "all have the same task",
    "budget": _SAME_BUDGET,
    "seed": "all are trained with the same seeds",
    "device": "all are trained on the same device",
    "init": "all start from scratch",
    "columns": _SAME_DATA,
    "target": _SAME_DATA,
    "horizon": _SAME_DATA,
    "text": _SAME_TOKENIZER,
    **dict.fromkeys(("data.valid_fraction", "data.test_fraction", "data.max_length", "data.on_empty"), _SAME_DATA),
    **dict.fromkeys(
        (f"forecast.{key}" for key in ("known_future", "series", "time", "missing", "splits", "lookback")), _SAME_DATA
    ),
    "forecast.calendar": _SAME_DATA,
    "forecast.season": _SAME_EVALUATION,
    "forecast.quantiles": _SAME_EVALUATION,
    "classify.class_weights": _SAME_SELECTION,
    "masked.rate": _SAME_EVALUATION,
    "tag.scheme": _SAME_EVALUATION,
    "translate.vocabulary": _SAME_TOKENIZER,
    "translate.targets": _SAME_TOKENIZER,
    "caption.frames": _SAME_DATA,
    "caption.image_size": _SAME_DATA,
    **dict.fromkeys(
        (f"training.{key}" for key in ("max_epochs", "patience", "validate_every", "save_every")), _SAME_BUDGET
    ),
}


class _Variant:
    """A variant as written by the user: settings by dotted key, their lines in the file, and what is wrong."""

    def __init__(self, name: str, values: Any, lines: dict[str, int]):
        self.name, self.lines = name, lines  # dotted key → line; "" is the name
        self.values: dict[str, Any] = {}
        self.problems: list[str] = []
        self.is_mapping = values is None or isinstance(values, Mapping)
        if not self.is_mapping:
            self.add_problem(f"expected settings, found {values!r}; write {_EXAMPLE}")
            return
        for key, value in ({} if values is None else values).items():
            if isinstance(value, Mapping):
                self.values |= {f"{key}.{inner}": each for inner, each in value.items()}
            else:
                self.values[str(key)] = value

    def add_problem(self, problem: str, key: str = "") -> None:
        """Adds a problem with the line of the file."""
        inside = [line for path, line in self.lines.items() if key and f"{path}.".startswith(f"{key}.")]
        line = inside[0] if inside else self.lines.get("")
        self.problems.append(f"{self.name}: {problem}" if line is None else f"line {line}, {self.name}: {problem}")

    def remove_common_settings(self) -> bool:
        """Removes settings that a variant may not change, and adds problems; returns whether there were any."""
        reasons = {key: reason for key, value in self.values.items() if (reason := _explain_common_setting(key, value))}
        for key, reason in reasons.items():
            self.add_problem(f"{key} cannot be set for one variant alone, because {reason}.", key)
            del self.values[key]
        return bool(reasons)

    def check_name(self, others: Mapping[str, Settings]) -> None:
        """Adds a problem if the name cannot become a folder, also on disks that ignore case."""
        if not NAME_PATTERN.fullmatch(self.name):
            self.add_problem(
                "a name has at most 60 letters (a to z), digits, - _ and ., with a letter or digit first and no . "
                "last, as a folder is named after it."
            )
        for other in others:
            if other == self.name:
                self.add_problem("the name is taken by a family of --models or by another variant.")
            elif other.casefold() == self.name.casefold():
                self.add_problem(f"the name differs from {other!r} only in case.")

    def make_settings(self, base: Settings) -> Settings:
        """Returns its settings; the base where they are wrong."""
        is_family = self.name in list_family_names()
        if "model" not in self.values and not is_family and self.is_mapping:
            self.add_problem(f"it names no model. Add model: one of {', '.join(list_family_names())}.", "model")
        model = self.values.setdefault("model", self.name if is_family else base.model)
        if isinstance(model, str) and model not in list_family_names():
            self.add_problem(f"there is no family {model!r}. {suggest(model, list_family_names())}", "model")
            model = self.values["model"] = base.model
        elif is_family and model != self.name:
            self.add_problem(f"it is named like a family, but its model is {model!r}. Rename it.", "model")
        try:
            family = model if isinstance(model, str) else base.model  # parsing reports other types
            return parse_settings(_merge(_make_family_settings(family, base), self.values))
        except UsageError as error:
            for problem in error.problem.splitlines():
                self.add_problem(problem, problem.partition(": ")[0])
            return base


def build_families(
    models: Sequence[str], variants: Path | str | Mapping[str, Any] | None, base: Settings
) -> dict[str, Settings]:
    """Returns settings by name, families first; sizes and rates that are not set stay None.

    `base` are the settings of the whole comparison.
    """
    if base.init is not None:
        raise UsageError("a comparison starts every family from scratch; received --init.", fix="Leave out --init.")
    families = {name: _make_family_settings(name, base) for name in _check_names(models)}
    file = variants if isinstance(variants, Path | str) else None
    problems: list[str] = []
    fix = ""
    for variant in _read_variants(variants):
        if variant.remove_common_settings():
            fix = "Set these for all families, on the command line."
        variant.check_name(families)
        families[variant.name] = variant.make_settings(base)
        problems += variant.problems
    if problems:
        raise UsageError("\n".join(problems), file=file, fix=fix)
    if not families:
        raise UsageError("there is nothing to compare.", file=file, fix="Name families: --models rnn,gru,lstm")
    check_distinct(families)
    return families


def check_distinct(settings: Mapping[str, Settings]) -> None:
    """Raises an error if two families have identical settings."""
    names: dict[str, str] = {}
    for name, each in settings.items():
        content = each.model_dump_json()
        if content in names:
            problem = f"{names[content]} and {name} have identical settings."
            raise UsageError(problem, fix="Leave one of them out, or change one of its settings.")
        names[content] = name


def check_effects_in_families(common: Settings, families: Mapping[str, Settings]) -> None:
    """Raises an error for a common setting without effect in any family, or one of a variant without effect in it."""
    names = set(list_changed(common))
    check_effects(list(families.values()), sorted(names))
    for name, settings in families.items():
        if unused := find_unused(settings, set(list_changed(settings)) - names):
            key, reason = next(iter(unused.items()))
            raise UsageError(f"{name}: {key} {reason}.", fix="Leave it out of this variant.")


def check_family(task: Task, name: str, settings: ResolvedSettings, nproc: int = 1) -> None:
    """Raises an error if the resolved settings of a family cannot work with the task, its data or this machine."""
    try:
        task.check(settings)
    except UsageError as error:
        fix = error.fix
        if not get_family(settings.model).supports(settings.task):
            others = ", ".join(list_families_for(settings.task))
            fix = f"Leave it out. Families for the task {settings.task} are {others}."
        raise UsageError(f"{name}: {error.problem}", fix=fix) from None
    if get_family(settings.model).has_gradients:
        task.batches(settings, 0, nproc)  # raises an error if batches cannot be divided among the processes


def _check_names(models: Sequence[str]) -> list[str]:
    families = list_family_names()
    problems = [f"there is no family {name!r}. {suggest(name, families)}" for name in models if name not in families]
    repeated = sorted({name for name in models if models.count(name) > 1})
    problems += [f"{name} is named more than once in --models." for name in repeated]
    if problems:
        raise UsageError("\n".join(problems), fix="Write --models rnn,gru,lstm,attentive-rnn,transformer")
    return list(models)


def _make_family_settings(family: str, base: Settings) -> Settings:
    """Returns the base settings with a model; an n-gram model has no embeddings, hence no pretrained vectors."""
    settings = base.model_copy(update={"model": family}, deep=True)
    if not get_family(family).has_gradients:
        settings.vectors, settings.network.freeze_embedding = None, False
    return settings


def _explain_common_setting(key: str, value: Any) -> str:
    """Returns why a variant may not change a setting; empty if it may."""
    key = RENAMED_SETTINGS.get(key, key)
    if key == "vectors":  # a variant without them is allowed; other vectors would need another vocabulary
        return "" if value is None else "one file of vectors serves all; a variant can do without it (vectors: null)"
    section = key.partition(".")[0]
    return COMMON_SETTINGS.get(key) or COMMON_SETTINGS.get(section, "")


def _merge(settings: Settings, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings as plain values, updated by those of the variant, whose keys are dotted."""
    merged = settings.model_dump()
    if values.get("vectors", "") is None:
        merged["vectors"], merged["network"]["freeze_embedding"] = None, False
    for key, value in values.items():
        *sections, last = key.split(".")
        parent = merged
        for section in sections:
            if not isinstance(parent.get(section), dict):
                parent[section] = {}  # no such section: parsing reports it
            parent = parent[section]
        parent[last] = value
    return merged


def _read_variants(variants: Path | str | Mapping[str, Any] | None) -> Iterator[_Variant]:
    if variants is None:
        return
    if isinstance(variants, Mapping):
        for name, values in variants.items():
            yield _Variant(str(name), values, {})
        return
    try:
        text = read_yaml_text(variants)
    except FileNotFoundError:
        raise UsageError("the variants file does not exist.", file=variants) from None
    except (OSError, yaml.YAMLError) as error:
        raise UsageError(f"the variants file cannot be read: {error}.", file=variants) from None
    try:
        parse_yaml(text)  # rejects what would take hours or all memory
        yield from _parse_file(text, variants)
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        line = None if mark is None else mark.line + 1
        raise UsageError(f"not valid YAML: {getattr(error, 'problem', error)}.", file=variants, line=line) from None


def _parse_file(text: str, file: Path | str) -> Iterator[_Variant]:
    """Parses node by node, because nodes have line numbers and do not hide a repeated name."""
    loader = SafeLoader(text)
    try:
        top = loader.get_single_node()
        if not isinstance(top, yaml.MappingNode) or not top.value:
            is_empty = top is None or not top.value
            kind = "nothing" if is_empty else f"a {type(top).__name__.removesuffix('Node').lower()}"
            raise UsageError(f"expected names with settings, found {kind}.", file=file, fix=f"Write {_EXAMPLE}")
        for key, node in top.value:
            key_lines = list(_find_lines(node))
            lines = {"": key.start_mark.line + 1, **dict(key_lines)}
            variant = _Variant(str(key.value), loader.construct_object(node, deep=True), lines)
            counts = Counter(path for path, _ in key_lines)
            for path in (path for path, count in counts.items() if count > 1):
                variant.add_problem(f"{path} is given twice.", path)
            yield variant
    finally:
        loader.dispose()


def _find_lines(node: yaml.Node, prefix: str = "", depth: int = 0) -> Iterator[tuple[str, int]]:
    """Yields the dotted keys of a mapping with their lines, as deep as settings are nested."""
    if isinstance(node, yaml.MappingNode) and depth < 2:
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                yield f"{prefix}{key.value}", key.start_mark.line + 1
                yield from _find_lines(value, f"{prefix}{key.value}.", depth + 1)
