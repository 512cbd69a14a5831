"""Operations, sequential steps and saved activations of layers, counted from the modules of a model.

An operation is a multiplication or an addition in a matrix product, as PyTorch's `FlopCounterMode` counts them: a
product of (m × n) and (n × p) has 2·m·n·p. Elementwise functions, norms, softmax and lookups are not counted; scores
that a mask excludes are. Sequential steps are the longest chain of products, each of which needs the result of the one
before. Activations are the values that are kept for the gradient: the input of each product, and what a norm, a
nonlinearity or a fused kernel needs. Every layer counts its input, so that a value between two layers is counted once.

`count_module` counts one module of `seqwise.layers` or `torch.nn`; the parts of models are in `cost_parts.py`, whole
models in `cost_models.py`. This module knows nothing of views or measurements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

from torch import nn

from seqwise.heads.ngrams import NGramHead
from seqwise.kernels.loss import MIN_SCORES
from seqwise.layers.attention import MultiHeadAttention
from seqwise.layers.attentive import AttentiveRecurrent, StateAttention
from seqwise.layers.cells import Cell, EarlyResetGRUCell
from seqwise.layers.embedding import CharacterCNN, Embedding
from seqwise.layers.norm import LayerNorm
from seqwise.layers.output import AdaptiveSoftmax, FullSoftmax, MixtureSoftmax
from seqwise.layers.positions import LearnedPositions
from seqwise.layers.recurrent import Bidirectional, Recurrent
from seqwise.layers.transformer import Decoder, FeedForward
from seqwise.lens.cost_polynomials import ZERO, M, Polynomial, build_term

# Kinds of components, in the order of figures.
RECURRENT = "recurrent layers"
PROJECTIONS = "attention projections"
ATTENTION = {
    (False, False): "attention, source × source",
    (True, False): "attention, target × source",
    (True, True): "attention, target × target",
}
SELF_ATTENTION = "attention, M × M"
FEEDFORWARD = "feed-forward layers"
CONVOLUTION = "convolutions"
OUTPUT = "output layer"
OTHER = "other products"
NORM = "norms"
LOSS = "loss"
KINDS = (RECURRENT, PROJECTIONS, SELF_ATTENTION, *ATTENTION.values(), FEEDFORWARD, CONVOLUTION, OUTPUT, OTHER)
SAVED_STATES = {"rnn": 1, "gru": 2, "lstm": 2}  # values of a unit that a scan keeps beside its gates


@dataclass(frozen=True)
class Scope:
    """Where a layer is: the lengths that it reads."""

    length: Polynomial = M
    memory: Polynomial = M  # positions of the sequence that cross-attention attends to
    is_target: bool = False
    label: str = ""

    def name(self, label: str) -> Scope:
        return replace(self, label=f"{self.label}, {label}".strip(", "))


@dataclass(frozen=True)
class Component:
    """A part of a model and what one sequence costs in it. A shared part is computed once per batch."""

    label: str
    kind: str
    operations: Polynomial = ZERO
    steps: Polynomial = ZERO
    activations: Polynomial = ZERO  # values
    fused: tuple[Polynomial, float] | None = None  # instead of them in a large loss: per sequence, per batch
    is_shared: bool = False
    is_parallel_to_encoder: bool = False  # part of a decoder that needs nothing of the encoder's output

    def count(self, source: int, target: int, batch_size: int = 1, scale: float = 1.0) -> float:
        """Returns the operations of a batch."""
        return (1 if self.is_shared else batch_size) * self.operations.evaluate(source, target, scale)

    def count_activations(self, source: int, target: int, batch_size: int = 1) -> float:
        """Returns the values that a batch keeps for the gradient."""
        values = (1 if self.is_shared else batch_size) * self.activations.evaluate(source, target)
        if self.fused is None or values < MIN_SCORES["cpu"]:
            return values
        return batch_size * self.fused[0].evaluate(source, target) + self.fused[1]


@dataclass(frozen=True)
class NGramLookups(Component):
    """The lookups of n-grams of 1 to `order` tokens. Short texts lack the longest, so no polynomial counts them all."""

    length: Polynomial = M
    order: int = 1
    values: float = 0.0  # that an n-gram keeps for the gradient

    def count_activations(self, source: int, target: int, batch_size: int = 1) -> float:
        length = self.length.evaluate(source, target)
        num_ngrams = sum(max(0.0, length - size + 1) for size in range(1, self.order + 1))
        return batch_size * self.values * num_ngrams


Counter = Callable[[Any, Scope], Iterable[Component]]
COUNTERS: dict[type, Counter] = {}


def register_counter(*classes: type) -> Callable[[Counter], Counter]:
    """Registers a function that counts modules of these classes and of their subclasses."""

    def register(counter: Counter) -> Counter:
        COUNTERS.update(dict.fromkeys(classes, counter))
        return counter

    return register


def count_module(module: nn.Module | None, scope: Scope | None = None) -> list[Component]:
    """Returns the components of a module: by its class, or else those of its children, one after the other."""
    scope = scope or Scope()
    if module is None:
        return []
    for each in type(module).__mro__:
        if each in COUNTERS:
            return list(COUNTERS[each](module, scope))
    return [
        component
        for name, child in module.named_children()
        for component in count_module(child, scope.name(f"layer {int(name) + 1}") if name.isdigit() else scope)
    ]


def list_uncounted(module: nn.Module) -> list[str]:
    """Returns the names of the modules whose matrices no function counts, such as a layer of the user's own."""
    if any(each in COUNTERS for each in type(module).__mro__):
        return []
    names = [type(module).__name__] if any(p.dim() > 1 for p in module.parameters(recurse=False)) else []
    return sorted({*names, *(name for child in module.children() for name in list_uncounted(child))})


