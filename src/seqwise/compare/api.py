"""The library's front door to comparisons: `seqwise.compare(...)` and what it returns."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch

from seqwise.compare.plan.create import new_plan
from seqwise.compare.plan.options import Question
from seqwise.compare.plan.plan import Plan, names_of
from seqwise.compare.report.gather import gather, load_report
from seqwise.compare.report.page.page import page
from seqwise.compare.run.engine import Engine, Event
from seqwise.compare.run.local_engine import Local
from seqwise.compare.run.ray_cluster import library
from seqwise.compare.run.stages import Stage, carry_out, reopen
from seqwise.compare.run.threads import limit, settled
from seqwise.config import Settings, parse_settings
from seqwise.errors import SeqwiseError, UsageError, nearest
from seqwise.files import write_text
from seqwise.training.api import TrainedModel, load, merge_settings
from seqwise.training.training_run import choose_device, defer_interrupts

ENGINES = ("local", "ray")
EngineName = Literal["local", "ray"]


class Comparison:
    """A finished comparison: tables as plain data. `report` is all of it, as in `report.json`."""

    def __init__(self, folder: Path, report: dict[str, Any]):
        self.folder, self.report = folder, report

    @property
    def leaderboard(self) -> list[dict[str, Any]]:
        """A row per family, best first: name, rank, mean, low, high, parameters, costs."""
        keys = ("name", "rank", "mean", "low", "high", "parameters", "learning_rate", "memory", "answer", "status")
        return [{key: family[key] for key in keys} for family in self.report["families"]]

    @property
    def pairs(self) -> list[dict[str, Any]]:
        """A row per pair of families: difference, interval, p, and whether it is significant."""
        return self.report["pairs"]

    @property
    def curves(self) -> dict[str, list[dict[str, Any]]]:
        """Family → for each seed the validations of its training."""
        return {family["name"]: family["curves"] for family in self.report["families"]}

    @property
    def verdict(self) -> str:
        """What came out, in sentences."""
        return " ".join(self.report["verdict"]["sentences"])

    @property
    def best(self) -> TrainedModel:
        """The run of the best family whose validation was best, ready to predict."""
        name = self.report["verdict"]["best"]
        if name is None:
            raise SeqwiseError("no family was trained to its end.")
        run = next(family["run"] for family in self.report["families"] if family["name"] == name)
        return load(self.folder / run)

    def __repr__(self) -> str:
        return f"<Comparison {self.folder}: {self.verdict}>"


def compare(
    data: str | Path | None = None,
    *,
    models: str | Sequence[str] = Question.models,
    variants: Mapping[str, Any] | str | Path | None = None,
    budget: str | None = None,
    seeds: int = Question.seeds,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    settings: Settings | dict[str, Any] | None = None,
    engine: EngineName = "local",
    on_event: Callable[[Event], None] = lambda event: None,
    **options: Any,
) -> Comparison:
    """Train families on `data` under one budget and compare them; or go on with the comparison in `resume`.

    Further keywords are those of `Question` (match, tries, examples, parameters, nproc), `workers`, and settings for
    all families: `compare("a.csv", models="gru,lstm", task="classify", text={"lowercase": True})`.

    Ctrl-C saves and stops.
    """
    workers = options.pop("workers", None)
    check_engine(engine, workers)
    if (data is None) == (resume is None):
        raise UsageError("name either the data or a comparison to resume.")
    named = {"models": models, "variants": variants, "budget": budget, "seeds": seeds, "out": out, "settings": settings}
    usual = {"models": Question.models, "seeds": Question.seeds}
    given = {key: value for key, value in named.items() if value not in (None, usual.get(key))} | options
    if resume is not None:
        if given:
            repair = "Leave out all but resume, engine, workers and on_event."
            raise UsageError("a comparison goes on as it was planned.", repair=repair)
        folder = Path(resume)
        plan = reopen(folder)
    else:
        command = _expression(str(data), given)
        asked = {key: options.pop(key) for key in Question.__dataclass_fields__ if key in options}
        base = settings.model_dump() if isinstance(settings, Settings) else dict(settings or {})
        names = names_of(models) if isinstance(models, str) else list(models)
        file = Path(variants) if isinstance(variants, str) else variants
        question = Question(names, file, str(budget or base.get("budget") or Question.budget), seeds=seeds, **asked)
        where = None if out is None else Path(out)
        folder, plan = new_plan(
            where, "compare", str(data), question, parse_settings(merge_settings(base, options)), command
        )
    if engine == "local":
        plan, _ = settled(folder, plan, workers)
    with defer_interrupts() as stop:
        if not complete(folder, plan, engine_of(engine, folder, plan, workers), on_event, stop=stop):
            raise KeyboardInterrupt
    return Comparison(folder, load_report(folder))


def _expression(data: str, given: Mapping[str, Any]) -> str:
    """The call, as it would be written again."""

    def plain(value: Any) -> Any:
        if isinstance(value, Settings):
            return value.model_dump(exclude_defaults=True)
        return str(value) if isinstance(value, Path) else value

    words = [repr(data), *(f"{key}={plain(value)!r}" for key, value in given.items())]
    return f"seqwise.compare({', '.join(words)})"


def check_engine(name: str, workers: int | None = None) -> None:
    """Refuse an engine that cannot be had, before a comparison is planned."""
    if workers is not None and workers < 1:
        raise UsageError(f"--workers: expected at least 1; received {workers}.")
    if name not in ENGINES:
        raise UsageError(f"there is no engine {name!r}.", repair=nearest(name, ENGINES))
    if name == "ray":
        library()


def engine_of(name: str, folder: Path, plan: Plan, workers: int | None = None) -> Engine:
    """The engine that carries out a plan."""
    check_engine(name, workers)
    if name == "ray":
        from seqwise.compare.run.ray_engine import Ray  # here, because it is an extra

        return Ray(folder, workers)
    cuda = choose_device(next(iter(plan.families.values()))).type == "cuda"
    # A trial of several processes has all GPUs to itself.
    gpus = torch.cuda.device_count() if cuda and plan.nproc == 1 else 0
    return Local(folder, workers, gpus, plan.nproc, limit(plan, workers))


def complete(
    folder: Path,
    plan: Plan,
    engine: Engine,
    listen: Callable[[Event], None],
    begin: Stage = lambda name, jobs: None,
    stop: Callable[[], bool] = lambda: False,
) -> bool:
    """Carry out what is left of a plan and write the report; was it finished?"""
    try:
        if not carry_out(folder, plan, engine, listen, begin, stop):
            return False
    finally:
        engine.close()
    write_report(folder, plan)
    return True


def write_report(folder: Path, plan: Plan) -> dict[str, Any]:
    """`report.json` and `report.html` of whatever is there."""
    report = gather(folder, plan)
    write_text(folder / "report.json", json.dumps(report, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    write_text(folder / "report.html", page(report))
    return report


__all__ = ["Comparison", "check_engine", "compare", "complete", "engine_of", "write_report"]
