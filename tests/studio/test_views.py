"""The functions of the page Inside: which views apply, their figures, their options, and files of them."""

from __future__ import annotations

import json
import shutil
from base64 import b64decode
from functools import cache
from pathlib import Path

import pytest
from pydantic import ValidationError
from small_runs import train_small_run

from seqwise.cli.inspect import Inspect
from seqwise.errors import SeqwiseError, UsageError
from seqwise.lens import VIEWS
from seqwise.lens.arguments import INTERNAL, build_command, convert_options, list_options
from seqwise.studio.functions.views import SaveRequest, ViewRequest
from seqwise.studio.work import views
from seqwise.studio.worker import Cancelled, Context

TEXT = "the cat sat on the mat"
NO_INPUT = {"text": None, "upload": None, "options": {}}
# View → a run that it applies to, and options that make it quick.
CASES = {
    "attention": ("translate", "transformer", {}),
    "attribution": ("language", "lstm", {"answer": 2}),
    "cost": ("language", "lstm", {"measure": False, "max_length": 32}),
    "decoding": ("language", "lstm", {"top": 3, "max_length": 4}),
    "errors": ("language", "lstm", {"max_examples": 4}),
    "gates": ("language", "lstm", {"layer": "1", "unit": 3}),
    "gradients": ("language", "lstm", {"layer": 1}),
    "health": ("language", "lstm", {"quick": True}),
    "horizon": ("language", "lstm", {"max_context": 4, "num_targets": 32}),
    "neighbours": ("language", "lstm", {"top": 3}),
    "senses": ("language", "lstm", {"layer": 0}),
    "states": ("language", "lstm", {"method": "pca", "colour": "time"}),
    "training": ("language", "lstm", {}),
    "units": ("language", "lstm", {"unit": 2}),
}


@pytest.fixture(scope="module")
def get_run(tmp_path_factory, book: Path):
    """(task, family) → the folder of a run that was trained for a few updates."""

    @cache
    def train(task: str, family: str) -> str:
        folder = tmp_path_factory.mktemp(f"{task}-{family}")
        train_small_run(task, family, book, folder / "data", folder / family)
        return str(folder / family)

    return train


class Worker(Context):
    """A context that collects its events."""

    def __init__(self) -> None:
        self.events: list[dict] = []
        super().__init__(self.events.append)


@pytest.fixture(scope="module")
def worker() -> Worker:
    return Worker()


def describe(worker: Worker, *runs: str, text: str | None = None, upload: str | None = None) -> dict:
    return views.describe_views(worker, list(runs), text, upload)


def get_description(description: dict, name: str) -> dict:
    return next(view for view in description["views"] if view["name"] == name)


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_returns_sentences_figures_and_its_command(view, worker, get_run):
    task, family, options = CASES[view]
    run = get_run(task, family)
    result = views.compute_view(worker, runs=[run], view=view, **{**NO_INPUT, "options": options})
    assert result["summary"]
    assert all(figure["title"] and figure["kind"] for figure in result["figures"])
    assert result["figures"]
    assert result["command"].startswith(f"seqwise inspect {run} --view {view}")
    json.dumps(result, allow_nan=False)


def test_views_that_do_not_apply_have_a_reason_and_no_options(worker, get_run):
    description = describe(worker, get_run("language", "lstm"))
    assert [view["name"] for view in description["views"]] == [*VIEWS]
    attention = get_description(description, "attention")
    assert attention["reasons"] == ["lstm has no attention."]
    assert attention["options"] == []
    assert get_description(description, "gates")["reasons"] == [None]
    assert description["runs"][0]["example"]["description"].startswith("tokens ")


def test_the_choices_of_options_are_those_of_the_run(worker, get_run):
    description = describe(worker, get_run("translate", "transformer"))
    options = {option["name"]: option for option in get_description(description, "attention")["options"]}
    assert [choice["value"] for choice in options["head"]["choices"]] == ["1", "2"]
    labels = [choice["name"] for choice in options["layer"]["choices"]]
    assert labels == ["encoder, layer 1", "decoder, layer 1, self", "decoder, layer 1, cross"]
    assert [choice["value"] for choice in options["layer"]["choices"]] == labels
    assert "target" not in options, "the run has one target language"
    decoding = {option["name"] for option in get_description(description, "decoding")["options"]}
    assert "beam" in decoding
    assert "seed" not in decoding
    language = get_description(describe(worker, get_run("language", "lstm")), "decoding")
    assert {"seed", "beam"} & {option["name"] for option in language["options"]} == {"seed"}


