"""Measures how fast each family trains, so that a time budget can be converted into tokens: `measure_speeds`.

The result should not depend on what else the machine does meanwhile:

- The families take turns. In every round each trains on the same few batches again, and its fastest round counts. These
  batches represent an epoch: short and long ones have different speeds, and not the same for every family.
- On a CPU a round is timed by the processor time of the main thread, which stands still while another process has the
  core. The other threads of an operation work on equal parts at the same time.
- The speed that was measured on this machine before is kept in the cache folder, and a new measurement replaces it only
  if it is faster by more than `MIN_GAIN`. So a repeated comparison trains on the same tokens.

This module knows nothing of trials: the caller passes a function that builds the trainer of each family.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path

import torch

from seqwise import environment
from seqwise.compare.run.jobs import SpeedResult
from seqwise.data.batch import Batch, Batches
from seqwise.digests import add_digest, read_object
from seqwise.errors import MemoryLimitError, SaveError, SeqwiseError
from seqwise.files import write_text
from seqwise.locks import lock_file
from seqwise.resolved_settings import ResolvedSettings
from seqwise.training.loop import Trainer
from seqwise.training.step import TrainerState
from seqwise.training.validation import FORWARD_COST

NUM_CANDIDATES, NUM_BATCHES = 16, 8  # batches spread over the epoch; those of them that a round trains on
NUM_UPDATES = {"cpu": 8, "cuda": 128}  # of a round; on a GPU enough for CUDA graphs
MIN_ROUNDS, MAX_ROUNDS = 2, 12  # the first warms up: kernels are compiled and CUDA graphs captured
MAX_VALIDATIONS = 3
MAX_REPEATED_VALIDATION = 5.0  # seconds; a validation that takes longer is measured once
MIN_GAIN = 0.5  # by which a new measurement must be faster to replace the stored one; virtual machines vary by a fifth
SPEEDS_FILE = "speeds.json"
# Settings that change neither the model nor its updates.
UNRELATED_TO_SPEED = {"seed": True, "budget": True, "training": {"learning_rate", "patience", "validate_every"}}


class SampledBatches:
    """A few batches that represent an epoch: at equal quantiles of the sizes of batches spread over it."""

    def __init__(self, batches: Batches):
        positions = sorted({number * batches.steps // NUM_CANDIDATES for number in range(NUM_CANDIDATES)})
        candidates: list[Batch] = [next(batches.epoch(0, position)) for position in positions]
        candidates.sort(key=lambda batch: batch.num_sequences * batch.length)
        count = min(NUM_BATCHES, len(candidates))
        self.batches = [candidates[(2 * number + 1) * len(candidates) // (2 * count)] for number in range(count)]

    @property
    def steps(self) -> int:
        return len(self.batches)

    def epoch(self, number: int, start: int = 0) -> Iterator[Batch]:
        yield from self.batches[start:]


@dataclass
class SpeedMeasurement:
    """The measured rounds of one family. The trainer has `SampledBatches`."""

    trainer: Trainer
    validate: Callable[[], object]
    num_updates: int  # of a round
    validation_tokens: float = 0.0
    rounds: list[float] = field(default_factory=list)  # seconds
    validations: list[float] = field(default_factory=list)
    tokens: int = 0  # of a round

    @property
    def device(self) -> torch.device:
        return self.trainer.device

    def run_round(self) -> None:
        """Trains on the same batches in each round, and validates in the first rounds."""
        self.trainer.state, self.trainer.model_state = TrainerState(), None
        updates = islice(self.trainer.steps(), self.num_updates)
        self.rounds.append(self._time(lambda: list(updates)))
        self.tokens = self.trainer.state.tokens
        may_repeat = not self.validations or self.validations[0] <= MAX_REPEATED_VALIDATION
        if may_repeat and len(self.validations) < MAX_VALIDATIONS:
            self.validations.append(self._time(self.validate))

    def estimate(self) -> SpeedResult:
        """Returns a rough speed from the two smallest batches, the first of which warms up.

        The mean update takes longer, if batches differ in size; a validation is estimated by its tokens.
        """
        updates = self.trainer.steps()
        next(updates)
        tokens = self.trainer.state.tokens
        seconds = self._time(lambda: next(updates))
        tokens = self.trainer.state.tokens - tokens
        return SpeedResult(seconds, tokens, self.validation_tokens / max(1, tokens) * seconds / FORWARD_COST)

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
        """Returns the fastest round and validation, without the first ones, which compile kernels."""
        return SpeedResult(
            update_seconds=min(self.rounds[1:]) / self.num_updates,
            update_tokens=self.tokens / self.num_updates,
            validation_seconds=min(self.validations[1:] or self.validations),
        )


def estimate_speeds(prepare: Mapping[str, Callable[[], SpeedMeasurement]]) -> dict[str, SpeedResult]:
    """Returns a rough speed of each family that can be trained, within seconds: see `SpeedMeasurement.estimate`."""
    results = {}
    for name, prepare_family in prepare.items():
        with suppress(SeqwiseError, RuntimeError):  # its trials report the error
            results[name] = prepare_family().estimate()
    return results


def measure_speeds(
    prepare: Mapping[str, Callable[[], SpeedMeasurement]],
    max_seconds: float,
    report_progress: Callable[[float], None],
) -> dict[str, SpeedResult]:
    """Returns the speed of each family; after `max_seconds` no further round starts beyond the required ones.

    A family that cannot be trained has no speed: its trials report the error. One that does not fit into memory with
    the others is measured after them.
    """
    measurements: dict[str, SpeedMeasurement] = {}
    failed: set[str] = set()
    too_large: list[str] = []
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
                except (SeqwiseError, RuntimeError) as error:
                    if isinstance(error, MemoryLimitError) and len(prepare) > 1:
                        too_large.append(name)
                    failed.add(name)
                    measurements.pop(name, None)
            report_progress((number + position / len(prepare)) / MAX_ROUNDS)
    results = {name: measurement.get_result() for name, measurement in measurements.items()}
    measurements.clear()
    for name in too_large:
        results |= measure_speeds({name: prepare[name]}, 0.0, report_progress)
    report_progress(1.0)
    return {name: results[name] for name in prepare if name in results}


def keep_fastest(result: SpeedResult, settings: ResolvedSettings, fingerprint: str) -> SpeedResult:
    """Returns the speed that is stored for these settings on this machine, unless the new one is clearly faster.

    Updates and validations are compared separately.

    `fingerprint` is that of the data. Where the cache folder cannot be written, nothing is stored.
    """
    path = environment.get_cache_folder() / SPEEDS_FILE
    key = _make_key(settings, fingerprint)
    with _lock_speeds(path):
        stored = _read_speeds(path)
        with suppress(KeyError, TypeError):
            before = SpeedResult(**stored[key])
            if not all(0 <= value < math.inf for value in asdict(before).values()):
                raise TypeError("a damaged file")
            if before.update_seconds <= (1 + MIN_GAIN) * result.update_seconds:
                update = {"update_seconds": before.update_seconds, "update_tokens": before.update_tokens}
                result = replace(result, **update)
            if before.validation_seconds <= (1 + MIN_GAIN) * result.validation_seconds:
                result = replace(result, validation_seconds=before.validation_seconds)
            if result == before:
                return before
        stored[key] = asdict(result)
        with suppress(OSError, SaveError):
            write_text(path, json.dumps(add_digest(stored), indent=1) + "\n", concurrent=True)
    return result


@contextmanager
def _lock_speeds(path: Path) -> Iterator[None]:
    """Waits until no other comparison reads and writes the file, where the file system has locks."""
    with ExitStack() as stack:
        with suppress(OSError, SeqwiseError):
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = lock_file(path.with_name(f".{path.name}.lock"), path, on_wait=lambda error: None)
            stack.enter_context(lock)
        yield


def _make_key(settings: ResolvedSettings, fingerprint: str) -> str:
    """Returns a hash of everything on which the speed depends."""
    machine = environment.describe()
    gpu = machine["gpu"] or {}
    parts = {
        "settings": settings.model_dump(mode="json", exclude=UNRELATED_TO_SPEED),  # type: ignore[arg-type]
        "data": fingerprint,
        "machine": [platform.node(), machine["cpu"], gpu.get("name"), machine["packages"], machine["seqwise"]],
        "execution": [torch.get_num_threads(), os.environ.get("SEQWISE_KERNELS"), environment.get_spin_setting()],
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _read_speeds(path: Path) -> dict[str, dict[str, float]]:
    """Returns the stored speeds by key; none where the file is missing or damaged."""
    with suppress(OSError, ValueError):
        return read_object(path)
    return {}
