"""`seqwise.compare(...)`, the `Comparison` that it returns, and the `Orchestrator` that the command shares with it.

    request → create_plan → Orchestrator.run: stages of jobs → report.json, report.html

It knows nothing of terminals: callers receive events and stages through callbacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Unpack, get_args

import torch

from seqwise.compare.plan.create import Request, create_plan
from seqwise.compare.plan.folder import COMPARISON_FOLDER, PLAN_FILE
from seqwise.compare.plan.options import ComparisonOptions, Match
from seqwise.compare.plan.plan import Plan, parse_names
from seqwise.compare.report.gather import write_report
from seqwise.compare.report.schema import Report
from seqwise.compare.run.engine import Engine
from seqwise.compare.run.jobs import Event, OnEvent
from seqwise.compare.run.local_engine import LocalEngine
from seqwise.compare.run.ray_cluster import import_ray
from seqwise.compare.run.stages import OnStage, resume_plan, run_stages
from seqwise.config import SettingKeywords, Settings, combine_settings
from seqwise.data.python_messages import explain_in_python
from seqwise.data.records import Data
from seqwise.errors import SeqwiseError, UsageError, check_type, suggest
from seqwise.families import check_importable, get_model_name
from seqwise.new_folders import create_folder
from seqwise.signals import defer_interrupts
from seqwise.training.api import TrainedModel, load_run, save_data
from seqwise.training.choices import choose_device
from seqwise.training.failures import record_failure

EngineName = Literal["local", "ray"]
LEADERBOARD_KEYS = ("name", "rank", "mean", "low", "high", "parameters", "learning_rate", "memory", "latency", "status")


class Comparison:
    """A finished comparison. `report` holds all results, as in `report.json`; the properties are plain data."""

    def __init__(self, folder: Path, report: Report):
        self.folder, self.report = folder, report

    @property
    def leaderboard(self) -> list[dict[str, Any]]:
        """A row per family, best first, with `LEADERBOARD_KEYS`; `low` and `high` are the interval over seeds."""
        return [{key: getattr(family, key) for key in LEADERBOARD_KEYS} for family in self.report.families]

    @property
    def pairs(self) -> list[dict[str, Any]]:
        """A row per pair of families: difference, interval, p, and whether it is significant."""
        return [asdict(pair) for pair in self.report.pairs]

    @property
    def curves(self) -> dict[str, list[dict[str, Any]]]:
        """Family → for each seed the validations of its training run."""
        return {family.name: [asdict(curve) for curve in family.curves] for family in self.report.families}

    @property
    def verdict(self) -> str:
        """The verdict in sentences."""
        return " ".join(self.report.verdict.sentences) if self.report.verdict else ""

    @property
    def best(self) -> TrainedModel:
        """The trained model of the best family; of its seeds the one with the best validation."""
        name = self.report.verdict.best if self.report.verdict else None
        run = None if name is None else self.report.family(name).run
        if run is None:
            raise SeqwiseError("no family was trained successfully.")
        return load_run(self.folder / run)

    def __repr__(self) -> str:
        return f"<Comparison {self.folder}: {self.verdict}>"


def compare(
    data: Data | None = None,
    *,
    models: str | Iterable[str | Callable[..., Any]] = ComparisonOptions.models,
    variants: Mapping[str, Any] | str | Path | None = None,
    task: str | None = None,
    budget: str | None = None,
    seeds: int = ComparisonOptions.seeds,
    match: Match | None = None,
    parameters: int | str | None = None,
    lr_trials: int | None = None,
    examples: int | None = None,
    nproc: int | None = None,
    test: bool | None = None,
    strict: bool | None = None,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    settings: Settings | Mapping[str, Any] | None = None,
    engine: EngineName = "local",
    workers: int | None = None,
    on_event: Callable[[Event], None] = lambda event: None,
    **overrides: Unpack[SettingKeywords],
) -> Comparison:
    """Trains families on `data` under one budget and compares them; or resumes the comparison in `resume`.

    data: what `seqwise.train` takes
    models: names of families, "rnn,gru" or a list, which may contain cells and networks of your own
    variants: further families, name → settings, or a YAML file of them
    task: detected unless set
    budget: for each family and seed, such as "2m" or "3-epochs"
    seeds: how many training runs each family has, each with another seed
    match: what is equal for all families: "parameters", "time" or "tokens"
    parameters: the number of parameters of all families, such as "300k"
    lr_trials: how many learning rates the search tries first for each family; 1 means no search
    examples: how many test examples on which families disagree the report shows
    nproc: processes that train one model together
    test: evaluate on the test split; False: on the validation split, to choose among many settings
    strict: raise an error for a time budget too short for some updates and one validation
    out, settings, overrides: as of `seqwise.train`, for all families
    engine, workers: "local" or "ray", and the number of worker processes
    on_event: called with the progress

    Ctrl-C saves and stops.
    """
    check_engine(engine, workers)
    if (data is None) == (resume is None):
        raise UsageError("name either the data or a comparison to resume.")
    _check_types(models=models, variants=variants, seeds=seeds, out=out, resume=resume, on_event=on_event)
    for name, value in (("lr_trials", lr_trials), ("examples", examples), ("nproc", nproc)):
        check_type(name, value, (int, type(None)), "a number")
    further: dict[str, Any] = dict(overrides)
    if "tries" in further:  # its name in version 0.1
        lr_trials = further.pop("tries")
    arguments = _drop_defaults(
        models=models if isinstance(models, str) else [get_model_name(model) for model in models],
        variants=_name_models(variants) if isinstance(variants, Mapping) else variants, budget=budget, seeds=seeds,
        settings=settings, task=task, match=match, parameters=parameters, lr_trials=lr_trials, examples=examples,
        nproc=nproc, test=test, strict=strict, **further,
    )  # fmt: skip
    if data is None and (arguments or out is not None):
        fix = "Leave out all but resume, engine, workers and on_event."
        raise UsageError("a comparison is resumed as it was planned.", fix=fix)
    with ExitStack() as lock:
        if resume is not None:
            folder = Path(resume)
            plan = lock.enter_context(resume_plan(folder))
        else:
            with explain_in_python(data):
                request = _make_request(data, arguments)  # type: ignore[arg-type]
                new_folder = create_folder(COMPARISON_FOLDER, None if out is None else Path(out), "compare")
                folder = lock.enter_context(new_folder)
                plan = create_plan(folder, request)
        report = Orchestrator(folder, plan, engine, workers).run(on_event)
    if report is None:
        raise KeyboardInterrupt(f"stopped and saved. Resume with: seqwise.compare(resume={str(folder)!r})")
    return Comparison(folder, report)


def _check_types(**arguments: Any) -> None:
    """Raises an error for an argument of `compare` that has a wrong type."""
    missing = type(None)
    check_type("models", arguments["models"], (str, Iterable), 'names of families, such as "rnn,gru" or a list')
    check_type("variants", arguments["variants"], (Mapping, str, PathLike, missing), "a dictionary or a YAML file")
    check_type("seeds", arguments["seeds"], int, "a number of trainings per family")
    for name in ("out", "resume"):
        check_type(name, arguments[name], (str, PathLike, missing), "the path of a folder")
    check_type("on_event", arguments["on_event"], Callable, "a function")  # type: ignore[arg-type]


def _name_models(variants: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the variants with the names of models in place of classes and functions."""
    return {
        name: {**values, "model": get_model_name(values["model"])}
        if isinstance(values, Mapping) and callable(values.get("model"))
        else values
        for name, values in variants.items()
    }


