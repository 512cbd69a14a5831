"""`seqwise vectors`: its overview, queries, tables, files and messages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.cells import cell_len

from seqwise.cli.vectors import COMMANDS
from seqwise.vectors.formats import load_vectors, save_vectors
from seqwise.vectors.keyed import KeyedVectors, Subwords

# The first number means royal, the second male or female; the third sets "car" apart.
TABLE = {
    "the": (0.1, 0.1, 0.2), "man": (0, 1, 0), "woman": (0, -1, 0), "king": (2, 1, 0), "queen": (2, -1, 0),
    "prince": (1.5, 1, 0.1), "car": (0, 0.1, 3),
}  # fmt: skip


@pytest.fixture(scope="module")
def vectors(tmp_path_factory) -> Path:
    """Vectors with counts and n-grams."""
    matrix = np.array(list(TABLE.values()), np.float32)
    subwords = Subwords(3, 4, np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32))
    counts = np.array([1234, 60, 50, 40, 30, 20, 10])
    path = tmp_path_factory.mktemp("vectors") / "small.safetensors"
    save_vectors(path, KeyedVectors(list(TABLE), matrix, counts, subwords))
    return path


@pytest.fixture(scope="module")
def plain(vectors: Path) -> Path:
    """The same words without counts and n-grams."""
    path = vectors.with_name("plain.txt")
    save_vectors(path, load_vectors(vectors))
    return path


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


# --- the overview


def test_the_overview_lists_the_sub_commands(seqwise_command):
    result = seqwise_command("vectors", "--help")
    assert result.status == 0
    for name, purpose in COMMANDS.items():
        assert f"  {name:11}{purpose}\n" in result.out
    assert "example:\n  seqwise vectors nearest" in result.out
    alone = seqwise_command("vectors")
    assert (alone.status, alone.out, alone.err.rstrip()) == (2, "", result.out.rstrip())


def test_an_unknown_sub_command_suggests_the_nearest(seqwise_command):
    result = seqwise_command("vectors", "analgy")
    assert result.status == 2
    assert result.err == (
        "error: vectors has no command 'analgy'.\nPerhaps you meant 'analogy'. See seqwise vectors --help.\n"
    )


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "train"])
def test_every_query_has_a_help_with_an_example(seqwise_command, name: str):
    result = seqwise_command("vectors", name, "--help")
    assert result.status == 0
    assert f"example:\n  seqwise vectors {name} " in result.out
    assert "--json" in result.out


def test_queries_do_not_import_torch(plain: Path, tmp_path: Path):
    code = (
        "import sys\n"
        "from seqwise.cli.main import main\n"
        f"assert main(['vectors', 'nearest', {str(plain)!r}, 'king']) == 0\n"
        f"assert main(['vectors', 'plot', {str(plain)!r}, '--out', {str(tmp_path / 'map.png')!r}]) == 0\n"
        f"assert main(['vectors', 'plot', {str(plain)!r}, '--out', {str(tmp_path / 'map.html')!r}]) == 0\n"
        "assert 'torch' not in sys.modules\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")


# --- nearest


def test_nearest_prints_a_table_per_word(seqwise_command, vectors: Path):
    result = seqwise_command("vectors", "nearest", vectors, "king", "car", "--n", 2)
    assert result.status == 0
    assert rows(result.out) == [
        ["nearest", "to", "king"],
        ["word", "cosine", "count"],
        ["1", "prince", "0.9908", "20"],
        ["2", "queen", "0.6000", "30"],
        [],
        ["nearest", "to", "car"],
        ["word", "cosine", "count"],
        ["1", "the", "0.8296", "1,234"],
        ["2", "prince", "0.0738", "20"],
    ]


@pytest.mark.parametrize(("by", "score"), [("cosine", 0.6), ("dot", 3.0), ("scaled", 3 / 3**0.5)])
def test_similarity_has_three_measures(seqwise_command, plain: Path, by: str, score: float):
    result = seqwise_command("vectors", "nearest", plain, "king", "--by", by, "--json")
    document = json.loads(result.out)
    assert (document["by"], document["words"], document["dim"]) == (by, 7, 3)
    near = {each["word"]: each for each in document["answers"][0]["nearest"]}
    assert near["queen"]["score"] == pytest.approx(score)
    assert near["queen"]["count"] is None
    assert "king" not in near


def test_a_word_built_from_ngrams_is_marked(seqwise_command, vectors: Path):
    result = seqwise_command("vectors", "nearest", vectors, "kingdom")
    assert result.status == 0
    assert result.out.startswith("nearest to kingdom, which is not in the vocabulary: composed from its n-grams\n")
    document = json.loads(seqwise_command("vectors", "nearest", vectors, "kingdom", "king", "--json").out)
    assert [each["composed"] for each in document["answers"]] == [True, False]


def test_control_characters_of_a_word_are_visible(seqwise_command, tmp_path: Path):
    path = tmp_path / "v.safetensors"
    save_vectors(path, KeyedVectors(["a", "\x1b[31mred", "日本"], np.eye(3, dtype=np.float32)))
    result = seqwise_command("vectors", "nearest", path, "a")
    assert "\x1b" not in result.out
    assert "␛[31mred  0.0000" in result.out
    assert len({cell_len(line) for line in result.out.splitlines()[1:]}) == 1  # wide letters are counted twice


# --- analogy and different


def test_an_analogy_is_answered(seqwise_command, vectors: Path):
    result = seqwise_command("vectors", "analogy", vectors, "man", "king", "woman", "--n", 1)
    assert result.out.startswith("man is to king as woman is to …   (3CosAdd, words of the question excluded)\n")
    assert rows(result.out)[1:] == [["word", "cosine", "count"], ["1", "queen", "0.8340", "30"]]


@pytest.mark.parametrize("by", ["add", "multiply"])
def test_words_of_an_analogy_may_be_answers_and_are_marked(seqwise_command, plain: Path, by: str):
    result = seqwise_command("vectors", "analogy", plain, "king", "king", "man", "--by", by, "--keep-question")
    assert {"add": "3CosAdd", "multiply": "3CosMul"}[by] + ", words of the question allowed" in result.out
    assert rows(result.out)[2][1] == "man"
    assert rows(result.out)[2][3:] == ["a", "word", "of", "the", "question"]
    document = json.loads(seqwise_command("vectors", "analogy", plain, "king", "king", "man", "--json").out)
    assert [each["of_question"] for each in document["answers"]] == [False] * 5
    assert document["question"] == ["king", "king", "man"]


def test_the_word_that_does_not_belong(seqwise_command, vectors: Path):
    result = seqwise_command("vectors", "different", vectors, "king", "car", "queen", "prince")
    assert result.out.startswith("car is least similar to the others\n")
    assert rows(result.out)[2][:2] == ["1", "car"]
    document = json.loads(seqwise_command("vectors", "different", vectors, "king", "car", "queen", "--json").out)
    assert document["different"] == "car"
    assert len(document["words"]) == 3


# --- evaluate


@pytest.fixture
def tests(tmp_path: Path) -> tuple[Path, Path]:
    analogies, similarities = tmp_path / "analogies.txt", tmp_path / "pairs.tsv"
    analogies.write_text(": royal\nman king woman queen\nman prince woman princess\n: wrong\nking queen man car\n")
    similarities.write_text("king\tprince\t9\nKING\tqueen\t6\nking\tcar\t1\nking\tzebra\t5\n")
    return analogies, similarities


def test_analogy_and_similarity_tests_are_recognised_and_evaluated(seqwise_command, plain: Path, tests):
    result = seqwise_command("vectors", "evaluate", plain, *tests)
    assert result.err.count("the result is unreliable") == len(tests)  # a handful of lines each
    assert result.status == 0
    assert rows(result.out)[1:5] == [
        ["section", "correct", "answered", "accuracy", "skipped"],
        ["royal", "1", "1", "100.0%", "1"],
        ["wrong", "0", "1", "0.0%", "0"],
        ["total", "1", "2", "50.0%", "1"],
    ]
    assert "3CosAdd over all 7 words; words of the question are excluded as answers" in result.out
    assert ["1.0000", "0.9996", "3", "of", "4", "75.0%"] in rows(result.out)
    assert "Spearman (ties get average ranks)" in result.out


def test_measures_as_json(seqwise_command, plain: Path, tests):
    result = seqwise_command(
        "vectors", "evaluate", plain, *tests, "--restrict", 5, "--by", "multiply", "--keep-question", "--json"
    )
    first, second = json.loads(result.out)["tests"]
    assert first["kind"] == "analogies"
    assert "3CosMul over the 5 most frequent words; words of the question are allowed as answers" in first["method"]
    assert first["how"] == first["method"]  # the old key
    assert first["total"]["asked"] == 1
    assert (second["kind"], second["used"], second["pairs"], second["coverage"]) == ("similarities", 3, 4, 0.75)
    assert second["spearman"] == pytest.approx(1)


def test_the_usual_files_are_read(seqwise_command, plain: Path):
    if "SEQWISE_DATA" not in os.environ:
        pytest.skip("SEQWISE_DATA is not set")
    folder = Path(os.environ["SEQWISE_DATA"], "vectors-eval")
    files = [folder / name for name in ("questions-words.txt", "wordsim353.tsv", "simlex999.txt")]
    document = json.loads(seqwise_command("vectors", "evaluate", plain, *files, "--json").out)["tests"]
    assert len(document[0]["sections"]) == 14
    assert document[0]["total"]["asked"] + document[0]["total"]["skipped"] == 19_544
    assert [each["pairs"] for each in document[1:]] == [353, 999]


# --- convert


@pytest.mark.parametrize("name", ["v.safetensors", "v.bin", "v.vec", "v.txt", "v.txt.gz"])
def test_files_are_converted_by_their_suffixes(seqwise_command, vectors: Path, tmp_path: Path, name: str):
    result = seqwise_command("vectors", "convert", vectors, tmp_path / name)
    assert (result.status, result.out) == (0, f"{tmp_path / name}: 7 words, vectors of dimension 3\n")
    assert ("can no longer be composed" in result.err) == (name != "v.safetensors")
    assert np.allclose(load_vectors(tmp_path / name).matrix, load_vectors(vectors).matrix)


def test_formats_can_be_given_explicitly(seqwise_command, plain: Path, tmp_path: Path):
    assert seqwise_command("vectors", "convert", plain, tmp_path / "v.txt", "--to", "glove").status == 0
    assert (tmp_path / "v.txt").read_text().startswith("the 0.1")
    result = seqwise_command("vectors", "convert", tmp_path / "v.txt", tmp_path / "v.bin", "--from", "glove", "--json")
    document = json.loads(result.out)
    assert (document["words"], document["dim"], document["lost"]) == (7, 3, [])


# --- plot


def test_a_map_is_a_picture_or_a_page(seqwise_command, plain: Path, tmp_path: Path):
    result = seqwise_command("vectors", "plot", plain, "--skip", 1, "--out", tmp_path / "m.png")
    assert result.status == 0
    assert result.out.startswith(f"{tmp_path / 'm.png'}: 6 words, 6 of them with a label; PCA of unit vectors: ")
    assert (tmp_path / "m.png").read_bytes().startswith(b"\x89PNG")
    result = seqwise_command("vectors", "plot", plain, "--by", "tsne", "--out", tmp_path / "m.html")
    assert result.out.startswith(f"{tmp_path / 'm.html'}: 7 words; t-SNE of unit vectors: perplexity 2,")
    text = (tmp_path / "m.html").read_text()
    assert "<h1>Word map of plain.txt: the 7 most frequent words</h1>" in text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.html", "m.png"]


def test_a_map_around_words(seqwise_command, vectors: Path, tmp_path: Path):
    options = ["--neighbours", 2, "--clusters", 2, "--json", "--out", tmp_path / "m.html"]
    result = seqwise_command("vectors", "plot", vectors, "king", "kingdom", *options)
    document = json.loads(result.out)
    assert [each["word"] for each in document["words"]][:2] == ["king", "kingdom"]
    assert document["title"] == "Word map of small.safetensors: king, kingdom, each with its 2 nearest"
    assert {each["group"] for each in document["words"]} == {0, 1}
    assert "kingdom is not in the vocabulary; its vector is composed from its n-grams" in result.err


# --- what goes wrong


@pytest.mark.parametrize(
    ("words", "fragments"),
    [
        (["nearest", "FILE"], ["at least one word", "For example: seqwise vectors nearest"]),
        (["nearest", "FILE", "kng"], ["'kng' is not among the 7 words", "king"]),
        (["nearest", "FILE", "kng", "qeen"], ["'kng'", "'qeen'"]),
        (["nearest", "FILE", "king", "--n", "0"], ["at least 1", "0"]),
        (["nearest", "FILE", "king", "--by", "cosin"], ["--by", "cosine, dot, scaled"]),
        (["nearest", "missing.bin", "king"], ["missing.bin"]),
        (["nearest", "missing.bin", "king", "--n", "0"], ["--n: expected at least 1; received 0"]),
        (["analogy", "missing.bin", "a", "b", "c", "--n", "-3"], ["--n: expected at least 1; received -3"]),
        (["nearest", "FILE", "-foo"], ["If it is a word, put -- before it", "seqwise vectors nearest FILE -- -foo"]),
        (["different", "FILE", "a", "b", "--x"], ["put -- before it", "seqwise vectors different FILE -- --x"]),
        (["nearest", "FILE", "--", "-foo"], ["'-foo' is not among the 7 words"]),
        (["analogy", "FILE", "man", "king"], ["C is missing"]),
        (["analogy", "FILE", "man", "king", "womn"], ["'womn'", "woman"]),
        (["different", "FILE", "king", "queen", "king"], ["at least 3 different words; received 2"]),
        (["evaluate", "FILE"], ["no test", "For example"]),
        (["evaluate", "FILE", "missing.txt"], ["missing.txt"]),
        (["evaluate", "FILE", "FILE"], ["plain.txt", "four words"]),
        (["convert", "FILE", "v.xyz"], ["v.xyz", ".safetensors"]),
        (["convert", "FILE", "no/v.bin"], ["folder does not exist", "mkdir -p no"]),
        (["convert", "missing.txt", "no/v.bin"], ["folder does not exist"]),
        (["convert", "missing.txt", "v.xyz"], ["v.xyz", ".safetensors"]),
        (["convert", "missing.txt", "."], ["does not determine the format"]),
        (["convert", "FILE", "v.bin", "--to", "word2vec"], ["--to", "word2vec-text"]),
        (["plot", "FILE"], ["--out is missing", "For example"]),
        (["plot", "FILE", "--out", "m.gif"], ["ends in .png or .html", "m.gif"]),
        (["plot", "FILE", "--out", "no/m.png"], ["folder does not exist", "mkdir -p no"]),
        (["plot", "FILE", "kng", "--out", "m.png"], ["'kng'", "king"]),
        (["plot", "FILE", "king", "--neighbours", "1", "--out", "m.png"], ["3 to 10,000 words; received 2"]),
        (["plot", "FILE", "--n", "2", "--out", "m.png"], ["--n", "3", "received 2"]),
        (["plot", "FILE", "--skip", "9", "--out", "m.png"], ["3 to 10,000 words; received 0", "skip fewer"]),
        (["plot", "missing.bin", "--clusters", "99", "--out", "m.png"], ["--clusters", "1 to 12"]),
        (
            ["plot", "missing.bin", "king", "--neighbours", "-1", "--out", "m.png"],
            ["--neighbours", "at least 0"],
        ),
        (["plot", "missing.bin", "--skip", "-1", "--out", "m.png"], ["--skip: expected at least 0"]),
        (["plot", "FILE", "--seed", "-1", "--out", "m.png"], ["--seed", "at least 0"]),
    ],
)
def test_invalid_arguments_are_explained(seqwise_command, plain: Path, words, fragments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = seqwise_command("vectors", *(plain if word == "FILE" else word for word in words))
    assert result.status == 2
    assert [part for part in fragments if part not in result.err] == []
    assert result.out == ""
    assert list(tmp_path.iterdir()) == []


def test_a_test_without_known_words_is_reported(seqwise_command, plain: Path, tmp_path: Path):
    (tmp_path / "pairs.tsv").write_text("zebra\tgnu\t5\nlion\tgnu\t4\n")
    (tmp_path / "questions.txt").write_text("zebra gnu lion ant\n")
    result = seqwise_command("vectors", "evaluate", plain, tmp_path / "pairs.tsv", tmp_path / "questions.txt")
    assert result.status == 0
    assert result.err.count("nothing could be measured: no line has all its words in the vocabulary") == 2


def test_a_title_with_a_lone_surrogate_can_be_written(seqwise_command, tmp_path: Path):
    path = tmp_path / "v.safetensors"
    save_vectors(path, KeyedVectors(["a", "b", "\ud800"], np.eye(3, dtype=np.float32)))
    result = seqwise_command("vectors", "plot", path, "\ud800", "a", "--out", tmp_path / "m.html")
    assert result.status == 0
    assert "Word map of v.safetensors: ⟨U+D800⟩, a" in (tmp_path / "m.html").read_text()


def test_the_help_of_convert_says_what_is_compressed(seqwise_command):
    text = " ".join(seqwise_command("vectors", "convert", "--help").out.split())
    assert "With .gz added, all but .safetensors" in text


def test_each_cell_of_a_table_is_measured_once(monkeypatch, capsys):
    from seqwise.cli.vectors import query

    measured: list[str] = []
    monkeypatch.setattr(query, "cell_len", lambda cell: measured.append(cell) or len(cell))
    query.write_table([["word", "a", "bb"], ["score", "1", "2"]], "<>")
    assert capsys.readouterr().out == "word  score\na         1\nbb        2\n"
    assert len(measured) == 6
