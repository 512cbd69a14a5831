"""Every documented command exists with its documented options, and runs with the documented exit status.

Commands are the lines that begin with "$ " in fenced `console` blocks. The blocks of a page, `console` and `python`
alike, run in order in one temporary folder, so that a page may use what its earlier commands created. The folder has
a `book.txt`. Budgets in time are replaced by some thousand tokens. Not run, only parsed:

- lines that name $SEQWISE_DATA, and lines that end in the comment `# takes minutes` and have no budget to
  replace;
- make, pip and git, which would change this machine, and Python programs, which have tests of their own.

`# exit 2` at the end of a line says that the command is meant to fail.
"""

from __future__ import annotations

import importlib.util
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path

import pytest

from seqwise.cli.main import COMMANDS, main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Options that make a command short enough for a test; the last of two equal options takes effect.
SHORTER_OPTIONS = {
    "demo": ["--budget", "2s"],
    "compare": [
        *("--models", "rnn,gru", "--budget", "60k-tokens", "--seeds", "1", "--lr-trials", "1"),
        *("--data.valid-fraction", "0.01", "--data.test-fraction", "0.01"),
    ],
}
SKIPPED_PROGRAMS = {"make", "pip", "git", "python", "python3", "cd"}


def list_blocks(text: str) -> list[tuple[str, str]]:
    """Returns (language, content) of the fenced blocks of a page that can be run."""
    return re.findall(r"^```(console|python)\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


def split_commands(block: str) -> list[str]:
    """Returns the command lines of a `console` block, with continued lines joined."""
    lines = block.replace("\\\n", " ").splitlines()
    return [line.removeprefix("$ ").strip() for line in lines if line.startswith("$ ")]


def list_commands(text: str) -> list[str]:
    """Returns the command lines of all `console` blocks of a page."""
    return [line for language, block in list_blocks(text) if language == "console" for line in split_commands(block)]


def split_pipeline(line: str) -> list[list[str]]:
    """Returns the words of each command of a pipeline or list, without assigned variables and redirections."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    parts: list[list[str]] = [[]]
    for word in lexer:
        if set(word) <= set("|&;"):
            parts.append([])
        else:
            parts[-1].append(word)
    for part in parts:
        while part and re.fullmatch(r"[A-Z_]+=.*", part[0]):
            del part[0]
        redirections = [index for index, word in enumerate(part) if set(word) <= set("<>")]
        part[:] = part[: redirections[0] if redirections else None]
    return [part for part in parts if part]


def get_program(words: list[str]) -> str:
    return words[0].split("/")[-1]


@cache
def list_options(*command: str) -> frozenset[str]:
    """Returns the options on the help page of a command."""
    page = io.StringIO()
    with redirect_stdout(page):
        assert main([*command, "--help-all"]) == 0
    return frozenset(re.findall(r"--[a-z][\w.-]*", page.getvalue())) | {"--debug"}


def find_mistakes(words: list[str]) -> list[str]:
    """Returns what is wrong with a documented command; empty if nothing is, or if it is no command of this project."""
    rest = words[1:]
    if get_program(words) == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
        return [f"no target {word}" for word in rest if re.fullmatch(r"[a-z-]+", word) and word not in targets]
    if get_program(words) in ("python", "python3"):
        return [f"no file {word}" for word in rest if word.endswith(".py") and not (ROOT / word).exists()]
    if get_program(words) != "seqwise" or (rest and rest[0] in ("--help", "--version", "--print-completion")):
        return []
    if not rest or rest[0] not in COMMANDS:
        return [f"no command {' '.join(rest[:1])}"]
    depth = 2 if rest[0] in ("vectors", "lab") and rest[1:2] != ["--help"] else 1  # a command with subcommands
    if rest[:2] == ["lab", "run"] and re.match(r"[A-H]\d+\b(?! [A-H]\d*\b)", " ".join(rest[2:4])):
        depth = 3  # the parameters of one experiment
    used = {word.partition("=")[0].replace("_", "-") for word in rest[depth:] if word.startswith("--") and word != "--"}
    known = list_options(*rest[:depth])
    return [f"{' '.join(rest[:depth])} has no option {option}" for option in sorted(used - known)]


def shorten_budget(text: str) -> str:
    """Returns the command or program with a budget in time replaced by a small one in tokens."""
    return re.sub(r"""(\bbudget[ =]["']?)\d+[smhd]\b""", r"\g<1>3k-tokens", text)


def is_run(line: str) -> bool:
    is_skipped = any(get_program(words) in SKIPPED_PROGRAMS for words in split_pipeline(line))
    takes_minutes = re.search(r"# (takes )?minutes\s*$", line) and shorten_budget(line) == line
    return not (is_skipped or "$SEQWISE_DATA" in line or takes_minutes)


def parse_expected_status(line: str) -> int:
    match = re.search(r"# exit (\d+)\s*$", line)
    return int(match[1]) if match else 0


def run_line(line: str) -> int:
    """Runs a command line and returns its exit status; `seqwise` alone runs in this process, without a new import."""
    if get_program(split_pipeline(line)[0]) == "seqwise" and not set(line) & set("|&;<>$`*"):
        words = shlex.split(shorten_budget(line), comments=True)[1:]
        return main([*words, *SHORTER_OPTIONS.get(words[0], [])])
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-c", shorten_budget(line)], env={**os.environ, "PATH": path}, check=False
    ).returncode


def list_documented_commands() -> list[tuple[str, str]]:
    """Returns (page, command line) of all pages."""
    pages = [(page, page.read_text(encoding="utf-8")) for page in PAGES if page.exists()]
    return [(page.relative_to(ROOT).as_posix(), line) for page, text in pages for line in list_commands(text)]


def test_every_documented_command_exists_with_its_options():
    wrong = [
        f"{page}: {line}: {mistake}"
        for page, line in list_documented_commands()
        for words in split_pipeline(line)
        for mistake in find_mistakes(words)
    ]
    assert wrong == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.exists() and list_blocks(page.read_text(encoding="utf-8"))],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_commands_of_a_page_have_the_documented_exit_status(
    page: Path, book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO())  # a quiz gets no answers
    shutil.copy(book, "book.txt")
    namespace: dict[str, object] = {"__name__": page.stem}
    for language, block in list_blocks(page.read_text(encoding="utf-8")):
        if language == "python":
            exec(compile(shorten_budget(block), str(page), "exec"), namespace)
        for line in split_commands(block) if language == "console" else []:
            if is_run(line):
                assert (line, run_line(line)) == (line, parse_expected_status(line))


