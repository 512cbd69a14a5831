"""The forecast task: the model against its equation, splits and choices, evaluation, predictions."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import seqwise
from seqwise.applicability import check_effects
from seqwise.config import Settings, parse_settings
from seqwise.errors import DataError, UsageError
from seqwise.layers.record import record
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.forecast.evaluation import compute_errors, compute_validation_sums
from seqwise.tasks.forecast.model import EPSILON, ForecastModel
from seqwise.tasks.forecast.task import Forecast
from seqwise.tasks.forecast.windows import RollingWindows, WindowBatch
from seqwise.tasks.task import InferenceOptions

FAMILIES = ("feedforward", "rnn", "gru", "lstm", "attentive-rnn", "transformer")
SMALL = {"network": {"width": 8, "embedding": 8, "depth": 1, "dropout": 0.0}}


def build_model(
    family: str = "gru", known: int = 0, quantiles: tuple[float, ...] = (0.1, 0.9), num_series: int = 1, **forecast
) -> ForecastModel:
    torch.manual_seed(0)
    values = {
        **SMALL,
        "transformer": {"heads": 2},
        "model": family,
        "horizon": 3,
        "forecast": {"lookback": 6, "patch": 2, **forecast},
    }
    model = ForecastModel(ResolvedSettings.model_validate(values), known, quantiles, num_series)
    for parameter in model.parameters():
        if not parameter.abs().sum():
            torch.nn.init.normal_(parameter, std=0.5)  # parameters that begin at zero would hide mistakes
    return model


def test_without_a_window_norm_the_last_value_is_subtracted():
    model, batch = build_model(normalize="last"), create_batch(dtype=torch.float64)
    model = model.double()
    with record(model) as activations:
        forecasts = model.forecast(batch)
    assert torch.equal(activations["normalised"], batch.past - batch.past[:, -1:])
    assert torch.equal(forecasts.scale, torch.ones(4, 1, dtype=torch.float64))
    shifted = model.forecast(WindowBatch(batch.past + 100, batch.future, batch.mask, batch.known))
    assert shifted.point.detach().numpy() == pytest.approx(forecasts.point.detach().numpy() + 100)
    assert shifted.quantiles.detach().numpy() == pytest.approx(forecasts.quantiles.detach().numpy() + 100)


def test_the_absolute_error_is_the_loss_of_the_point_if_asked_for():
    model, batch = build_model(quantiles=(), loss="mae"), create_batch()
    point = model.forecast(batch).point
    expected = float((point - batch.future).abs()[batch.mask].detach().sum())
    assert float(model(batch)[0].total.detach()) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("family", "cell"), [("gru", torch.nn.GRU), ("lstm", torch.nn.LSTM), ("rnn", torch.nn.RNN)])
def test_the_segment_decoder_takes_one_more_step_of_the_encoder_for_each_segment(family: str, cell: type):
    """The slow twin: PyTorch's layer reads the past and then, for each segment alone, its position and series."""
    model = build_model(family, num_series=3, decoder="segments", linear=False, normalize="last", quantiles=())
    batch = replace(create_batch(), series=torch.tensor([2, 0, 1, -1]))
    ours, twin = model.encoder.backbone.stack.layer[0].cell, cell(8, 8, batch_first=True)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.zero_()
        twin.weight_ih_l0.copy_(ours.weight_input)
        twin.weight_hh_l0.copy_(ours.weight_hidden)
        twin.bias_ih_l0.copy_(ours.bias)
        if family == "gru":
            twin.bias_hh_l0[-8:].copy_(ours.bias_hidden)
        level = batch.past[:, -1:]
        patches = torch.relu(model.encoder.input_projection((batch.past - level).view(4, 3, 2)))
        _, state = twin(patches)
        head = model.head
        vectors = torch.stack([head.series[2], head.series[0], head.series[1], head.series.mean(0)])
        segments = [head.output(twin((p + vectors)[:, None], state)[0][:, 0]) for p in head.positions]
        expected = torch.cat(segments, dim=1)[:, :3] + level  # two segments of 2 steps, of which 3 steps are forecast
        assert model.eval().forecast(batch).point.numpy() == pytest.approx(expected.numpy(), abs=1e-5)


