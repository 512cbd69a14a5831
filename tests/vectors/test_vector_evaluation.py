"""Analogies and similarities: results equal those of gensim and hand-computed ones."""

from __future__ import annotations

import os
from pathlib import Path

import gensim
import numpy as np
import pytest

from seqwise.errors import DataError, UsageError
from seqwise.vectors import evaluation
from seqwise.vectors.evaluation import (
    Pair,
    Question,
    SectionResult,
    compute_ranks,
    detect_kind,
    evaluate_analogies,
    evaluate_similarities,
    read_analogies,
    read_similarities,
)
from seqwise.vectors.keyed import KeyedVectors

RNG = np.random.default_rng(3)


def build_vectors(rows: int = 60, noise: float = 0.45) -> KeyedVectors:
    """Returns words in pairs with a common difference, so that some analogies succeed and some do not."""
    base = RNG.normal(size=(rows, 10))
    other = base + RNG.normal(size=10) + noise * RNG.normal(size=(rows, 10))
    words = [word for number in range(rows) for word in (f"word{number}", f"other{number}")]
    return KeyedVectors(words, np.stack([base, other], axis=1).reshape(-1, 10))


def write_questions(path: Path, rows: int = 60) -> Path:
    lines = []
    for section in ("first", "second"):
        lines.append(f": {section}")
        for _ in range(150):
            a, b = RNG.integers(0, rows + 3, 2)  # some are unknown
            lines.append(f"Word{a} Other{a} word{b} OTHER{b}")
    path.write_text("\n".join(lines) + "\n")
    return path


def to_gensim(keyed: KeyedVectors) -> gensim.models.KeyedVectors:
    other = gensim.models.KeyedVectors(keyed.dim)
    other.add_vectors(list(keyed.words), keyed.matrix)
    return other


def assert_equals_gensim(keyed: KeyedVectors, path: Path, restrict: int) -> None:
    result = evaluate_analogies(keyed, read_analogies(path), restrict)
    accuracy, sections = to_gensim(keyed).evaluate_word_analogies(str(path), restrict_vocab=restrict)
    assert result.total.accuracy == accuracy
    assert [(each.name, each.num_correct, each.num_answered) for each in result.sections] == [
        (each["section"], len(each["correct"]), len(each["correct"] + each["incorrect"])) for each in sections[:-1]
    ]


@pytest.mark.parametrize("restrict", [120, 50])
@pytest.mark.parametrize("max_cosines", [1 << 23, 10])
def test_analogies_are_those_of_gensim(
    restrict: int, max_cosines: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(evaluation, "MAX_COSINES", max_cosines)
    monkeypatch.setattr(evaluation, "MIN_BLOCK_ROWS", 7)
    assert_equals_gensim(build_vectors(), write_questions(tmp_path / "q.txt"), restrict)


@pytest.mark.parametrize("by", ["add", "multiply"])
@pytest.mark.parametrize("exclude", [True, False])
def test_answers_of_a_batch_equal_those_of_single_questions(by, exclude: bool, tmp_path: Path):
    keyed = build_vectors()
    questions = [each for each in read_analogies(write_questions(tmp_path / "q.txt")) if each.d.lower() in keyed]
    questions = [each for each in questions if each.b.lower() in keyed][:60]
    num_correct = sum(
        keyed.analogy(a.lower(), b.lower(), c, 1, by, exclude)[0].word == d.lower() for _, a, b, c, d in questions
    )
    result = evaluate_analogies(keyed, questions, by=by, exclude=exclude)
    assert result.total == SectionResult("total", num_correct, 60, 0)
    assert num_correct > 0 or not exclude


def test_questions_with_unknown_words_are_skipped_and_counted():
    keyed = KeyedVectors(["a", "b", "c", "d"], np.eye(4))
    questions = [
        Question("s", "a", "b", "c", "d"),
        Question("s", "a", "b", "c", "z"),
        Question("t", "y", "b", "c", "d"),
    ]
    result = evaluate_analogies(keyed, questions)
    assert result.sections == (SectionResult("s", 1, 1, 1), SectionResult("t", 0, 0, 1))
    assert result.total == SectionResult("total", 1, 1, 2)
    assert result.sections[1].accuracy is None
    assert evaluate_analogies(keyed, questions, restrict=3).total == SectionResult("total", 0, 0, 3)
    assert evaluate_analogies(keyed, []).total.accuracy is None


def test_accuracy_equals_gensim_on_a_vocabulary_with_capitals(tmp_path: Path):
    """Spellings that differ in capitals alone count as one word, also as answers; the most frequent is looked up."""
    small = build_vectors()
    words, rows = [], []
    for number, (word, row) in enumerate(zip(small.words, small.matrix)):
        forms = [[word.capitalize()], [word.upper()], [word.capitalize(), word.upper()]][number % 3]
        words += forms
        rows += [row + 0.02 * RNG.normal(size=10) for _ in forms]
    keyed = KeyedVectors(words, np.stack(rows))
    path = tmp_path / "q.txt"
    path.write_text(
        write_questions(path).read_text().lower()
    )  # a spelling that no word has: both look up the most frequent form
    assert_equals_gensim(keyed, path, len(keyed))
    assert_equals_gensim(keyed, path, 80)
    assert evaluate_analogies(keyed, read_analogies(path)).total.num_correct > 20
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"word{a}\tother{b}\t{a * b % 7}\n" for a in range(9) for b in range(9)))
    result = evaluate_similarities(keyed, read_similarities(pairs))
    assert result.num_known == 81
    assert result.spearman == pytest.approx(to_gensim(keyed).evaluate_word_pairs(str(pairs))[1][0], abs=1e-6)


