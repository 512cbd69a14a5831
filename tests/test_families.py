"""Models of your own are families: they train, are compared in other processes, and are loaded once registered."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import seqwise
from seqwise.applicability import find_unused
from seqwise.config import parse_settings
from seqwise.errors import UsageError
from seqwise.families import (
    FAMILY_FILES,
    MODEL_FAMILIES,
    RECURRENT_FAMILIES,
    check_importable,
    get_family,
    get_model_name,
    list_family_names,
    register,
)

SMALL: dict[str, Any] = {"device": "cpu", "network": {"width": 8, "depth": 1}, "budget": "400-tokens"}
TEXTS = [f"the old gate forgets a word, and number {number} is kept.\n" * 3 for number in range(40)]
ROWS = [(f"{word} film number {n}", label) for n in range(30) for word, label in (("good", "yes"), ("bad", "no"))]


EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "03_your_own_cell.py"


def import_example_cell() -> Any:
    """Returns the cell of the example, from a module that is found by its name, as in a user's program."""
    spec = spec_from_file_location("your_own_cell", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[spec.name] = module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.MinimalGatedCell


MinimalGatedCell = import_example_cell()


class CausalConvolution(nn.Module):
    """Each step reads the two before it and itself."""

    def __init__(self, inputs, settings):
        super().__init__()
        self.convolution = nn.Conv1d(inputs, settings.network.width, 3)

    def forward(self, vectors):
        return torch.relu(self.convolution(nn.functional.pad(vectors.mT, (2, 0))).mT)


def build_bidirectional_gru(inputs, settings):
    return nn.GRU(inputs, settings.network.width // 2, batch_first=True, bidirectional=True)


@pytest.fixture(autouse=True)
def families(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Removes the families that a test registers."""
    monkeypatch.setenv("SEQWISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv(FAMILY_FILES, "")
    before = dict(MODEL_FAMILIES), list(RECURRENT_FAMILIES)
    yield
    MODEL_FAMILIES.clear()
    MODEL_FAMILIES.update(before[0])
    RECURRENT_FAMILIES[:] = before[1]


DATA = {
    "language": TEXTS,
    "masked": TEXTS,
    "classify": ROWS,
    "tag": [(text.split(), ["A", "B", "B", "A"]) for text, _ in ROWS],
    "translate": [(text, text.upper()) for text, _ in ROWS],
    "forecast": torch.arange(200).sin().numpy(),
}


@pytest.mark.parametrize("task", DATA)
@pytest.mark.parametrize("model", [MinimalGatedCell, CausalConvolution])
def test_a_model_of_your_own_trains_on_every_task(model: Any, task: str, tmp_path: Path):
    trained = seqwise.train(DATA[task], task=task, model=model, out=tmp_path / "run", **SMALL)
    name = "mgu" if model is MinimalGatedCell else "CausalConvolution"
    assert trained.settings.model == name
    assert any(isinstance(module, model) for module in trained.model.modules())
    inputs: Any = {"forecast": DATA["forecast"], "masked": ["the old [MASK] forgets"]}.get(task, ["good film"])
    predictions = trained.predict(inputs, **({"max_length": 5} if task == "language" else {}))
    assert predictions if task == "forecast" else len(predictions) == 1
    loaded = seqwise.load(tmp_path / "run", device="cpu")
    assert loaded.evaluate(DATA[task]).metrics == trained.evaluate(DATA[task]).metrics


def test_a_function_builds_a_network_that_reads_both_directions(tmp_path: Path):
    trained = seqwise.train(ROWS, task="classify", model=build_bidirectional_gru, out=tmp_path / "run", **SMALL)
    assert trained.model.encoder.width == 8
    with pytest.raises(UsageError, match="build_bidirectional_gru: its output depends on later steps"):
        seqwise.train(TEXTS, task="language", model=build_bidirectional_gru, out=tmp_path / "other", **SMALL)


def test_generation_continues_as_if_the_whole_text_were_read_again(tmp_path: Path):
    """The network reads three steps, so continuing from the state must equal reading everything."""
    trained = seqwise.train(TEXTS, task="language", model=CausalConvolution, out=tmp_path / "run", **SMALL)
    ids = torch.arange(12)[None] % 7
    with torch.inference_mode():
        expected, _ = trained.model.next(ids)
        _, state = trained.model.next(ids[:, :5])
        for step in range(5, 12):
            continued, state = trained.model.next(ids[:, step : step + 1], state)
    torch.testing.assert_close(continued, expected)


@pytest.mark.slow
def test_other_processes_compare_models_of_your_own_with_built_in_ones(tmp_path: Path):
    result = seqwise.compare(
        ROWS, models=["gru", MinimalGatedCell], variants={"conv": {"model": CausalConvolution}}, task="classify",
        budget="2k-tokens", seeds=1, lr_trials=1, out=tmp_path / "out", device="cpu", network={"depth": 1},
    )  # fmt: skip
    assert {row["name"] for row in result.leaderboard} == {"gru", "mgu", "conv"}
    assert all(row["status"] == "done" for row in result.leaderboard)


def test_a_run_of_a_model_that_is_not_registered_says_what_to_import(tmp_path: Path):
    seqwise.train(ROWS, task="classify", model=MinimalGatedCell, out=tmp_path / "run", **SMALL)
    code = f"import seqwise; seqwise.load({str(tmp_path / 'run')!r})"
    environment = {key: value for key, value in os.environ.items() if key != FAMILY_FILES}
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert "RunError" in process.stderr
    assert "the run has a model of your own, 'mgu', which is not registered." in process.stderr
    assert f"It was defined in {EXAMPLE}" in process.stderr
    assert "seqwise.families.register" in process.stderr


def test_a_family_of_a_file_is_imported_when_it_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "mine.py"
    file.write_text("from torch import nn\nclass Mine(nn.Module):\n    pass\n")
    monkeypatch.setenv(FAMILY_FILES, f"mine={file}#Mine")
    assert "mine" in list_family_names()
    assert parse_settings({"model": "mine"}).model == "mine"
    assert get_family("mine").build.__name__ == "Mine"
    check_importable("mine")


def test_a_model_of_an_interactive_session_cannot_be_compared(tmp_path: Path):
    class Local(CausalConvolution):
        pass

    with pytest.raises(UsageError, match="cannot import the model 'Local': it is not defined in a file"):
        seqwise.compare(ROWS, models=[Local], task="classify", out=tmp_path / "out")


def test_settings_without_an_effect_on_a_model_of_your_own_are_found():
    names = ["network.width", "recurrent.weight_dropout", "recurrent.reset", "transformer.heads", "training.ema"]
    unused = {
        model: sorted(find_unused(parse_settings({"model": get_model_name(model)}), names))
        for model in (MinimalGatedCell, CausalConvolution)
    }
    assert unused[MinimalGatedCell] == ["recurrent.reset", "transformer.heads"]
    assert unused[CausalConvolution] == ["recurrent.reset", "recurrent.weight_dropout", "transformer.heads"]


def test_a_model_that_is_defined_again_replaces_the_first():
    first = type("Mine", (CausalConvolution,), {})
    second = type("Mine", (CausalConvolution,), {})
    assert get_model_name(first) == get_model_name(second) == "Mine"
    assert get_family("Mine").build is second


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.GRU(3, 4), "expected a name, a class or a function; received an instance of GRU"),
        (5, "expected a name, a class or a function; received 5"),
        (lambda inputs, settings: nn.GRU(inputs, 4), "the name '<lambda>' cannot name a folder"),
        (type("gru", (), {}), "the name 'gru' is built in"),
    ],
)
def test_a_wrong_model_is_an_error(model: Any, message: str):
    with pytest.raises(UsageError, match=message):
        register(model)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda inputs, settings: 3, "expected an nn.Module; received int"),
        (lambda inputs, settings: nn.Flatten(), r"expected vectors \(2, 4, width\) .*; received \(2, 32\)"),
    ],
)
def test_a_network_with_wrong_outputs_is_an_error(build: Any, message: str, tmp_path: Path):
    register(build, "wrong")
    with pytest.raises(UsageError, match=message):
        seqwise.train(ROWS, task="classify", model="wrong", out=tmp_path / "run", **SMALL)
