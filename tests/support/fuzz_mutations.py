"""Mutations of small valid files, from a seeded random generator: the same seed gives the same bytes.

Half of the inputs are damaged as bytes; the others are damaged inside their format (a value of a JSON tree, the header
of an array, a member of an archive), so that they pass the first checks of a reader.
"""

from __future__ import annotations

import gzip
import io
import json
import random
import zipfile
from collections.abc import Callable, Sequence
from typing import Any

import yaml

DEEP = "@deep@"  # replaced in the text by many brackets: a tree this deep cannot be serialised
DEPTHS = (30, 1_000, 20_000, 100_000)
NUMBERS = (-1, 0, 1, 255, 65_536, 2**31, 2**32, 2**53, 2**63, 2**64, 10**9, 10**12, 10**30, -(10**12), 0.5, -0.0)
SPECIAL_NUMBERS = (1e308, -1e308, 1e-320, float("nan"), float("inf"), -float("inf"))
TEXTS = (
    "",
    " ",
    "a",
    "\0",
    "\n",
    "../../x",
    "/etc/passwd",
    "nan",
    "-1",
    "\x1b[31m",
    "\u202e",
    "\ufeff",
    "\ud800",
    "9" * 5000,
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, [], {}, [[]], [None], {"": None}, [1, "a"], {"a": {"b": []}}),
    *NUMBERS,
    *SPECIAL_NUMBERS,
    *TEXTS,
    "x" * 100_000,
    [0] * 10_000,
    DEEP,
)
LENGTHS = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 2**62, 2**63, 2**64 - 1)
WORDS: dict[str, tuple[bytes, ...]] = {
    "text": (
        *(b"\n", b"\r", b"\r\n", b"\t", b"\0", b" ", b",", b";"),
        *(b"|", b'"', b'""', b"'", b"\\", b"=1+1", b"#", b"\x1b[2J"),
        *(b"\xff", b"\xfe", b"\xef\xbb\xbf", b"\xff\xfe"),
        *(b"\xc3\x28", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\x80\x04"),
        *("\u202e".encode(), "\u2028".encode(), "\x85".encode(), "\U0001f600".encode(), b"e\xcc\x81" * 50),
        *(b"nan", b"inf", b"-1", b"1e400", b"9" * 400, b"0x1p-1074", b"1_000"),
        *(b"text", b"label", b"null", b"B-PER", b"I-", b"O"),
        *(b"-DOCSTART-", b"2024-02-30", b"0000-00-00"),
        *(b"9999-12-31 25:61", b"10000-01-01", b"1970-01-01T00:00:00+99:99"),
    ),
    "json": (
        *(b"{", b"}", b"[", b"]", b":", b",", b'"'),
        *(b"\\u0000", b"\\ud800", b"null", b"true", b"NaN", b"-Infinity", b"1e999"),
    ),
    "yaml": (
        *(b"!!python/object/apply:os.system [id]", b"!!python/name:os.system", b"!!binary aGk="),
        *(b"!!set", b"!!timestamp 9"),
        *(b"&a [*a]", b"*a", b"<<: *a", b": ", b"- ", b"? ", b"|"),
        *(b">", b"---\n", b"...\n", b"%YAML 9.9\n", b"0o7", b"1:60", b"~"),
    ),
    "python": (
        *(b"'''", b'"""', b"(" * 300, b"\\", b"def ", b"lambda:", b"..."),
        *(b"import os", b"\0", b"f'{", b"0o9", b"1_", b"-" * 3000),
    ),
    "xml": (
        *(b"<!DOCTYPE a [<!ENTITY b 'c'>]>", b"&b;", b"<", b">"),
        *(b"</row>", b"<row r='1048577'>", b"<c r='XFD1048576'><v>1</v></c>"),
        *(b"<c r='A0'/>", b"<c r='ZZZZZ9' t='s'><v>999999</v></c>", b"t='d'", b"t='e'"),
        *(b"t='inlineStr'", b"r='-1'", b"xmlns=''"),
    ),
    "header": (
        *(b"(1000000000000,)", b"(-1,)", b"(0,)", b"()", b"'|O'"),
        *(b"'<f8'", b"'<U1000000000'", b"'|V2147483647'", b"'<M8[ns]'"),
        *(b"[('a','<i4')]", b"True", b"(" * 200, b"__import__('os')", b"{", b"'shape'", b"99999999999999999999"),
    ),
}  # fmt: skip


def mutate(data: bytes, form: str, generator: random.Random) -> bytes:
    """Returns a damaged copy of a file in the format `form`."""
    choice = generator.random()
    if choice < 0.06:
        return generate_nonsense(form, generator)
    if choice < 0.5 or form not in STRUCTURED:
        return mutate_bytes(data, form, generator)
    try:
        return STRUCTURED[form](data, generator)
    except Exception:  # an earlier change has damaged the structure: a line of JSON, a member of an archive
        return mutate_bytes(data, form, generator)


def mutate_bytes(data: bytes, form: str, generator: random.Random) -> bytes:
    """Returns the bytes after one to five random changes, often one: the rest stays valid and is read further."""
    for _ in range(generator.choice((1, 1, 1, 2, 3, 5))):
        data = generator.choice(_BYTE_CHANGES)(data, form, generator)
    return data[: 1 << 20]


def generate_nonsense(form: str, generator: random.Random) -> bytes:
    """Returns bytes that have little to do with a valid file."""
    words = get_words(form)
    kind = generator.randrange(6)
    if kind == 0:
        return b""
    if kind == 1:
        return generator.randbytes(generator.choice((1, 7, 64, 4096)))
    if kind == 2:
        return generator.choice((b"[", b"(", b'{"a":', b"- ", b"[[", b"<a>", b"{")) * generator.choice(DEPTHS)
    if kind == 3:
        return "".join(
            chr(generator.choice((9, 10, 32, 65, 0x301, 0x202E, 0x4E00, 0x1F600))) for _ in range(300)
        ).encode(generator.choice(("utf-8", "utf-16", "utf-32", "utf-7")))
    if kind == 4:
        return generator.choice(words) * generator.choice((1, 100, 3000))
    return b"".join(generator.choice(words) for _ in range(generator.randint(1, 200)))


def get_words(form: str) -> tuple[bytes, ...]:
    """Returns strings that have a meaning in a format."""
    extra = {"jsonl": "json", "zip": "xml", "npy": "header", "safetensors": "json"}.get(form, form)
    return WORDS["text"] + (WORDS.get(extra, ()) if extra != "text" else ())


def strip_digests(data: bytes, form: str) -> bytes:
    """Returns a file as versions without digests wrote it: damage to it is not detected by a digest."""
    if form == "json":
        content = json.loads(data)
        if not isinstance(content, dict):
            return data
        return json.dumps({key: each for key, each in content.items() if key not in ("blake2b", "digests")}).encode()
    if form == "safetensors":
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + size])
        header.get("__metadata__", {}).pop("blake2b", None)
        text = json.dumps(header).encode()
        return len(text).to_bytes(8, "little") + text + data[8 + size :]
    return data


