"""Compiled layers compute what open ones do, and evaluation stays open."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from seqwise.config import Settings
from seqwise.errors import UsageError
from seqwise.layers.record import record
from seqwise.tasks.language.model import LanguageModel
from seqwise.training.compiling import compile_layers

GPU = torch.device("cuda")  # only its name is asked for


def model() -> LanguageModel:
    settings = Settings(model="transformer")
    settings.network.width, settings.network.depth, settings.transformer.heads = 16, 3, 2
    settings.data.window = 16
    torch.manual_seed(0)
    return LanguageModel(settings, 20)


def test_training_goes_through_one_compiled_graph_for_all_layers():
    open_model, compiled = model(), model()
    compile_layers(compiled, GPU, backend="aot_eager", fullgraph=True)
    torch._dynamo.utils.counters.clear()
    x = torch.randn(2, 9, 16)
    wanted, found = open_model.backbone(x, None).vectors, compiled.backbone(x, None).vectors
    torch.testing.assert_close(found, wanted)
    found.sum().backward()
    wanted.sum().backward()
    for mine, true in zip(compiled.backbone.parameters(), open_model.backbone.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, true.grad)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 2, "not one for each of the three layers"
    assert list(compiled.state_dict()) == list(open_model.state_dict())


def test_evaluation_stays_open_to_whoever_looks():
    compiled = model().eval()
    compile_layers(compiled, GPU, backend="aot_eager")
    with record(compiled, "*.attention.weights") as seen, torch.no_grad():
        carry = compiled.backbone(torch.randn(2, 9, 16), None).carry
    assert len(seen) == 3
    assert carry is not None, "the cache with which decoding goes on"


def test_a_cpu_and_a_recurrent_model_are_refused():
    with pytest.raises(UsageError, match="for GPUs only"):
        compile_layers(model(), torch.device("cpu"))
    with pytest.raises(UsageError, match="nothing to compile"):
        compile_layers(nn.LSTM(2, 2), GPU)