def join_parallel(first: Iterable[Component], second: Iterable[Component]) -> list[Component]:
    """Returns the components of two parts that run in parallel: only the steps of the first count."""
    return [*first, *(replace(component, steps=ZERO) for component in second)]


def count_product(scope: Scope, kind: str, inputs: int, outputs: int, power: int = 2) -> Component:
    """Returns the product of every position with one matrix; `power` is the number of its sizes that are widths."""
    operations = 2 * scope.length * build_term(inputs * outputs, power)
    return Component(scope.label, kind, operations, build_term(1, 0), scope.length * build_term(inputs, 1))


# Layers of torch.nn


@register_counter(nn.Embedding, Embedding, LearnedPositions)
def count_lookup(module: nn.Module, scope: Scope) -> Iterable[Component]:
    return ()


@register_counter(NGramHead)
def count_ngrams(module: NGramHead, scope: Scope) -> Iterable[Component]:
    """Lookups have no matrix products. An n-gram keeps its row, a 64-bit integer, its ratios, and a byte of a mask."""
    values = 2 + len(module.bias) + 0.25
    yield NGramLookups(scope.label, OTHER, length=scope.length, order=module.order, values=values)


@register_counter(nn.Linear)
def count_linear(module: nn.Linear, scope: Scope) -> Iterable[Component]:
    yield count_product(scope, OTHER, module.in_features, module.out_features)


@register_counter(nn.RNNBase)
def count_torch_recurrent(module: nn.RNNBase, scope: Scope) -> Iterable[Component]:
    """Counts nn.RNN, nn.LSTM and nn.GRU, and the classes of `seqwise.layers` that are derived from them."""
    size = sum(each.numel() for each in module.parameters() if each.dim() == 2)
    yield Component(scope.label, RECURRENT, 2 * scope.length * build_term(size, 2), scope.length * module.num_layers)


@register_counter(nn.MultiheadAttention)
def count_torch_attention(module: nn.MultiheadAttention, scope: Scope) -> Iterable[Component]:
    sizes = SimpleNamespace(width=module.embed_dim, heads=module.num_heads, rotary=False)
    yield from count_attention(sizes, scope, is_cross=False)


# Recurrent layers


