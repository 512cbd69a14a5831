"""Families are matched in size, for every task and target."""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
import torch

from seqwise.compare.plan.sizes import (
    TOLERANCE,
    MatchedSizes,
    count_parameters,
    match_sizes,
    resolve_sizes,
    use_default_sizes,
)
from seqwise.config import FAMILIES, TASKS, Settings, parse_settings
from seqwise.errors import UsageError
from seqwise.tasks import get_task
from seqwise.tasks.defaults import DefaultsContext
from seqwise.tasks.task import Task
from seqwise.training.choices import build_defaults_context

sys.path.append(str(Path(__file__).parents[2] / "contracts"))  # small data of each task

NEURAL = [family for family in FAMILIES if family != "ngram"]
CPU = torch.device("cpu")
TARGETS = {"forecast": (9_000, 60_000)}
DEFAULT_TARGETS = 30_000, 150_000  # of the other tasks
# Sections of the settings in contracts/ that are left out, since the sizes are computed here.
MODEL_SECTIONS = ("network", "transformer", "training")


@pytest.fixture(scope="module")
def prepare_task(tmp_path_factory, book):
    """Task → the task on small data, the settings common to all families, and the context of the default rules."""

    @cache
    def prepare(name: str) -> tuple[Task, Settings, DefaultsContext]:
        values: dict = {"task": name, "budget": "2-epochs"}
        data = str(book)
        if name != "language":
            row = import_module(f"rows_{name}").ROW
            data = row.write(tmp_path_factory.mktemp(name))
            values |= {key: value for key, value in row.settings.items() if key not in MODEL_SECTIONS}
        settings = parse_settings(values)
        task = get_task(name).prepare(data, settings)
        return task, settings, build_defaults_context(task, CPU, 1)

    return prepare


@pytest.fixture(scope="module")
def prepare_large_task(tmp_path_factory):
    """The same as `prepare_task`, with vocabularies of 10,000 words, as large as that of PTB."""
    generator = random.Random(2)
    words = [f"{generator.choice('bdfgk')}{number}" for number in range(9_990)]
    folder = tmp_path_factory.mktemp("large")
    (folder / "text.txt").write_text(
        "".join(" ".join(words[i : i + 10]) + " .\n" for i in range(0, 9_990, 10)) * 3, encoding="utf-8"
    )
    lines = "".join(f"{' '.join(words[i : i + 10])}\t{'ab'[i // 10 % 2]}\n" for i in range(0, 9_990, 10))
    (folder / "labels.tsv").write_text(lines, encoding="utf-8")
    pairs = "".join(f"{' '.join(words[i : i + 10])}\t{' '.join(words[i : i + 9])}\n" for i in range(0, 9_990, 10))
    (folder / "pairs.tsv").write_text("source\ttarget\n" + pairs, encoding="utf-8")
    files = {"language": "text.txt", "classify": "labels.tsv", "translate": "pairs.tsv"}

    @cache
    def prepare(name: str) -> tuple[Task, Settings, DefaultsContext]:
        settings = parse_settings({"task": name, "budget": "2m", "text": {"tokenizer": "words"}})
        task = get_task(name).prepare(str(folder / files[name]), settings)
        return task, settings, replace(build_defaults_context(task, CPU, 1), num_tokens=929_589)

    return prepare


def families(base: Settings, names: list[str] | None = None) -> dict[str, Settings]:
    return {name: base.model_copy(update={"model": name}, deep=True) for name in names or NEURAL}


def variant(base: Settings, model: str, values: dict) -> Settings:
    """The base settings with some of a section replaced."""
    merged = base.model_dump() | {"model": model}
    for section, inner in values.items():
        merged[section] = {**merged[section], **inner} if isinstance(inner, dict) else inner
    return parse_settings(merged)


def spread(matched: MatchedSizes) -> float:
    counts = matched.parameters.values()
    return max(counts) / min(counts) - 1


def count_built_parameters(task: Task, settings: Settings) -> int:
    """Builds the model and counts its parameters, without those of an n-gram head."""
    parameters = task.build(settings).named_parameters()
    return sum(parameter.numel() for name, parameter in parameters if not name.startswith("ngrams."))


