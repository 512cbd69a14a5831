"""Compiled layers equal eager ones, compile few graphs, and can be recorded."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import Tensor, nn

from seqwise.cli.main import main
from seqwise.config import Settings
from seqwise.errors import UsageError
from seqwise.layers.record import record
from seqwise.layers.transformer import Decoder, Encoder, EncoderDecoder, PreNormDecoderLayer, PreNormEncoderLayer
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.language.model import LanguageModel
from seqwise.training import training_run
from seqwise.training.initialization import compile_layers, find_compilable_stacks
from seqwise.training.run import Run

GPU = torch.device("cuda")  # only its name is asked for


class Counted:
    """A backend that leaves graphs as they are and counts them."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, graph, inputs):
        self.graphs += 1
        return graph.forward


@pytest.fixture(autouse=True)
def _compiled_anew():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def model() -> LanguageModel:
    settings = ResolvedSettings(model="transformer", transformer={"hidden": 64})
    settings.network.width, settings.network.depth, settings.transformer.heads = 16, 3, 2
    settings.data.window = 16
    torch.manual_seed(0)
    return LanguageModel(settings, 20)


def drawn(*sizes: int) -> Tensor:
    """As token vectors are: with a gradient, so that the first layer has the graph of the others."""
    return torch.randn(*sizes, 8, requires_grad=True)


def both_stacks(rotary: bool = True) -> EncoderDecoder:
    torch.manual_seed(0)
    encoder = Encoder([PreNormEncoderLayer(8, 2, 16, "relu", rotary=rotary) for _ in range(2)])
    return EncoderDecoder(encoder, Decoder([PreNormDecoderLayer(8, 2, 16, "relu", rotary=rotary) for _ in range(2)]))


def test_training_goes_through_one_compiled_graph_for_all_layers():
    open_model, compiled, counted = model(), model(), Counted()
    compile_layers(compiled, GPU, backend=counted, fullgraph=True)
    x = torch.randn(2, 9, 16)
    wanted, found = open_model.backbone(x, None).vectors, compiled.backbone(x, None).vectors
    torch.testing.assert_close(found, wanted)
    found.sum().backward()
    wanted.sum().backward()
    for mine, true in zip(compiled.backbone.parameters(), open_model.backbone.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, true.grad)
    assert 1 <= counted.graphs <= 2, "not one for each of the three layers"
    assert list(compiled.state_dict()) == list(open_model.state_dict())


@pytest.mark.slow
def test_batches_of_any_size_share_few_graphs():
    """Past tables of 256 and 512 positions, and more sizes than the compiler keeps graphs for one function."""
    open_model, compiled, counted = both_stacks(), both_stacks(), Counted()
    compile_layers(compiled, GPU, backend=counted, fullgraph=True)
    sizes = [(3, 5, 7), (3, 6, 9), (4, 300, 8), (2, 11, 600), (5, 12, 13), (6, 40, 30), (7, 21, 22), (2, 33, 34)]
    sizes += [(3, 50, 51), (4, 61, 60), (1, 20, 21), (1, 30, 25), (2, 2, 2), (5, 5, 5)]
    for rows, source, target in sizes:
        given = drawn(rows, source), drawn(rows, target), torch.randint(1, source + 1, (rows,))
        torch.testing.assert_close(compiled(*given), open_model(*given))
    assert counted.graphs <= 10, "for each stack the first sizes, any length, any number of rows, a single row"


@pytest.mark.slow
def test_each_stack_has_the_compilers_whole_limit():
    """Ten graphs in all: more than the eight that one function may have."""
    compiled, counted = both_stacks(rotary=False), Counted()
    compile_layers(compiled, GPU, backend=counted, dynamic=False)
    for time in range(2, 7):
        compiled(drawn(2, time), drawn(2, 9))
    assert counted.graphs == 10


@pytest.mark.slow
def test_beyond_the_limit_training_continues_uncompiled(caplog):
    open_model, compiled, counted = both_stacks(), both_stacks(), Counted()
    compile_layers(compiled, GPU, backend=counted, dynamic=False)
    for time in range(2, 14):
        x = drawn(2, time)
        torch.testing.assert_close(compiled.encode(x), open_model.encode(x))
    assert counted.graphs == 8
    assert "recompile_limit" in caplog.text, "PyTorch says so by itself"


def test_sequences_of_length_one_are_not_compiled():
    open_model, compiled, counted = both_stacks(), both_stacks(), Counted()
    compile_layers(compiled, GPU, backend=counted)
    one, more = drawn(2, 1), drawn(2, 4)
    torch.testing.assert_close(compiled(one, one), open_model(one, one))
    assert counted.graphs == 0
    compiled.decode(more, one)
    assert counted.graphs == 0
    compiled.encode(more)
    assert counted.graphs == 1


