"""The families of a comparison: names, variants, and errors about them."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqwise.compare.plan.variants import COMMON_SETTINGS, build_families, check_distinct, check_family
from seqwise.config import FAMILIES, Settings, parse_settings
from seqwise.errors import UsageError
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks import get_task
from seqwise.tasks.defaults import DefaultsContext, resolve

BASE = parse_settings({"task": "language", "seed": 3, "network": {"dropout": 0.25}})


@pytest.fixture
def write_variants(tmp_path):
    """A function that writes a variants file with a text and returns its path."""

    def write(text: str) -> Path:
        path = tmp_path / "variants.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def get_error_message(variants, models=(), base: Settings = BASE) -> str:
    with pytest.raises(UsageError) as excinfo:
        build_families(models, variants, base)
    return str(excinfo.value)


def test_each_family_is_the_base_settings_with_another_model():
    families = build_families(FAMILIES, None, BASE)
    assert list(families) == list(FAMILIES)
    for family, settings in families.items():
        assert settings.model == family
        assert settings.network.dropout == 0.25
        assert settings.network.width is None
    assert BASE.model == "lstm"


def test_a_variant_overrides_only_its_own_settings(write_variants):
    path = write_variants("wide-gru: {model: gru, network: {width: 512}}\ndeep.2:\n  model: lstm\n  network.depth: 3\n")
    families = build_families(["rnn"], path, BASE)
    assert list(families) == ["rnn", "wide-gru", "deep.2"]
    assert families["wide-gru"].model == "gru"
    assert (families["wide-gru"].network.width, families["wide-gru"].network.depth) == (512, None)
    assert (families["deep.2"].network.width, families["deep.2"].network.depth) == (None, 3)
    assert all(settings.network.dropout == 0.25 and settings.seed == 3 for settings in families.values())


def test_variants_can_be_given_as_a_mapping():
    families = build_families(
        [], {"a": {"model": "gru", "network.width": 8}, "b": {"model": "rnn", "network": {"width": 8}}}, BASE
    )
    assert (families["a"].model, families["b"].model) == ("gru", "rnn")
    assert families["a"].network.width == families["b"].network.width == 8


def test_a_variant_named_like_a_family_is_of_that_family(write_variants):
    families = build_families(["rnn"], write_variants("gru: {network.depth: 2}\ntransformer:\n"), BASE)
    assert {name: settings.model for name, settings in families.items()} == {
        "rnn": "rnn",
        "gru": "gru",
        "transformer": "transformer",
    }
    assert "it is named like a family, but its model is 'lstm'" in get_error_message(
        write_variants("gru: {model: lstm}")
    )


def test_a_variant_must_name_its_model():
    assert "it names no model. Add model: one of feedforward, rnn" in get_error_message(
        {"wide": {"network": {"width": 64}}}
    )


def test_yaml_anchors_and_merges_work(write_variants):
    families = build_families(
        [], write_variants("a: &a {model: gru, network.width: 8}\nb: {<<: *a, network.depth: 2}\n"), BASE
    )
    assert (families["b"].model, families["b"].network.width, families["b"].network.depth) == ("gru", 8, 2)


def test_all_mistakes_are_reported_at_once_with_name_and_line(write_variants):
    path = write_variants(
        "one:\n"
        "  model: gruu\n"
        "  network:\n"
        "    widht: 5\n"
        "two: {model: gru, network.depth: 0}\n"
        "three:\n"
        "  model: lstm\n"
        "  text.vocabulary: 100\n"
        "  netwrk.width: 3\n"
        "four: 7\n"
        "bad name: {model: rnn}\n"
    )
    lines = get_error_message(path).splitlines()
    assert lines[0] == f"{path}: line 2, one: there is no family 'gruu'. Perhaps you meant 'gru'."
    assert lines[1] == "line 4, one: network.widht: no such setting. Perhaps you meant 'width'."
    assert lines[2].startswith("line 5, two: network.depth: input should be greater than or equal to 1; received 0")
    assert lines[3] == (
        "line 8, three: text.vocabulary cannot be set for one variant alone, because one tokeniser serves all."
    )
    assert lines[4] == "line 9, three: netwrk: no such setting. Perhaps you meant 'network'."
    assert lines[5].startswith("line 10, four: expected settings, found 7")
    assert lines[6].startswith("line 11, bad name: a name has at most 60 letters")
    assert lines[7] == "Set these for all families, on the command line."
    assert len(lines) == 8


def test_a_variant_cannot_change_the_loss_that_selects_weights():
    assert "all are selected by the same loss" in COMMON_SETTINGS["classify.class_weights"]


@pytest.mark.parametrize("key", sorted(COMMON_SETTINGS))
def test_the_error_about_a_common_setting_in_a_variant_has_the_reason(key):
    problem = get_error_message({"mine": {"model": "gru", key: 1}})
    assert problem.startswith(f"mine: {key} cannot be set for one variant alone, because {COMMON_SETTINGS[key]}.")


@pytest.mark.parametrize("key", ["text.lowercase", "text.min_count", "forecast.lookback", "data.max_length"])
def test_a_common_section_is_an_error_for_nested_and_for_dotted_keys(key):
    section, _, inner = key.partition(".")
    assert key in get_error_message({"mine": {section: {inner: 3}}})


@pytest.mark.parametrize(
    "value",
    [
        {"data.window": 32},
        {"training.learning_rate": 0.1},
        {"recurrent": {"layer_norm": True}},
        {"network.output": "sampled"},
        {"forecast.patch": 4},
        {"translate.attention": "dot"},
        {"context.length": 3},
    ],
)
def test_settings_of_model_and_training_are_allowed_in_a_variant(value):
    assert list(build_families(["gru"], {"mine": {"model": "gru", **value}}, BASE)) == ["gru", "mine"]


def test_a_variant_can_leave_out_pretrained_vectors():
    base = parse_settings({"task": "classify", "vectors": "words.txt", "network": {"freeze_embedding": True}})
    families = build_families(["gru", "ngram"], {"plain": {"model": "gru", "vectors": None}}, base)
    assert (families["gru"].vectors, families["gru"].network.freeze_embedding) == ("words.txt", True)
    assert (families["plain"].vectors, families["plain"].network.freeze_embedding) == (None, False)
    assert (families["ngram"].vectors, families["ngram"].network.freeze_embedding) == (None, False)
    assert "one file of vectors serves all" in get_error_message({"other": {"vectors": "more.txt"}}, base=base)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "-x", "a.", "ü", "x" * 61])
def test_names_that_cannot_be_folder_names_raise_an_error(name):
    assert "a folder is named after it" in get_error_message({name: {"model": "gru"}})


@pytest.mark.parametrize("name", ["a", "7", "A-b_c.d", "x" * 60])
def test_valid_names_are_accepted(name):
    assert name in build_families([], {name: {"model": "gru"}}, BASE)


def test_names_that_are_taken_or_differ_only_in_case_raise_an_error(write_variants):
    assert "the name differs from 'gru' only in case" in get_error_message({"GRU": {"model": "gru"}}, ["gru"])
    assert "the name is taken" in get_error_message({"gru": {"network.width": 3}}, ["gru"])
    text = "one: {model: gru}\nother: {model: rnn}\none: {model: lstm}\n"
    assert "line 3, one: the name is taken" in get_error_message(write_variants(text))


def test_a_key_that_yaml_reads_as_a_boolean_is_named_as_it_is_written(write_variants):
    text = "no:\n  model: gru\n  network:\n    yes: 3\n  on: 4\n"
    problem = get_error_message(write_variants(text))
    assert "line 4, no: network.yes: no such setting. Choose from: width, " in problem
    assert "line 5, no: on: no such setting. Choose from: task, " in problem


def test_a_setting_given_twice_raises_an_error(write_variants):
    text = "one:\n  model: gru\n  network: {width: 3}\n  network.width: 4\n"
    assert "line 4, one: network.width is given twice" in get_error_message(write_variants(text))
    text = "one:\n  network: {width: 3}\n  network: {depth: 4}\n"
    assert "line 3, one: network is given twice" in get_error_message(write_variants(text))


def test_unknown_and_repeated_families_are_reported_together():
    problem = get_error_message(None, ["gru", "transfomer", "gru"])
    assert "there is no family 'transfomer'. Perhaps you meant 'transformer'." in problem
    assert "gru is named more than once" in problem


@pytest.mark.filterwarnings("error")
def test_values_of_a_wrong_type_raise_an_error():
    assert "a: model: input should be a valid string" in get_error_message({"a": {"model": 5}})
    assert "a: network: input should be a valid dictionary" in get_error_message({"a": {"network": [1]}})
    assert "a: network.width" in get_error_message({"a": {"network": {"width": {"of": 3}}}})


def test_families_with_identical_settings_raise_an_error():
    assert "gru and same have identical settings" in get_error_message({"same": {"model": "gru"}}, ["gru"])
    with pytest.raises(UsageError, match="a and b have identical settings"):
        check_distinct({"a": BASE, "c": parse_settings({}), "b": BASE.model_copy(deep=True)})


def test_init_raises_an_error_in_a_comparison():
    base = parse_settings({"init": "runs/one"})
    assert "from scratch" in get_error_message(None, ["gru"], base)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "expected names with settings, found nothing"),
        ("{}", "expected names with settings, found nothing"),
        ("- a\n- b\n", "found a sequence"),
        ("just words", "found a scalar"),
        ("a: {model: gru\nb: 3", "variants.yaml:2: not valid YAML"),
        ("a: !!python/object/apply:os.system [echo]", "not valid YAML"),
        ("a: {when: 2001-99-99}", "not valid YAML"),
        ("a: &a {network: *a}", "recursive"),
        ("a: \x07", "not valid YAML"),
    ],
)
def test_files_without_variants_raise_an_error(write_variants, text, problem):
    assert problem in get_error_message(write_variants(text))


def test_files_that_cannot_be_read_raise_an_error(tmp_path):
    assert "does not exist" in get_error_message(tmp_path / "none.yaml")
    assert "cannot be read" in get_error_message(tmp_path)
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    assert "cannot be read" in get_error_message(tmp_path / "bytes")


def test_a_comparison_without_families_raises_an_error():
    assert "nothing to compare" in get_error_message(None)
    assert "nothing to compare" in get_error_message({})


@pytest.fixture(scope="module")
def language(book):
    settings = parse_settings({"task": "language", "budget": "2-epochs"})
    task = get_task("language").prepare(str(book), settings)
    return task, settings, DefaultsContext(len(task.stores["train"]), len(task.tokenizer), False, 2)


def test_a_family_that_cannot_do_the_task_is_named(language):
    task, base, context = language
    families = build_families(["gru", "ngram"], {"both": {"model": "gru", "recurrent.bidirectional": True}}, base)
    settings = {name: resolve(each, context)[0] for name, each in families.items()}
    check_family(task, "gru", settings["gru"])
    check_family(task, "ngram", settings["ngram"])
    with pytest.raises(UsageError, match=r"^both: a language model must not see what it predicts"):
        check_family(task, "both", settings["both"])


def test_an_ngram_model_for_another_task_raises_an_error_with_the_alternatives(tmp_path):
    path = tmp_path / "some.tsv"
    path.write_text("".join(f"text {n} is {'good' if n % 2 else 'bad'}\t{n % 2}\n" for n in range(80)), "utf-8")
    settings = parse_settings({"task": "classify", "model": "ngram"})
    task = get_task("classify").prepare(str(path), settings)
    with pytest.raises(UsageError) as excinfo:
        check_family(task, "baseline", ResolvedSettings.from_settings(settings))
    assert excinfo.value.problem == (
        "baseline: the family ngram cannot do the task classify: it predicts the next token from n-gram counts."
    )
    assert "feedforward, rnn, gru, lstm, attentive-rnn, transformer" in excinfo.value.fix
