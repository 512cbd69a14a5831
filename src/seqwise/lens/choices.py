"""What the options of a view can be for one run: its layers, heads, answers and targets; and which have no effect."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from seqwise.lens.activations import list_activations
from seqwise.lens.attention_layers import list_attention
from seqwise.lens.recurrent import list_layers
from seqwise.lens.subject import Subject

Choice = tuple[str, str]  # the value of an option, and what it means

MAX_ANSWERS = 200
# Options of `decoding` → the tasks whose search they change.
DECODING_TASKS = {
    **dict.fromkeys(("beam", "length_penalty"), ("translate", "caption")),
    "seed": ("language",),
}

LAST_LAYER = ("gradients", "senses", "states")  # views that show one layer, the last unless another is chosen
UNSET = {
    **dict.fromkeys(("layer", "head"), "all"),
    **dict.fromkeys(("answer", "target"), "the first"),
    **dict.fromkeys(("unit", "query", "key", "span", "labels"), "none"),
    "split": "valid",
}


def name_unset(view: str, option: str) -> str:
    """Returns what an option that is not set stands for, in a word."""
    if option == "layer" and view in LAST_LAYER:
        return "the last"
    return "all" if (view, option) == ("gates", "unit") else UNSET.get(option, "automatic")


def list_choices(view: str, subject: Subject) -> dict[str, list[Choice]]:
    """Returns option → what can be chosen; an option that is not there takes any value."""
    choices = {"answer": _list_answers(subject), "target": [(name, name) for name in _list_targets(subject)]}
    if view == "attention":
        choices["head"] = _number(
            [""] * max((_count_heads(each.module) for each in list_attention(subject)), default=0)
        )
    if view in _LAYERS:
        choices["layer"] = _LAYERS[view](subject)
    return {name: values for name, values in choices.items() if values}


def has_effect(view: str, option: str, subject: Subject) -> bool:
    """Returns whether an option of a view can change anything for a run."""
    task = "" if subject.trained is None else str(subject.trained.settings.task)
    if option == "target":
        return len(_list_targets(subject)) > 1
    return view != "decoding" or task in DECODING_TASKS.get(option, (task,))


def _number(names: Sequence[str]) -> list[Choice]:
    """Returns names with their numbers from 1."""
    return [(str(number), name or str(number)) for number, name in enumerate(names, start=1)]


def _count_heads(module: object) -> int:
    heads = getattr(module, "heads", 1)
    return heads if isinstance(heads, int) else 1


def _list_answers(subject: Subject) -> list[Choice]:
    answers = () if subject.inspected is None else subject.inspected.answers
    return _number([answer.name for answer in answers[:MAX_ANSWERS]])


def _list_targets(subject: Subject) -> Sequence[str]:
    return () if subject.trained is None else subject.trained.run.preprocessor.attributes.get("targets", ())


def _list_sense_layers(subject: Subject) -> list[Choice]:
    depth = -1 if subject.trained is None else subject.trained.contextual.depth
    return [(str(layer), f"layer {layer}" if layer else "input embedding") for layer in range(depth + 1)]


def _list_recurrent_layers(subject: Subject) -> list[Choice]:
    return [(each.label, each.label) for each in list_layers(subject)]


def _list_activation_layers(subject: Subject) -> list[Choice]:
    return [(label, label) for label in dict.fromkeys(each.label for each in list_activations(subject))]


# View → the layers that it can show, by number or by label.
_LAYERS: dict[str, Callable[[Subject], list[Choice]]] = {
    "attention": lambda subject: [(each.label, each.label) for each in list_attention(subject)],
    "gates": _list_recurrent_layers,
    "gradients": _list_recurrent_layers,
    "senses": _list_sense_layers,
    "states": _list_activation_layers,
    "units": _list_activation_layers,
}
