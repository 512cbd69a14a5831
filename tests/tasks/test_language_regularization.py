"""Dropout rates, penalties and widths of recurrent language models, as published recipes combine them."""

from __future__ import annotations

import pytest
import torch

from seqwise.config import Settings
from seqwise.data.batch import TokenBatch
from seqwise.errors import UsageError
from seqwise.families import BUILTIN_FAMILIES, MODEL_FAMILIES, ModelFamily
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.language.model import LanguageModel
from seqwise.training.loop import forward_backward

VOCABULARY = 11


def build_model(model: str = "lstm", **sections: dict) -> LanguageModel:
    torch.manual_seed(0)
    sections["network"] = {"width": 6, "depth": 2, "embedding": 6} | sections.get("network", {})
    settings = ResolvedSettings(task="language", model=model, data={"window": 5}, **sections)
    return LanguageModel(settings, VOCABULARY)


def draw_batch() -> TokenBatch:
    tokens = torch.randint(VOCABULARY, (3, 6), generator=torch.Generator().manual_seed(1))
    return TokenBatch(tokens[:, :-1], tokens[:, 1:])


def test_dropout_is_that_of_the_network_unless_set() -> None:
    model = build_model(network={"dropout": 0.3})
    assert (model.input_dropout.p, model.backbone.stack.dropout.p, model.output_dropout.p) == (0.3, 0.3, 0.3)
    model = build_model(network={"dropout": 0.3, "input_dropout": 0.6, "output_dropout": 0.0, "embedding_dropout": 0.1})
    assert (model.input_dropout.p, model.backbone.stack.dropout.p, model.output_dropout.p) == (0.6, 0.3, 0.0)
    assert model.embedding.dropout == 0.1
    model = build_model("transformer", network={"dropout": 0.3}, transformer={"heads": 2})
    assert (model.input_dropout.p, model.output_dropout.p) == (0.3, 0.0)


@pytest.mark.parametrize("variational", [True, False])
def test_all_vectors_are_dropped_with_one_mask_per_window_or_one_per_step(variational: bool) -> None:
    recurrent = {"variational_dropout": variational, "sum_layers": True}
    model = build_model(network={"dropout": 0.5}, recurrent=recurrent)
    x = torch.ones(4, 20, 30)
    for dropout in (model.input_dropout, model.backbone.stack.dropout, model.output_dropout):
        dropped = dropout(x)
        assert set(dropped.unique().tolist()) == {0.0, 2.0}
        assert (dropped == dropped[:, :1]).all().item() == variational
    assert model.eval().input_dropout(x) is x


@pytest.mark.parametrize("family", ["my-network", *(name for name in BUILTIN_FAMILIES if name != "ngram")])
def test_word_types_at_the_first_position_are_kept_by_models_without_a_state(family: str, monkeypatch) -> None:
    registered = ModelFamily("my-network", build=lambda inputs, settings: torch.nn.Linear(inputs, 6))
    monkeypatch.setitem(MODEL_FAMILIES, "my-network", registered)
    model = build_model(family, transformer={"heads": 2})
    assert model.embedding.keep_first is (family in ("transformer", "my-network"))
    assert model.embedding.keep_first is not model.stateful


def test_a_deep_transformer_has_finite_gradients_if_the_first_word_of_a_window_is_dropped() -> None:
    network = {"width": 8, "embedding": 8, "depth": 10, "embedding_dropout": 0.9}
    model = build_model("transformer", network=network, transformer={"heads": 2})
    batch = draw_batch()
    vectors = model.embedding(batch.ids)
    is_dropped = (vectors == 0).all(dim=-1)
    assert is_dropped[:, 1:].any()
    assert not is_dropped[:, 0].any()
    model(batch)[0].total.backward()
    gradients = [p.grad.norm() for p in model.parameters() if p.grad is not None]
    assert torch.stack(gradients).norm() < 100


def test_settings_of_older_runs_keep_their_dropout() -> None:
    saved = ResolvedSettings(task="language", network={"dropout": 0.4}).model_dump()
    for name in ("input_dropout", "output_dropout", "embedding_dropout"):
        saved["network"].pop(name)
    network = ResolvedSettings.model_validate(saved).network
    assert (network.input_dropout, network.get_output_dropout(True), network.get_output_dropout(False)) == (0.4, 0.4, 0)
    assert (
        Settings.model_validate(ResolvedSettings(network={"dropout": 0.4}).model_dump()).network.input_dropout is None
    )


def test_the_penalty_is_activation_and_temporal_regularization_of_the_outputs() -> None:
    model = build_model(
        network={"output_dropout": 0.5},
        recurrent={"activation_regularization": 2.0, "temporal_regularization": 3.0},
    )
    batch = draw_batch()
    torch.manual_seed(2)
    loss, _ = model(batch)
    torch.manual_seed(2)
    h = model.backbone(model.embedding(batch.ids)).vectors
    dropped = model.output_dropout(h)
    expected = 2 * (dropped**2).mean() + 3 * ((h[:, 1:] - h[:, :-1]) ** 2).mean()
    assert loss.penalty is not None
    torch.testing.assert_close(loss.penalty, 15 * expected)
    torch.testing.assert_close(loss.objective, loss.total + loss.penalty)
    assert model.eval()(batch)[0].penalty is None


def test_training_minimises_the_penalty_and_reports_the_loss_without_it() -> None:
    plain, penalised = build_model(), build_model(recurrent={"activation_regularization": 2.0})
    batch, scale = draw_batch(), torch.tensor(1 / 15)
    reported = []
    for model in (plain, penalised):
        total, _ = forward_backward(model, torch.device("cpu"), False, batch, None, scale)
        reported.append(total.item())
    assert reported[0] == reported[1]
    h = plain.backbone(plain.embedding(batch.ids)).vectors
    weight = plain.backbone.stack.layer[1].cell.weight_hidden
    (expected,) = torch.autograd.grad(2 * (h**2).mean(), weight)
    difference = penalised.backbone.stack.layer[1].cell.weight_hidden.grad - weight.grad
    torch.testing.assert_close(difference, expected, atol=1e-6, rtol=1e-4)


def test_a_penalty_of_one_step_has_no_temporal_part() -> None:
    model = build_model(recurrent={"temporal_regularization": 3.0})
    batch = draw_batch()
    loss, _ = model(TokenBatch(batch.ids[:, :1], batch.targets[:, :1]))
    assert loss.penalty == 0


def test_the_last_layer_may_be_as_wide_as_the_embedding() -> None:
    model = build_model(network={"embedding": 4}, recurrent={"last_width": 4})
    assert [(layer.cell.inputs, layer.units) for layer in model.backbone.stack.layer] == [(4, 6), (6, 4)]
    assert model.head.output.weight is model.embedding.weight
    assert isinstance(model.head.output.project, torch.nn.Identity)
    with pytest.raises(UsageError, match="same width"):
        build_model(recurrent={"last_width": 4, "sum_layers": True})


@pytest.mark.parametrize("recurrent", [{"sum_layers": True}, {"last_width": 4}, {"cap_input_gate": True}])
def test_a_step_of_generation_equals_the_model(recurrent: dict) -> None:
    model = build_model(recurrent=recurrent).eval()
    ids = draw_batch().ids
    with torch.no_grad():
        _, state = model.next(ids[:, :3])
        expected, _ = model.next(ids[:, 3:4], state)
        step = model.build_step(state)
        assert step is not None
        step.prepare_cache()
        torch.testing.assert_close(step.advance(ids[:, 3:4]).log_softmax(-1), expected)
