"""Compiled layers equal eager ones, compile few graphs, and can be recorded."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import Tensor, nn

import seqwise
from seqwise.cli.main import main
from seqwise.config import Settings
from seqwise.errors import UsageError
from seqwise.layers.record import record
from seqwise.layers.transformer import Decoder, Encoder, EncoderDecoder, PreNormDecoderLayer, PreNormEncoderLayer
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.language.model import LanguageModel
from seqwise.training import create, training_run
from seqwise.training.initialization import compile_layers, find_compilable_stacks
from seqwise.training.run import Run

GPU = torch.device("cuda")  # only its type is read


class GraphCounter:
    """A backend that leaves graphs as they are and counts them."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, graph, inputs):
        self.graphs += 1
        return graph.forward


@pytest.fixture(autouse=True)
def _reset_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def make_model() -> LanguageModel:
    settings = ResolvedSettings(model="transformer", transformer={"hidden": 64})
    settings.network.width, settings.network.depth, settings.transformer.heads = 16, 3, 2
    settings.data.window = 16
    torch.manual_seed(0)
    return LanguageModel(settings, 20)


def random_vectors(*sizes: int) -> Tensor:
    """Returns vectors with a gradient, as embeddings have, so that the first layer has the graph of the others."""
    return torch.randn(*sizes, 8, requires_grad=True)


def make_encoder_decoder(rotary: bool = True) -> EncoderDecoder:
    torch.manual_seed(0)
    encoder = Encoder([PreNormEncoderLayer(8, 2, 16, "relu", rotary=rotary) for _ in range(2)])
    return EncoderDecoder(encoder, Decoder([PreNormDecoderLayer(8, 2, 16, "relu", rotary=rotary) for _ in range(2)]))


def test_one_compiled_graph_serves_all_layers_in_training():
    eager, compiled, counter = make_model(), make_model(), GraphCounter()
    compile_layers(compiled, GPU, backend=counter, fullgraph=True)
    x = torch.randn(2, 9, 16)
    expected, actual = eager.backbone(x, None).vectors, compiled.backbone(x, None).vectors
    torch.testing.assert_close(actual, expected)
    actual.sum().backward()
    expected.sum().backward()
    for parameter, reference in zip(compiled.backbone.parameters(), eager.backbone.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, reference.grad)
    assert 1 <= counter.graphs <= 2, "not one for each of the three layers"
    assert list(compiled.state_dict()) == list(eager.state_dict())


@pytest.mark.slow
def test_batches_of_any_size_share_few_graphs():
    """With tables beyond 256 and 512 positions, and more sizes than the compiler keeps graphs for one function."""
    eager, compiled, counter = make_encoder_decoder(), make_encoder_decoder(), GraphCounter()
    compile_layers(compiled, GPU, backend=counter, fullgraph=True)
    sizes = [(3, 5, 7), (3, 6, 9), (4, 300, 8), (2, 11, 600), (5, 12, 13), (6, 40, 30), (7, 21, 22), (2, 33, 34)]
    sizes += [(3, 50, 51), (4, 61, 60), (1, 20, 21), (1, 30, 25), (2, 2, 2), (5, 5, 5)]
    for rows, source, target in sizes:
        args = random_vectors(rows, source), random_vectors(rows, target), torch.randint(1, source + 1, (rows,))
        torch.testing.assert_close(compiled(*args), eager(*args))
    assert counter.graphs <= 10, "for each stack the first sizes, any length, any number of rows, a single row"


@pytest.mark.slow
def test_the_limit_of_the_compiler_applies_to_each_stack_separately():
    """Ten graphs in all: more than the eight that one function may have."""
    compiled, counter = make_encoder_decoder(rotary=False), GraphCounter()
    compile_layers(compiled, GPU, backend=counter, dynamic=False)
    for time in range(2, 7):
        compiled(random_vectors(2, time), random_vectors(2, 9))
    assert counter.graphs == 10


@pytest.mark.slow
def test_beyond_the_limit_training_continues_uncompiled(caplog):
    eager, compiled, counter = make_encoder_decoder(), make_encoder_decoder(), GraphCounter()
    compile_layers(compiled, GPU, backend=counter, dynamic=False)
    for time in range(2, 14):
        x = random_vectors(2, time)
        torch.testing.assert_close(compiled.encode(x), eager.encode(x))
    assert counter.graphs == 8
    assert "recompile_limit" in caplog.text, "PyTorch logs it"


def test_sequences_of_length_one_are_not_compiled():
    eager, compiled, counter = make_encoder_decoder(), make_encoder_decoder(), GraphCounter()
    compile_layers(compiled, GPU, backend=counter)
    one_step, four_steps = random_vectors(2, 1), random_vectors(2, 4)
    torch.testing.assert_close(compiled(one_step, one_step), eager(one_step, one_step))
    assert counter.graphs == 0
    compiled.decode(four_steps, one_step)
    assert counter.graphs == 0
    compiled.encode(four_steps)
    assert counter.graphs == 1


def test_rotary_and_sinusoidal_positions_compile_with_few_graphs_by_themselves():
    from seqwise.layers.positions import SinusoidalPositions, rotary

    sinusoidal, counter = SinusoidalPositions(6), GraphCounter()
    compiled = torch.compile(lambda x, start: (rotary(x, start), sinusoidal(x, start)), backend=counter, fullgraph=True)
    for time, start in [(3, 0), (5, 2), (300, 7), (600, 300), (9, 1), (10, 4), (11, 3), (12, 5), (1030, 6)]:
        x = torch.randn(2, time, 6)
        rotated, added = compiled(x, start)
        torch.testing.assert_close(rotated, rotary(x, start), rtol=1e-6, atol=1e-6)
        assert torch.equal(added, sinusoidal(x, start)), "the same table"
    assert counter.graphs <= 4


