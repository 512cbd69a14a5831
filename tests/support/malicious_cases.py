"""The malicious files, each with the command that reads it: more than 200 cases."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import malicious_payloads as payloads
from fuzz_readers import CSV, SENTENCES, TEXT, make_image
from malicious import Case
from malicious_payloads import DEEP, MEGABYTE, get_canary

Content = bytes | Callable[[Path], bytes]
CHECK_CAPTIONS = ("check", ".", "--task", "caption")
NEAREST = ("vectors", "nearest")
PREDICT = ("predict", "run", "the old cat")
CAPTIONS = b"image,caption\n" + b"".join(b"%d.SUFFIX,a cat %d\n" % (i, i) for i in range(4))
CODE = "__import__('pathlib').Path('{}').touch()"


def put(name: str, content: Content) -> Callable[[Path], None]:
    """Returns a function that writes one file."""

    def write(folder: Path) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content(folder) if callable(content) else content)

    return write


def put_image(suffix: str, content: Content) -> Callable[[Path], None]:
    """Returns a function that writes a table of four images, of which the first is malicious."""

    def write(folder: Path) -> None:
        (folder / "captions.csv").write_bytes(CAPTIONS.replace(b"SUFFIX", suffix.encode()))
        for index in range(4):
            (folder / f"{index}.{suffix}").write_bytes(make_image(index))
        put(f"0.{suffix}", content)(folder)

    return write


def put_archive(content: Content) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / "captions.csv").write_bytes(CAPTIONS.replace(b"SUFFIX", b"png"))
        put("images.zip", content)(folder)

    return write


def put_in_run(runs: Path, task: str, name: str, content: Content) -> Callable[[Path], None]:
    """Returns a function that copies a run with its data and replaces one of its files."""

    def write(folder: Path) -> None:
        shutil.copytree(runs / task, folder, dirs_exist_ok=True)
        path = folder / "run" / name
        path.unlink(missing_ok=True)
        put(f"run/{name}", content)(folder)

    return write


def check(name: str, task: str, *options: str) -> tuple[str, ...]:
    return ("check", name, "--task", task, *options)


# Code


def list_pickles(runs: Path) -> Iterator[Case]:
    """Pickles and archives of PyTorch under every name that is read."""
    contents: dict[str, Callable[[Path], bytes]] = {
        f"pickle of protocol {protocol}": lambda folder, protocol=protocol: payloads.make_pickle(folder, protocol)
        for protocol in (0, 2, 4, 5)
    }
    contents["file of torch.save"] = payloads.make_torch_file
    contents["array of objects"] = payloads.make_object_array
    for name, content in contents.items():
        yield Case(f"{name} as npy", put_image("npy", content), CHECK_CAPTIONS, "0.npy", can_succeed=False)
        yield Case(f"{name} as png", put_image("png", content), CHECK_CAPTIONS, "0.png", can_succeed=False)
        for file in ("v.bin", "v.txt", "v.safetensors"):
            yield Case(f"{name} as {file}", put(file, content), (*NEAREST, file, "a"), file, can_succeed=False)
        for file in ("a.parquet", "a.xlsx", "a.jsonl"):
            yield Case(f"{name} as {file}", put(file, content), check(file, "classify"), file, can_succeed=False)
        for file in ("model.safetensors", "tokenizer.json", "task.json", "config.yaml"):
            write = put_in_run(runs, "classify", file, content)
            yield Case(f"{name} as {file}", write, PREDICT, file, can_succeed=False)


def list_yaml(runs: Path) -> Iterator[Case]:
    """Tags that name code, and documents that explode."""
    texts = {
        "apply": "network: !!python/object/apply:builtins.open ['{}', 'w']",
        "new": "network: !!python/object/new:builtins.open ['{}', 'w']",
        "name": "model: !!python/name:builtins.open",
        "module": "model: !!python/module:os",
        "eval": "model: !!python/object/apply:eval [\"open('{}', 'w')\"]",
        "billion laughs": "a: &a [x,x,x,x,x,x,x,x,x]\n"
        + "".join(f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefghi", "bcdefghij")),
        "nested lists": "model: " + "[" * 20_000,
        "nested closed lists": "model: " + "[" * 3_000 + "]" * 3_000,
        "recursive anchor": "network: &a {width: *a}",
        "merge of itself": "network: &a\n  <<: *a\n",
        "repeated key": "model: gru\nmodel: lstm\n",
        "number of 5,000 digits": "network: {width: " + "9" * 5_000 + "}",
        "sexagesimal": "budget: 190:20:30\n",
    }
    for name, text in texts.items():

        def content(folder: Path, text: str = text) -> bytes:
            return text.replace("{}", str(get_canary(folder))).encode()

        can_succeed = name in ("repeated key", "sexagesimal", "merge of itself")

        def write(folder: Path, content: Callable[[Path], bytes] = content) -> None:
            put("a.yaml", content)(folder)
            put("a.txt", TEXT.encode())(folder)

        command = ("train", "a.txt", "--config", "a.yaml", "--out", "../../../out/run", "--budget", "1-epochs")
        yield Case(f"settings: {name}", write, command, "a.yaml", can_succeed=can_succeed)
        in_run = put_in_run(runs, "classify", "config.yaml", content)
        yield Case(f"run: {name}", in_run, PREDICT, "config.yaml", can_succeed=False)
        command = ("compare", "--resume", "compared")
        yield Case(f"plan: {name}", put("compared/compare.yaml", content), command, "compare.yaml", can_succeed=False)


def list_code_in_runs(runs: Path) -> Iterator[Case]:
    """Runs that name Python files, and Python files beside the data."""

    def name_code(folder: Path, task: str = "classify", model: str = "mine") -> None:
        shutil.copytree(runs / "classify", folder, dirs_exist_ok=True)
        code = CODE.format(get_canary(folder))
        for name in ("mine.py", "run/mine.py", "run/__init__.py", "sitecustomize.py", "run/config.py", "seqwise.py"):
            (folder / name).write_text(code, encoding="utf-8")
        config = folder / "run" / "config.yaml"
        text = config.read_text(encoding="utf-8").replace("model: gru", f"model: {model}")
        config.write_text(text.replace("task: classify", f"task: {task}"), encoding="utf-8")
        environment = json.loads((folder / "run" / "env.json").read_text(encoding="utf-8"))
        path = str(folder / "mine.py")
        environment |= {"model_file": path, "task_file": path, "user_files": {"mine": path}}
        (folder / "run" / "env.json").write_text(json.dumps(environment), encoding="utf-8")

    yield Case("model file of a run", name_code, PREDICT, "run", can_succeed=False)
    yield Case(
        "task of a run", lambda folder: name_code(folder, "mine", "gru"), PREDICT, "config.yaml", can_succeed=False
    )
    yield Case(
        "model ../../mine", lambda folder: name_code(folder, model="../../mine"), PREDICT, "run", can_succeed=False
    )
    yield Case(
        "model os.system", lambda folder: name_code(folder, model="os.system"), PREDICT, "run", can_succeed=False
    )
    yield Case("code beside a run", lambda folder: name_code(folder, model="gru"), PREDICT, can_fail=False)


# Containers


def list_arrays_and_images() -> Iterator[Case]:
    for name, content in payloads.NPY_FILES.items():
        yield Case(f"npy: {name}", put_image("npy", content), CHECK_CAPTIONS, "0.npy", can_succeed=False)
    for name, (suffix, content) in payloads.IMAGE_FILES.items():
        can_succeed = name in ("PNG of 1 x 10^6", "PNG with a text bomb", "PNG without its palette")
        write = put_image(suffix, content)
        yield Case(f"image: {name}", write, CHECK_CAPTIONS, f"0.{suffix}", can_succeed=can_succeed)


def list_archives(bomb: int) -> Iterator[Case]:
    images = {f"{i}.png": make_image(i) for i in range(1, 4)}
    for name in (
        "../../0.png",
        "/0.png",
        "..\\..\\0.png",
        "C:\\0.png",
        "a" * 60_000 + ".png",
        "\x1b[31m0.png",
        "0.png/",
    ):
        members = {**images, name: make_image()}
        yield Case(
            f"zip: member {name[:20]!r}", put_archive(payloads.make_zip(members)), CHECK_CAPTIONS, "captions.csv"
        )
    archive = payloads.make_zip({"0.png": make_image(), **images})
    contents = {
        "link to /etc/passwd": payloads.make_zip_with_link("/etc/passwd"),
        "image bomb": payloads.make_zip_bomb("0.png", bomb, images),
        "array bomb": payloads.make_zip_bomb("0.npy", bomb, images),
        "overlapping bomb": payloads.make_overlapping_zip(bomb // 4, 60_000),
        "false size": payloads.change_zip(archive, 24, b"\xff\xff\xff\x7f"),
        "false compressed size": payloads.change_zip(archive, 20, b"\xff\xff\xff\x7f"),
        "false offset": payloads.change_zip(archive, 42, b"\xff\xff\xff\x7f"),
        "encrypted": payloads.change_zip(archive, 8, b"\x01\x00"),
        "unknown compression": payloads.change_zip(archive, 10, b"\x63\x00"),
        "no directory": archive[: archive.find(b"PK\x01\x02")],
        "empty": b"",
        "60,000 members": payloads.make_zip({f"x/{i}.png": b"" for i in range(60_000)}),
        "zip in zip": payloads.make_zip({"images.zip": archive}),
    }
    for name, content in contents.items():
        names = "captions.csv" if name == "60,000 members" else "images.zip"
        names = "" if name == "zip in zip" else names
        can_succeed = name in (
            "false size",
            "false compressed size",
        )  # the sizes in the headers of the members are right
        yield Case(f"zip: {name}", put_archive(content), CHECK_CAPTIONS, names, can_succeed=can_succeed)
    for name, content in payloads.list_workbooks().items():
        yield Case(f"xlsx: {name}", put("a.xlsx", content), check("a.xlsx", "classify"), "a.xlsx",
                   can_succeed=name == "member ../../x")  # fmt: skip


def list_gzip(bomb: int) -> Iterator[Case]:
    vectors = b"3 2\na 1 2\nb 2 1\nc 1 1\n"
    commands: dict[str, tuple[bytes, Sequence[str]]] = {
        "a.txt.gz": (TEXT.encode(), check("a.txt.gz", "language")),
        "a.csv.gz": (CSV.encode(), check("a.csv.gz", "classify")),
        "v.vec.gz": (vectors, (*NEAREST, "v.vec.gz", "a")),
    }
    for file, (text, command) in commands.items():
        for name, content in payloads.list_gzip_files(text, bomb).items():
            yield Case(f"{file}: {name}", put(file, content), command, file)


def list_weights(runs: Path) -> Iterator[Case]:
    for name, content in payloads.SAFETENSORS_FILES.items():
        write = put("v.safetensors", content)
        yield Case(f"vectors: {name}", write, (*NEAREST, "v.safetensors", "a"), "v.safetensors", can_succeed=False)
        write = put_in_run(runs, "classify", "model.safetensors", content)
        yield Case(f"weights: {name}", write, PREDICT, "model.safetensors", can_succeed=False)
        write = put_in_run(runs, "classify", "training_summary.safetensors", content)
        yield Case(f"summary: {name}", write, ("evaluate", "run", "a.csv"), "training_summary", can_succeed=False)


# Text


def list_texts() -> Iterator[Case]:
    rows = b"".join(b"the cat %d,%c\n" % (i, b"ab"[i % 2]) for i in range(12))
    header = b"text,label\n"
    tables = {
        "formulas": header + rows.replace(b"the", b"=cmd|'/c calc'!A1"),
        "escape sequences in labels": header + rows.replace(b",a", b",\x1b]0;owned\x07\x1b[31ma"),
        "bidirectional marks in labels": header + rows.replace(b",a", ",\u202egnp.exe".encode()),
        "escape sequences in the header": b"text,\x1b[2Jlabel\n" + rows,
        "zeros": header + rows.replace(b"cat", b"\0"),
        "field of 8 MB": header + b'"' + b"a" * (8 * MEGABYTE) + b'",a\n' + rows,
        "quote that is never closed": header + b'"' + rows * 1000,
        "100,000 columns": b",".join(b"c%d" % i for i in range(100_000)) + b"\n" + b"1," * 99_999 + b"1\n",
        "100,000 labels": header + b"".join(b"a,l%d\n" % i for i in range(100_000)),
        "header only": header,
        "byte order mark only": b"\xef\xbb\xbf",
        "UTF-16 cut in a character": (header + rows).decode().encode("utf-16")[:-1],
        "lone surrogates": header + rows.replace(b"cat", b"\xed\xa0\x80"),
        "UTF-7": header + b"+AGEAYgBj-,a\n" * 20,
        "million blank lines": header + b"\n" * 1_000_000 + rows,
        "carriage returns": header + rows.replace(b"\n", b"\r"),
        "million combining marks": header + b"a" + "\u0301".encode() * 500_000 + b",a\n" + rows,
    }
    for name, content in tables.items():
        yield Case(f"csv: {name}", put("a.csv", content), check("a.csv", "classify"), "a.csv")
    lines = b'{"text": "the cat", "label": "a"}\n{"text": "a dog", "label": "b"}\n' * 6
    objects = {
        "nested lists": lines + b"[" * DEEP + b"\n",
        "nested objects": lines + b'{"a":' * DEEP + b"\n",
        "nested text": lines + b'{"text": ' + b"[" * DEEP + b"]" * DEEP + b', "label": "a"}\n',
        "repeated keys": lines + b'{"text": "a", "text": "b", "label": "a"}\n',
        "integer of 5,000 digits": lines + b'{"text": "a", "label": ' + b"9" * 5000 + b"}\n",
        "float of 1e999": lines + b'{"text": "a", "label": 1e999}\n',
        "escaped zero": lines + b'{"text": "\\u0000", "label": "a"}\n',
        "escaped surrogate": lines + b'{"text": "\\ud800", "label": "\\udfff"}\n',
        "list as label": lines + b'{"text": "a", "label": [[], {}]}\n',
        "not objects": b"1\n2\nnull\n",
    }
    for name, content in objects.items():
        for task in ("classify", "language"):
            yield Case(f"jsonl for {task}: {name}", put("a.jsonl", content), check("a.jsonl", task), "a.jsonl")
    array = json.dumps([{"text": text, "label": "ab"[i % 2]} for i, text in enumerate(SENTENCES)]).encode()
    for name, content in {"nested": array[:-1] + b"," + b"[" * DEEP, "open": array[:-1], "object": b"{}"}.items():
        yield Case(f"json: {name}", put("a.json", content), check("a.json", "classify"), "a.json", can_succeed=False)


def list_special_files(runs: Path) -> Iterator[Case]:
    """Pipes, devices, sockets, loops, and names that change the terminal."""

    def make_fifo(name: str) -> Callable[[Path], None]:
        return lambda folder: os.mkfifo(folder / name)

    def make_link(name: str, target: str) -> Callable[[Path], None]:
        return lambda folder: (folder / name).symlink_to(target)

    def make_socket(folder: Path) -> None:
        before = Path.cwd()
        os.chdir(folder)  # the path of a socket may have 100 characters only
        socket.socket(socket.AF_UNIX).bind("a.txt")
        os.chdir(before)

    commands = {
        "a.txt": check("a.txt", "language"),
        "a.csv": check("a.csv", "classify"),
        "v.bin": (*NEAREST, "v.bin", "a"),
        "v.vec": (*NEAREST, "v.vec", "a"),
    }
    for file, command in commands.items():
        yield Case(f"{file} is a pipe", make_fifo(file), command, file, can_succeed=False)
        yield Case(f"{file} is /dev/zero", make_link(file, "/dev/zero"), command, file, can_succeed=False)
        yield Case(f"{file} is a loop", make_link(file, file), command, file, can_succeed=False)
        yield Case(
            f"{file} is a folder", lambda folder, file=file: (folder / file).mkdir(), command, file, can_succeed=False
        )
    yield Case("a.txt is a socket", make_socket, commands["a.txt"], "a.txt", can_succeed=False)
    yield Case("a.csv is /etc/passwd", make_link("a.csv", "/etc/passwd"), commands["a.csv"], "a.csv", can_succeed=False)
    yield Case("folder that contains itself", make_link("self", "."), check(".", "language"), ".", can_succeed=False)
    for name in ("\x1b[31mred.csv", "\u202egnp.csv", "a\nb.csv", "--help.csv", "-x.csv", "$(touch x).csv"):
        write = put(name, CSV.replace(",a", ",").encode())
        yield Case(f"file called {name!r}", write, check(f"./{name}", "classify"), ".csv", can_succeed=False)
    for file, command in (("config.yaml", PREDICT), ("model.safetensors", PREDICT), ("tokenizer.json", PREDICT)):

        def write(folder: Path, file: str = file) -> None:
            shutil.copytree(runs / "classify", folder, dirs_exist_ok=True)
            (folder / "run" / file).unlink()
            os.mkfifo(folder / "run" / file)

        yield Case(f"{file} is a pipe", write, command, "run", can_succeed=False)
