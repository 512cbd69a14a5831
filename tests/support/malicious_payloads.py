"""The bytes of malicious files: pickles, archives, images, arrays, weights and documents that lie or explode."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from malicious import CANARY, INPUT

DEEP = 100_000  # brackets
MEGABYTE = 1 << 20


class Touch:
    """Its pickle creates a file when it is loaded."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self) -> tuple:
        return open, (str(self.path), "w")


def get_canary(folder: Path) -> Path:
    """Returns the file that must not exist after a command has read the files of `folder`."""
    return Path(str(folder).removesuffix(f"/{INPUT}")) / CANARY


def make_pickle(folder: Path, protocol: int) -> bytes:
    return pickle.dumps(Touch(get_canary(folder)), protocol)


def make_torch_file(folder: Path) -> bytes:
    """Returns a file as torch.save writes it, whose pickle would be executed."""
    data = make_pickle(folder, 2)
    return make_zip({"archive/data.pkl": data, "archive/version": b"3\n"})


def make_object_array(folder: Path) -> bytes:
    output = io.BytesIO()
    np.save(output, np.array([Touch(get_canary(folder))], dtype=object), allow_pickle=True)
    return output.getvalue()


# Arrays and weights


def make_npy(header: str, content: bytes = bytes(24), version: int = 1) -> bytes:
    """Returns a .npy file with any header."""
    size = struct.pack("<H" if version == 1 else "<I", len(header))
    return b"\x93NUMPY" + bytes([version, 0]) + size + header.encode() + content


def make_npy_header(shape: str = "(2, 3)", dtype: str = "'<f4'") -> str:
    return f"{{'descr': {dtype}, 'fortran_order': False, 'shape': {shape}, }}"


NPY_FILES: dict[str, bytes] = {
    "shape of 10^12": make_npy(make_npy_header("(1000000000000,)")),
    "shape of 10^6 x 10^6": make_npy(make_npy_header("(1000000, 1000000)")),
    "shape of 10^30": make_npy(make_npy_header(f"({10**30},)")),
    "negative shape": make_npy(make_npy_header("(-1, 3)")),
    "shape that overflows": make_npy(make_npy_header("(4294967296, 4294967296)")),
    "65 dimensions": make_npy(make_npy_header(f"({'1,' * 65})"), bytes(4)),
    "huge elements": make_npy(make_npy_header("(1,)", "'|V2147483647'")),
    "strings of 10^9": make_npy(make_npy_header("(1,)", "'<U1000000000'")),
    "code as type": make_npy(make_npy_header("(1,)", "__import__('os').system('id')")),
    "code as shape": make_npy(make_npy_header("(__import__('os').getpid(),)")),
    "nested brackets": make_npy("(" * 9000),
    "open string": make_npy("{'descr': '"),
    "no keys": make_npy("{}"),
    "list as header": make_npy("[1, 2]"),
    "type of types": make_npy(make_npy_header("(1,)", "[('a', [('b', '<f4')]), ('a', '<f4')]")),
    "empty type tuple": make_npy(make_npy_header("(1,)", "()")),
    "dates": make_npy(make_npy_header("(3,)", "'<M8[ns]'")),
    "version 9": make_npy(make_npy_header(), version=1)[:6] + b"\x09\x00" + make_npy(make_npy_header())[8:],
    "header of 4 GB": b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + b"{" * 100,
    "no header": b"\x93NUMPY\x01\x00",
    "zero dimensions": make_npy(make_npy_header("()"), bytes(4)),
    "infinite numbers": make_npy(make_npy_header("(6,)"), struct.pack("<6f", *[float("inf")] * 6)),
}


