"""`builtin:code` for tagging: lines of Python's own standard library, each token with its kind.

Most kinds can be seen in the token. What a name is cannot: `value` may be a variable, a parameter, an attribute, a
keyword argument or what is called, and only the tokens around it tell. The truth comes from Python's own parser.
It knows nothing of splits or models.
"""

from __future__ import annotations

import ast
import io
import keyword
import sysconfig
import token as kinds
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from seqwise.errors import DataError

BYTES = 500_000  # of source that are read
MOST = 30_000  # bytes of one module, so that there are many
FEWEST = 3  # tokens of a line

Places = dict[tuple[int, int], str]  # (line, byte in it) → kind of the name that begins there
_PASSED_OVER = {kinds.INDENT, kinds.DEDENT, kinds.NL, kinds.ENDMARKER, kinds.ENCODING}
# From Python 3.12 on a formatted string is several tokens; here it is one, as before.
_OPENS = {getattr(kinds, name) for name in ("FSTRING_START", "TSTRING_START") if hasattr(kinds, name)}
_CLOSES = {getattr(kinds, name) for name in ("FSTRING_END", "TSTRING_END") if hasattr(kinds, name)}


@dataclass(frozen=True)
class CodeLine:
    """A logical line: (token, kind) in order, and where it begins."""

    tokens: tuple[tuple[str, str], ...]
    file: str
    line: int


def code_lines() -> list[CodeLine]:
    """Different lines of the smaller top-level modules, in sorted order, up to BYTES of source."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    found: dict[tuple[str, ...], CodeLine] = {}
    left = BYTES
    for path in sorted(folder.glob("*.py")):
        if path.stat().st_size > min(MOST, left):
            continue
        try:
            with tokenize.open(path) as file:
                text = file.read()
            lines = list(lines_of(text, f"builtin:code/{path.name}"))
        except (OSError, SyntaxError, UnicodeDecodeError, tokenize.TokenError):
            continue
        left -= len(text.encode())
        for line in lines:
            found.setdefault(tuple(word for word, _ in line.tokens), line)
    if not found:
        raise DataError("this Python has no source of its standard library.", repair="Give a file.", file=folder)
    return list(found.values())


def lines_of(text: str, file: str) -> Iterator[CodeLine]:
    """The logical lines of a module; those of one or two tokens, docstrings among them, are left out."""
    names = name_kinds(ast.parse(text))
    source = io.StringIO(text).readlines()  # the lines that tokenize counts: a form feed ends none
    line: list[tuple[str, str]] = []
    first, inside, opened = 0, 0, (0, 0)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in _OPENS:
            opened = opened if inside else token.start
            inside += 1
        elif token.type in _CLOSES:
            inside -= 1
            if not inside:
                line.append((_between(source, opened, token.end), "string"))
        elif inside or token.type in _PASSED_OVER:
            continue
        elif token.type == kinds.NEWLINE:
            if len(line) >= FEWEST:
                yield CodeLine(tuple(line), file, first)
            line = []
        elif token.type != kinds.COMMENT or line:  # a comment alone in its line belongs to none
            first = first if line else token.start[0]
            line.append((token.string, _kind(token, names, source)))


def words_of(text: str) -> list[tuple[int, int]] | None:
    """(begin, end) of each token of one line of code, None where it cannot be read as Python."""
    found = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.string.strip() and token.start[0] == token.end[0] == 1:
                found.append((token.start[1], token.end[1]))
    except (SyntaxError, tokenize.TokenError):
        pass  # an open bracket at the end; what was read until there counts
    ends = [0, *(end for _, end in found)]
    begins = [*(begin for begin, _ in found), len(text)]
    whole = all(not text[end:begin].strip() for end, begin in zip(ends, begins))
    return found if whole else None


def _between(source: list[str], begin: tuple[int, int], end: tuple[int, int]) -> str:
    if begin[0] == end[0]:
        return source[begin[0] - 1][begin[1] : end[1]]
    middle = source[begin[0] : end[0] - 1]
    return "".join([source[begin[0] - 1][begin[1] :], *middle, source[end[0] - 1][: end[1]]])


def _kind(token: tokenize.TokenInfo, names: Places, source: list[str]) -> str:
    if token.type == kinds.NAME:
        row, column = token.start
        byte = len(source[row - 1][:column].encode())  # the parser counts bytes
        return "keyword" if keyword.iskeyword(token.string) else names.get((row, byte), "variable")
    return {kinds.NUMBER: "number", kinds.STRING: "string", kinds.COMMENT: "comment"}.get(token.type, "operator")


def name_kinds(tree: ast.Module) -> Places:
    """What each name of a module is: where it is defined, called, imported, looked up in another, or just used."""
    found: Places = {}
    modules = {
        (alias.asname or alias.name).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    for node in _walk(tree):
        _note(node, found, modules)
    return found


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes, outer ones first, without the inside of formatted strings: it has no tokens."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.JoinedStr):
            yield from _walk(child)


def _note(node: ast.AST, found: Places, modules: set[str]) -> None:
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name):
            found[node.func.lineno, node.func.col_offset] = "call"
        elif isinstance(node.func, ast.Attribute):
            found[_end_of(node.func)] = "method"
        for argument in node.keywords:
            if argument.arg is not None:
                found[argument.lineno, argument.col_offset] = "argument"
    elif isinstance(node, ast.Attribute):
        found.setdefault(_end_of(node), "attribute")
    elif isinstance(node, ast.Name):
        found.setdefault((node.lineno, node.col_offset), "module" if node.id in modules else "variable")
    elif isinstance(node, ast.arg):
        found[node.lineno, node.col_offset] = "parameter"
    elif isinstance(node, ast.FunctionDef):
        found[node.lineno, node.col_offset + len("def ")] = "function"
    elif isinstance(node, ast.AsyncFunctionDef):
        found[node.lineno, node.col_offset + len("async def ")] = "function"
    elif isinstance(node, ast.ClassDef):
        found[node.lineno, node.col_offset + len("class ")] = "class"
    elif isinstance(node, ast.Import):
        for alias in node.names:
            found[alias.lineno, alias.col_offset] = "module"
    elif isinstance(node, ast.ImportFrom):
        if not node.level:
            found[node.lineno, node.col_offset + len("from ")] = "module"
        for alias in node.names:
            found[alias.lineno, alias.col_offset] = "imported"


def _end_of(node: ast.Attribute) -> tuple[int, int]:
    """Where the name behind the dot begins."""
    return node.end_lineno or 0, (node.end_col_offset or 0) - len(node.attr.encode())
