"""Rules for every source file: no unsafe calls, no printing, limited length, docstrings, file names, no local paths."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from package_sources import ROOT, get_relative_name, list_sources, parse_source

MODULE_LINES, FUNCTION_LINES = 400, 60
KERNEL_LINES = 72  # the kernel of a backward pass cannot be split: its values stay in registers

# Modules that may be longer, with their reason.
LONG_MODULES = {"config.py": "every setting of every task, one after another"}

UNSAFE_MODULES = {
    *("pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"),
    "multiprocessing",  # its queues and pipes contain pickles
}
UNSAFE_CALLS = {
    *("eval", "exec", "compile", "__import__", "os.system", "torch.load", "torch.save"),
    # These exchange pickles between processes.
    *(
        f"{module}.{name}"
        for module in ("dist", "torch.distributed")
        for name in ("all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list")
    ),
    *("yaml.load", "yaml.load_all", "yaml.full_load", "yaml.unsafe_load", "yaml.full_load_all", "yaml.unsafe_load_all"),
}
# Modules that may remove files; all others call `files.remove`, which never follows a link to elsewhere.
REMOVERS = {"files.py", "locks.py"}
REMOVING_NAMES = {"rmtree", "unlink", "rmdir", "removedirs"}  # of functions and methods
# Modules that may execute code, with their reason.
CODE_RUNNERS = {"lab/exercises/exercise.py": "runs the package's own solutions, as they are and with typical mistakes"}
STUDENT_FILES = "lab/exercises/solutions/"  # what a student gets to read, without postponed annotations
TEXT_SUFFIXES = {".py", ".md", ".toml", ".yaml", ".txt", ".cfg", ""}


def get_dotted_name(node: ast.AST) -> str:
    """Returns `torch.load` for the expression of that name; "" for anything that is not a plain dotted name."""
    if isinstance(node, ast.Attribute):
        base = get_dotted_name(node.value)
        return f"{base}.{node.attr}" if base else ""
    return node.id if isinstance(node, ast.Name) else ""


def find_unsafe_calls(tree: ast.AST) -> Iterator[str]:
    """Yields the imports and calls that can execute code stored in a file (pickle, eval, …) or a shell command."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            unsafe_names = [alias.name for alias in node.names if alias.name.split(".")[0] in UNSAFE_MODULES]
        elif isinstance(node, ast.ImportFrom):
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            unsafe_names = [*(names & UNSAFE_CALLS), *({(node.module or "").split(".")[0]} & UNSAFE_MODULES)]
        elif isinstance(node, ast.Call):
            unsafe_names = [get_dotted_name(node.func)] if get_dotted_name(node.func) in UNSAFE_CALLS else []
            unsafe_keywords = {("allow_pickle", True), ("shell", True)}
            unsafe_names += [
                str(keyword.arg)
                for keyword in node.keywords
                if (keyword.arg, getattr(keyword.value, "value", None)) in unsafe_keywords
            ]
        else:
            continue
        yield from (f"line {node.lineno}: {name}" for name in unsafe_names)


def find_prints(tree: ast.AST) -> list[int]:
    """Returns the line numbers of calls of `print`."""
    return [
        node.lineno for node in ast.walk(tree) if isinstance(node, ast.Call) and get_dotted_name(node.func) == "print"
    ]


