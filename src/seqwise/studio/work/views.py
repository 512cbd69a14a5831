"""The views of `seqwise.lens`: which ones apply to runs, their figures, and files of them."""

from __future__ import annotations

import io
import json
import os
import tempfile
import time
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from weakref import ref

from PIL import Image

from seqwise.callbacks import ProgressCallback
from seqwise.errors import DataError, RunError, UsageError
from seqwise.lens import VIEWS
from seqwise.lens.arguments import (
    SAMPLED,
    Option,
    Signature,
    build_command,
    convert_options,
    explain_inapplicable,
    get_view,
    list_options,
)
from seqwise.lens.choices import has_effect, list_choices, name_unset
from seqwise.lens.subject import TASKS_WITH_SHARED_TEXT, Subject, name_runs, open_subject, open_subject_or_model
from seqwise.lens.view import View
from seqwise.page.html import MAX_PAGE_BYTES
from seqwise.page.packing import pack_figures, shrink_image
from seqwise.page.script import dump_json_for_script
from seqwise.printable import make_printable
from seqwise.studio.worker import Context, describe_error
from seqwise.task_registry import PATH_TASKS
from seqwise.tasks.inspection import InspectedInput
from seqwise.training.api import TrainedModel

MAX_TOKENS = 400  # of an example that is shown token by token
MAX_IMAGE_SIDE = 160  # pixels
PROGRESS_SECONDS = 0.1  # between two reports
MAX_FILE_BYTES = 40_000_000
MAX_VIEWS = 4  # in memory, so that one that is shown can be saved at once
FOLLOWING = ("training", "health")  # views that read files which change while a run is trained
WITHOUT_WEIGHTS = ("training", "health")  # views that apply to a run before its first validation
TEXT_TASKS = {"horizon": ("language", "masked")}  # views that read a text only of some tasks
MEDIA_TYPES = {"html": "text/html", "png": "image/png", "svg": "image/svg+xml", "json": "application/json"}

_views: list[tuple[list[ref[TrainedModel]], str, View]] = []  # the newest is the last


@dataclass(frozen=True)
class RunInput:
    """A run with its input. `problem`: why it has none, or no weights; then there may be no subject."""

    trained: TrainedModel
    subject: Subject | None
    text: str | None  # that the run reads so that two runs read the same; None: its own input
    problem: dict[str, Any] | None = None


def describe_views(context: Context, runs: list[str], text: str | None, upload: str | None) -> dict[str, Any]:
    """Returns the input of each run, and every view: why it does not apply, and its options."""
    models = [context.load(run) for run in runs]
    progress = limit_reports(context)
    inputs: list[RunInput] = []
    for model in models:
        source = _choose_user_input(model, text, upload)
        inputs.append(_open_input(model, source, inputs[0] if inputs else None, progress))
    names = name_runs(models)
    return {
        "runs": [_describe_input(each, name) for each, name in zip(inputs, names)],
        "views": [_describe_view(name, inputs) for name in VIEWS],
    }


def _choose_user_input(trained: TrainedModel, text: str | None, upload: str | None) -> str | None:
    """Returns what the user gives a run. A text never becomes the path of a file: only uploads are read."""
    return upload if trained.settings.task in PATH_TASKS else text


def _open_input(
    trained: TrainedModel, source: str | None, first: RunInput | None, progress: ProgressCallback
) -> RunInput:
    """Returns a run with the given input, else with the example of the first run if it can read that, else its own."""
    try:
        if source is None and first is not None and (shared := _get_shared_text(trained, first)) is not None:
            try:
                return RunInput(trained, open_subject(trained, shared), shared)
            except UsageError:
                pass  # it is longer than the model reads at once
        subject = open_subject_or_model(trained, source, progress)
    except RunError as error:
        return RunInput(trained, None, None, describe_error(error))
    except (UsageError, DataError) as error:  # of the text
        model = Subject("", trained.model, lambda: None, (), trained=trained)
        return RunInput(trained, model, None, describe_error(error))
    if subject.inspected is None:
        problem = {"problem": "the data of the run cannot be read, so no example can be shown.", "fix": "Enter a text."}
        return RunInput(trained, subject, None, problem)
    return RunInput(trained, subject, None)


