"""Predictions with a run."""

from __future__ import annotations

from typing import Any

from seqwise.studio.worker import Context


def predict(context: Context, run: str, text: str) -> dict[str, Any]:
    """Returns the prediction for a text."""
    trained = context.load(run)
    if trained.settings.task == "language":
        pieces = []
        for piece in trained.predict(text):
            context.check_cancelled()
            context.emit({"piece": piece})
            pieces.append(piece)
        return {"text": "".join(pieces)}
    (prediction,) = trained.predict_all([text])
    return {"text": prediction.text, "values": prediction.values}