def make_safetensors(header: Any, content: bytes = bytes(64), size: int | None = None) -> bytes:
    """Returns a file with any header; `size` is the length that it declares."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if size is None else size) + text + content


def make_entry(dtype: str = "F32", shape: Any = (4, 4), offsets: Any = (0, 64)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


SAFETENSORS_FILES: dict[str, bytes] = {
    "header of 2^63 bytes": make_safetensors({}, size=2**63),
    "header of 2^64-1 bytes": make_safetensors({}, size=2**64 - 1),
    "header of 100 MB": make_safetensors({}, size=100 << 20),
    "header longer than the file": make_safetensors({"a": make_entry()}, size=10_000),
    "empty header": make_safetensors(b""),
    "offsets beyond the file": make_safetensors({"a": make_entry(offsets=(0, 10**15), shape=(10**15 // 4,))}),
    "negative offsets": make_safetensors({"a": make_entry(offsets=(-64, 0))}),
    "overlapping tensors": make_safetensors({"a": make_entry(), "b": make_entry()}),
    "shape that overflows": make_safetensors({"a": make_entry(shape=(2**32, 2**32, 2**32))}),
    "unknown type": make_safetensors({"a": make_entry("PICKLE")}),
    "repeated names": make_safetensors(b'{"a":' + json.dumps(make_entry()).encode() + b',"a":{}}'),
    "nested header": make_safetensors(b'{"a":' + b"[" * DEEP + b"]" * DEEP + b"}"),
    "metadata that is no text": make_safetensors({"__metadata__": {"about": 5}, "a": make_entry()}),
    "nested metadata": make_safetensors(
        {"__metadata__": {"about": "[" * DEEP, "summary": "[" * DEEP}, "a": make_entry()}
    ),
    "no tensors": make_safetensors({}, b""),
    "names that are paths": make_safetensors({"../../x": make_entry(offsets=(0, 64))}),
    "other tensors": make_safetensors({"matrix": make_entry(), "words": make_entry("U8", (0,), (64, 64))}),
}  # fmt: skip


# Archives


def make_zip(members: Mapping[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    output = io.BytesIO()
    with zipfile.ZipFile(output, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content, compression)
    return output.getvalue()


def make_zip_with_link(target: str) -> bytes:
    """Returns an archive with a symbolic link."""
    output = io.BytesIO()
    with zipfile.ZipFile(output, "w") as archive:
        link = zipfile.ZipInfo("0.png")
        link.create_system, link.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, target)
    return output.getvalue()


def change_zip(data: bytes, offset: int, change: bytes) -> bytes:
    """Returns an archive with some bytes of each entry of its directory replaced."""
    position = data.find(b"PK\x01\x02")
    while position >= 0:
        data = data[: position + offset] + change + data[position + offset + len(change) :]
        position = data.find(b"PK\x01\x02", position + 4)
    return data


def make_overlapping_zip(size: int, count: int) -> bytes:
    """Returns an archive whose directory names the same bytes many times."""
    archive = make_zip_bomb("0.png", size, {})
    start = archive.find(b"PK\x01\x02")
    end = archive.find(b"PK\x05\x06")
    entry = archive[start:end]
    entries = b"".join(entry.replace(b"0.png", f"{i % 10}.png".encode()) for i in range(count))
    tail = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, count, count, len(entries), start, 0)
    return archive[:start] + entries + tail


def make_deflate_bomb(content: bytes, repetitions: int) -> tuple[bytes, int, int]:
    """Returns a deflated stream of the repeated content, its checksum and its length; it is made in no time."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(content) + packer.flush(zlib.Z_FULL_FLUSH)
    checksum = 0
    for _ in range(repetitions):
        checksum = zlib.crc32(content, checksum)
    return block * repetitions + packer.flush(), checksum, len(content) * repetitions