@pytest.mark.parametrize(
    "pattern", ["*.attention.weights", "encoder.layer.1.*", "decoder.layer.0.cross_attention.weights"]
)
def test_activations_are_recorded_in_training_too(pattern):
    compiled = make_encoder_decoder()
    compile_layers(compiled, GPU, backend=GraphCounter())
    source, target = torch.randn(2, 4, 8), torch.randn(2, 5, 8)
    with record(compiled, pattern) as actual:
        compiled(source, target)
    eager = make_encoder_decoder()
    with record(eager, pattern) as expected:
        eager(source, target)
    assert list(actual) == list(expected)
    assert len(actual)


def test_recording_another_module_keeps_layers_compiled():
    compiled, counter = make_encoder_decoder(), GraphCounter()
    compile_layers(compiled, GPU, backend=counter)
    with record(compiled, "decoder.*"):
        compiled.encode(random_vectors(2, 4))
    assert counter.graphs == 1


def test_evaluation_is_not_compiled():
    compiled = make_model().eval()
    compile_layers(compiled, GPU, backend=GraphCounter())
    with record(compiled, "*.attention.weights") as recording, torch.no_grad():
        state = compiled.backbone(torch.randn(2, 9, 16), None).state
    assert len(recording) == 3
    assert state is not None, "the cache for decoding"


@pytest.mark.parametrize(
    "make_copy", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))], ids=["deepcopy", "pickle"]
)
def test_a_copy_is_the_same_model_and_not_compiled(make_copy):
    compiled, counter = make_encoder_decoder(), GraphCounter()
    compile_layers(compiled, GPU, backend=counter)
    x = torch.randn(2, 4, 8)
    copied = make_copy(compiled)
    assert copied.encoder.compiled_layer is None
    assert compiled.encoder.compiled_layer is not None
    torch.testing.assert_close(copied(x, x), make_encoder_decoder()(x, x))
    assert counter.graphs == 0


def test_a_cpu_and_a_recurrent_model_raise_an_error():
    with pytest.raises(UsageError, match="for GPUs only"):
        compile_layers(make_model(), torch.device("cpu"))
    with pytest.raises(UsageError, match="nothing to compile"):
        compile_layers(nn.LSTM(2, 2), GPU)
    with pytest.raises(UsageError, match="nothing to compile"):
        find_compilable_stacks(GPU, None)
    find_compilable_stacks(GPU, make_model)


# ---- the command


@pytest.mark.parametrize("family", ["transformer", "lstm"])
def test_compile_on_a_cpu_is_an_error_and_leaves_no_run_folder(book, tmp_path, capsys, family):
    args = ["--model", family, "--device", "cpu", "--training.compile", "--out", str(tmp_path / "run")]
    assert main(["train", str(book), *args]) == 2
    assert "compiled for GPUs only" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_recipe_that_compiles_is_trained_uncompiled_on_a_cpu(book, tmp_path):
    sizes = {"network.width": 16, "network.depth": 1, "transformer.heads": 2, "data.window": 8}
    settings = {"device": "cpu", "budget": "100-tokens", "training.batch_size": 4, **sizes}
    messages: list[str] = []
    model = seqwise.train(book, recipe="ptb-transformer", settings=settings, out=tmp_path / "run", log=messages.append)
    assert not model.run.settings.training.compile
    assert "the recipe compiles layers, which is for GPUs only: here they are not compiled." in messages


def test_a_recipe_does_not_excuse_a_compilation_that_it_does_not_ask_for(book, tmp_path):
    settings = {"device": "cpu", "budget": "100-tokens", "training.compile": True}
    with pytest.raises(UsageError, match="compiled for GPUs only"):
        seqwise.train(book, recipe="ptb-lstm", settings=settings, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("family", ["lstm", "feedforward"])
def test_compile_of_a_family_without_transformer_layers_is_an_error(book, tmp_path, monkeypatch, family):
    monkeypatch.setattr(create, "choose_device", lambda settings: GPU)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=False: False)
    settings = Settings(model=family, task="language", budget="10s")
    settings.training.compile = True
    with pytest.raises(UsageError, match="nothing to compile"):
        create.create_run(str(book), settings, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_compiled_run_is_resumed_uncompiled_on_a_cpu(book, tmp_path, capsys):
    sizes = ["--network.width", "16", "--transformer.heads", "2", "--data.window", "8", "--training.batch-size", "4"]
    args = ["--model", "transformer", "--device", "cpu", "--budget", "100-tokens", "--out", str(tmp_path / "run")]
    assert main(["train", str(book), *args, *sizes]) == 0
    config = tmp_path / "run" / "config.yaml"
    text = config.read_text()
    assert "compile: false" in text
    config.write_text(text.replace("compile: false", "compile: true"))
    capsys.readouterr()
    messages: list[str] = []
    assert training_run.open_training(Run.open(tmp_path / "run"), log=messages.append).ended
    assert messages[-1:] == [
        "continuing without compiled layers: layers are compiled for GPUs only: on CPUs it was slower."
    ]
    assert main(["train", "--resume", str(tmp_path / "run")]) == 0


def test_rotary_tables_from_outside_equal_those_of_the_layer():
    from seqwise.layers.positions import rotary, sines_and_cosines

    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        x: Tensor = torch.randn(2, 300, 6).to(dtype)
        table = sines_and_cosines(300, 6, x)
        assert table.shape == (300, 2, 3)
        assert table.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        torch.testing.assert_close(rotary(x, 0, table), rotary(x))
