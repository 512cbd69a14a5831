"""A task of your own in one file: regression, one number per text. It trains, evaluates, predicts and is compared.

    python examples/11_your_own_task.py

The data are sums such as 12+7 with their values, generated here. `@register` makes the task available to `train`,
`load` and `compare`; the package is not changed. Put your own reader into `open_splits` and your own network into
`Regressor`.
"""
# ruff: noqa: T201

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import seqwise
from seqwise.backbones.encoder import build_encoder
from seqwise.data.batch import Batch, pad_sequences
from seqwise.data.examples import Splits, read_examples
from seqwise.data.tables import SUFFIXES, read_table
from seqwise.errors import Findings
from seqwise.heads.label import MeanPooling
from seqwise.layers import Embedding
from seqwise.losses import Loss
from seqwise.metrics.evaluation import ExampleScores, ExampleText
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks import register
from seqwise.tasks.example_task import ExampleTask
from seqwise.tasks.task import ModelBundle, Prediction, Preprocessor
from seqwise.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Example:
    text: str
    value: float
    file: str = ""
    line: int = 0


@dataclass(frozen=True)
class ValueBatch(Batch):
    ids: Tensor  # (B, T) int64, padded with 0
    lengths: Tensor  # (B,) int64
    values: Tensor  # (B,) float32, standardised

    @property
    def length(self) -> int:
        return self.ids.shape[1]

    @property
    def num_targets(self) -> int:
        return len(self.values)


class Regressor(nn.Module):
    """Embedding, encoder of any family, mean of the states, linear output."""

    def __init__(self, settings: ResolvedSettings, vocabulary_size: int):
        super().__init__()
        self.embedding = Embedding(vocabulary_size, settings.network.embedding)
        self.encoder = build_encoder(settings, settings.network.embedding, settings.data.max_length)
        self.pooling, self.output = MeanPooling(self.encoder.width), nn.Linear(self.encoder.width, 1)

    def forward(self, batch: ValueBatch, state: None = None) -> tuple[Loss, None]:
        errors = self.predict(batch) - batch.values
        return Loss(errors.square().sum(), batch.num_targets), None

    def predict(self, batch: ValueBatch) -> Tensor:
        states = self.encoder(self.embedding(batch.ids), lengths=batch.lengths).vectors
        return self.output(self.pooling(states, batch.lengths)).squeeze(-1)


@register
class Regress(ExampleTask):
    name = "regress"
    primary_metric = ("mse", "mse")

    @classmethod
    def open_splits(cls, data: str, settings: Any, progress: Any) -> Splits[Example]:
        def read(path: Path, findings: Findings) -> list[Example]:
            rows = read_table(path, ("text", "value"), findings).rows
            return [Example(row.values["text"], float(row.values["value"]), row.file, row.line) for row in rows]

        return read_examples(data, read, SUFFIXES, {}, settings.data.valid_fraction, settings.data.test_fraction)

    @classmethod
    def fit_preprocessor(cls, splits: Splits[Example], settings: Any, log: Any, initial: Preprocessor) -> Preprocessor:
        if initial.tokenizers:  # training is resumed
            return initial
        train = splits.parts["train"]
        texts, values = [example.text for example in train], np.array([example.value for example in train])
        tokenizer = Tokenizer.train("characters", texts, specials=("<pad>",))
        return Preprocessor({"text": tokenizer}, {"mean": values.mean(), "std": values.std()})

    def collate_train(self, indices: np.ndarray) -> ValueBatch:
        return collate([self.splits.parts["train"][index] for index in indices], self.preprocessor)

    @classmethod
    def restore(cls, settings: ResolvedSettings, preprocessor: Preprocessor) -> Regressor:
        return Regressor(settings, len(preprocessor.tokenizer))

    @classmethod
    def score_examples(cls, bundle: ModelBundle, examples: Sequence[Example], options: Any) -> ExampleScores:
        errors = predict_values(bundle, examples) - collate(examples, bundle.preprocessor).values.numpy()
        texts = tuple(ExampleText(example.text, f"{example.value:g}") for example in examples)
        return ExampleScores("mse", "texts", np.stack([errors**2, np.ones_like(errors)], axis=1), texts)

    @classmethod
    def predict(cls, bundle: ModelBundle, inputs: Sequence[str], options: Any) -> Iterator[Prediction]:
        values = predict_values(bundle, [Example(text, 0.0) for text in inputs])
        attributes = bundle.preprocessor.attributes
        for text, value in zip(inputs, values * attributes["std"] + attributes["mean"]):
            yield Prediction(f"{value:.0f}", {"text": text, "value": float(value)})


def collate(examples: Sequence[Example], preprocessor: Preprocessor) -> ValueBatch:
    token_ids = preprocessor.tokenizer.encode_many([example.text for example in examples])
    lengths = torch.tensor([len(ids) for ids in token_ids])
    values = torch.tensor([example.value for example in examples]).sub(preprocessor.attributes["mean"])
    return ValueBatch(torch.from_numpy(pad_sequences(token_ids)), lengths, values / preprocessor.attributes["std"])


@torch.no_grad()
def predict_values(bundle: ModelBundle, examples: Sequence[Example]) -> np.ndarray:
    batch = collate(examples, bundle.preprocessor).to(bundle.model.output.weight.device)
    return bundle.model.eval().predict(batch).double().cpu().numpy()


def main() -> None:
    pairs = random.Random(0).sample([(a, b) for a in range(100) for b in range(100)], 1800)
    Path("sums.csv").write_text("text,value\n" + "".join(f"{a}+{b},{a + b}\n" for a, b in pairs), encoding="utf-8")
    small_model: dict[str, Any] = {"network": {"width": 32}, "training": {"learning_rate": 0.01}}
    trained_model = seqwise.train("sums.csv", task="regress", model="gru", budget="30-epochs", settings=small_model)
    print(f"mean squared error {trained_model.evaluate('sums.csv').metrics['mse']:.5f} of standardised values")
    print(f"12+30 is about {trained_model.predict('12+30').text}, 85+7 about {trained_model.predict('85+7').text}")
    options: dict[str, Any] = {"models": "rnn,gru", "budget": "4k-tokens", "seeds": 2, "lr_trials": 1}
    print(seqwise.compare("sums.csv", task="regress", **options, **small_model))


if __name__ == "__main__":
    main()