def test_every_link_leads_to_a_file():
    links = [(page, link) for page in PAGES for link in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))]
    assert [link for page, link in links if "://" not in link and not (page.parent / link).exists()] == []


@pytest.mark.parametrize("part", ["settings", "names", "records"])
def test_generated_tables_are_up_to_date(part: str):
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    page, text = generate.fill_part(part)
    assert page.read_text(encoding="utf-8") == text, "update it with: python docs/generate.py"


def test_commands_are_read_from_console_blocks_only():
    page = "```console\n$ seqwise doctor \\\n    --json\nready.\n```\n```python\n$ seqwise no\n```\n"
    assert [line.split() for line in list_commands(page)] == [["seqwise", "doctor", "--json"]]


@pytest.mark.parametrize(
    ("line", "runs"),
    [
        ("seqwise doctor", True),
        ("head -1 book.txt | seqwise predict runs/book -", True),
        ("seqwise train book.txt --budget 10m  # takes minutes", True),
        ("seqwise train book.txt --budget 3-epochs  # takes minutes", False),
        ("seqwise train book.txt --budget 3-epochs  # minutes", False),
        ("seqwise check $SEQWISE_DATA/ptb", False),
        ("seqwise check latin.txt  # exit 2", True),
        ("make demo", False),
        ("git clone somewhere && make install", False),
        (".venv/bin/pip install seqwise", False),
    ],
)
def test_slow_commands_and_those_that_change_the_machine_are_not_run(line: str, runs: bool):
    assert is_run(line) is runs


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("train book.txt --budget 5m --out runs/book", "train book.txt --budget 3k-tokens --out runs/book"),
        ('train("book.txt", budget="90s")', 'train("book.txt", budget="3k-tokens")'),
        ("--budget 20k-tokens", "--budget 20k-tokens"),
    ],
)
def test_time_budgets_are_shortened(text: str, short: str):
    assert shorten_budget(text) == short


def test_the_expected_exit_status_of_a_command_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    line = "seqwise check missing.txt  # exit 2"
    assert run_line(line) == parse_expected_status(line) == 2
    assert run_line("echo a b > words.txt") == 0
    assert (tmp_path / "words.txt").read_text() == "a b\n"


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("seqwise doctor --json", []),
        ("OMP_NUM_THREADS=1 .venv/bin/seqwise doctor --json | jq . > report.json", []),
        ("seqwise lab run C2 --coupling 0.1", []),
        ("seqwise lab run C10 C7 --slides", []),
        ("seqwise lab run C2 C7 --coupling 0.1", ["lab run has no option --coupling"]),
        ("seqwise doctr", ["no command doctr"]),
        ("seqwise doctor --jsn", ["doctor has no option --jsn"]),
        ("make test && make tset", ["no target tset"]),
        ("cat text.txt | seqwise nothing", ["no command nothing"]),
        ("python examples/00_nothing.py", ["no file examples/00_nothing.py"]),
    ],
)
def test_a_wrong_command_is_detected(line: str, wrong: list[str]):
    assert [mistake for words in split_pipeline(line) for mistake in find_mistakes(words)] == wrong
