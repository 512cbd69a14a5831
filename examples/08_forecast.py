"""Forecast a series: train, compare with the naive forecasts, forecast the steps after its end, and plot them.

    python examples/08_forecast.py

It takes some seconds. The sunspots are built in; a .csv file with a column of timestamps is read in the same way.
"""
# ruff: noqa: T201

from __future__ import annotations

from pathlib import Path

import seqwise
from seqwise.tasks.forecast.output import forecast_svg


def main() -> None:
    trained = seqwise.train(
        "builtin:sunspots",
        task="forecast",
        model="gru",
        budget="20-epochs",
        horizon=11,
        settings={"forecast": {"quantiles": "0.1,0.9"}},
    )
    result = trained.evaluate("builtin:sunspots")
    for name in ("mse", "mae", "mase"):
        ours, naive, seasonal = (result.metrics[f"{who}{name}"] for who in ("", "naive_", "seasonal_naive_"))
        print(f"{name:5} {ours:6.3f}   naive {naive:6.3f}   seasonal naive {seasonal:6.3f}")
    print(f"on {result.on}; {result.how}\n")

    answer = trained.predict("builtin:sunspots")
    print(answer.text)
    Path("forecast.svg").write_text(forecast_svg(answer.values["series"]), encoding="utf-8")


if __name__ == "__main__":
    main()