def _drop_defaults(**arguments: Any) -> dict[str, Any]:
    """Returns the arguments that differ from their defaults."""
    defaults = {"models": list(ComparisonOptions.models), "seeds": ComparisonOptions.seeds}
    return {key: value for key, value in arguments.items() if value is not None and value != defaults.get(key)}


def _make_request(data: Data, arguments: Mapping[str, Any]) -> Request:
    """Returns the request for a new comparison; data in memory is saved in the cache."""
    values = {key: arguments[key] for key in ComparisonOptions.__dataclass_fields__ if key in arguments}
    overrides = {key: value for key, value in arguments.items() if key not in values and key != "settings"}
    overrides |= {"budget": values["budget"]} if "budget" in values else {}
    settings = combine_settings(arguments.get("settings"), overrides)
    models = values.get("models", ComparisonOptions.models)
    values["models"] = parse_names(models) if isinstance(models, str) else list(models)
    if isinstance(values.get("variants"), str):
        values["variants"] = Path(values["variants"])
    options = ComparisonOptions(**values | {"budget": settings.budget or ComparisonOptions.budget})
    for name in options.models:
        check_importable(name)
    path = save_data(data, settings)
    return Request(path, options, settings, _format_call(path, arguments))


def _format_call(data: str, arguments: Mapping[str, Any]) -> str:
    """Returns the call as Python code, without `out`: it can be repeated, but that folder exists by then."""

    def simplify(value: Any) -> Any:
        if isinstance(value, Settings):
            return value.model_dump(exclude_defaults=True)
        return str(value) if isinstance(value, Path) else value

    parts = [repr(data), *(f"{key}={simplify(value)!r}" for key, value in arguments.items() if key != "out")]
    return f"seqwise.compare({', '.join(parts)})"


class Orchestrator:
    """Executes the remaining jobs of a comparison and writes its report."""

    def __init__(self, folder: Path, plan: Plan, engine: str = "local", workers: int | None = None):
        self.folder, self.plan = folder, plan
        self.engine = create_engine(engine, folder, plan, workers)

    def run(
        self, on_event: OnEvent = lambda event: None, on_stage: OnStage = lambda stage, jobs: None
    ) -> Report | None:
        """Returns the report; None if Ctrl-C or SIGTERM stopped the comparison, whose state is then saved."""
        with record_failure(self.folder, PLAN_FILE), defer_interrupts() as should_stop:
            try:
                if not run_stages(self.folder, self.plan, self.engine, on_event, on_stage, should_stop):
                    return None
            finally:
                self.engine.close()
            return write_report(self.folder, Plan.open(self.folder))


def check_engine(name: str, workers: int | None = None) -> None:
    """Raises an error for an engine that is not available, before a comparison is planned."""
    check_type("workers", workers, (int, type(None)), "a number of worker processes")
    if workers is not None and workers < 1:
        raise UsageError(f"--workers: expected at least 1; received {workers}.")
    if name not in get_args(EngineName):
        raise UsageError(f"there is no engine {name!r}.", fix=suggest(str(name), get_args(EngineName)))
    if name == "ray":
        import_ray()


def create_engine(name: str, folder: Path, plan: Plan, workers: int | None = None) -> Engine:
    """Returns the engine that executes a plan."""
    check_engine(name, workers)
    if name == "ray":
        from seqwise.compare.run.ray_engine import RayEngine  # imported here, because it is an extra

        return RayEngine(folder, workers)
    is_cuda = choose_device(next(iter(plan.families.values()))).type == "cuda"
    # A trial of several processes uses all GPUs.
    gpus = torch.cuda.device_count() if is_cuda and plan.nproc == 1 else 0
    return LocalEngine(folder, workers, gpus, plan.nproc)