def test_a_form_offers_only_options_of_the_command_line():
    command = {*Inspect.__dataclass_fields__}
    offered = {option.name for view in VIEWS for option in list_options(view)}
    assert offered <= command
    assert offered.isdisjoint(INTERNAL)
    (method,) = [option for option in list_options("states") if option.name == "method"]
    assert (method.kind, method.choices, method.default) == ("choice", ("pca", "tsne"), "pca")
    (top,) = list_options("neighbours")
    assert (top.kind, top.minimum, top.default) == ("whole", 1, 10)
    assert top.help == "how many neighbours each word has; all other words of the vocabulary if it has fewer"


@pytest.mark.parametrize(
    ("view", "options", "problem"),
    [
        ("gates", {"data": "/etc/passwd"}, "'data' has no effect on the view gates; its options: layer, unit."),
        ("gates", {"progress": 1}, "'progress' has no effect"),
        ("training", {"watch": True}, "its options: none."),
        ("gates", {"unit": -1}, "unit: expected at least 0; received -1."),
        ("gates", {"unit": True}, "unit: expected a whole number"),
        ("gates", {"unit": 1.5}, "unit: expected a whole number"),
        ("states", {"method": "umap"}, "method: expected one of pca, tsne"),
        ("errors", {"split": "test"}, "split: expected one of train, valid, all"),
        ("cost", {"measure": "no"}, "measure: expected true or false"),
        ("decoding", {"length_penalty": "long"}, "length_penalty: expected a number"),
        ("units", {"span": 1.5}, "span: expected a text"),
    ],
)
def test_unknown_options_and_wrong_values_are_refused(view, options, problem):
    with pytest.raises(UsageError) as error:
        convert_options(view, options)
    assert problem in error.value.problem


def test_numbers_of_layers_are_numbers_and_names_stay_names():
    assert convert_options("gates", {"layer": "2", "unit": 0}) == {"layer": 2, "unit": 0}
    assert convert_options("units", {"layer": "layer 1, cell"}) == {"layer": "layer 1, cell"}
    assert convert_options("decoding", {"length_penalty": 1, "greedy": True}) == {"length_penalty": 1, "greedy": True}


@pytest.mark.parametrize(
    "values",
    [
        {"view": "passwords"},
        {"runs": []},
        {"runs": ["a", "b", "c"]},
        {"text": "x" * 100_001},
        {"upload": "../../etc/passwd"},
        {"options": {"layer": "x" * 1001}},
        {"options": {"layer": [1]}},
        {"options": {"layer": None}},
        {"options": {"unit": 10**12}},
        {"options": {"length_penalty": float("nan")}},
        {"options": {f"option{number}": 1 for number in range(21)}},
        {"device": "cuda"},
    ],
)
def test_requests_have_limits(values):
    good = {"runs": ["runs/book"], "view": "gates", "options": {"layer": "1", "unit": 3, "x": 0.5, "y": True}}
    assert ViewRequest.model_validate(good).options == good["options"]
    with pytest.raises(ValidationError):
        ViewRequest.model_validate({**good, **values})


def test_only_known_formats_are_saved():
    with pytest.raises(ValidationError):
        SaveRequest.model_validate({"runs": ["runs/book"], "view": "gates", "format": "exe"})


@pytest.mark.parametrize(("suffix", "start"), [("html", b"<!"), ("png", b"\x89PNG"), ("svg", b"<svg"), ("json", b"{")])
def test_a_view_is_saved_without_being_computed_again(suffix, start, worker, get_run, monkeypatch):
    request = {"runs": [get_run("language", "lstm")], "view": "gates", **NO_INPUT, "text": TEXT}
    views.compute_view(worker, **request)
    monkeypatch.setattr(views, "get_view", lambda name: pytest.fail("the view is in memory"))
    saved = views.save_view(worker, suffix, **request)
    assert saved["name"] == f"gates-lstm.{suffix}"
    assert b64decode(saved["content"]).startswith(start)


def test_a_file_that_is_too_large_names_the_command(worker, get_run, monkeypatch):
    monkeypatch.setattr(views, "MAX_FILE_BYTES", 10)
    request = {"runs": [get_run("language", "lstm")], "view": "gates", **NO_INPUT, "text": TEXT}
    with pytest.raises(UsageError) as error:
        views.save_view(worker, "svg", **request)
    assert "--view gates --out view.svg" in error.value.fix


