"""Forecast a series: train, compare with the naive forecasts, forecast the steps after its end, and plot them.

    python examples/08_forecast.py

Takes a few seconds. The sunspots are built in; a .csv file with a column of timestamps is read in the same way.
"""
# ruff: noqa: T201

from __future__ import annotations

from pathlib import Path

import seqwise
from seqwise.tasks.forecast.output import build_forecast_svg


def main() -> None:
    trained_model = seqwise.train(
        "builtin:sunspots",
        task="forecast",
        model="gru",
        budget="20-epochs",
        horizon=11,
        settings={"forecast": {"quantiles": "0.1,0.9"}},
    )
    result = trained_model.evaluate("builtin:sunspots")
    for name in ("mse", "mae", "mase"):
        model, naive, seasonal = (result.metrics[f"{prefix}{name}"] for prefix in ("", "naive_", "seasonal_naive_"))
        print(f"{name:5} {model:6.3f}   naive {naive:6.3f}   seasonal naive {seasonal:6.3f}")
    print(f"on {result.data}; {result.method}\n")

    prediction = trained_model.predict("builtin:sunspots")
    print(prediction.text)
    Path("forecast.svg").write_text(build_forecast_svg(prediction.values["series"]), encoding="utf-8")


if __name__ == "__main__":
    main()