def test_a_run_with_segments_knows_its_series_in_any_order(tmp_path: Path):
    table = tmp_path / "table.csv"
    t = np.arange(60)
    series = {"a": np.sin(t), "b": np.cos(t) * 3, "c": t / 10.0}
    forecast = {"lookback": 6, "patch": 2, "decoder": "segments", "loss": "mae", "series": "name", "time": "t"}
    settings = {**SMALL, "model": "gru", "horizon": 3, "device": "cpu", "budget": "2-epochs", "target": "value",
                "forecast": forecast}  # fmt: skip

    def write(names: str, path: Path) -> str:
        rows = [f"{name},{i},{series.get(name, series['a'])[i]:.5f}" for name in names for i in t]
        path.write_text("\n".join(["name,t,value", *rows]) + "\n")
        return str(path)

    run = seqwise.train(write("abc", table), task="forecast", settings=settings, out=tmp_path / "run")
    assert run.model.head.series.shape == (3, 8)
    torch.nn.init.normal_(run.model.head.output.weight)
    first, second = (run.predict(write(names, tmp_path / "other.csv")).values["series"] for names in ("abc", "cad"))
    for name in "ac":
        assert first[name]["point"] == pytest.approx(second[name]["point"], rel=1e-4)
    assert second["d"]["point"] != pytest.approx(second["a"]["point"], rel=1e-4), "a new series has no vector"


@pytest.mark.parametrize("family", ["transformer", "feedforward", "attentive-rnn"])
def test_segments_are_decoded_by_plain_recurrent_layers_only(family: str):
    settings = parse_settings({"task": "forecast", "model": family, "forecast": {"decoder": "segments"}})
    with pytest.raises(UsageError, match=r"--forecast\.decoder has an effect with the models rnn, gru and lstm only"):
        check_effects([settings], ["forecast.decoder"])


def create_batch(rows: int = 4, known: int = 0, dtype: torch.dtype = torch.float32) -> WindowBatch:
    torch.manual_seed(1)
    mask = torch.rand(rows, 3) > 0.3
    return WindowBatch(
        torch.randn(rows, 6, dtype=dtype),
        torch.randn(rows, 3, dtype=dtype),
        mask,
        torch.randn(rows, 9, known, dtype=dtype),
    )


