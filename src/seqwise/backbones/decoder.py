"""Settings → decoder: something that writes over a memory. What decoders promise is in `memory.py`."""

from __future__ import annotations

from seqwise.backbones.memory import Decoded as Decoded
from seqwise.backbones.memory import Decoder as Decoder
from seqwise.backbones.memory import Memory as Memory
from seqwise.backbones.memory import begun as begun
from seqwise.backbones.recurrent_decoder import Bahdanau, Feeding, HandedOver, Luong
from seqwise.backbones.transformer_decoder import TransformerDecoder
from seqwise.config import RECURRENT
from seqwise.errors import UsageError
from seqwise.layers.attention import Additive, Dot, General, Score
from seqwise.resolved_settings import ResolvedSettings


def build_decoder(
    settings: ResolvedSettings,
    inputs: int,
    memory_width: int,
    longest: int,
    attention: str | None = None,
    feeding: bool | None = None,
) -> Decoder:
    """The decoder of a resolved run, for vectors of width `inputs` over a memory of width `memory_width`.

    `attention` is that of recurrent and fixed-window decoders: none, additive, dot or general. Unless given it is
    `translate.attention`, and `feeding` is `translate.input_feeding`; a task with its own attention is not fed unless
    it says so. `longest` bounds learned positions.
    """
    if feeding is None:
        feeding = attention is None and settings.translate.input_feeding
    network, attention = settings.network, attention or settings.translate.attention
    width = network.width
    if settings.model == "transformer":
        depth, dropout = network.depth, network.dropout
        return TransformerDecoder(inputs, memory_width, width, depth, longest, settings.transformer, dropout)
    if attention == "none":
        if settings.model not in RECURRENT:
            raise UsageError(
                f"the {settings.model} decoder has no state to begin with, so it needs attention; received none.",
                repair="Pass --translate.attention general.",
            )
        return HandedOver(settings, inputs, memory_width)
    if settings.model in RECURRENT and attention == "additive":
        return Bahdanau(settings, inputs, memory_width, score_of(attention, width, memory_width))
    if feeding and can_be_fed(settings.model, attention):
        return Feeding(settings, inputs, memory_width, score_of(attention, width, memory_width))
    return Luong(settings, inputs, memory_width, score_of(attention, width, memory_width))


def can_be_fed(model: str, attention: str) -> bool:
    """May what a step saw enter the next one? A Transformer has no steps, and additive attention looks first anyway."""
    return model in ("rnn", "gru", "lstm") and attention in ("dot", "general")


def score_of(attention: str, width: int, memory_width: int) -> Score:
    """The module that compares states of `width` with vectors of the memory."""
    if attention == "additive":
        return Additive(width, memory_width, width)
    if attention == "general":
        return General(width, memory_width)
    if width != memory_width:
        raise UsageError(
            f"dot attention compares vectors of one width; the decoder's is {width}, the encoder's {memory_width}.",
            repair="Use general attention, or choose the width so that both agree.",
        )
    return Dot()