def find_removals(tree: ast.AST) -> list[int]:
    """Returns the line numbers of calls that remove a file or a folder."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [
        call.lineno
        for call in calls
        if getattr(call.func, "attr", getattr(call.func, "id", "")) in REMOVING_NAMES
        or get_dotted_name(call.func) == "os.remove"
    ]


def measure_lengths(path: Path) -> Iterator[tuple[str, int, int]]:
    """Yields (name, lines, limit) of the module and of the body of each function in it."""
    text = path.read_text(encoding="utf-8")
    name = get_relative_name(path)
    if name not in LONG_MODULES:
        yield name, len(text.splitlines()), MODULE_LINES
    limit = KERNEL_LINES if name.startswith("kernels/recurrence/gpu/") else FUNCTION_LINES
    for node in ast.walk(parse_source(path)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield f"{name}::{node.name}", (node.end_lineno or 0) - node.body[0].lineno + 1, limit


def list_project_files() -> list[Path]:
    folders = [ROOT / name for name in ("src", "tests", "docs", "benchmarks", "examples", ".ci")]
    inside = [path for folder in folders if folder.is_dir() for path in folder.rglob("*")]
    files = [
        path
        for path in [*ROOT.iterdir(), *inside]
        if path.is_file() and path.suffix in TEXT_SUFFIXES and path.name != ".git"  # a file in a git worktree
    ]
    return [path for path in files if "egg-info" not in str(path) and "__pycache__" not in path.parts]


def find_violations(check: Callable[[ast.AST], Iterable[object]], paths: Iterable[Path]) -> dict[str, list[object]]:
    """Returns file → what `check` finds in it, for the files in which it finds anything."""
    problems_by_file = {get_relative_name(path): list(check(parse_source(path))) for path in paths}
    return {name: problems for name, problems in problems_by_file.items() if problems}


def test_the_package_contains_no_unsafe_call():
    assert set(find_violations(find_unsafe_calls, list_sources())) == set(CODE_RUNNERS)


def test_the_library_does_not_print():
    assert find_violations(find_prints, [path for path in list_sources() if "cli" not in path.parts]) == {}


def test_one_module_removes_files():
    assert set(find_violations(find_removals, list_sources())) <= REMOVERS


@pytest.mark.parametrize("line", ["shutil.rmtree(a)", "rmtree(a)", "(a / b).unlink()", "os.remove(a)", "path.rmdir()"])
def test_the_check_detects_removals(line: str):
    assert find_removals(ast.parse(line)) == [1]
    assert find_removals(ast.parse("names.remove(a); remove(path, folder)")) == []


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from pickle import loads",
        "from torch import load",
        "torch.load(path)",
        "eval(text)",
        "exec(text)",
        "yaml.load(text)",
        "np.load(path, allow_pickle=True)",
        "subprocess.run(line, shell=True)",
        "dist.all_gather_object(lists, items)",
        "from torch.distributed import broadcast_object_list",
        "import multiprocessing as mp",
    ],
)
def test_the_check_detects_unsafe_calls(line: str):
    assert len(list(find_unsafe_calls(ast.parse(line)))) == 1


@pytest.mark.parametrize(
    "line", ["model.eval()", "yaml.safe_load(text)", "np.load(path)", "re.compile('a')", "load(x)"]
)
def test_the_check_accepts_safe_calls(line: str):
    assert list(find_unsafe_calls(ast.parse(line))) == []


def test_modules_and_functions_stay_short():
    lengths = [each for path in list_sources() for each in measure_lengths(path)]
    too_long = [f"{name}: {lines} lines, at most {limit}" for name, lines, limit in lengths if lines > limit]
    assert too_long == []


def test_no_file_has_a_meaningless_name():
    meaningless = re.compile(r"(utils?|helpers?|commons?|misc)", re.IGNORECASE)
    assert [
        path
        for path in (file.relative_to(ROOT) for file in list_project_files())
        if meaningless.fullmatch(path.stem) or meaningless.fullmatch(path.parent.name)
    ] == []


def test_no_file_contains_an_absolute_path_of_a_developer():
    local_path = re.compile(r"(?<![\w.~])/(home|root|work|Users)/")
    offenders = {
        str(path.relative_to(ROOT)): match[0]
        for path in list_project_files()
        if (match := local_path.search(path.read_text(encoding="utf-8", errors="replace")))
    }
    assert offenders == {}


def test_every_module_begins_with_a_docstring_and_postponed_annotations():
    offenders = []
    for path in list_sources():
        if get_relative_name(path).startswith(STUDENT_FILES):
            continue
        tree = parse_source(path)
        code = [node for node in tree.body if not isinstance(node, ast.Expr)]
        is_postponed = not code or "from __future__ import annotations" in ast.unparse(code[0])
        if tree.body and not (ast.get_docstring(tree) and is_postponed):
            offenders.append(get_relative_name(path))
    assert offenders == []