@register_counter(Cell)
def count_cell(cell: Cell, scope: Scope) -> Iterable[Component]:
    matrices = [each for each in cell.parameters() if each.dim() == 2]
    matrices = matrices or [cell.weight_input, cell.weight_hidden]  # a cell that reads the weights of another module
    size = sum(each.numel() for each in matrices)
    values = cell.inputs + (cell.blocks + SAVED_STATES.get(cell.name, 2)) * cell.units
    operations, steps = 2 * scope.length * build_term(size, 2), scope.length * get_chain_length(cell)
    yield Component(scope.label, RECURRENT, operations, steps, scope.length * build_term(values, 1))


def get_chain_length(cell: Cell) -> int:
    """Returns how many products of a step need one another: two if the reset gate acts before the product."""
    return 2 if isinstance(cell, EarlyResetGRUCell) else 1


@register_counter(Recurrent)
def count_recurrent(module: Recurrent, scope: Scope) -> Iterable[Component]:
    return count_module(module.cell, scope)


@register_counter(Bidirectional)
def count_bidirectional(module: Bidirectional, scope: Scope) -> Iterable[Component]:
    forward, backward = (
        count_module(layer, scope.name(name))
        for layer, name in ((module.forward_layer, "forward"), (module.backward_layer, "backward"))
    )
    read_once = (
        -1 * scope.length * build_term(module.forward_layer.cell.inputs, 1)
    )  # both directions read the same input
    return [*join_parallel(forward, backward), Component(scope.label, RECURRENT, activations=read_once)]


# Attention and Transformer


def count_attention(module: Any, scope: Scope, is_cross: bool) -> Iterable[Component]:
    """Counts multi-head attention: projections, and the products with keys and with values.

    The fused kernel keeps queries, keys, values, contexts, and one number per query and head, but not the weights.
    """
    width, length, num_keys = module.width, scope.length, scope.memory if is_cross else scope.length
    projections = 2 * (2 * length + 2 * num_keys) * build_term(width**2, 2)  # queries and outputs, keys and values
    saved = (2 * length + 2 * num_keys) * build_term(width, 1)  # the input, queries, keys and values
    if module.rotary and not is_cross:
        saved = saved + 2 * length * build_term(width, 1)  # before and after rotation
    yield Component(scope.label, PROJECTIONS, projections, build_term(2, 0), saved)
    kind = ATTENTION[(scope.is_target, scope.is_target and not is_cross)]
    saved = length * build_term(width, 1) + length * module.heads
    yield Component(scope.label, kind, 4 * length * num_keys * build_term(width, 1), build_term(2, 0), saved)


@register_counter(MultiHeadAttention)
def count_self_attention(module: MultiHeadAttention, scope: Scope) -> Iterable[Component]:
    return count_attention(module, scope, is_cross=False)


@register_counter(FeedForward)
def count_feedforward(module: FeedForward, scope: Scope) -> Iterable[Component]:
    for linear in (module.in_proj, module.out_proj):
        yield count_product(scope, FEEDFORWARD, linear.in_features, linear.out_features)
    if module.activation == "gelu":  # its gradient needs its input; that of ReLU only the output
        hidden = scope.length * build_term(module.in_proj.out_features, 1)
        yield Component(scope.label, FEEDFORWARD, activations=hidden)


@register_counter(LayerNorm)
def count_norm(module: LayerNorm, scope: Scope) -> Iterable[Component]:
    saved = scope.length * build_term(module.weight.numel(), 1) + 2 * scope.length  # its input, mean and deviation
    yield Component(scope.label, NORM, activations=saved)


@register_counter(Decoder)
def count_decoder_stack(module: Decoder, scope: Scope) -> Iterable[Component]:
    for number, layer in enumerate(module.layer, start=1):
        decoder_layer: Any = layer
        named = scope.name(f"layer {number}")
        for each in count_attention(decoder_layer.attention, named, is_cross=False):
            yield replace(each, is_parallel_to_encoder=number == 1)
        yield from count_attention(decoder_layer.cross_attention, named, is_cross=True)
        yield from count_module(decoder_layer.feedforward, named)
        for norm in (decoder_layer.attention_norm, decoder_layer.cross_attention_norm, decoder_layer.feedforward_norm):
            yield from count_module(norm, named)
    yield Component(
        scope.label, PROJECTIONS, activations=scope.memory * build_term(decoder_layer.width, 1)
    )  # the memory
    yield from count_module(module.norm, scope)