def test_the_forecast_equals_its_equation():
    model, batch = build_model(known=2), create_batch(known=2)
    with record(model) as activations:
        forecasts = model.forecast(batch)
    past = batch.past.numpy()
    mean, deviation = past.mean(1, keepdims=True), np.sqrt(past.var(1, keepdims=True) + EPSILON)
    x = (past - mean) / deviation
    straight = x @ model.linear_map.weight.detach().numpy().T + model.linear_map.bias.detach().numpy()
    first, _, last = model.known_effect
    hidden = np.maximum(batch.known[:, 6:].numpy() @ first.weight.detach().numpy().T + first.bias.detach().numpy(), 0)
    effect = (hidden @ last.weight.detach().numpy().T + last.bias.detach().numpy())[..., 0]
    residual = activations["encoder.summary"].numpy() @ model.head.output.weight.detach().numpy().T
    residual = residual + model.head.output.bias.detach().numpy()
    expected = (residual + straight + effect) * deviation + mean
    assert forecasts.point.detach().numpy() == pytest.approx(expected, abs=1e-4)
    assert activations["normalised"].numpy() == pytest.approx(x, abs=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_loss_counts_observed_values_and_adds_up_over_rows(family: str):
    model, batch = build_model(family), create_batch()
    forecasts = model.forecast(batch)
    squared = (forecasts.point - batch.future) ** 2
    error = batch.future[..., None] - forecasts.quantiles
    levels = torch.tensor([0.1, 0.9])
    losses = squared + torch.maximum(levels * error, (levels - 1) * error).mean(-1)
    loss, state = model(batch)
    assert state is None
    assert loss.count == int(batch.mask.sum()) == batch.num_targets
    total = float(loss.total.detach())
    assert total == pytest.approx(float(losses[batch.mask].detach().sum()), rel=1e-5)
    rows = [float(model(batch.slice(row, row + 1))[0].total.detach()) for row in range(batch.num_sequences)]
    assert sum(rows) == pytest.approx(total, rel=1e-5)


def test_a_missing_target_has_no_influence():
    model, batch = build_model(), create_batch()
    future = torch.where(batch.mask, batch.future, torch.full_like(batch.future, math.nan))
    without_missing_targets = WindowBatch(batch.past, future, batch.mask, batch.known)
    assert float(model(batch)[0].total.detach()) == float(model(without_missing_targets)[0].total.detach())


@pytest.mark.parametrize("family", FAMILIES)
def test_forecasts_are_equivariant_to_level_and_scale(family: str):
    model, batch = build_model(family), create_batch(dtype=torch.float64)
    model = model.double()
    scaled_batch = WindowBatch(batch.past * 7 + 100, batch.future, batch.mask, batch.known)
    first, second = model.forecast(batch), model.forecast(scaled_batch)
    assert second.point.detach().numpy() == pytest.approx(first.point.detach().numpy() * 7 + 100, abs=1e-2)
    assert second.quantiles.detach().numpy() == pytest.approx(first.quantiles.detach().numpy() * 7 + 100, abs=1e-2)


def test_gradients_of_a_constant_past_are_finite():
    batch = create_batch()
    constant_batch = WindowBatch(torch.ones_like(batch.past), batch.future, batch.mask, batch.known)
    model = build_model()
    loss, _ = model(constant_batch)
    loss.total.backward()
    assert all(bool(p.grad.isfinite().all()) for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize("family", ["feedforward", "lstm"])
def test_gradients_equal_finite_differences(family: str):
    model, batch = build_model(family, known=1).double(), create_batch(2, known=1, dtype=torch.float64)

    def forecast(past: torch.Tensor, known: torch.Tensor) -> torch.Tensor:
        return model.forecast(WindowBatch(past, batch.future, batch.mask, known)).point

    assert torch.autograd.gradcheck(forecast, (batch.past.requires_grad_(), batch.known.requires_grad_()))


def test_a_new_model_forecasts_the_mean_of_the_window():
    values = {**SMALL, "model": "gru", "horizon": 3, "forecast": {"lookback": 6, "patch": 2}}
    model, batch = ForecastModel(ResolvedSettings.model_validate(values), 2, ()), create_batch(known=2)
    forecasts = model.forecast(batch)
    assert forecasts.quantiles is None
    assert forecasts.point.detach().numpy() == pytest.approx(
        np.repeat(batch.past.mean(1, keepdim=True).numpy(), 3, 1), abs=1e-6
    )


def create_table(steps: int = 120, series: str = "ab", start: int = 0) -> str:
    rows = ["time," + ",".join(series)]
    for step in range(start, start + steps):
        values = [
            math.sin(2 * math.pi * step / 12) * (1 + index) + 5 * index + step % 5 / 10 for index in range(len(series))
        ]
        rows.append(f"{step}," + ",".join(f"{value:.4f}" for value in values))
    return "\n".join(rows) + "\n"


@pytest.fixture(scope="module")
def trained_model_and_table(tmp_path_factory):
    folder = tmp_path_factory.mktemp("forecast")
    path = folder / "waves.csv"
    path.write_text(create_table())
    settings = {
        **SMALL,
        "horizon": 6,
        "forecast": {"lookback": 24},
        "training": {"batch_size": 16, "learning_rate": 0.01},
    }
    run = seqwise.train(
        path, task="forecast", model="feedforward", budget="12-epochs", out=folder / "run", settings=settings
    )
    return run, path


def test_open_settings_are_chosen_and_logged(tmp_path):
    messages: list[str] = []
    settings = Settings()
    task = Forecast.prepare("builtin:sunspots", settings, log=messages.append)
    forecast = settings.forecast
    assert (settings.horizon, forecast.lookback, forecast.season) == (11, 44, 11)
    assert (forecast.splits, forecast.quantiles) == ("0.7,0.1,0.2", "0.1,0.9")
    assert messages[0] == "series: sunspots; 309 steps (step: year) from 1700 to 2008, time in column 'year'."
    assert "train 216, valid 31, test 62" in messages[1]
    assert messages[2] == "windows: train 162, valid 21, test 52; each forecasts 11 steps from the last 44."
    assert "season: 11 steps" in messages[3]
    assert task.count_data()["test"] == {"steps": 62, "values": 62, "missing": 0, "windows": 52}
    shares = Settings(data={"valid_fraction": 0.2, "test_fraction": 0.25})
    Forecast.prepare("builtin:sunspots", shares)
    assert shares.forecast.splits == "0.55,0.2,0.25"


def test_naive_forecasts_are_evaluated_on_the_same_windows(trained_model_and_table):
    run, path = trained_model_and_table
    evaluation = run.evaluate(path)
    task = Forecast.prepare(str(path), run.settings)
    values = task.statistics.scaler.transform(task.series.values)
    naive_errors, seasonal_errors, model_errors = [], [], []
    for origin, index in task.windows["test"]:
        truth = values[origin : origin + 6, index]
        naive_errors.append((truth - values[origin - 1, index]) ** 2)
        seasonal_errors.append((truth - values[origin - 12 : origin - 6, index]) ** 2)
        forecasts = run.model.forecast(task.rolling.collate(np.array([[origin, index]])).to("cpu"))
        model_errors.append((truth - forecasts.point[0].detach().numpy()) ** 2)
    assert task.statistics.season == 12
    assert evaluation.metrics["naive_mse"] == pytest.approx(np.mean(naive_errors), rel=1e-4)
    assert evaluation.metrics["seasonal_naive_mse"] == pytest.approx(np.mean(seasonal_errors), rel=1e-4)
    assert evaluation.metrics["mse"] == pytest.approx(np.mean(model_errors), rel=1e-3)
    assert evaluation.metrics["mse"] < evaluation.metrics["naive_mse"] / 3
    assert evaluation.data.endswith("waves.csv, the test split")
    assert list(evaluation.tables[0].rows) == ["a", "b"]
    assert "original scale" in evaluation.tables[0].title


def test_mase_does_not_depend_on_the_unit(trained_model_and_table):
    run, path = trained_model_and_table
    evaluation = run.evaluate(path)
    task = Forecast.prepare(str(path), run.settings)
    train = task.series.values[:84]
    scale = np.abs(train[12:] - train[:-12]).mean(axis=0)
    expected = np.mean([row[1] / scale[index] for index, row in enumerate(evaluation.tables[0].rows.values())])
    assert evaluation.metrics["mase"] == pytest.approx(expected, rel=1e-6)


def test_another_table_is_evaluated_as_a_whole(trained_model_and_table, tmp_path):
    run, path = trained_model_and_table
    other_table = tmp_path / "later.csv"
    other_table.write_text(create_table(60, start=500))
    evaluation = run.evaluate(other_table)
    assert evaluation.data.endswith("later.csv, all of it")
    assert evaluation.metrics["windows"] == 2 * (60 - 24 - 6 + 1)
    assert run.evaluate(path, split="valid").data.endswith("the valid split")
    with pytest.raises(UsageError, match="no split 'tset'"):
        run.evaluate(path, split="tset")
    other_table.write_text(create_table(20, start=500))
    with pytest.raises(DataError, match="no window of 30 steps fits"):
        run.evaluate(other_table)


def test_a_prediction_continues_after_the_end(trained_model_and_table):
    run, path = trained_model_and_table
    prediction = run.predict(str(path))
    rows = list(csv.reader(io.StringIO(prediction.text)))
    assert rows[0] == ["time", "a", "a q0.1", "a q0.9", "b", "b q0.1", "b q0.9"]
    assert [row[0] for row in rows[1:]] == ["120", "121", "122", "123", "124", "125"]
    values = json.loads(json.dumps(prediction.values))
    assert values["step"] == "step of 1"
    assert float(rows[1][4]) == pytest.approx(values["series"]["b"]["point"][0], rel=1e-4)
    truth = [5 + 2 * math.sin(2 * math.pi * step / 12) + step % 5 / 10 for step in range(120, 126)]
    assert values["series"]["b"]["point"] == pytest.approx(truth, abs=1.5)
    for low, high in zip(*values["series"]["a"]["quantiles"].values()):
        assert low <= high
    assert values["series"]["a"]["history"]["timestamps"][-1] == "119"


@pytest.mark.parametrize("scoring", [compute_validation_sums, compute_errors])
def test_each_window_is_prepared_and_forecast_once(trained_model_and_table, monkeypatch, scoring):
    run, path = trained_model_and_table
    task = Forecast.prepare(str(path), run.settings, run.run.preprocessor)
    calls: list[str] = []
    for owner, name in ((ForecastModel, "forecast"), (RollingWindows, "collate")):
        original = getattr(owner, name)
        monkeypatch.setattr(
            owner, name, lambda *args, name=name, original=original: calls.append(name) or original(*args)
        )
    scoring(run.model, task.rolling, task.windows["valid"])
    assert sorted(calls) == ["collate", "forecast"]


def test_plots_are_written_on_request(trained_model_and_table, tmp_path):
    run, path = trained_model_and_table
    run.predict(str(path), options=InferenceOptions(out=tmp_path / "a.svg"))
    assert (tmp_path / "a.svg").read_text().count("<polygon") == 2
    run.evaluate(path, options=InferenceOptions(out=tmp_path / "b.svg"))
    assert "true values" in (tmp_path / "b.svg").read_text()
    run.predict(str(path), options=InferenceOptions(out=tmp_path / "a.png"))
    assert Image.open(tmp_path / "a.png").width == 1520
    for name, fragment in (("a.pdf", r"ends in \.svg or \.png"), ("nowhere/a.svg", "folder does not exist")):
        options = InferenceOptions(out=tmp_path / name)
        with pytest.raises(UsageError, match=fragment):
            run.predict("no table", options=options)
        with pytest.raises(UsageError, match=fragment):
            run.evaluate("no table", options=options)


def test_a_short_history_or_a_missing_series_is_rejected(trained_model_and_table, tmp_path):
    run, _ = trained_model_and_table
    with pytest.raises(DataError, match="history of 'a' has 20 steps; the model sees 24"):
        run.predict(create_table(20))
    with pytest.raises(DataError, match="there is no column 'b'"):
        run.predict(create_table(40, "a"))


def test_series_of_a_long_table_continue_after_their_own_ends(tmp_path):
    rows = [f"x,2024-01-{1 + day:02},{day % 7}" for day in range(31)]
    rows += [f"y,2024-01-{1 + day:02},{day % 7 + 10}" for day in range(29)]
    path = tmp_path / "shops.csv"
    path.write_text("shop,date,sold\n" + "\n".join(rows) + "\n")
    settings = {**SMALL, "horizon": 2, "forecast": {"lookback": 7, "series": "shop", "quantiles": "none"}}
    settings["training"] = {"batch_size": 8}
    run = seqwise.train(path, task="forecast", model="gru", budget="1-epochs", out=tmp_path / "run", settings=settings)
    rows = list(csv.reader(io.StringIO(run.predict(str(path)).text)))
    assert rows[0] == ["date", "shop", "sold"]
    assert [row[:2] for row in rows[1:]] == [
        ["2024-02-01", "x"],
        ["2024-02-02", "x"],
        ["2024-01-30", "y"],
        ["2024-01-31", "y"],
    ]
    prediction = run.predict("shop,date,sold\n" + "".join(f"z,2024-03-{1 + day:02},{day}\n" for day in range(10)))
    assert prediction.values["series"]["z"]["timestamps"] == ["2024-03-11", "2024-03-12"]


def test_values_known_in_advance_are_required(tmp_path):
    text = "day,a,holiday\n" + "".join(f"{day},{day % 7 % 3},{int(day % 7 == 0)}\n" for day in range(80))
    path = tmp_path / "holidays.csv"
    path.write_text(text)
    settings = {
        **SMALL,
        "horizon": 3,
        "forecast": {"lookback": 7, "known_future": "holiday"},
        "training": {"batch_size": 8},
    }
    run = seqwise.train(path, task="forecast", model="gru", budget="1-epochs", out=tmp_path / "run", settings=settings)
    with pytest.raises(DataError, match="holiday must be known for the 3 steps after 79; 0 rows follow"):
        run.predict(str(path))
    predictions = [run.predict(text + "".join(f"{80 + n},,{flag}\n" for n in range(3))) for flag in (0, 1)]
    assert predictions[0].values["series"]["a"]["timestamps"] == ["80", "81", "82"]
    assert predictions[0].values["series"]["a"]["point"] != predictions[1].values["series"]["a"]["point"]


@pytest.mark.parametrize(
    ("values", "fragment"),
    [
        ({"model": "ngram"}, "cannot do the task forecast"),
        ({"recurrent": {"bidirectional": True}}, "backward direction"),
    ],
)
def test_invalid_settings_are_rejected(values: dict, fragment: str):
    forecast = {"lookback": 11, "patch": 1}
    settings = parse_settings({**SMALL, "task": "forecast", "horizon": 3, "forecast": forecast, **values})
    task = Forecast.prepare("builtin:sunspots", settings)
    with pytest.raises(UsageError, match=fragment):
        task.check(ResolvedSettings.from_settings(settings))


def test_standard_input_is_one_table(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(create_table(30)))
    assert Forecast.read_inputs("-", ResolvedSettings()) == [create_table(30)]
    assert Forecast.read_inputs("builtin:sunspots", ResolvedSettings()) == ["builtin:sunspots"]


def test_the_model_card_names_the_data_as_input(trained_model_and_table):
    run, path = trained_model_and_table
    assert f"seqwise predict {run.run.folder} {path}" in Path(run.run.folder / "README.md").read_text()