# Changes of bytes


def _flip_bits(data: bytes, form: str, generator: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(generator.choice((1, 1, 2, 16)) if data else 0):
        changed[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
    return bytes(changed)


def _truncate(data: bytes, form: str, generator: random.Random) -> bytes:
    return data[: generator.randint(0, len(data))]


def _remove(data: bytes, form: str, generator: random.Random) -> bytes:
    start, stop = _choose_range(data, generator)
    return data[:start] + data[stop:]


def _repeat(data: bytes, form: str, generator: random.Random) -> bytes:
    start, stop = _choose_range(data, generator)
    return data[:stop] + data[start:stop] * generator.choice((1, 2, 50)) + data[stop:]


def _splice(data: bytes, form: str, generator: random.Random) -> bytes:
    (start, stop), (first, last) = _choose_range(data, generator), _choose_range(data, generator)
    return data[:start] + data[first:last] + data[stop:]


def _insert_word(data: bytes, form: str, generator: random.Random) -> bytes:
    position = generator.randint(0, len(data))
    return data[:position] + generator.choice(get_words(form)) + data[position:]


def _insert_long(data: bytes, form: str, generator: random.Random) -> bytes:
    position = generator.randint(0, len(data))
    return data[:position] + generator.choice((b"x", b"\0", b" ", b"9", b'"', b"[")) * 100_000 + data[position:]


def _overwrite_length(data: bytes, form: str, generator: random.Random) -> bytes:
    size = generator.choice((1, 2, 4, 8))
    number = generator.choice(LENGTHS) % (1 << (8 * size))
    position = generator.randint(0, min(len(data), generator.choice((16, 64, 1 << 20))))
    return data[:position] + number.to_bytes(size, generator.choice(("little", "big"))) + data[position + size :]


def _replace_number(data: bytes, form: str, generator: random.Random) -> bytes:
    digits = [index for index, byte in enumerate(data[:100_000]) if 48 <= byte <= 57]
    if not digits:
        return data
    index = generator.choice(digits)
    return data[:index] + str(generator.choice(NUMBERS + SPECIAL_NUMBERS)).encode() + data[index + 1 :]


_BYTE_CHANGES: Sequence[Callable[[bytes, str, random.Random], bytes]] = (
    *(_flip_bits, _flip_bits, _truncate, _remove, _repeat, _splice),
    *(_insert_word, _insert_word, _insert_word, _insert_long, _overwrite_length, _replace_number, _replace_number),
)


def _choose_range(data: bytes, generator: random.Random) -> tuple[int, int]:
    start = generator.randint(0, len(data))
    return start, min(len(data), start + generator.choice((1, 4, 32, 1000)))


# Changes inside a format


def mutate_tree(value: Any, generator: random.Random) -> Any:
    """Returns a JSON value in which one random part is replaced, removed, renamed or repeated."""
    if not isinstance(value, dict | list) or not value or generator.random() < 0.15:
        return generator.choice(VALUES)
    changed: Any = dict(value) if isinstance(value, dict) else list(value)
    key = generator.choice(list(value) if isinstance(value, dict) else range(len(value)))
    choice = generator.random()
    if choice < 0.75:
        changed[key] = mutate_tree(value[key], generator)
    elif choice < 0.85:
        del changed[key]
    elif isinstance(changed, dict):
        changed[generator.choice(("", "a", "__class__", "x" * 300, "../x"))] = changed.pop(key)
    else:
        changed.insert(key, changed[key])
    return changed


def _dump(value: Any, generator: random.Random) -> str:
    text = json.dumps(value, ensure_ascii=generator.random() < 0.5)
    depth = generator.choice(DEPTHS)
    opening, closing = generator.choice((("[", "]"), ('{"a":', "}")))
    return text.replace(f'"{DEEP}"', opening * depth + "1" + closing * depth)


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _mutate_json(data: bytes, generator: random.Random) -> bytes:
    value = json.loads(data)
    for _ in range(generator.choice((1, 1, 2, 4))):
        value = mutate_tree(value, generator)
    return _encode(_dump(value, generator))


def _mutate_jsonl(data: bytes, generator: random.Random) -> bytes:
    lines = data.splitlines() or [b"{}"]
    for _ in range(generator.choice((1, 1, 2, 4))):
        index = generator.randrange(len(lines))
        lines[index] = _mutate_json(lines[index], generator)
    return b"\n".join(lines) + b"\n"


def _mutate_yaml(data: bytes, generator: random.Random) -> bytes:
    value = yaml.safe_load(data)
    for _ in range(generator.choice((1, 1, 2, 4))):
        value = mutate_tree(value, generator)
    depth = generator.choice(DEPTHS[:3])  # PyYAML needs seconds for more
    deep = generator.choice(("[" * depth, "[" * depth + "]" * depth, "{a: " * min(depth, 1000)))
    return _encode(json.dumps(value)).replace(f'"{DEEP}"'.encode(), deep.encode())  # JSON is YAML


def _mutate_safetensors(data: bytes, generator: random.Random) -> bytes:
    size = int.from_bytes(data[:8], "little")
    header, content = data[8 : 8 + size], data[8 + size :]
    if generator.random() < 0.2:
        return data[: 8 + size] + mutate_bytes(content, "binary", generator)
    header = _mutate_json(header, generator)
    if generator.random() < 0.5:
        header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + content


def _mutate_npy(data: bytes, generator: random.Random) -> bytes:
    size = int.from_bytes(data[8:10], "little")
    header = data[10 : 10 + size]
    keys = (b"'descr': '<f4'", b"'descr': '|u1'", b"False", b"(", b")")
    key = generator.choice([key for key in keys if key in header])
    header = header.replace(
        key, generator.choice((b"'descr': ", b"'shape': ", b"")) + generator.choice(WORDS["header"])
    )
    header = header[:65_535]
    return data[:8] + len(header).to_bytes(2, "little") + header + data[10 + size :]


def _mutate_zip(data: bytes, generator: random.Random) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    for _ in range(generator.choice((1, 1, 2))):
        index = generator.randrange(len(members))
        name, content = members[index]
        choice = generator.random()
        if choice < 0.7:
            form = {"xml": "xml", "rels": "xml", "npy": "npy"}.get(name.rpartition(".")[2], "binary")
            members[index] = name, mutate(content, form, generator)
        elif choice < 0.8:
            del members[index]
        elif choice < 0.9:
            members[index] = (
                generator.choice(("../../x.png", "/x.png", "", "a" * 60_000, "\0.png", name + "/")),
                content,
            )
        else:
            members.append((name, content))
        if not members:
            break
    output = io.BytesIO()
    with zipfile.ZipFile(output, "w", generator.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content)
    return output.getvalue()


def _mutate_gzip(data: bytes, generator: random.Random) -> bytes:
    content = mutate(gzip.decompress(data), "text", generator)
    packed = gzip.compress(content, mtime=0)
    return packed * generator.choice((1, 1, 2)) + generator.choice((b"", b"", b"garbage", b"\0" * 100, b"\x1f\x8b"))


STRUCTURED: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "json": _mutate_json,
    "jsonl": _mutate_jsonl,
    "yaml": _mutate_yaml,
    "safetensors": _mutate_safetensors,
    "npy": _mutate_npy,
    "zip": _mutate_zip,
    "gz": _mutate_gzip,
}