def test_rotary_and_sinusoidal_positions_compile_with_few_graphs_by_themselves():
    from seqwise.layers.positions import SinusoidalPositions, rotary

    sinusoidal, counted = SinusoidalPositions(6), Counted()
    compiled = torch.compile(lambda x, start: (rotary(x, start), sinusoidal(x, start)), backend=counted, fullgraph=True)
    for time, start in [(3, 0), (5, 2), (300, 7), (600, 300), (9, 1), (10, 4), (11, 3), (12, 5), (1030, 6)]:
        x = torch.randn(2, time, 6)
        turned, added = compiled(x, start)
        torch.testing.assert_close(turned, rotary(x, start), rtol=1e-6, atol=1e-6)
        assert torch.equal(added, sinusoidal(x, start)), "the same table"
    assert counted.graphs <= 4


@pytest.mark.parametrize("pattern", ["*.attention.weights", "encoder.layer.1.*", "decoder.layer.0.cross.weights"])
def test_activations_are_recorded_in_training_too(pattern):
    compiled = both_stacks()
    compile_layers(compiled, GPU, backend=Counted())
    source, target = torch.randn(2, 4, 8), torch.randn(2, 5, 8)
    with record(compiled, pattern) as seen:
        compiled(source, target)
    open_model = both_stacks()
    with record(open_model, pattern) as wanted:
        open_model(source, target)
    assert list(seen) == list(wanted)
    assert len(seen)


def test_recording_another_module_keeps_layers_compiled():
    compiled, counted = both_stacks(), Counted()
    compile_layers(compiled, GPU, backend=counted)
    with record(compiled, "decoder.*"):
        compiled.encode(drawn(2, 4))
    assert counted.graphs == 1


def test_evaluation_is_not_compiled():
    compiled = model().eval()
    compile_layers(compiled, GPU, backend=Counted())
    with record(compiled, "*.attention.weights") as seen, torch.no_grad():
        carry = compiled.backbone(torch.randn(2, 9, 16), None).state
    assert len(seen) == 3
    assert carry is not None, "the cache with which decoding goes on"


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))], ids=["copy", "file"])
def test_a_copy_is_the_same_model_and_not_compiled(copied):
    compiled, counted = both_stacks(), Counted()
    compile_layers(compiled, GPU, backend=counted)
    x = torch.randn(2, 4, 8)
    other = copied(compiled)
    assert other.encoder.compiled_layer is None
    assert compiled.encoder.compiled_layer is not None
    torch.testing.assert_close(other(x, x), both_stacks()(x, x))
    assert counted.graphs == 0


def test_a_cpu_and_a_recurrent_model_are_refused():
    with pytest.raises(UsageError, match="for GPUs only"):
        compile_layers(model(), torch.device("cpu"))
    with pytest.raises(UsageError, match="nothing to compile"):
        compile_layers(nn.LSTM(2, 2), GPU)
    with pytest.raises(UsageError, match="nothing to compile"):
        find_compilable_stacks(GPU, None)
    find_compilable_stacks(GPU, model)


# ---- the command


@pytest.mark.parametrize("family", ["transformer", "lstm", "ngram"])
def test_compile_on_a_cpu_is_refused_and_leaves_no_run_folder(book, tmp_path, capsys, family):
    given = ["--model", family, "--device", "cpu", "--training.compile", "--out", str(tmp_path / "run")]
    assert main(["train", str(book), *given]) == 2
    assert "compiled for GPUs only" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("family", ["lstm", "feedforward", "ngram"])
def test_compile_of_a_family_without_transformer_layers_is_refused(book, tmp_path, monkeypatch, family):
    monkeypatch.setattr(training_run, "choose_device", lambda settings: GPU)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=False: False)
    settings = Settings(model=family, task="language", budget="10s")
    settings.training.compile = True
    with pytest.raises(UsageError, match="nothing to compile"):
        training_run.create_run(str(book), settings, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_compiled_run_is_resumed_uncompiled_on_a_cpu(book, tmp_path, capsys):
    small = ["--network.width", "16", "--transformer.heads", "2", "--data.window", "8", "--training.batch-size", "4"]
    given = ["--model", "transformer", "--device", "cpu", "--budget", "100-tokens", "--out", str(tmp_path / "run")]
    assert main(["train", str(book), *given, *small]) == 0
    config = tmp_path / "run" / "config.yaml"
    text = config.read_text()
    assert "compile: false" in text
    config.write_text(text.replace("compile: false", "compile: true"))
    capsys.readouterr()
    said: list[str] = []
    assert training_run.open_training(Run.open(tmp_path / "run"), log=said.append).ended
    assert said[-1:] == [
        "continuing without compiled layers: layers are compiled for GPUs only: on CPUs it was slower."
    ]
    assert main(["train", "--resume", str(tmp_path / "run")]) == 0


def test_rotary_tables_from_outside_equal_those_of_the_layer():
    from seqwise.layers.positions import rotary, sines_and_cosines

    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        x: Tensor = torch.randn(2, 300, 6).to(dtype)
        turns = sines_and_cosines(300, 6, x)
        assert turns.shape == (300, 2, 3)
        assert turns.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        torch.testing.assert_close(rotary(x, 0, turns), rotary(x))
