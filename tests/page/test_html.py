"""Pages and notebook fragments: one file without external resources, with all data, in which text stays text."""

from __future__ import annotations

import hashlib
import html
import json
import random
import re
import shutil
import subprocess
import tomllib
import zlib
from base64 import b64encode
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
from page_figures import HOSTILE, HOSTILE_SHOWN, TOKENS, attention_grid, attribution, gate, page_figures

from seqwise.page import script
from seqwise.page.figures import Figure
from seqwise.page.html import build_fragment, build_page
from seqwise.page.packing import pack_figures
from seqwise.page.palette import ROLES
from seqwise.page.script import COMPONENTS, bundle, dump_json_for_script, list_modules

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "src" / "seqwise" / "page"
REPORT = ROOT / "src" / "seqwise" / "compare" / "report" / "page"
SUMMARY = ("Units forget over 8.3 tokens.", "Head 1 attends to the previous token.")
MODULES = sorted(path.name for path in COMPONENTS.glob("*.js"))


def parse_data(page: str) -> Any:
    """Returns the data inside the page, delimited as a browser would."""
    match = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)
    assert match is not None
    return json.loads(match[1])


def test_a_page_holds_title_summary_and_all_figures():
    figures = page_figures()
    data = parse_data(build_page("Gates of runs/lstm", SUMMARY, figures))
    assert (data["title"], data["summary"]) == ("Gates of runs/lstm", list(SUMMARY))
    assert data["figures"] == json.loads(json.dumps(pack_figures(figures, 10**9)))
    assert [figure["kind"] for figure in data["figures"]] == [figure.kind for figure in figures]


def test_the_samples_contain_every_kind_of_figure():
    assert {figure.kind for figure in page_figures()} == {kind.__name__ for kind in Figure.__subclasses__()}


def test_every_placeholder_is_filled():
    assert "{{" not in build_page("title", SUMMARY, page_figures())


def test_without_scripts_the_page_shows_its_sentences():
    page = build_page("A & B", ("One < two.",), ())
    inside = page.partition("<noscript>")[2].partition("</noscript>")[0]
    assert "<h1>A &amp; B</h1>" in inside
    assert "One &lt; two." in inside


def test_text_that_looks_like_markup_or_a_placeholder_stays_text():
    figure = replace(attribution(), title=HOSTILE, tokens=[HOSTILE] * len(TOKENS))
    page = build_page(HOSTILE, (HOSTILE,), [figure])
    assert page.count("<script") == page.count("</script>") == 2
    assert "<b " not in page
    assert parse_data(page)["figures"][0]["tokens"][0] == HOSTILE_SHOWN