@pytest.mark.parametrize("size", ["small", pytest.param("large", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", TASKS)
def test_all_families_of_a_task_reach_any_target(prepare_task, name, size):
    task, base, context = prepare_task(name)
    target = TARGETS.get(name, DEFAULT_TARGETS)[size == "large"]
    matched = match_sizes(task, families(base), context, target)
    assert matched.target == target
    assert spread(matched) <= TOLERANCE
    assert all(abs(count / target - 1) <= TOLERANCE for count in matched.parameters.values())
    for family, settings in matched.settings.items():
        default = resolve_sizes(families(base)[family], context)
        assert count_built_parameters(task, settings) == matched.parameters[family]
        assert settings.network.depth == default.network.depth
        assert (settings.data, settings.text) == (default.data, default.text)
        assert settings.training.batch_size == default.training.batch_size
        task.check(settings)


@pytest.mark.parametrize("name", ["language", "forecast"])
def test_without_a_target_all_get_the_median_of_the_default_sizes(prepare_task, name):
    task, base, context = prepare_task(name)
    sizes = {family: count_parameters(task, resolve_sizes(each, context)) for family, each in families(base).items()}
    matched = match_sizes(task, families(base), context)
    assert matched.target == sorted(sizes.values())[2]  # the lower one of six
    assert spread(matched) <= TOLERANCE
    middle = next(family for family, size in sizes.items() if size == matched.target)
    assert matched.settings[middle].model_dump() == resolve_sizes(families(base)[middle], context).model_dump()


@pytest.mark.parametrize("name", ["language", "classify", "translate"])
def test_real_vocabularies_are_matched_too(prepare_large_task, name):
    task, base, context = prepare_large_task(name)
    assert task.size().vocabulary_size >= 8_000
    matched = match_sizes(task, families(base, ["rnn", "gru", "attentive-rnn", "transformer"]), context)
    assert spread(matched) <= TOLERANCE
    assert matched.target is not None
    assert matched.target > 1_000_000
    for family in ("gru", "transformer"):
        task.check(matched.settings[family])
        assert count_built_parameters(task, matched.settings[family]) == matched.parameters[family]


def test_settings_derived_from_the_width_follow_it(prepare_large_task):
    _, base, context = prepare_large_task("language")
    narrow, wide = (resolve_sizes(families(base)["lstm"], context, width) for width in (64, 1024))
    assert (narrow.network.width, narrow.network.embedding) == (64, 64)
    assert (wide.network.width, wide.network.embedding) == (1024, 1024)
    assert narrow.training.learning_rate > wide.training.learning_rate
    transformer = resolve_sizes(families(base)["transformer"], context, 128)
    assert transformer.transformer.hidden == 512


def test_a_transformer_keeps_its_heads_and_a_second_size_closes_the_gap(prepare_large_task):
    task, base, context = prepare_large_task("language")
    heads = resolve_sizes(families(base)["transformer"], context).transformer.heads
    notes = []
    for target in range(1_000_000, 1_120_000, 40_000):
        matched = match_sizes(task, families(base, ["transformer"]), context, target)
        matched_settings = matched.settings["transformer"]
        assert matched_settings.transformer.heads == heads == 4
        assert matched_settings.network.width % (2 * heads) == 0
        notes += [note for note in matched.notes if f"hidden {matched_settings.transformer.hidden} instead of" in note]
        if not matched.notes:
            assert matched_settings.transformer.hidden == 4 * matched_settings.network.width
    assert notes  # steps of 8 are 8 % of such a network


def test_a_network_too_narrow_for_its_heads_gets_fewer_one_by_one(prepare_large_task):
    task, base, context = prepare_large_task("language")
    matched = match_sizes(task, families(base, ["transformer"]), context, 10_000 * 7)
    assert matched.settings["transformer"].transformer.heads == 3
    assert "heads 3 instead of 4" in matched.notes[0]


def test_a_small_tagger_gets_narrower_embeddings(prepare_task):
    task, base, context = prepare_task("tag")
    default = resolve_sizes(families(base)["lstm"], context)
    target = count_parameters(task, default) // 20
    small = match_sizes(task, families(base, ["lstm"]), context, target).settings["lstm"]
    assert default.network.embedding == 100
    assert small.network.embedding < 100
    assert small.network.width > 10


def test_sizes_that_the_user_set_are_kept(prepare_task):
    task, base, context = prepare_task("language")
    settings_by_name = families(base, ["rnn", "gru", "lstm"])
    settings_by_name["wide"] = variant(base, "gru", {"network": {"width": 200}})
    settings_by_name["deep"] = variant(base, "gru", {"network": {"depth": 3}})
    settings_by_name["slim"] = variant(base, "lstm", {"network": {"embedding": 24}})
    settings_by_name["two"] = variant(base, "transformer", {"transformer": {"heads": 2, "hidden": 100}})
    matched = match_sizes(task, settings_by_name, context)
    matched_settings = matched.settings
    assert matched_settings["wide"].network.width == 200
    assert [note for note in matched.notes if note.startswith("wide: not matched; its width is set to 200")]
    assert matched_settings["deep"].network.depth == 3
    assert matched_settings["slim"].network.embedding == 24
    assert (matched_settings["two"].transformer.heads, matched_settings["two"].transformer.hidden) == (2, 100)
    free = {name: count for name, count in matched.parameters.items() if name != "wide"}
    assert max(free.values()) / min(free.values()) - 1 <= TOLERANCE
    for settings in matched_settings.values():
        task.check(settings)


def test_a_width_that_fits_by_itself_needs_no_note(prepare_task):
    task, base, context = prepare_task("language")
    width = resolve_sizes(families(base)["lstm"], context).network.width
    settings_by_name = {"lstm": families(base)["lstm"], "same": variant(base, "lstm", {"network": {"width": width}})}
    assert match_sizes(task, settings_by_name, context).notes == ()


def test_with_all_widths_set_nothing_is_matched(prepare_task):
    task, base, context = prepare_task("language")
    for target in (None, 300_000):
        matched = match_sizes(task, {"a": variant(base, "gru", {"network": {"width": 16}})}, context, target)
        assert matched.target is None
        assert matched.parameters["a"] == count_built_parameters(task, matched.settings["a"])
        assert matched.notes[0].startswith("a: not matched; its width is set to 16")


def test_weights_of_ngrams_are_neither_matched_nor_counted(prepare_large_task):
    task, base, context = prepare_large_task("classify")
    with_ngrams = base.model_copy(update={"classify": base.classify.model_copy(update={"ngrams": 2})}, deep=True)
    names = ["gru", "transformer"]
    plain, matched = (match_sizes(task, families(each, names), context) for each in (base, with_ngrams))
    assert matched.parameters == plain.parameters
    assert [matched.settings[name].network for name in names] == [plain.settings[name].network for name in names]
    buckets = matched.settings["gru"].classify.ngram_buckets
    number = (task.size().vocabulary_size + buckets) * 2 + 2  # a weight per row and label, and the biases
    head = task.build(matched.settings["gru"]).ngrams
    assert sum(parameter.numel() for parameter in head.parameters()) == number
    prefix = "The numbers of parameters leave out the weights of n-grams (classify.ngrams)"
    note = f"{prefix}: {number:,}, the same for all."
    assert matched.notes == (*plain.notes, note)
    assert use_default_sizes(task, families(with_ngrams, names), context).notes == (note,)
    assert use_default_sizes(task, families(base, names), context).notes == ()
    variants = {"gru": families(base)["gru"], "both": families(with_ngrams)["gru"]}
    assert use_default_sizes(task, variants, context).notes == (f"{prefix}: both {number:,}.",)


def test_ngram_models_are_not_matched(prepare_task):
    task, base, context = prepare_task("language")
    matched = match_sizes(task, families(base, ["ngram", "gru"]), context)
    assert matched.parameters["ngram"] == 0
    assert matched.target == matched.parameters["gru"]
    assert matched.notes == ("ngram: not matched; it counts n-grams and has no trainable parameters.",)


def test_a_target_below_the_smallest_network_is_one_error_about_all_families(prepare_large_task):
    task, base, context = prepare_large_task("language")
    with pytest.raises(UsageError) as excinfo:
        match_sizes(task, families(base, ["rnn", "transformer"]), context, 5_000)
    rnn, transformer = excinfo.value.problem.splitlines()
    vocabulary = f"{task.size().vocabulary_size:,}"
    assert rnn.startswith("rnn: no network of this family has about 5,000 parameters: its smallest network has 1")
    assert transformer.startswith("transformer: no network")
    assert rnn.endswith(f"with a vocabulary of {vocabulary}.")
    assert "--match time, or --match tokens with a budget in tokens" in excinfo.value.fix
    size = int(excinfo.value.fix.partition("--parameters ")[2].partition(";")[0])
    assert spread(match_sizes(task, families(base, ["rnn", "transformer"]), context, size)) <= TOLERANCE


def test_an_unreachable_size_names_its_nearest_sizes(prepare_large_task):
    task, base, context = prepare_large_task("language")
    settings_by_name = {
        "rigid": variant(base, "transformer", {"transformer": {"heads": 16, "hidden": 8}, "network": {"embedding": 8}})
    }
    with pytest.raises(UsageError, match=r"rigid: .* the nearest have [\d,]+ and [\d,]+\.") as excinfo:
        match_sizes(task, settings_by_name, context, 109_000)
    below, above = _neighbours(excinfo.value.problem)
    assert below < 109_000 < above


def _neighbours(problem: str) -> tuple[int, int]:
    below, above = problem.rpartition("nearest have ")[2].rstrip(".").split(" and ")
    return int(below.replace(",", "")), int(above.replace(",", ""))


def test_a_median_that_some_family_cannot_reach_is_replaced_by_another_size(prepare_large_task):
    task, base, context = prepare_large_task("language")
    settings_by_name = families(base, ["rnn", "gru"])
    settings_by_name["rich"] = variant(base, "rnn", {"network": {"embedding": 700}})
    settings_by_name["small"] = variant(base, "rnn", {"network": {"embedding": 20}})
    matched = match_sizes(task, settings_by_name, context)
    sizes = {name: count_parameters(task, resolve_sizes(each, context)) for name, each in settings_by_name.items()}
    assert matched.target == sizes["rich"]
    assert f"{sorted(sizes.values())[1]:,}" in matched.notes[0]
    assert spread(matched) <= TOLERANCE


def test_a_target_below_one_parameter_raises_an_error(prepare_task):
    task, base, context = prepare_task("language")
    with pytest.raises(UsageError, match="at least one parameter; received 0"):
        match_sizes(task, families(base), context, 0)


def test_a_target_beyond_all_widths_raises_an_error(prepare_task):
    task, base, context = prepare_task("language")
    with pytest.raises(UsageError, match="the largest that is tried has"):
        match_sizes(task, families(base, ["rnn"]), context, 10**15)


def test_pretrained_vectors_fix_the_embedding_size(prepare_large_task):
    task, base, context = prepare_large_task("classify")
    base = base.model_copy(update={"vectors": "words.txt"}, deep=True)
    settings_by_name = families(base, ["gru", "transformer"])
    settings_by_name["plain"] = base.model_copy(update={"model": "gru", "vectors": None}, deep=True)
    matched = match_sizes(task, settings_by_name, replace(context, vector_width=50), 560_000)
    assert matched.settings["gru"].network.embedding == 50
    assert matched.settings["transformer"].network.embedding == 50
    assert matched.settings["plain"].network.embedding > 50
    assert spread(matched) <= TOLERANCE


def test_layers_that_need_even_widths_get_them(prepare_task):
    task, base, context = prepare_task("translate")
    settings_by_name = {"dot": variant(base, "gru", {"translate": {"attention": "dot"}})}
    for target in (40_000, 41_000):
        settings = match_sizes(task, settings_by_name, context, target).settings["dot"]
        assert settings.network.width % 2 == 0
        task.check(settings)


def test_a_recurrent_model_with_a_patch_encoder_has_heads(prepare_task):
    task, base, context = prepare_task("caption")
    settings_by_name = {"patches": variant(base, "gru", {"caption": {"encoder": "patches"}}), **families(base, ["gru"])}
    matched = match_sizes(task, settings_by_name, context, 120_000)
    assert spread(matched) <= TOLERANCE
    settings = matched.settings["patches"]
    assert settings.network.width % settings.transformer.heads == 0
    task.check(settings)


def test_a_wrong_setting_is_reported_with_the_family(prepare_task):
    task, base, context = prepare_task("language")
    settings_by_name = {"odd": variant(base, "gru", {"recurrent": {"layer_norm": True, "reset": "before"}})}
    with pytest.raises(UsageError, match=r"^odd: layer normalisation"):
        match_sizes(task, settings_by_name, context)


def test_the_requested_settings_are_not_modified(prepare_task):
    task, base, context = prepare_task("language")
    settings_by_name = families(base)
    before = {name: each.model_dump() for name, each in settings_by_name.items()}
    match_sizes(task, settings_by_name, context, 30_000)
    assert {name: each.model_dump() for name, each in settings_by_name.items()} == before