def _get_shared_text(trained: TrainedModel, first: RunInput) -> str | None:
    task = trained.settings.task
    is_shared = task in TASKS_WITH_SHARED_TEXT and task == first.trained.settings.task
    inspected = None if first.subject is None else first.subject.inspected
    return inspected.text if is_shared and inspected is not None else None


def _describe_input(each: RunInput, name: str) -> dict[str, Any]:
    inspected = None if each.subject is None else each.subject.inspected
    task = str(each.trained.settings.task)
    return {
        "name": name,
        "task": task,
        "reads_file": task in PATH_TASKS,
        "example": None if inspected is None else _describe_example(inspected, task),
        "text": each.text,
        "example_text": inspected.text if inspected is not None and task in TASKS_WITH_SHARED_TEXT else None,
        "problem": each.problem,
    }


def _describe_example(inspected: InspectedInput, task: str) -> dict[str, Any]:
    """Returns what is shown: its text with the tokens that the model reads, or its image."""
    image = None
    if inspected.image is not None:
        file = io.BytesIO()
        Image.fromarray(shrink_image(inspected.image, MAX_IMAGE_SIDE)).save(file, "PNG")
        image = f"data:image/png;base64,{b64encode(file.getvalue()).decode('ascii')}"
    has_tokens = task not in PATH_TASKS and len(inspected.tokens) <= MAX_TOKENS
    return {
        "description": inspected.description,
        "text": inspected.text,
        "tokens": [make_printable(token) for token in inspected.tokens] if has_tokens else None,
        "image": image,
    }


def _describe_view(name: str, inputs: Sequence[RunInput]) -> dict[str, Any]:
    """Returns a view with the reasons why it does not apply, one per run, and its options."""
    signature, reasons = Signature.of(name), [_explain(name, each) for each in inputs]
    suitable = [each for each, reason in zip(inputs, reasons) if reason is None]
    tasks = {str(each.trained.settings.task) for each in suitable}
    subject = suitable[0].subject if suitable else None
    return {
        "name": name,
        "description": VIEWS[name][1],
        "reasons": reasons,
        "reads": _choose_source(name, signature, tasks),
        "takes_texts": signature.takes_texts,
        "is_combined": signature.takes_runs and len(suitable) > 1 and (len(tasks) == 1 or not signature.takes_text),
        "options": [] if not suitable else _describe_options(name, subject),
    }


def _explain(name: str, each: RunInput) -> str | None:
    """Returns why a view does not apply to a run, or None."""
    if each.subject is not None:
        return explain_inapplicable(name, each.subject)
    return None if name in WITHOUT_WEIGHTS else "the run has no weights yet: they are saved at the first validation."


def _choose_source(name: str, signature: Signature, tasks: set[str]) -> str:
    """Returns what a view reads: "nothing", the "input" of the page, or a "sample" of the data or a text of its own."""
    if not signature.takes_text:
        return "nothing"
    if name not in SAMPLED:
        return "input"
    is_text = tasks.isdisjoint(PATH_TASKS) and tasks <= {*TEXT_TASKS.get(name, tasks)}
    return "sample" if is_text else "nothing"


def _describe_options(name: str, subject: Subject | None) -> list[dict[str, Any]]:
    if subject is None:
        return [_describe_option(name, each, ()) for each in list_options(name)]
    choices = list_choices(name, subject)
    options = [each for each in list_options(name) if has_effect(name, each.name, subject)]
    return [_describe_option(name, each, choices.get(each.name, ())) for each in options]


def _describe_option(view: str, option: Option, choices: Sequence[tuple[str, str]]) -> dict[str, Any]:
    values = [{"value": value, "name": text} for value, text in choices or [(each, each) for each in option.choices]]
    return {**asdict(option), "choices": values, "unset": name_unset(view, option.name)}