def test_two_runs_read_the_same_example(worker, get_run):
    runs = get_run("language", "lstm"), get_run("language", "gru")
    description = describe(worker, *runs)
    first, second = description["runs"]
    assert (first["name"], second["name"]) == ("lstm", "gru")
    assert first["text"] is None
    assert second["text"] == first["example_text"] == first["example"]["text"]
    combined = {view["name"] for view in description["views"] if view["is_combined"]}
    assert combined == {"cost", "gradients", "health", "horizon", "training"}
    result = views.compute_view(worker, runs=[*runs], view="gradients", **NO_INPUT)
    names = [series["name"] for series in result["figures"][0]["series"]]
    assert any("lstm" in name for name in names)
    assert any("gru" in name for name in names)
    assert result["command"] == f"seqwise inspect {runs[0]} {runs[1]} --view gradients"


def test_runs_of_different_tasks_are_combined_only_where_no_text_is_read(worker, get_run):
    description = describe(worker, get_run("language", "lstm"), get_run("caption", "lstm"))
    assert {view["name"] for view in description["views"] if view["is_combined"]} == {"cost", "health", "training"}
    assert get_description(description, "neighbours")["reads"] == "nothing", "one of them reads images"


def test_what_is_shown_has_its_tokens_or_its_image(worker, get_run):
    (run,) = describe(worker, get_run("language", "lstm"), text=TEXT)["runs"]
    assert [token.removesuffix(" (unk)") for token in run["example"]["tokens"]] == TEXT.split()
    (run,) = describe(worker, get_run("caption", "lstm"))["runs"]
    assert run["example"]["tokens"] is None
    assert run["example"]["image"].startswith("data:image/png;base64,")


def test_a_view_of_one_run_refuses_two(worker, get_run):
    runs = [get_run("language", "lstm"), get_run("language", "gru")]
    with pytest.raises(UsageError, match="shows one run"):
        views.compute_view(worker, runs=runs, view="gates", **NO_INPUT)


def test_a_text_is_never_read_as_the_path_of_a_file(worker, get_run, tmp_path):
    run, image = get_run("caption", "lstm"), tmp_path / "secret.png"
    image.write_bytes(b"not an image")
    description = describe(worker, run, text=str(image))
    assert description["runs"][0]["example"]["description"].startswith("example ")
    with pytest.raises(SeqwiseError):
        views.compute_view(worker, runs=[run], view="gates", text=None, upload=str(image), options={})
    result = views.compute_view(worker, runs=[run], view="gates", text=str(image), upload=None, options={})
    assert result["figures"]


def test_a_text_that_the_run_cannot_read_is_a_problem_of_the_input(worker, get_run):
    description = describe(worker, get_run("masked", "transformer"), text="no mark in this text")
    problem = description["runs"][0]["problem"]
    assert "[MASK]" in f"{problem['problem']} {problem['fix']}"
    assert get_description(description, "training")["reasons"] == [None]


def test_a_run_without_weights_shows_its_training(worker, get_run, tmp_path):
    run = tmp_path / "young"
    shutil.copytree(get_run("language", "lstm"), run)
    (run / "model.safetensors").unlink()
    description = describe(worker, str(run))
    assert "no weights yet" in description["runs"][0]["problem"]["problem"]
    suitable = [view["name"] for view in description["views"] if view["reasons"] == [None]]
    assert suitable == ["health", "training"]
    assert views.compute_view(worker, runs=[str(run)], view="training", **NO_INPUT)["figures"]
    with pytest.raises(SeqwiseError, match="no weights yet"):
        views.compute_view(worker, runs=[str(run)], view="gates", **NO_INPUT)


def test_a_view_is_cancelled_at_its_next_report(worker, get_run):
    run = get_run("language", "lstm")
    worker.load(run)
    report = views.limit_reports(worker)
    report(1, 2)
    worker.cancelled.add(worker.request)
    with pytest.raises(Cancelled):
        report(2, 2)
    worker.cancelled.clear()
    progress = [event["progress"] for event in worker.events if "progress" in event]
    assert [1, 2] in progress


def test_commands_quote_texts_and_keep_options_apart():
    values = {"layer": 2, "greedy": True, "measure": False, "length_penalty": 0.5}
    command = build_command(["runs/a b"], ["it's"], "decoding", values)
    assert command == (
        "seqwise inspect 'runs/a b' 'it'\"'\"'s' --view decoding --layer 2 --greedy --no-measure --length-penalty 0.5"
    )
    assert build_command(["runs/a"], ["-x"], "gates", {}) == "seqwise inspect --view gates -- runs/a -x"
