"""The dispatcher: each kind of ending has its message and its exit status."""

from __future__ import annotations

import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

from seqwise.cli import main as cli
from seqwise.errors import DataError, SaveError


@pytest.fixture
def command(monkeypatch):
    """Installs a command `probe` that does what the test says, and returns a function that runs it."""

    def run(action, *words: str) -> int:
        module = ModuleType("seqwise.cli.probe")
        module.main = action  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "seqwise.cli.probe", module)
        monkeypatch.setitem(cli.COMMANDS, "probe", "for a test")
        return cli.main(["probe", *words])

    return run


def make_raising(error: BaseException):
    def action(argv):
        raise error

    return action


def test_help_lists_every_command_with_a_summary_and_ends_with_an_example(capsys):
    assert cli.main(["--help"]) == 0
    page = capsys.readouterr().out
    for name, purpose in cli.COMMANDS.items():
        assert f"  {name} " in page
        assert purpose in page
    assert page.rstrip().endswith(cli.EXAMPLE)


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_listed_command_has_a_module(name: str):
    assert find_spec(f"seqwise.cli.{name}") is not None


def test_the_help_of_every_command_ends_with_an_example_and_does_not_import_torch():
    code = (
        "import sys, io, contextlib, re\n"
        "from seqwise.cli.main import COMMANDS, main\n"
        "for name in COMMANDS:\n"
        "    page = io.StringIO()\n"
        "    with contextlib.redirect_stdout(page):\n"
        "        status = main([name, '--help'])\n"
        "    assert status == 0, name\n"
        "    assert re.search(rf'examples?:\\n  seqwise {name}', page.getvalue()), name\n"
        "    assert 'torch' not in sys.modules, name\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.stderr == ""
    assert result.returncode == 0


def test_help_imports_no_slow_package():
    """So that it is printed within half a second."""
    packages = ["torch", "numpy", "numba", "pydantic", "tyro", "yaml", "safetensors"]
    code = (
        f"import sys\nfrom seqwise.cli.main import main\nmain(['--help'])\nassert not sys.modules.keys() & {packages}"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.stderr == ""
    assert result.returncode == 0


def test_without_a_command_the_overview_is_printed_and_the_status_is_two(capsys):
    assert cli.main([]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "usage: seqwise COMMAND" in captured.err


def test_version_is_printed(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"seqwise {cli.get_version()}\n"


def test_an_unknown_command_suggests_the_most_similar(capsys):
    assert cli.main(["doctr"]) == 2
    captured = capsys.readouterr()
    assert captured.err == "error: unknown command 'doctr'.\nPerhaps you meant 'doctor'. See seqwise --help.\n"
    assert captured.out == ""


def test_an_unknown_option_suggests_the_most_similar(capsys):
    assert cli.main(["--versoin"]) == 2
    assert "unknown option '--versoin'.\nPerhaps you meant '--version'." in capsys.readouterr().err


def test_a_command_gets_its_arguments_and_returns_the_exit_status(command):
    received: list[str] = []
    assert command(lambda argv: received.extend(argv) or 1, "a", "--b") == 1
    assert received == ["a", "--b"]


@pytest.mark.parametrize(("error", "status"), [(DataError("p"), 2), (SaveError("p"), 1)])
def test_seqwise_errors_have_their_exit_status(command, error, status):
    assert command(make_raising(error)) == status


def test_an_error_is_not_read_as_markup_and_not_wrapped(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    path = "a/rather/long/path/[bold]with/brackets[/bold]/:smile:/that/goes/on/and/on.txt"
    assert command(make_raising(DataError("is empty.", fix="Write something.", file=path, line=3))) == 2
    assert capsys.readouterr().err == f"error: {path}:3: is empty.\nWrite something.\n"


def test_an_unexpected_error_is_one_line_without_traceback(command, capsys):
    assert command(make_raising(ZeroDivisionError("division by zero"))) == 1
    message = capsys.readouterr().err
    assert message.startswith("error: unexpected ZeroDivisionError: division by zero\n")
    assert "--debug" in message
    assert "Traceback" not in message


@pytest.mark.parametrize("words", [("--debug",), ("x", "--debug"), ("--debug", "--", "y")])
def test_debug_anywhere_shows_the_traceback(command, capsys, words):
    assert command(make_raising(ZeroDivisionError("division by zero")), *words) == 1
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_debug_after_two_dashes_belongs_to_the_command(command):
    received: list[str] = []
    assert command(lambda argv: received.extend(argv) or 0, "--debug", "--", "--debug") == 0
    assert received == ["--", "--debug"]


def test_a_seqwise_error_keeps_its_status_with_debug(command, capsys):
    assert command(make_raising(DataError("p")), "--debug") == 2
    assert "Traceback" in capsys.readouterr().err


def test_an_interrupt_is_a_short_line_and_status_130(command, capsys):
    assert command(make_raising(KeyboardInterrupt())) == 130
    assert capsys.readouterr().err == "interrupted.\n"


def test_ctrl_c_while_a_lock_is_taken_is_no_bug(command, capsys):
    def release_without_acquiring(argv):
        lock = threading.Lock()
        try:
            raise KeyboardInterrupt
        finally:
            lock.release()

    assert command(release_without_acquiring) == 130
    assert capsys.readouterr().err == "interrupted.\n"


def test_an_error_after_another_one_is_reported(command, capsys):
    def fail_twice(argv):
        try:
            raise ValueError("first")
        finally:
            raise RuntimeError("second")

    assert command(fail_twice) == 1
    assert "unexpected RuntimeError: second" in capsys.readouterr().err


def test_a_missing_package_is_reported_with_its_install_command(command, capsys):
    assert command(make_raising(ModuleNotFoundError("No module named 'torch'", name="torch"))) == 1
    assert "the package 'torch' is missing.\nRun " in capsys.readouterr().err


@pytest.mark.parametrize(("code", "status"), [(0, 0), (None, 0), (2, 2), ("text", 1)])
def test_a_command_may_raise_system_exit(command, code, status):
    assert command(make_raising(SystemExit(code))) == status


def test_a_closed_pipe_is_not_an_error():
    code = (
        "import sys, types\n"
        "from seqwise.cli import console, main as cli\n"
        "probe = types.ModuleType('seqwise.cli.probe')\n"
        "probe.main = lambda argv: [console.write('x' * 1000) for _ in range(10_000)] and 0\n"
        "sys.modules['seqwise.cli.probe'] = probe\n"
        "cli.COMMANDS['probe'] = ''\n"
        "sys.exit(cli.main(['probe']))\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.readline()
        child.stdout.close()
        assert child.stderr.read() == b""
    assert child.returncode == 141


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["train", "--help"],
        ["train", "--help-all"],
        pytest.param(["doctor", "--json"], marks=pytest.mark.slow),
    ],
)
def test_a_full_disk_behind_standard_output_is_not_a_bug(words):
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [sys.executable, "-m", "seqwise", *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert result.returncode == 1
    assert result.stderr == (
        "error: cannot write to standard output: No space left on device.\nRedirect it to another file or disk.\n"
    )


def test_a_pipe_closed_before_the_first_line_is_not_an_error():
    command = [sys.executable, "-m", "seqwise", "train", "--help-all"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        assert child.stderr.read() == b""
    assert child.returncode == cli.BROKEN_PIPE


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (MemoryError(), "there is not enough memory.\nUse a smaller file, model (--network.width) or batch"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried …"), "there is not enough memory.\nUse a"),
        (RecursionError("maximum recursion depth exceeded"), "the input is nested too deeply.\nUse a file with fewer"),
    ],
)
def test_too_little_memory_and_deep_nesting_are_not_bugs(command, capsys, error: Exception, message: str):
    assert command(make_raising(error)) == 1
    printed = capsys.readouterr().err
    assert printed.startswith(f"error: {message}")
    assert "bug" not in printed
