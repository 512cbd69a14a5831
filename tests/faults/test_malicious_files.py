"""Malicious files: no code is executed, nothing is written elsewhere, and every error names the file.

They are given to the commands that would read them, each in a process with limits of time and memory: about a hundred
files; with SEQWISE_FAULTS=full more than 400, and the bombs unpack to 8 GB, in archives to 4 GB.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import malicious_cases
import malicious_saved
import pytest
from fault_counts import CountFunction, choose_count
from fuzz_saved import READERS
from malicious import CANARY, INPUT, Case, Result, Server, describe_tree
from malicious_payloads import MEGABYTE

pytestmark = pytest.mark.slow

BOMB = choose_count(600, 8192) * MEGABYTE  # bytes into which a bomb unpacks
ARCHIVE_BOMB = min(BOMB, 4095 * MEGABYTE)  # the sizes in a plain zip file have 32 bits
MAX_MEMORY = 400 * MEGABYTE  # 300 for the reader; the rest is what a training run or the page of a view needs
MAX_OUTPUT = 50_000  # characters
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]")
GROUPS: dict[str, Callable[[Path], Iterator[Case]]] = {
    "pickles": malicious_cases.list_pickles,
    "YAML": malicious_cases.list_yaml,
    "code in runs": malicious_cases.list_code_in_runs,
    "arrays and images": lambda runs: malicious_cases.list_arrays_and_images(),
    "archives": lambda runs: malicious_cases.list_archives(ARCHIVE_BOMB),
    "gzip": lambda runs: malicious_cases.list_gzip(BOMB),
    "weights": malicious_cases.list_weights,
    "texts": lambda runs: malicious_cases.list_texts(),
    "special files": malicious_cases.list_special_files,
    "tokenisers": malicious_saved.list_tokenizers,
    "files of runs": malicious_saved.list_run_files,
    "checkpoints": malicious_saved.list_checkpoints,
    "token stores": lambda runs: malicious_saved.list_stores(),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server") / "log.txt")
    yield server
    server.close()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tiny trained runs, of which the cases change copies."""
    folder = tmp_path_factory.mktemp("runs")
    for name, reader in {"classify": "run-classify", "language": "run-language", "resumable": "checkpoint"}.items():
        (folder / name).mkdir()
        READERS[reader].write(folder / name)
    return folder


@pytest.mark.parametrize("group", GROUPS)
def test_malicious_files_do_no_harm(
    group: str, server: Server, runs: Path, tmp_path: Path, count_faults: CountFunction
) -> None:
    problems = []
    for number, case in enumerate(islice(GROUPS[group](runs), 0, None, choose_count(4, 1))):
        root = tmp_path / str(number)
        problems += [f"{case.name}: seqwise {' '.join(case.command)}: {each}" for each in run_case(case, server, root)]
        shutil.rmtree(root)
        count_faults("malicious file")
    assert not problems, "\n\n" + "\n\n".join(problems)


def test_there_are_at_least_200_cases(runs: Path) -> None:
    names = [case.name for list_cases in GROUPS.values() for case in list_cases(runs)]
    assert len(names) == len(set(names)) >= 200


def run_case(case: Case, server: Server, root: Path) -> Iterator[str]:
    """Runs the command of a case and yields everything that is wrong."""
    folder = root / INPUT
    folder.mkdir(parents=True)
    case.write(folder)
    if case.before:
        first = server.run(root, case.before)
        assert first.status == 0, first.output
        assert case.tamper is not None
        case.tamper(root)
    before = describe_tree(root)
    result = server.run(root, case.command)
    after = describe_tree(root)
    own_run = str(folder / "run") + "/" if "--resume" in case.command else None  # the command may write there
    changes = [path for path in {*before, *after} if before.get(path) != after.get(path)]
    changes = [path for path in changes if not (own_run and path.startswith(own_run))]
    if changes:
        yield f"files were changed: {', '.join(sorted(changes)[:5])}"
    if (root / CANARY).exists():
        yield "code was executed"
    yield from (f"{each}\n{result.output[-600:]}" for each in find_problems(case, result))


def find_problems(case: Case, result: Result) -> Iterator[str]:
    """Yields what is wrong with the result of a command."""
    if result.is_late:
        yield "it did not end"
    elif result.status not in (0, 1, 2):
        yield f"exit status {result.status}"
    if "bug in Seqwise" in result.output or "Traceback" in result.output or "panicked" in result.output:
        yield "it failed with an unexpected error"
    if result.status and case.names not in result.output:
        yield f"the message does not name {case.names!r}"
    if result.status == 0 and not case.can_succeed:
        yield "it succeeded"
    if result.status and not case.can_fail:
        yield f"it failed with status {result.status}"
    if result.memory > MAX_MEMORY:
        yield f"it needed {result.memory // MEGABYTE} MB"
    if len(result.output) > MAX_OUTPUT:
        yield f"it printed {len(result.output):,} characters"
    if (control := CONTROL.search(result.output)) and not case.is_exact:
        yield f"it printed {control[0]!r}"