def test_a_page_names_no_external_resource():
    page = build_page("title", SUMMARY, page_figures())
    assert set(re.findall(r"\bhttps?://[^\"'\s]+", page)) == {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert re.findall(r"<link|<img|<iframe|\bsrc=|@import|url\(|fetch\(|XMLHttpRequest|WebSocket", page) == []
    assert "default-src 'none'" in page


@pytest.mark.parametrize("name", MODULES)
def test_a_module_sets_text_only_as_text(name: str):
    text = (COMPONENTS / name).read_text(encoding="utf-8")
    assert re.findall(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|new Function|srcdoc", text) == []


def test_every_file_is_used_installed_and_short():
    assert sorted(path.name for path in list_modules(COMPONENTS / "page.js")) == MODULES
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]["seqwise"]
    for path in (*FOLDER.glob("*.html"), *FOLDER.glob("*.css"), *(COMPONENTS / name for name in MODULES)):
        assert any(fnmatch(path.relative_to(ROOT / "src" / "seqwise").as_posix(), pattern) for pattern in patterns)
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 400


@pytest.mark.parametrize("path", [*COMPONENTS.glob("*.js"), *REPORT.glob("*.js")], ids=lambda path: path.name)
def test_a_module_uses_all_that_it_imports(path: Path):
    text = path.read_text(encoding="utf-8")
    imported = {each.strip() for names, _ in script._IMPORT.findall(text) for each in names.strip("{}").split(",")}
    body = script._IMPORT.sub("", text)
    assert {each for each in imported if not re.search(rf"\b{re.escape(each)}\b", body)} == set()


def test_the_joined_modules_are_a_script_without_imports(tmp_path: Path):
    joined = bundle(COMPONENTS / "page.js")
    assert re.findall(r"^\s*(?:import|export)\b", joined, re.MULTILINE) == []
    order = [path.name for path in list_modules(COMPONENTS / "page.js")]
    assert order.index("elements.js") < order.index("heatmap.js") < order.index("heatmap-grid.js")
    assert order[-1] == "page.js"
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    (tmp_path / "page.js").write_text('"use strict";\n' + joined, encoding="utf-8")
    result = subprocess.run([node, "--check", str(tmp_path / "page.js")], capture_output=True, text=True, check=False)
    assert result.stderr == ""


def test_modules_that_import_each_other_are_reported(tmp_path: Path):
    (tmp_path / "a.js").write_text('import { b } from "./b.js";\nexport const a = b;\n')
    (tmp_path / "b.js").write_text('import { a } from "./a.js";\nexport const b = a;\n')
    with pytest.raises(ValueError, match=r"a\.js → b\.js → a\.js"):
        list_modules(tmp_path / "a.js")


def test_modules_of_two_folders_must_have_different_names(tmp_path: Path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "a.js").write_text("export const a = 1;\n")
    (tmp_path / "inner" / "b.js").write_text('import { a } from "../a.js";\nexport const b = a;\n')
    assert list_modules(tmp_path / "inner" / "b.js") == [tmp_path / "a.js", tmp_path / "inner" / "b.js"]
    assert 'const { a } = modules["a.js"];' in bundle(tmp_path / "inner" / "b.js")
    (tmp_path / "inner" / "a.js").write_text('import { a } from "../a.js";\nexport const c = a;\n')
    with pytest.raises(ValueError, match="two modules have the same name"):
        list_modules(tmp_path / "inner" / "a.js")


def test_a_joined_module_has_its_own_names(tmp_path: Path):
    (tmp_path / "a.js").write_text("// one\nconst size = 1;\nexport const one = () => size;\n")
    (tmp_path / "b.js").write_text(
        'import { one } from "./a.js";\nconst size = 2;\nexport function two() {\n  one();\n}\n'
    )
    assert bundle(tmp_path / "b.js").splitlines() == [
        "const modules = {};",
        'modules["a.js"] = (() => {',
        "const size = 1;",
        "const one = () => size;",
        "return { one };",
        "})();",
        'modules["b.js"] = (() => {',
        'const { one } = modules["a.js"];',
        "const size = 2;",
        "function two() {",
        "one();",
        "}",
        "return { two };",
        "})();",
    ]


def test_json_of_a_page_cannot_end_a_tag():
    text = dump_json_for_script({HOSTILE: [HOSTILE]})
    assert not set(text) & set("<>&\u2028")
    assert json.loads(text) == {HOSTILE_SHOWN: [HOSTILE_SHOWN]}


def test_every_role_has_a_colour_in_light_and_dark_mode():
    page = build_page("title", (), ())
    for role, (light, dark) in ROLES.items():
        assert re.findall(rf"--role-{role}:(#\w+);", page) == [light, dark]


def test_a_fragment_is_a_frame_with_the_whole_page():
    figures = [gate(), attribution()]
    fragment = build_fragment("Gates of “runs/lstm's”", SUMMARY, figures)
    match = re.fullmatch(r"<iframe title=\"(.*?)\" style=\"[^\"]*\" srcdoc='([^']*)'></iframe>", fragment, re.DOTALL)
    assert match is not None
    assert html.unescape(match[1]) == "Gates of “runs/lstm's”"
    assert html.unescape(match[2]) == build_page("Gates of “runs/lstm's”", SUMMARY, figures)


def test_a_fragment_with_100_tokens_is_below_300_kilobytes():
    tokens = 100
    for figures in (
        [attention_grid(12, 12, tokens)],
        [gate(name, 512, tokens) for name in ("input", "forget", "output", "candidate", "cell")],
    ):
        fragment = build_fragment("Inside of runs/large", SUMMARY, figures)
        assert 100_000 < len(fragment.encode()) < 300_000


def test_the_page_decompresses_what_zlib_compresses(tmp_path: Path):
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    rng = random.Random(0)
    samples = [b"", b"a", b"ab" * 40_000, rng.randbytes(70_000), bytes(rng.choices(range(12), k=50_000))]
    cases = []
    for data in samples:
        for level, strategy in ((0, zlib.Z_DEFAULT_STRATEGY), (1, zlib.Z_FIXED), (6, zlib.Z_DEFAULT_STRATEGY)):
            stream = zlib.compressobj(level, strategy=strategy)
            packed = stream.compress(data) + stream.flush()
            cases.append([b64encode(packed).decode(), len(data), hashlib.md5(data).hexdigest()])
    script = """
      import { inflate } from "./inflate.mjs";
      import { createHash } from "crypto";
      for (const [packed, size, digest] of CASES) {
        const data = inflate(new Uint8Array(Buffer.from(packed, "base64")), size);
        if (createHash("md5").update(data).digest("hex") !== digest) throw new Error(`${size} bytes differ`);
      }"""
    (tmp_path / "inflate.mjs").write_text((COMPONENTS / "inflate.js").read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "test.mjs").write_text(script.replace("CASES", json.dumps(cases)), encoding="utf-8")
    result = subprocess.run([node, str(tmp_path / "test.mjs")], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