@register_counter(StateAttention)
def count_state_attention(module: StateAttention, scope: Scope) -> Iterable[Component]:
    width = module.units
    yield count_product(scope, PROJECTIONS, width, 3 * width)
    kind = ATTENTION[(scope.is_target, scope.is_target)]
    pairs = scope.length * scope.length
    saved = scope.length * build_term(4 * width, 1) + scope.length  # queries, keys, values, contexts
    yield Component(scope.label, kind, 4 * pairs * build_term(width, 1), build_term(2, 0), saved)
    yield Component(scope.label, kind, activations=pairs, is_shared=True)  # the mask of the window


@register_counter(AttentiveRecurrent)
def count_attentive_recurrent(module: AttentiveRecurrent, scope: Scope) -> Iterable[Component]:
    """Counts the cell with attention to all earlier states; a span that is shorter than the sequence needs less."""
    width, chain = module.units, get_chain_length(module.cell)
    yield from (replace(each, steps=scope.length * (chain + 4)) for each in count_module(module.cell, scope))
    yield Component(scope.label, PROJECTIONS, 2 * scope.length * build_term(3 * width**2, 2))
    kind = ATTENTION[(scope.is_target, scope.is_target)]
    pairs = 0.5 * (scope.length * scope.length + -1 * scope.length)  # step t attends to t − 1 states
    yield Component(scope.label, kind, 4 * pairs * build_term(width, 1))


# Inputs and outputs


@register_counter(CharacterCNN)
def count_characters(module: CharacterCNN, scope: Scope) -> Iterable[Component]:
    """Counts the table of all characters, which a batch computes once."""
    table = module.num_characters * module.embedding_size * module.kernel_size * module.width
    yield Component("characters", OTHER, build_term(2 * table, 0), build_term(1, 0), is_shared=True)


@register_counter(FullSoftmax)
def count_softmax(module: FullSoftmax, scope: Scope) -> Iterable[Component]:
    if isinstance(module.project, nn.Linear):
        yield count_product(scope, OUTPUT, module.project.in_features, module.project.out_features)
    yield count_product(scope, OUTPUT, module.weight.shape[1], module.vocabulary, power=1)
    width = module.weight.shape[1]
    # Log-probabilities; a fused loss keeps the gradients of the vectors, the weights and the bias instead.
    fused = scope.length * build_term(width, 1), float(module.vocabulary * (width + 1))
    yield Component(scope.label, LOSS, activations=scope.length * module.vocabulary, fused=fused)


@register_counter(MixtureSoftmax)
def count_mixture_softmax(module: MixtureSoftmax, scope: Scope) -> Iterable[Component]:
    width, rows = module.weight.shape[1], replace(scope, length=module.softmaxes * scope.length)
    yield count_product(scope, OUTPUT, module.width, module.softmaxes * width)
    prior = count_product(scope, OUTPUT, module.width, module.softmaxes, power=1)
    # Beside the other product. Kept: log-priors, log-posteriors, the target of every row (64 bits), and the loss.
    yield replace(prior, steps=ZERO, activations=scope.length * (4 * module.softmaxes + 1))
    yield count_product(rows, OUTPUT, width, module.vocabulary, power=1)
    # Log-probabilities of every component; a fused loss keeps nothing and computes them again in the backward pass.
    yield Component(scope.label, LOSS, activations=rows.length * module.vocabulary, fused=(ZERO, 0.0))


@register_counter(AdaptiveSoftmax)
def count_adaptive_softmax(module: AdaptiveSoftmax, scope: Scope) -> Iterable[Component]:
    """Counts the head for every position, and each cluster for the share of targets that a uniform text has in it."""
    softmax = module.softmax
    yield count_product(scope, OUTPUT, softmax.head.in_features, softmax.head.out_features, power=1)
    cutoffs = softmax.cutoffs
    for tail, start, stop in zip(softmax.tail, cutoffs, cutoffs[1:]):
        linears: Any = tail
        share = (stop - start) / module.vocabulary
        size = sum(linear.in_features * linear.out_features for linear in linears)
        yield Component(scope.label, OUTPUT, 2 * share * scope.length * build_term(size, 1))
