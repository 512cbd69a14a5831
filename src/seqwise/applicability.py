"""Which settings have an effect: a table of conditions, and `check_effects`, which rejects settings without any.

A setting has an effect if other settings (the task, the model, …) have certain values. `tests/test_applicability.py`
checks the table against the settings that exist. The module knows nothing of data or models.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

from pydantic import BaseModel

from seqwise.config import Settings
from seqwise.errors import UsageError
from seqwise.families import MODEL_FAMILIES, RECURRENT_FAMILIES, get_family
from seqwise.task_registry import BUILTIN_TASKS

Condition = Mapping[str, tuple[Any, ...]]  # settings, each with the values that it must have

# The families that are trained by gradient descent.
TRAINABLE = tuple(family.name for family in MODEL_FAMILIES.values() if family.has_gradients)
NOT_TRANSFORMER = tuple(name for name in TRAINABLE if name != "transformer")
EXAMPLE_TASKS = ("classify", "tag", "translate", "caption")  # whose data is separate examples of text
ADAM = ("adamw", "adam")
WORD_TASKS = ("language", "masked", "translate", "caption")  # that predict words

REMOVE_FIXES = "Leave it out.", "Leave them out."  # one setting, several
MAX_LISTED = 4  # tasks or models in a message


def _require_cell(cell: str) -> tuple[Condition, ...]:
    """Returns the conditions of a setting that only this cell has."""
    return {"model": (cell,)}, {"model": ("attentive-rnn",), "recurrent.cell": (cell,)}


# Setting or section → its conditions, of which one must hold. None: the value is not set yet.
USED_WITH: dict[str, tuple[Condition, ...]] = {
    "target": ({"task": ("translate", "forecast")},),
    "horizon": ({"task": ("forecast",)},),
    "text": ({"task": tuple(task for task in BUILTIN_TASKS if task != "forecast")},),
    "data.window": ({"task": ("language", "masked"), "model": TRAINABLE},),
    "data.order": ({"task": ("language",), "model": TRAINABLE},),
    "data.partial_shuffle": (
        {"task": ("language",), "model": TRAINABLE, "data.order": ("streams",)},
        # their order unless it is set
        {"task": ("language",), "model": (*RECURRENT_FAMILIES, "feedforward"), "data.order": ("streams", None)},
    ),
    "data.max_length": ({"task": EXAMPLE_TASKS},),
    "data.max_tokens": ({"task": (*EXAMPLE_TASKS, "forecast")},),
    "data.on_empty": ({"task": EXAMPLE_TASKS},),
    "network": ({"model": TRAINABLE},),
    "network.tie_weights": ({"task": WORD_TASKS},),
    "network.output": ({"task": WORD_TASKS},),
    **dict.fromkeys(
        ("network.input_dropout", "network.output_dropout", "network.embedding_dropout"),
        ({"task": ("language",)},),
    ),
    "network.samples": ({"task": ("language",), "network.output": ("sampled",)},),
    "network.softmaxes": ({"task": ("language",), "network.output": ("mixture",)},),
    "recurrent": ({"model": tuple(RECURRENT_FAMILIES)},),
    "recurrent.activation": _require_cell("rnn"),
    "recurrent.update": _require_cell("gru"),
    "recurrent.reset": _require_cell("gru"),
    **dict.fromkeys(
        ("recurrent.state_dropout", "recurrent.forget_bias", "recurrent.cap_input_gate"), _require_cell("lstm")
    ),
    **{
        f"recurrent.{name}": ({"task": ("language",)},)
        for name in (
            "variational_dropout",
            "last_width",
            "sum_layers",
            "activation_regularization",
            "temporal_regularization",
        )
    },
    "recurrent.cell": ({"model": ("attentive-rnn",)},),
    "recurrent.attention_span": ({"model": ("attentive-rnn",)},),
    "recurrent.concat_directions": ({"recurrent.bidirectional": (True, None)},),
    "transformer": ({"model": ("transformer",)}, {"task": ("caption",), "caption.encoder": ("patches",)}),
    "context": ({"model": ("feedforward", "ngram")},),
    **{task: ({"task": (task,)},) for task in BUILTIN_TASKS if task in Settings.model_fields},
    "classify.ngram_buckets": ({"classify.ngrams": (2, 3, 4, 5)},),
    "translate.attention": ({"model": NOT_TRANSFORMER},),
    "caption.attention": ({"model": NOT_TRANSFORMER},),
    **dict.fromkeys(("caption.grid", "caption.blocks"), ({"caption.encoder": ("convolutional", None)},)),
    "caption.patch": ({"caption.encoder": ("patches",)},),
    **dict.fromkeys(
        ("caption.image_size", "caption.shift", "caption.flip"),
        ({"caption.encoder": ("convolutional", "patches", None)},),
    ),
    "forecast.decoder": ({"model": ("rnn", "gru", "lstm")},),
    "training": ({"model": TRAINABLE},),
    "training.clip_threshold": ({"training.clip": ("norm", "value")},),
    **dict.fromkeys(("training.beta1", "training.beta2", "training.epsilon"), ({"training.optimizer": ADAM},)),
    "training.peak_beta1": ({"training.optimizer": ADAM, "training.schedule": ("one-cycle", "one-cycle-flat")},),
    # One kind of averaging at a time: None is a moving average by rule, which this setting turns off.
    "training.average_from": ({"training.optimizer": ("adamw", "adam", "sgd"), "training.ema": (0.0, None)},),
    "training.ema": ({"training.optimizer": ("adamw", "adam", "sgd")},),
}


def check_effects(
    settings: Sequence[BaseModel], names: Iterable[str], used_with: Mapping[str, tuple[Condition, ...]] = USED_WITH
) -> None:
    """Raises an error for the settings among `names` that have no effect with any of `settings`, with the reasons.

    A comparison has several settings, one for each family. A task that is not known yet is not checked.
    """
    names = list(names)
    reasons = [find_unused(each, names, used_with) for each in settings]
    unused = {name: reason for name, reason in reasons[0].items() if all(name in each for each in reasons)}
    if len(settings) > 1:
        unused = {name: f"{reason.partition(';')[0]}; no compared family has that" for name, reason in unused.items()}
    if unused:
        problems = [f"--{name.replace('_', '-')} {reason}." for name, reason in unused.items()]
        raise UsageError("\n".join(problems), fix=REMOVE_FIXES[len(unused) > 1])


def find_unused(
    settings: BaseModel, names: Iterable[str], used_with: Mapping[str, tuple[Condition, ...]] = USED_WITH
) -> dict[str, str]:
    """Returns the settings among `names` that have no effect, each with the reason."""
    unused: dict[str, str] = {}
    for name in names:
        for key in (name, name.partition(".")[0]):  # the reason of a setting is narrower than that of its section
            conditions = used_with.get(key, ())
            mismatches = [_find_mismatch(settings, condition) for condition in conditions]
            if mismatches and all(mismatches):
                unused.setdefault(name, _describe_mismatches(settings, mismatches, conditions))
    return unused


def list_changed(settings: BaseModel, prefix: str = "") -> Iterator[str]:
    """Yields the dotted names of the settings that differ from their defaults."""
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        if isinstance(value, BaseModel):
            yield from list_changed(value, f"{name}.")
        elif value is not None and value != field.default:
            yield prefix + name


def reset_unused(settings: Settings, used_by: Sequence[Settings]) -> None:
    """Sets settings without an effect to their defaults.

    The saved settings of a run contain values for its own model, which another model may not use.
    """
    for name in list(list_changed(settings)):
        if all(find_unused(each, [name]) for each in used_by):
            section, _, key = name.rpartition(".")
            target = getattr(settings, section) if section else settings
            setattr(target, key, type(target).model_fields[key].default)


def _includes_user_family(name: str, expected: Sequence[str]) -> bool:
    """Returns whether a setting of the `expected` families is also one of a family of the user's own.

    A cell has the settings of recurrent families, another network those that all neural families share.
    """
    family = get_family(name)
    shared = {"lstm"} if family.is_recurrent else {"lstm", "feedforward"}
    return family.build is not None and shared <= set(expected)


def _find_mismatch(settings: BaseModel, condition: Condition) -> str:
    """Returns the name of the first setting that does not fulfil a condition; empty if all do."""
    for name, expected in condition.items():
        value = _get_value(settings, name)
        is_unknown = name == "task" and (value is None or value not in BUILTIN_TASKS)
        is_unknown |= name == "model" and getattr(settings, "init", None) is not None  # inherited from that run
        is_unknown |= name == "model" and _includes_user_family(str(value), expected)
        if not is_unknown and value not in expected:
            return name
    return ""


def _describe_mismatches(settings: BaseModel, mismatches: Sequence[str], conditions: Sequence[Condition]) -> str:
    """Returns which setting fulfils none of the conditions, as the end of a sentence."""
    expected_by_name = {name: [each for cond in conditions for each in cond.get(name, ())] for name in mismatches}
    names = [name for name in mismatches if _get_value(settings, name) not in expected_by_name[name]]
    name = (names or mismatches)[0]
    value, expected = _get_value(settings, name), expected_by_name[name]
    choices = list(dict.fromkeys(str(each) for each in expected if each is not None))
    listed = choices[0] if len(choices) == 1 else f"{', '.join(choices[:-1])} and {choices[-1]}"
    option = f"--{name.replace('_', '-')}"
    if any(each is True for each in expected):
        return f"has an effect with {option} only"
    if len(choices) > MAX_LISTED:
        return f"has no effect with the {name} {value}"
    if name in ("task", "model"):
        kind = f"{name}{'s' * (len(choices) > 1)}"
        return f"has an effect with the {kind} {listed} only; the {name} is {value}"
    return f"has an effect with {option} {listed} only; it is {'not set' if value is None else value}"


def _get_value(settings: BaseModel, name: str) -> Any:
    return reduce(getattr, name.split("."), settings)
