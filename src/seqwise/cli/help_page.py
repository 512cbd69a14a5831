"""The page of `--help`: one screen with the main options and examples, extracted from tyro's page of all options."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterator, Sequence

PAGE_WIDTH = 100  # of tyro's page: on a wider one its options are in two columns
MAX_WIDTH = 110
MAX_NAME_WIDTH = 19  # the help text of an option with a longer name begins on the next line
MAX_TEXT = 75  # characters of a help text; of a longer one the page has the first sentence

_OMITTED_HINTS = re.compile(r"\((?:default: (?:chosen automatically|False|''|None)|required)\)")


def format_help(page: str, prog: str, main_options: Sequence[str] = ()) -> str:
    """Returns the help of a command: usage, description, arguments, and `main_options` or else all options."""
    description = page.partition("\n\n positional arguments ")[0].partition("\n\n options ")[0].partition("\n\n")[2]
    entries = dict(_read_entries(page))
    arguments = [name for name in entries if not name.startswith("-")]
    options = {name.split()[0].rstrip(","): name for name in entries if name.startswith("--")}
    shown = [options[f"--{name}"] for name in main_options] or list(options.values())
    width = min(MAX_WIDTH, shutil.get_terminal_size().columns)
    lines = [" ".join(["usage:", prog, "[OPTIONS]", *arguments])]
    for paragraph in description.strip().split("\n\n"):
        lines += ["", *textwrap.wrap(paragraph, width)]
    lines.append("")
    for name in [*arguments, *shown]:
        lines += _format_entry(*_shorten(name, entries[name]), width)
    rest = len(options) - len(shown)
    others = "option" if rest == 1 else f"{rest} options"
    what = f"the other {others}, with all defaults" if rest else "all defaults"
    return "\n".join([*lines, "", f"{prog} --help-all shows {what}."])


def format_examples(examples: str) -> str:
    """Returns the lines of `examples` with a title."""
    lines = examples.splitlines()
    return "\n".join(["", f"example{'s' * (len(lines) > 1)}:", *(f"  {line}" for line in lines)])


def _read_entries(page: str) -> Iterator[tuple[str, str]]:
    """Yields the arguments and options of tyro's page, each with its help text."""
    _, *sections = re.split(r"^ (\S.*?) *\n -+ *\n", page, flags=re.MULTILINE)
    for title, content in zip(sections[::2], sections[1::2]):
        start = r"\S" if title == "positional arguments" else "--[a-z]"
        for entry in re.split(rf"^  (?={start})", content, flags=re.MULTILINE)[1:]:
            name, _, text = re.sub(r" *\n", "\n", entry).replace("\n", "   ").partition("  ")
            yield name, _OMITTED_HINTS.sub("", " ".join(text.split())).strip()


def _shorten(name: str, text: str) -> tuple[str, str]:
    """Returns an option with a short placeholder for its choices, and its help text in a line or two.

    Of a switch only the form that turns it on is shown.
    """
    name = name.partition(", --")[0]
    text, _, default = text.partition(" (default: ")
    option, _, listed = name.partition(" {")
    choices = listed.rstrip("}").split(",")
    is_explained = bool(listed) and all(choice in text for choice in choices)
    if len(text) > MAX_TEXT and not is_explained:
        text = re.split(r"[.;] ", text)[0].rstrip(".") + "."
    if len(name) > MAX_NAME_WIDTH and listed:
        name = f"{option} {option.rpartition('.')[2].strip('-').upper()}"
        text = text if is_explained else f"{text.rstrip('.')} ({', '.join(choices)})."
    return name, f"{text} (default: {default}" if default else text


def _format_entry(name: str, text: str, width: int) -> list[str]:
    """Returns the lines of an option: its name, and its help text in the column beside it."""
    lines = textwrap.wrap(text, width - MAX_NAME_WIDTH - 4) or [""]
    indent = " " * (MAX_NAME_WIDTH + 4)
    if len(name) > MAX_NAME_WIDTH:
        return [f"  {name}", *(indent + line for line in lines)]
    return [f"  {name:{MAX_NAME_WIDTH}}  {lines[0]}".rstrip(), *(indent + line for line in lines[1:])]
