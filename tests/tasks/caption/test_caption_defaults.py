"""Default rules of the caption task choose every setting, for any family and machine."""

from __future__ import annotations

import pytest

from seqwise.config import Settings
from seqwise.tasks.defaults import DefaultsContext, resolve


def create_context(
    cuda: bool = False, vocabulary: int = 22, examples: int = 7200, processes: int = 1
) -> DefaultsContext:
    return DefaultsContext(70_000, vocabulary, cuda, 2, processes, cuda, examples, 12)


@pytest.mark.parametrize("cuda", [False, True])
@pytest.mark.parametrize("model", ["feedforward", "rnn", "gru", "lstm", "attentive-rnn", "transformer"])
def test_every_setting_gets_a_default(model: str, cuda: bool):
    settings = Settings(
        task="caption", model=model, caption={"encoder": "convolutional", "image_size": 32, "frames": False}
    )
    resolved, names = resolve(settings, create_context(cuda))
    sections = (resolved.network, resolved.caption)
    missing = [name for part in sections for name, value in part.model_dump().items() if value is None]
    assert missing == ["input_dropout", "output_dropout", "embedding_dropout"]  # of language models only
    assert {"batch_size", "learning_rate"} <= resolved.training.model_fields_set
    assert {"max_tokens", "max_length"} <= resolved.data.model_fields_set
    assert ("heads" in resolved.transformer.model_fields_set) == (model == "transformer")
    assert "caption.shift" in names


def test_the_patch_encoder_gets_heads_with_any_decoder():
    settings = Settings(task="caption", model="lstm", caption={"encoder": "patches", "image_size": 64})
    resolved, _ = resolve(settings, create_context())
    assert resolved.transformer.heads
    assert (resolved.network.width or 0) % resolved.transformer.heads == 0
    assert resolved.caption.patch == 8


def test_varied_captions_get_more_regularisation():
    uniform, varied = (resolve(Settings(task="caption"), create_context(vocabulary=size))[0] for size in (22, 5_000))
    assert uniform.network.dropout == uniform.caption.label_smoothing == 0
    assert varied.network.dropout > 0  # type: ignore[operator]
    assert varied.caption.label_smoothing > 0  # type: ignore[operator]


def test_the_batch_size_is_divisible_by_the_number_of_processes():
    assert resolve(Settings(task="caption"), create_context(processes=3))[0].training.batch_size % 3 == 0  # type: ignore[operator]
    assert resolve(Settings(task="caption"), create_context(examples=5))[0].training.batch_size == 5
