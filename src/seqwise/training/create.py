"""Creates the folder of a new run: reads the data and chooses the settings that are not set.

`training_run.py` trains it.
"""

from __future__ import annotations

from pathlib import Path

from seqwise import environment
from seqwise.applicability import check_effects, list_changed
from seqwise.budget import Budget
from seqwise.callbacks import LogFunction, ProgressCallback, no_log
from seqwise.clock import read_clock
from seqwise.config import Settings
from seqwise.families import FAMILY_FILES, get_family
from seqwise.kernels.recurrence.availability import describe_backend
from seqwise.recipe_files import describe_other_data, read_recipe
from seqwise.recipe_results import describe_gpu
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks import get_task
from seqwise.tasks.defaults import resolve
from seqwise.tasks.guess import detect_task
from seqwise.tasks.task import Preprocessor, Task
from seqwise.training.choices import (
    NOT_COMPARED,
    build_defaults_context,
    choose_device,
    explain_reading,
    list_overrides,
)
from seqwise.training.initialization import find_compilable_stacks, format_settings, inherit_from_run
from seqwise.training.metadata import RunMetadata
from seqwise.training.run import MODEL_FILE, RUN_FOLDER, Run
from seqwise.training.word_vectors import WordVectors
from seqwise.user_files import get_files_by_name


def create_run(
    data: str,
    settings: Settings,
    folder: Path,
    *,
    command: str = "",
    recipe: str = "",
    log: LogFunction = no_log,
    progress: ProgressCallback | None = None,
    processes: int = 1,
) -> tuple[Run, Task]:
    """Reads the data, chooses the settings that are not set, and creates the run folder; removes it on failure.

    `recipe` names the recipe that the settings are from.
    """
    source = read_recipe(recipe) if recipe else None
    if settings.budget is not None:
        Budget.parse(settings.budget)  # raises an error before the data is read
    settings = detect_task(settings, data, log)
    check_effects([settings], list_changed(settings))
    RUN_FOLDER.check_new(folder)
    requested, messages = settings.model_copy(deep=True), list[str]()

    def record(message: str) -> None:
        messages.append(message)
        log(message)

    settings, task, word_vectors = prepare_task(data, settings, record, progress)
    vector_width = 0 if word_vectors is None else word_vectors.vectors.dim
    device = choose_device(settings)
    resolved, reasons = resolve(settings, build_defaults_context(task, device, processes, vector_width))
    task.check(resolved)
    family = get_family(resolved.model)
    if resolved.training.compile and device.type != "cuda" and source is not None and source.settings.training.compile:
        resolved.training.compile = False  # a recipe is for a GPU, but can be tried on a CPU
        log("the recipe compiles layers, which is for GPUs only: here they are not compiled.")
    if resolved.training.compile:  # raises an error if there is nothing to compile
        find_compilable_stacks(device, (lambda: task.build(resolved)) if family.has_gradients else None)
    if family.has_gradients:
        task.batches(resolved, 0, processes)  # raises an error if a batch cannot be divided among the processes
    choices = {**explain_reading(requested, settings, messages), **reasons}
    overrides = list_overrides(requested, source.settings).keys() - {*NOT_COMPARED} if source is not None else ()
    metadata = RunMetadata.create(data, task, command, recipe, overrides)
    run = create_run_folder(folder, resolved, task, metadata, word_vectors, choices, log)
    if reasons:
        log("chosen by rule: " + ", ".join(format_settings(resolved, reasons)))
    if reason := reasons.get("training.max_epochs"):
        log(f"training ends after {resolved.training.max_epochs} epochs at most: {reason} (--training.max-epochs).")
    if source is not None and (warning := describe_other_data(recipe, source, task.fingerprint)):
        log(f"warning: {warning}")
    if source is not None and device.type == "cpu" and (warning := describe_gpu(recipe, source, resolved.budget)):
        log(f"warning: {warning}")
    return run, task


def prepare_task(
    data: str, settings: Settings, log: LogFunction = no_log, progress: ProgressCallback | None = None
) -> tuple[Settings, Task, WordVectors | None]:
    """Returns the settings, the task prepared on the data, and the word vectors of `--vectors`, if any."""
    start = read_clock()
    settings, preprocessor = inherit_from_run(settings, log)
    word_vectors = WordVectors.read(settings, log, progress)
    if word_vectors is not None and settings.text.extend_vocabulary:
        preprocessor = Preprocessor(extra_words=word_vectors.vectors.words[: settings.text.extend_vocabulary])
    task = get_task(settings.task).prepare(data, settings, preprocessor, log=log, progress=progress)
    task.reading_seconds = read_clock() - start
    return settings, task, word_vectors


def create_run_folder(
    folder: Path,
    settings: ResolvedSettings,
    task: Task,
    metadata: RunMetadata,
    word_vectors: WordVectors | None = None,
    choices: dict[str, str] | None = None,
    log: LogFunction = no_log,
) -> Run:
    """Creates the folder of a run, with everything that is known before training."""
    initial_embeddings = {} if word_vectors is None else word_vectors.match_vocabularies(task, log)
    description = environment.describe()
    if get_family(settings.model).build is not None:
        description[MODEL_FILE] = get_files_by_name(FAMILY_FILES).get(settings.model)
    if get_family(settings.model).is_recurrent:
        description["recurrent_path"] = describe_backend(choose_device(settings))
    summary = task.training_summary
    return Run.create(folder, settings, metadata, task.preprocessor, description, initial_embeddings, summary, choices)