def test_large_numbers_have_a_correlation():
    keyed = KeyedVectors(["a", "b", "c"], np.array([[1e25, 0], [1e25, 1e24], [0, 1e25]]))
    assert evaluate_similarities(keyed, [Pair("a", "b", 2), Pair("a", "c", 1)]).pearson == pytest.approx(1)


def test_a_word_is_looked_up_as_written_before_lower_case():
    keyed = KeyedVectors(["us", "US", "b"], np.array([[1, 0], [0, 1], [0, 2]]))
    pairs = [Pair("US", "b", 5.0), Pair("Us", "b", 1.0)]
    assert evaluate_similarities(keyed, pairs).pearson == pytest.approx(1)


def test_progress_reaches_the_vocabulary_size(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(evaluation, "MAX_COSINES", 10)
    reports: list[tuple[int, int]] = []
    keyed = KeyedVectors([f"w{i}" for i in range(200)], RNG.normal(size=(200, 4)))
    evaluate_analogies(keyed, [Question("s", "w1", "w2", "w3", "w4")], progress=lambda *report: reports.append(report))
    assert reports == [(64, 200), (128, 200), (192, 200), (200, 200)]


def test_similarities_are_those_of_gensim(tmp_path: Path):
    keyed = build_vectors()
    lines = ["# a comment", "Word 1\tWord 2\tHuman"]
    for _ in range(80):
        a, b = RNG.integers(0, 63, 2)
        lines.append(f"word{a}\tOther{b}\t{RNG.integers(0, 10)}")  # scores repeat: ranks are shared
    path = tmp_path / "pairs.tsv"
    path.write_text("\n".join(lines) + "\n")
    result = evaluate_similarities(keyed, read_similarities(path))
    pearson, spearman, unknown = to_gensim(keyed).evaluate_word_pairs(str(path))
    assert result.spearman == pytest.approx(spearman[0], abs=1e-6)
    assert result.pearson == pytest.approx(pearson[0], abs=1e-6)
    assert result.num_pairs == 80
    assert 100 * (1 - result.coverage) == pytest.approx(unknown)


def test_equal_values_share_their_mean_rank():
    assert compute_ranks(np.array([3.0, 1.0, 3.0, 2.0, 3.0])).tolist() == [4, 1, 4, 2, 4]


def test_constant_values_have_no_correlation():
    keyed = KeyedVectors(["a", "b", "c"], np.ones((3, 2)))
    result = evaluate_similarities(keyed, [Pair("a", "b", 1), Pair("a", "z", 2)])
    assert (result.spearman, result.pearson, result.num_known, result.coverage) == (None, None, 1, 0.5)
    assert evaluate_similarities(keyed, [Pair("a", "b", 1), Pair("a", "c", 2)]).spearman is None
    assert evaluate_similarities(keyed, [Pair("x", "y", 1)]).num_known == 0


@pytest.mark.parametrize(
    "content", ["a\tb\t1.5\n", "# comment\na,b,1.5\n", "Word 1,Word 2,Human (mean)\na,b,1.5\n", "a b 1.5"]
)
def test_fields_are_separated_by_tabs_commas_or_spaces(content: str, tmp_path: Path):
    path = tmp_path / "pairs"
    path.write_text(content)
    assert detect_kind(path) == "similarities"
    assert read_similarities(path) == [Pair("a", "b", 1.5)]


SIMLEX = (
    "word1\tword2\tPOS\tSimLex999\tconc(w1)\tconc(w2)\tconcQ\tAssoc(USF)\tSimAssoc333\tSD(SimLex)\n"
    "old\tnew\tA\t1.58\t2.72\t2.81\t2\t7.25\t1\t0.41\n"
    "smart\tintelligent\tA\t9.2\t1.75\t2.46\t1\t7.11\t1\t0.67\n"
)


@pytest.mark.parametrize(
    ("content", "scores"),
    [
        (SIMLEX, [1.58, 9.2]),
        ("Word 1\tWord 2\tHuman (mean)\t1\t2\na\tb\t7.5\t8\t7\n", [7.5]),
        ("one,two,sd,Similarity\na,b,0.3,7\n", [7]),
        ("take\tremove\tV\t6.81\tSYNONYMS\nwalk\ttrail\tV\t4.81\tCOHYPONYMS\n", [6.81, 4.81]),
        ("word word class figure\nold new A 1.58\n", [1.58]),
        ("\n# comment\n\n# comment\n\none two three\na b 4\n", [4]),
    ],
)
def test_the_score_column_is_found_by_name_or_after_the_part_of_speech(content: str, scores: list, tmp_path: Path):
    path = tmp_path / "pairs"
    path.write_text(content)
    assert detect_kind(path) == "similarities"
    assert [pair.score for pair in read_similarities(path)] == scores


@pytest.mark.parametrize("content", ["a,b,c,d\n", "a\tb\tc\td\n", "a b , d\n", "good better score d\na b c d\n"])
def test_files_detected_as_analogies_are_read(content: str, tmp_path: Path):
    path = tmp_path / "questions"
    path.write_text(content)
    assert detect_kind(path) == "analogies"
    assert {question.d for question in read_analogies(path)} == {"d"}


def test_questions_before_the_first_section_are_read(tmp_path: Path):
    path = tmp_path / "questions"
    path.write_text("a b c d\n: more \n\ne f g h\n")
    assert detect_kind(path) == "analogies"
    assert read_analogies(path) == [Question("all", "a", "b", "c", "d"), Question("more", "e", "f", "g", "h")]


@pytest.mark.parametrize(
    ("read", "content", "line", "message"),
    [
        (read_analogies, b": s\na b c\n", 2, "expected four words; found 3"),
        (read_analogies, b": s\n", None, "no question"),
        (read_similarities, b"a\tb\t1\na\tb\n", 2, "expected two words and a number"),
        (read_similarities, b"a\tb\t1\na\tb\tx\n", 2, "expected two words and a number"),
        (read_similarities, b"a\tb\tnan\nc\td\tnan\n", 2, "expected two words and a number"),
        (read_similarities, b"", None, "no question"),
        (read_similarities, b"\xe9\tb\t1\n", 1, "not UTF-8"),
        (detect_kind, b"It was the best of times\n", None, "four words per line"),
        (detect_kind, b"", None, "four words per line"),
    ],
)
def test_a_damaged_file_of_questions_raises_an_error_with_its_line(
    read, content: bytes, line, message: str, tmp_path: Path
):
    path = tmp_path / "questions"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as excinfo:
        read(path)
    assert excinfo.value.line == line


def test_invalid_evaluation_settings_raise_an_error():
    keyed = KeyedVectors(["a"], np.ones((1, 2)))
    with pytest.raises(UsageError, match="add or multiply"):
        evaluate_analogies(keyed, [], by="divide")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="at least 1 word"):
        evaluate_analogies(keyed, [], restrict=0)
    with pytest.raises(UsageError, match="at least one pair"):
        evaluate_similarities(keyed, [])


