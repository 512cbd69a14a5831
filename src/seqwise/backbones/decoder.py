"""Builds the decoder that the settings describe. The interface of decoders is in `memory.py`."""

from __future__ import annotations

from seqwise.backbones.memory import Decoder as Decoder
from seqwise.backbones.memory import DecoderOutput as DecoderOutput
from seqwise.backbones.memory import Memory as Memory
from seqwise.backbones.memory import continue_or_start as continue_or_start
from seqwise.backbones.recurrent_decoder import (
    BahdanauDecoder,
    InitialStateDecoder,
    InputFeedingDecoder,
    LuongDecoder,
)
from seqwise.backbones.transformer_decoder import TransformerDecoder
from seqwise.config import RECURRENT
from seqwise.errors import UsageError
from seqwise.layers.attention import Additive, Dot, General, Score
from seqwise.resolved_settings import ResolvedSettings


def build_decoder(
    settings: ResolvedSettings,
    inputs: int,
    memory_width: int,
    max_length: int,
    attention: str | None = None,
    feeding: bool | None = None,
) -> Decoder:
    """The decoder that the settings describe, for vectors of width `inputs` over a memory of width `memory_width`.

    `attention` of recurrent and fixed-window decoders is none, additive, dot or general; the default is
    `translate.attention`. The default of `feeding` is `translate.input_feeding`, or False for a task that passes its
    own `attention`. `max_length` is the number of learned positions.
    """
    if feeding is None:
        feeding = attention is None and settings.translate.input_feeding
    network, attention = settings.network, attention or settings.translate.attention
    width = network.width
    if settings.model == "transformer":
        depth, dropout = network.depth, network.dropout
        return TransformerDecoder(inputs, memory_width, width, depth, max_length, settings.transformer, dropout)
    if attention == "none":
        if settings.model not in RECURRENT:
            raise UsageError(
                f"the {settings.model} decoder has no initial state, so it needs attention; received none.",
                repair="Pass --translate.attention general.",
            )
        return InitialStateDecoder(settings, inputs, memory_width)
    if settings.model in RECURRENT and attention == "additive":
        return BahdanauDecoder(settings, inputs, memory_width, build_score(attention, width, memory_width))
    if feeding and supports_input_feeding(settings.model, attention):
        return InputFeedingDecoder(settings, inputs, memory_width, build_score(attention, width, memory_width))
    return LuongDecoder(settings, inputs, memory_width, build_score(attention, width, memory_width))


def supports_input_feeding(model: str, attention: str) -> bool:
    """Whether the attention of a step can enter the next one: in recurrent decoders that attend after the cell."""
    return model in ("rnn", "gru", "lstm") and attention in ("dot", "general")


def build_score(attention: str, width: int, memory_width: int) -> Score:
    """The module that scores states of `width` against vectors of the memory."""
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
