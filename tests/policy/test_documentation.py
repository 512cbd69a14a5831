"""Every documented command exists with the options it is shown with. (Whether it does what the page says is tested
where the commands are tested.)

Commands are the lines that begin with "$ " in fenced `console` blocks.
"""

from __future__ import annotations

import io
import re
import shlex
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path

import pytest

from seqwise.cli.main import COMMANDS, main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def documented(text: str) -> list[str]:
    """The command lines of a page, with continued lines joined."""
    blocks = re.findall(r"^```console\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [line.removeprefix("$ ").strip() for line in lines if line.startswith("$ ")]


def simple_commands(line: str) -> list[list[str]]:
    """The words of each part of a pipeline or list, without variables set in front and without redirections."""
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
        part[:] = part[: next((at for at, word in enumerate(part) if set(word) <= set("<>")), len(part))]
    return [part for part in parts if part]


@cache
def options_of(command: str) -> frozenset[str]:
    """The options on the help page of a command."""
    page = io.StringIO()
    with redirect_stdout(page):
        assert main([command, "--help"]) == 0
    return frozenset(re.findall(r"--[a-z][\w.-]*", page.getvalue())) | {"--debug"}


def mistakes(words: list[str]) -> list[str]:
    """What is wrong with a documented command; empty if nothing is, or if it is not ours."""
    program, *rest = words
    if program == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
        return [f"no target {word}" for word in rest if re.fullmatch(r"[a-z-]+", word) and word not in targets]
    if program.split("/")[-1] != "seqwise" or (rest and rest[0] in ("--help", "--version")):
        return []
    if not rest or rest[0] not in COMMANDS:
        return [f"no command {' '.join(rest[:1])}"]
    used = {word.partition("=")[0].replace("_", "-") for word in rest[1:] if word.startswith("--") and word != "--"}
    return [f"{rest[0]} has no option {option}" for option in sorted(used - options_of(rest[0]))]


def shown() -> list[tuple[str, str]]:
    pages = [(page, page.read_text(encoding="utf-8")) for page in PAGES if page.exists()]
    return [(page.relative_to(ROOT).as_posix(), line) for page, text in pages for line in documented(text)]


@pytest.mark.parametrize(("page", "line"), shown())
def test_a_documented_command_exists_with_its_options(page: str, line: str):
    assert [mistake for words in simple_commands(line) for mistake in mistakes(words)] == []


def test_commands_are_read_from_console_blocks_only():
    page = "```console\n$ seqwise doctor \\\n    --json\nready.\n```\n```python\n$ seqwise no\n```\n"
    assert [line.split() for line in documented(page)] == [["seqwise", "doctor", "--json"]]


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("seqwise doctor --json", []),
        ("OMP_NUM_THREADS=1 .venv/bin/seqwise doctor --json | jq . > report.json", []),
        ("seqwise doctr", ["no command doctr"]),
        ("seqwise doctor --jsn", ["doctor has no option --jsn"]),
        ("make test && make tset", ["no target tset"]),
        ("cat text.txt | seqwise nothing", ["no command nothing"]),
    ],
)
def test_a_wrong_command_is_noticed(line: str, wrong: list[str]):
    assert [mistake for words in simple_commands(line) for mistake in mistakes(words)] == wrong
