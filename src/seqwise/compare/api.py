"""`seqwise.compare(...)`, the `Comparison` that it returns, and the `Orchestrator` that the command shares with it.

    request → create_plan → Orchestrator.run: stages of jobs → report.json, report.html

It knows nothing of terminals: callers receive events and stages through callbacks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from seqwise.compare.plan.create import Request, create_plan
from seqwise.compare.plan.options import ComparisonOptions
from seqwise.compare.plan.plan import Plan, parse_names
from seqwise.compare.report.gather import write_report
from seqwise.compare.report.schema import Report
from seqwise.compare.run.engine import Engine
from seqwise.compare.run.jobs import Event, OnEvent
from seqwise.compare.run.local_engine import LocalEngine
from seqwise.compare.run.ray_cluster import import_ray
from seqwise.compare.run.stages import OnStage, reopen_plan, run_stages
from seqwise.config import Settings, parse_settings
from seqwise.errors import SeqwiseError, UsageError, suggest
from seqwise.training.api import TrainedModel, load, merge_settings
from seqwise.training.distribution import defer_interrupts
from seqwise.training.training_run import choose_device

EngineName = Literal["local", "ray"]
LEADERBOARD_KEYS = ("name", "rank", "mean", "low", "high", "parameters", "learning_rate", "memory", "latency", "status")


class Comparison:
    """A finished comparison. `report` holds all results, as in `report.json`; the properties are plain data."""

    def __init__(self, folder: Path, report: Report):
        self.folder, self.report = folder, report

    @property
    def leaderboard(self) -> list[dict[str, Any]]:
        """A row per family, best first: name, rank, mean, low, high, parameters, costs."""
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
        """The model of the best family with the best validation."""
        name = self.report.verdict.best if self.report.verdict else None
        run = None if name is None else self.report.family(name).run
        if run is None:
            raise SeqwiseError("no family was trained successfully.")
        return load(self.folder / run)

    def __repr__(self) -> str:
        return f"<Comparison {self.folder}: {self.verdict}>"


def compare(
    data: str | Path | None = None,
    *,
    models: str | Sequence[str] = ComparisonOptions.models,
    variants: Mapping[str, Any] | str | Path | None = None,
    budget: str | None = None,
    seeds: int = ComparisonOptions.seeds,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    settings: Settings | dict[str, Any] | None = None,
    engine: EngineName = "local",
    on_event: Callable[[Event], None] = lambda event: None,
    **options: Any,
) -> Comparison:
    """Trains families on `data` under one budget and compares them; or resumes the comparison in `resume`.

    Further keywords are those of `ComparisonOptions` (match, lr_trials, examples, parameters, nproc), `workers`, and
    settings for all families: `compare("a.csv", models="gru,lstm", task="classify", text={"lowercase": True})`.

    Ctrl-C saves and stops.
    """
    workers = options.pop("workers", None)
    if "tries" in options:  # its name in version 0.1
        options["lr_trials"] = options.pop("tries")
    check_engine(engine, workers)
    if (data is None) == (resume is None):
        raise UsageError("name either the data or a comparison to resume.")
    values = {
        "models": models,
        "variants": variants,
        "budget": budget,
        "seeds": seeds,
        "out": out,
        "settings": settings,
    }
    defaults = {"models": ComparisonOptions.models, "seeds": ComparisonOptions.seeds}
    arguments = {key: value for key, value in values.items() if value not in (None, defaults.get(key))} | options
    if resume is not None:
        if arguments:
            repair = "Leave out all but resume, engine, workers and on_event."
            raise UsageError("a comparison is resumed as it was planned.", repair=repair)
        folder = Path(resume)
        plan = reopen_plan(folder)
    else:
        base = settings.model_dump() if isinstance(settings, Settings) else dict(settings or {})
        further = {key: options.pop(key) for key in ComparisonOptions.__dataclass_fields__ if key in options}
        comparison_options = ComparisonOptions(
            models=parse_names(models) if isinstance(models, str) else list(models),
            variants=Path(variants) if isinstance(variants, str) else variants,
            budget=str(budget or base.get("budget") or ComparisonOptions.budget),
            seeds=seeds,
            **further,
        )
        request = Request(
            str(data),
            comparison_options,
            parse_settings(merge_settings(base, options)),
            _format_call(str(data), arguments),
        )
        folder, plan = create_plan(request, None if out is None else Path(out))
    report = Orchestrator(folder, plan, engine, workers).run(on_event)
    if report is None:
        raise KeyboardInterrupt
    return Comparison(folder, report)


def _format_call(data: str, arguments: Mapping[str, Any]) -> str:
    """Returns the call as Python code, without the folder, which exists once the comparison is created."""

    def plain(value: Any) -> Any:
        if isinstance(value, Settings):
            return value.model_dump(exclude_defaults=True)
        return str(value) if isinstance(value, Path) else value

    parts = [repr(data), *(f"{key}={plain(value)!r}" for key, value in arguments.items() if key != "out")]
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
        with defer_interrupts() as should_stop:
            try:
                if not run_stages(self.folder, self.plan, self.engine, on_event, on_stage, should_stop):
                    return None
            finally:
                self.engine.close()
            return write_report(self.folder, Plan.open(self.folder))


def check_engine(name: str, workers: int | None = None) -> None:
    """Raises an error for an engine that is not available, before a comparison is planned."""
    if workers is not None and workers < 1:
        raise UsageError(f"--workers: expected at least 1; received {workers}.")
    if name not in get_args(EngineName):
        raise UsageError(f"there is no engine {name!r}.", repair=suggest(name, get_args(EngineName)))
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