def compute_view(context: Context, **request: Any) -> dict[str, Any]:
    """Returns the sentences and figures of a view, and the command that shows it."""
    view = _compute(context, **request)
    content = {
        "title": view.title,
        "summary": list(view.summary),
        "figures": pack_figures(view.figures, MAX_PAGE_BYTES),
        "command": _format_command(**request),
    }
    # As in a page, control characters and bidirectional marks become visible symbols.
    return json.loads(dump_json_for_script(content))


def save_view(context: Context, format: str, **request: Any) -> dict[str, Any]:
    """Returns a view as a file: its name, its media type and its content in base 64."""
    view = _compute(context, **request)
    names = [Path(run).name for run in request["runs"]]
    with tempfile.TemporaryDirectory() as folder:
        content = view.save(Path(folder) / f"view.{format}").read_bytes()
    if len(content) > MAX_FILE_BYTES:
        problem = f"the file has {len(content) / 1e6:.0f} MB; the page saves at most {MAX_FILE_BYTES / 1e6:.0f} MB."
        raise UsageError(problem, fix=f"Save it by the command line: {_format_command(**request)} --out view.{format}")
    return {
        "name": f"{request['view']}-{'-'.join(names)}.{format}",
        "media_type": MEDIA_TYPES[format],
        "content": b64encode(content).decode("ascii"),
    }


def _compute(
    context: Context,
    runs: list[str],
    view: str,
    text: str | None,
    upload: str | None,
    options: dict[str, Any],
    file_name: str = "",
) -> View:
    signature, values = Signature.of(view), convert_options(view, options)
    if len(runs) > 1 and not signature.takes_runs:
        raise UsageError(f"the view {view} shows one run; received {len(runs)}.", fix="Choose one.")
    models = [context.load(run) for run in runs]
    key = json.dumps([view, text, upload, options], sort_keys=True)
    for known, known_key, known_view in _views:
        if known_key == key and [reference() for reference in known] == models and view not in FOLLOWING:
            return known_view
    arguments: list[Any] = [models if signature.takes_runs else models[0]]
    if signature.takes_text:
        source = _choose_user_input(models[0], text, upload)
        is_ignored = models[0].settings.task in PATH_TASKS and view in SAMPLED  # a path is no word
        arguments.append(None if is_ignored else _prepare_text(signature, source))
    if "progress" in signature.options:
        values["progress"] = limit_reports(context)  # type: ignore[assignment]
    result = get_view(view)(*arguments, **values)
    _views.append(([ref(model) for model in models], key, result))
    del _views[:-MAX_VIEWS]
    return result


def _prepare_text(signature: Signature, text: str | None) -> str | list[str] | None:
    if text is None or not signature.takes_texts:
        return text
    return [line for line in text.splitlines() if line.strip()]


def _format_command(
    runs: list[str],
    view: str,
    text: str | None,
    upload: str | None,
    options: Mapping[str, Any],
    file_name: str = "",
) -> str:
    signature = Signature.of(view)
    source = text if upload is None or view in SAMPLED else file_name or "FILE"
    texts = source.splitlines() if source is not None and signature.takes_texts else [] if source is None else [source]
    return build_command([_shorten(run) for run in runs], texts if signature.takes_text else [], view, options)


def _shorten(folder: str) -> str:
    """Returns the path of a folder from the present one if it is inside that."""
    try:
        path = os.path.relpath(folder)
    except OSError:  # the present one was removed
        return folder
    return folder if path.startswith("..") else path


def limit_reports(context: Context) -> ProgressCallback:
    """Returns a callback that reports progress a few times per second, and raises `Cancelled` at once."""
    last = 0.0

    def report(done: int, total: int) -> None:
        nonlocal last
        context.check_cancelled()
        if time.monotonic() - last > PROGRESS_SECONDS:
            last = time.monotonic()
            context.report_progress(done, total)

    return report
