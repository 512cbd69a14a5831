"""`builtin:code` for tagging: lines of Python's standard library, in which each token is tagged with its kind.

The kind of most tokens can be read from the token itself. The kind of a name cannot: `value` may be a variable, a
parameter, an attribute, a keyword argument or a call, depending on the tokens around it. The true kinds come from
Python's own parser. The module knows nothing of splits or models.
"""

from __future__ import annotations

import ast
import io
import keyword
import sysconfig
import token as token_types
import tokenize
from collections.abc import Iterator
from pathlib import Path

from seqwise.errors import DataError
from seqwise.tasks.tag.spans import Sentence

MAX_BYTES = 500_000  # of all source that is read
MAX_MODULE_BYTES = 30_000  # of one module, so that many modules are read
MIN_TOKENS = 3  # of a line

Position = tuple[int, int]  # (line, byte offset in the line)
_SKIPPED_TYPES = (token_types.INDENT, token_types.DEDENT, token_types.NL, token_types.ENDMARKER, token_types.ENCODING)
# Since Python 3.12 a formatted string is several tokens; here it is one, as before.
_STRING_STARTS = {getattr(token_types, f"{letter}STRING_START", None) for letter in "FT"} - {None}
_STRING_ENDS = {getattr(token_types, f"{letter}STRING_END", None) for letter in "FT"} - {None}


def read_code_lines() -> list[Sentence]:
    """Returns the distinct lines of the smaller top-level modules, sorted by module, up to MAX_BYTES of source."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    lines: dict[tuple[str, ...], Sentence] = {}
    bytes_left = MAX_BYTES
    for path in sorted(folder.glob("*.py")):
        if path.stat().st_size > min(MAX_MODULE_BYTES, bytes_left):
            continue
        try:
            with tokenize.open(path) as file:
                source = file.read()
            module_lines = list(tokenize_module(source, f"builtin:code/{path.name}"))
        except (OSError, SyntaxError, UnicodeDecodeError, tokenize.TokenError):
            continue
        bytes_left -= len(source.encode())
        for line in module_lines:
            lines.setdefault(line.words, line)
    if not lines:
        raise DataError("this Python has no source of its standard library.", fix="Pass a file.", file=folder)
    return list(lines.values())


def tokenize_module(source: str, file: str) -> Iterator[Sentence]:
    """Yields the logical lines of a module with at least MIN_TOKENS tokens; a docstring has only one."""
    name_kinds = find_name_kinds(ast.parse(source))
    source_lines = io.StringIO(source).readlines()  # as tokenize does; `splitlines` would also split at form feeds
    tokens: list[tuple[str, str]] = []
    first_line = string_depth = 0
    string_start = (0, 0)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in _STRING_STARTS:
            string_start = string_start if string_depth else token.start
            string_depth += 1
        elif token.type in _STRING_ENDS:
            string_depth -= 1
            if not string_depth:
                lines = source_lines[string_start[0] - 1 : token.end[0]]
                lines[-1] = lines[-1][: token.end[1]]
                lines[0] = lines[0][string_start[1] :]
                tokens.append(("".join(lines), "string"))
        elif string_depth or token.type in _SKIPPED_TYPES:
            continue
        elif token.type == token_types.NEWLINE:
            if len(tokens) >= MIN_TOKENS:
                words, kinds = zip(*tokens)
                yield Sentence(words, kinds, file, first_line)
            tokens = []
        elif token.type != token_types.COMMENT or tokens:  # a comment on a line of its own is skipped
            first_line = first_line if tokens else token.start[0]
            tokens.append((token.string, _get_kind(token, name_kinds, source_lines)))


def find_code_tokens(text: str) -> list[tuple[int, int]] | None:
    """Returns (start, end) of each token of one line of code, or None if Python cannot tokenise it."""
    offsets = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.string.strip() and token.start[0] == token.end[0] == 1:
                offsets.append((token.start[1], token.end[1]))
    except (SyntaxError, tokenize.TokenError):
        pass  # an open bracket at the end; the tokens before it count
    ends = [0, *(end for _, end in offsets)]
    starts = [*(start for start, _ in offsets), len(text)]
    covers_text = all(not text[end:start].strip() for end, start in zip(ends, starts))
    return offsets if covers_text else None


def _get_kind(token: tokenize.TokenInfo, name_kinds: dict[Position, str], source_lines: list[str]) -> str:
    if token.type == token_types.NAME:
        line, column = token.start
        byte_offset = len(source_lines[line - 1][:column].encode())  # the parser counts bytes
        return "keyword" if keyword.iskeyword(token.string) else name_kinds.get((line, byte_offset), "variable")
    kinds = {token_types.NUMBER: "number", token_types.STRING: "string", token_types.COMMENT: "comment"}
    return kinds.get(token.type, "operator")


def find_name_kinds(tree: ast.Module) -> dict[Position, str]:
    """Returns the kind of each name of a module by its position, such as function, call, attribute or variable."""
    kinds: dict[Position, str] = {}
    modules = {
        (alias.asname or alias.name).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    for node in _walk(tree):
        _add_name_kinds(node, kinds, modules)
    return kinds


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """Yields all nodes, parents first, without the nodes inside formatted strings, which are one token."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.JoinedStr):
            yield from _walk(child)


def _add_name_kinds(node: ast.AST, kinds: dict[Position, str], modules: set[str]) -> None:
    """Adds the kinds of the names of a node, without its children. The kind that a parent has added stays."""
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name):
            kinds[_get_start(node.func)] = "call"
        elif isinstance(node.func, ast.Attribute):
            kinds[_get_attribute_start(node.func)] = "method"
        for argument in node.keywords:
            if argument.arg is not None:
                kinds[_get_start(argument)] = "argument"
    elif isinstance(node, ast.Attribute):
        kinds.setdefault(_get_attribute_start(node), "attribute")
    elif isinstance(node, ast.Name):
        kinds.setdefault(_get_start(node), "module" if node.id in modules else "variable")
    elif isinstance(node, ast.arg):
        kinds[_get_start(node)] = "parameter"
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        kinds[_get_start(node, after="def " if isinstance(node, ast.FunctionDef) else "async def ")] = "function"
    elif isinstance(node, ast.ClassDef):
        kinds[_get_start(node, after="class ")] = "class"
    elif isinstance(node, ast.Import | ast.ImportFrom):
        if isinstance(node, ast.ImportFrom) and not node.level:
            kinds[_get_start(node, after="from ")] = "module"
        for alias in node.names:
            kinds[_get_start(alias)] = "module" if isinstance(node, ast.Import) else "imported"


def _get_start(node: ast.expr | ast.stmt | ast.alias | ast.arg | ast.keyword, after: str = "") -> Position:
    """Returns where a node begins, or where the text `after` at its beginning ends."""
    return node.lineno, node.col_offset + len(after)


def _get_attribute_start(node: ast.Attribute) -> Position:
    """Returns where the name after the dot begins."""
    return node.end_lineno or 0, (node.end_col_offset or 0) - len(node.attr.encode())
