"""Measures how fast each family trains, so that a time budget can be converted into tokens: `measure_speeds`.

The result should not depend on what else the machine does meanwhile:

- The families take turns. In every round each makes the same updates again, and its fastest round counts.
- On a CPU a round is timed by the processor time of the main thread, which stands still while another process has the
  core. The other threads of an operation work on equal parts at the same time.
- The fastest speed that was ever measured on this machine is kept in the cache folder, and a new measurement replaces
  it only if it is faster by more than `MIN_GAIN`. So a repeated comparison trains on the same tokens.

This module knows nothing of trials: it is told how to build the trainer of a family.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path

import torch

from seqwise import environment
from seqwise.compare.run.jobs import SpeedResult
from seqwise.errors import SaveError, SeqwiseError
from seqwise.files import write_text
from seqwise.resolved_settings import ResolvedSettings
from seqwise.training.loop import Trainer
from seqwise.training.step import TrainerState

NUM_UPDATES = {"cpu": 4, "cuda": 128}  # of a round
MIN_ROUNDS, MAX_ROUNDS = 2, 12  # the first warms up: kernels are compiled and CUDA graphs captured
MAX_VALIDATIONS = 3
MAX_REPEATED_VALIDATION = 1.0  # seconds; a validation that takes longer is measured once
MIN_GAIN = 0.1
SPEEDS_FILE = "speeds.json"
# Settings that change neither the model nor its updates.
UNRELATED_TO_SPEED = {"seed": True, "budget": True, "training": {"learning_rate", "patience", "validate_every"}}


@dataclass
class SpeedMeasurement:
    """The measured rounds of one family."""

    trainer: Trainer
    validate: Callable[[], object]
    rounds: list[float] = field(default_factory=list)  # seconds
    validations: list[float] = field(default_factory=list)
    tokens: int = 0  # of a round

    @property
    def device(self) -> torch.device:
        return self.trainer.device

    def run_round(self) -> None:
        """Makes the first updates of the training split, from the same batch in each round."""
        self.trainer.state, self.trainer.model_state = TrainerState(), None
        updates = islice(self.trainer.steps(), NUM_UPDATES.get(self.device.type, 4))
        self.rounds.append(self._time(lambda: list(updates)))
        self.tokens = self.trainer.state.tokens
        is_short = not self.validations or self.validations[0] <= MAX_REPEATED_VALIDATION
        if is_short and len(self.validations) < MAX_VALIDATIONS:
            self.validations.append(self._time(self.validate))

    def _time(self, work: Callable[[], object]) -> float:
        """Returns the seconds that some work takes by itself."""
        if self.device.type == "cpu":
            start = time.thread_time()
            work()
            return time.thread_time() - start
        torch.cuda.synchronize(self.device)
        start = time.perf_counter()
        work()
        torch.cuda.synchronize(self.device)
        return time.perf_counter() - start

    def get_result(self) -> SpeedResult:
        updates = self.trainer.state.step
        return SpeedResult(
            update_seconds=min(self.rounds[1:]) / updates,
            update_tokens=self.tokens / updates,
            validation_seconds=min(self.validations),
        )


def measure_speeds(
    prepare: Mapping[str, Callable[[], SpeedMeasurement]],
    max_seconds: float,
    report_progress: Callable[[float], None],
) -> dict[str, SpeedResult]:
    """Returns the speed of each family; after `max_seconds` no further round starts beyond the required ones.

    A family that cannot be trained has no speed: its trials report the error.
    """
    measurements: dict[str, SpeedMeasurement] = {}
    failed: set[str] = set()
    start = time.monotonic()
    for number in range(MAX_ROUNDS):
        if number >= MIN_ROUNDS and time.monotonic() - start > max_seconds:
            break
        for position, name in enumerate(prepare, start=1):
            if name not in failed:
                try:
                    if name not in measurements:
                        measurements[name] = prepare[name]()
                    measurements[name].run_round()
                except (SeqwiseError, RuntimeError):
                    failed.add(name)
                    measurements.pop(name, None)
            report_progress((number + position / len(prepare)) / MAX_ROUNDS)
    return {name: measurement.get_result() for name, measurement in measurements.items()}


def keep_fastest(result: SpeedResult, settings: ResolvedSettings, fingerprint: str) -> SpeedResult:
    """Returns the speed that is stored for these settings on this machine, unless the new one is clearly faster.

    `fingerprint` is that of the data. Where the cache folder cannot be written, nothing is stored.
    """
    path = environment.cache_folder() / SPEEDS_FILE
    key = _make_key(settings, fingerprint)
    stored = _read_speeds(path)
    with suppress(KeyError, TypeError):
        before = SpeedResult(**stored[key])
        if before.update_seconds <= (1 + MIN_GAIN) * result.update_seconds:
            return before
    stored[key] = asdict(result)
    with suppress(OSError, SaveError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(stored, indent=1) + "\n", concurrent=True)
    return result


def _make_key(settings: ResolvedSettings, fingerprint: str) -> str:
    """Returns a hash of everything on which the speed depends."""
    machine = environment.describe()
    gpu = machine["gpu"] or {}
    parts = {
        "settings": settings.model_dump(mode="json", exclude=UNRELATED_TO_SPEED),  # type: ignore[arg-type]
        "data": fingerprint,
        "machine": [machine["cpu"], gpu.get("name"), machine["packages"], machine["seqwise"]],
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _read_speeds(path: Path) -> dict[str, dict[str, float]]:
    """Returns the stored speeds by key; none where the file is missing or damaged."""
    with suppress(OSError, ValueError):
        speeds = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(speeds, dict):
            return speeds
    return {}