@pytest.fixture
def data() -> Path:
    if "SEQWISE_DATA" not in os.environ:
        pytest.skip("set SEQWISE_DATA to the folder that holds vectors-eval/questions-words.txt")
    return Path(os.environ["SEQWISE_DATA"]) / "vectors-eval"


def test_the_published_files_are_read(data: Path):
    questions = read_analogies(data / "questions-words.txt")
    assert (len(questions), len({each.section for each in questions})) == (19_544, 14)
    assert questions[0] == Question("capital-common-countries", "Athens", "Greece", "Baghdad", "Iraq")
    assert [len(read_similarities(data / name)) for name in ("wordsim353.tsv", "simlex999.txt")] == [353, 999]
    kinds = [detect_kind(data / name) for name in ("questions-words.txt", "wordsim353.tsv", "simlex999.txt")]
    assert kinds == ["analogies", "similarities", "similarities"]


def test_figures_on_the_published_files_equal_those_of_gensim(data: Path):
    questions = read_analogies(data / "questions-words.txt")[:506]  # the first section
    words = sorted({word.lower() for question in questions for word in question[1:]})
    for name in ("wordsim353.tsv", "simlex999.txt"):
        words += [word.lower() for pair in read_similarities(data / name)[::2] for word in pair[:2]]
    words = list(dict.fromkeys(words))
    keyed = KeyedVectors(words, np.random.default_rng(0).normal(size=(len(words), 3)))
    assert_equals_gensim(keyed, data / "questions-words.txt", 300_000)
    for name in ("wordsim353.tsv", "simlex999.txt"):
        result = evaluate_similarities(keyed, read_similarities(data / name))
        _, spearman, unknown = to_gensim(keyed).evaluate_word_pairs(str(data / name))
        assert result.spearman == pytest.approx(spearman[0], abs=1e-6)
        assert 100 * (1 - result.coverage) == pytest.approx(unknown)