def make_gzip_bomb(content: bytes, size: int, start: bytes = b"") -> bytes:
    """Returns a gzip file of `start`, then the repeated content up to about `size` bytes."""
    stream, checksum, length = make_deflate_bomb(content * (MEGABYTE // len(content)), size // MEGABYTE)
    header = b"\x1f\x8b\x08\0" + bytes(6)
    return (
        (gzip.compress(start, mtime=0) if start else b"")
        + header
        + stream
        + struct.pack("<II", checksum, length & 0xFFFFFFFF)
    )


def make_zip_bomb(name: str, size: int, others: Mapping[str, bytes], content: bytes = bytes(MEGABYTE)) -> bytes:
    """Returns an archive with a member that unpacks to `size` bytes."""
    stream, checksum, length = make_deflate_bomb(content, size // len(content))
    archive = make_zip({name: stream, **others}, zipfile.ZIP_STORED)
    with zipfile.ZipFile(io.BytesIO(archive)) as stored:
        offset = stored.getinfo(name).header_offset
    for position, first in ((offset, 8), (archive.find(b"PK\x01\x02"), 10)):  # the local header, then the directory
        archive = archive[: position + first] + b"\x08\0" + archive[position + first + 2 :]  # deflated
        start = position + first + 6
        fields = struct.pack("<III", checksum, len(stream), length)
        archive = archive[:start] + fields + archive[start + 12 :]
    return archive


def make_gzip(content: bytes, flags: int = 0, name: bytes = b"") -> bytes:
    """Returns a gzip file with any flags and file name."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    header = b"\x1f\x8b\x08" + bytes([flags]) + bytes(6) + (name + b"\0" if name else b"")
    tail = struct.pack("<II", zlib.crc32(content), len(content) & 0xFFFFFFFF)
    return header + packer.compress(content) + packer.flush() + tail


def list_gzip_files(text: bytes, bomb: int) -> dict[str, bytes]:
    """Returns gzip files around a valid text: damaged, repeated, and a bomb of so many bytes."""
    packed = gzip.compress(text, mtime=0)
    return {
        "trailing garbage": packed + b"garbage" * 10,
        "trailing zeros": packed + bytes(1000),
        "two members": packed * 2,
        "thousand empty members": packed + gzip.compress(b"") * 1000,
        "wrong checksum": packed[:-8] + bytes(4) + packed[-4:],
        "wrong length": packed[:-4] + b"\xff" * 4,
        "reserved flags": make_gzip(text, 0xE0),
        "file name ../../x": make_gzip(text, 8, b"../../x"),
        "gzip in gzip": gzip.compress(packed),
        "cut in the header": packed[:5],
        "header only": packed[:10],
        "not gzip": text,
        "one line bomb": make_gzip_bomb(b"a", bomb),
        "one line after a valid start": make_gzip_bomb(b"a", bomb, text),
        "blank lines bomb": make_gzip_bomb(b"\n", bomb, text),
        "zeros bomb": make_gzip_bomb(b"\0", bomb),
    }


# Images


def make_png(width: int, height: int, content: bytes | None = None, extra: bytes = b"", colour: int = 2) -> bytes:
    """Returns a PNG that declares any size."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    pixels = zlib.compress(bytes((3 * width + 1) * height) if content is None else content, 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + extra + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def make_text_chunk(size: int) -> bytes:
    data = b"Comment\0\0" + zlib.compress(b"a" * size, 9)
    return struct.pack(">I", len(data)) + b"zTXt" + data + struct.pack(">I", zlib.crc32(b"zTXt" + data))


def make_bmp(width: int, height: int) -> bytes:
    return (
        b"BM"
        + struct.pack("<IHHI", 54, 0, 0, 54)
        + struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, 0, 0, 0, 0, 0)
    )


def make_gif(width: int, height: int) -> bytes:
    screen = struct.pack("<HHBBB", width, height, 0x80, 0, 0) + bytes(6)
    frame = b"," + struct.pack("<HHHHB", 0, 0, width, height, 0) + b"\x02\x02\x4c\x01\x00"
    return b"GIF89a" + screen + frame + b";"


def make_tiff(width: int, height: int) -> bytes:
    entries = [(256, 4, 1, width), (257, 4, 1, height), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1)]
    entries += [(273, 4, 1, 8), (277, 3, 1, 1), (278, 4, 1, height), (279, 4, 1, 0xFFFFFFFF)]
    body = b"".join(struct.pack("<HHII", *entry) for entry in entries)
    return b"II*\0" + struct.pack("<I", 8) + struct.pack("<H", len(entries)) + body + bytes(4)


IMAGE_FILES: dict[str, tuple[str, bytes | Callable[[Path], bytes]]] = {
    "PNG of 11,000 x 11,000": ("png", lambda folder: make_png(11_000, 11_000)),
    "PNG of 50,000 x 50,000": ("png", make_png(50_000, 50_000, b"")),
    "PNG of 13,000 x 13,000": ("png", make_png(13_000, 13_000, bytes(1000))),
    "PNG of 2^31": ("png", make_png(2**31 - 1, 2**31 - 1, b"")),
    "PNG of width 0": ("png", make_png(0, 10, b"")),
    "PNG of 1 x 10^6": ("png", make_png(1, 1_000_000)),
    "PNG with a text bomb": ("png", make_png(4, 4, extra=make_text_chunk(100 * MEGABYTE))),
    "PNG without its palette": ("png", make_png(4, 4, colour=3)),
    "BMP of 10^9": ("bmp", make_bmp(10**9, 10**9)),
    "BMP of negative size": ("bmp", make_bmp(-5, -5)),
    "GIF of 65,535 x 65,535": ("gif", make_gif(65_535, 65_535)),
    "TIFF of 10^9": ("tiff", make_tiff(10**9, 10**9)),
    "SVG": ("png", b"<svg xmlns='http://www.w3.org/2000/svg'><script>1</script></svg>"),
    "PostScript": ("png", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(/tmp/x) (w) file\n"),
}


# Workbooks


def make_workbook(change: Mapping[str, bytes], drop: str = "") -> bytes:
    """Returns a workbook of text and label, some of whose members are replaced."""
    import openpyxl

    workbook, output = openpyxl.Workbook(), io.BytesIO()
    workbook.active.append(["text", "label"])
    for number in range(12):
        workbook.active.append([f"the cat {number}", "ab"[number % 2]])
    workbook.save(output)
    with zipfile.ZipFile(output) as archive:
        members = {name: archive.read(name) for name in archive.namelist() if name != drop}
    return make_zip({**members, **change})


SHEET, STRINGS = "xl/worksheets/sheet1.xml", "xl/sharedStrings.xml"
SPACE = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
LAUGHS = "".join(f"<!ENTITY l{i} '{f'&l{i - 1};' * 10}'>" for i in range(1, 10))


def make_sheet(rows: str, before: str = "", dimension: str = "A1:B9") -> bytes:
    sheet = f"<worksheet xmlns='{SPACE}'><dimension ref='{dimension}'/><sheetData>{rows}</sheetData></worksheet>"
    return f"<?xml version='1.0'?>{before}{sheet}".encode()


def make_cell(reference: str, value: str) -> str:
    return f"<row r='1'><c r='{reference}' t='str'><v>{value}</v></c></row>"


def list_workbooks() -> dict[str, bytes]:
    return {
        "billion laughs": make_workbook(
            {SHEET: make_sheet(make_cell("A1", "&l9;"), f"<!DOCTYPE x [<!ENTITY l0 'lol'>{LAUGHS}]>")}
        ),
        "external entity": make_workbook(
            {SHEET: make_sheet(make_cell("A1", "&e;"), "<!DOCTYPE x [<!ENTITY e SYSTEM 'file:///etc/passwd'>]>")}
        ),
        "cell in the last column": make_workbook({SHEET: make_sheet(make_cell("XFD1048576", "1"))}),
        "all rows declared": make_workbook({SHEET: make_sheet(make_cell("A1", "1"), dimension="A1:XFD1048576")}),
        "row of 10^9": make_workbook({SHEET: make_sheet(make_cell("A1", "1").replace("r='1'", "r='1000000000'"))}),
        "column ZZZZZZ": make_workbook({SHEET: make_sheet(make_cell("ZZZZZZ1", "1"))}),
        "sheet bomb": make_workbook({SHEET: make_sheet(" " * (64 * MEGABYTE))}),
        "string bomb": make_workbook(
            {STRINGS: f"<sst xmlns='{SPACE}'>".encode() + b"<si><t>a</t></si>" * (4 * MEGABYTE)}
        ),
        "nested XML": make_workbook({SHEET: b"<a>" * 200_000}),
        "formulas": make_workbook({SHEET: make_sheet(make_cell("A1", "=cmd|'/c calc'!A1"))}),
        "shared string 10^9": make_workbook({SHEET: make_sheet("<row><c t='s'><v>1000000000</v></c></row>")}),
        "no sheet": make_workbook({}, drop=SHEET),
        "member ../../x": make_workbook({"../../x": b"1"}),
        "no workbook": make_zip({"a": b"b"}),
    }
