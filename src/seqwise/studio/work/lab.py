"""Experiments of the lab."""

from __future__ import annotations

from typing import Any

from seqwise.studio.worker import Context


def run_experiment(context: Context, id: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """Returns the result of an experiment as the page of the lab reads it. Two stages are emitted: loading, running."""
    context.emit({"stage": "loading"})
    from seqwise.lab.catalogue import get_experiment
    from seqwise.lab.page.build import convert_record
    from seqwise.lab.running import build_experiment, to_record

    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in parameters.items()
    }
    experiment = build_experiment(get_experiment(id), **values)
    context.check_cancelled()
    context.emit({"stage": "running"})
    return convert_record(to_record(experiment.run()))
