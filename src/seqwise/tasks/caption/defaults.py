"""The rules that fill the settings left open of the task caption. The data itself tells size and kind of pictures."""

from __future__ import annotations

from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.defaults import RECURRENT, DefaultsContext, Fill, heads_of

VARIED = 1_000  # tokens; with fewer the picture decides every word, with more people could have said it otherwise


def fill_caption(chosen: ResolvedSettings, facts: DefaultsContext, fill: Fill) -> None:
    """A CPU has time for some hundred pictures a second, a GPU for many thousand."""
    transformer = chosen.model == "transformer"
    fill("network.width", (256 if transformer else 384) if facts.cuda else 96)
    fill("network.depth", (3 if facts.cuda else 2) if transformer else 1)
    fill("network.embedding", chosen.network.width)
    width = chosen.network.width
    if transformer or chosen.caption.encoder == "patches":
        fill("transformer.heads", heads_of(width, 32))
        fill("transformer.hidden", 4 * width if facts.cuda else 2 * width)
    if chosen.model in RECURRENT:
        fill("recurrent.weight_dropout", 0.0)
    _fill_pictures(chosen, facts, fill)
    _fill_training(chosen, facts, fill)


def _fill_pictures(chosen: ResolvedSettings, facts: DefaultsContext, fill: Fill) -> None:
    size = chosen.caption.image_size
    # On builtin:shapes 25 s of one core made 813 updates with a grid of 4 (loss 0.27), 464 with one of 8 (loss 0.36).
    fill("caption.grid", 4 if size <= 32 else 8)
    fill("caption.blocks", 1 if facts.cuda else 0)
    fill("caption.patch", max(4, size // 8))  # 8 × 8 regions, as the convolutions leave
    fill("caption.shift", size // 32 if facts.vocabulary <= VARIED else size // 16)


def _fill_training(chosen: ResolvedSettings, facts: DefaultsContext, fill: Fill) -> None:
    varied = facts.vocabulary > VARIED
    fill("network.dropout", 0.3 if varied else 0.0)
    fill("caption.label_smoothing", 0.1 if varied else 0.0)
    rows = 128 if facts.cuda else 32
    fill("training.batch_size", max(1, -(-min(rows, facts.examples) // facts.processes)) * facts.processes)
    fill("data.max_tokens", 64 * chosen.training.batch_size)
    fill("data.max_length", facts.longest)
    fill("training.learning_rate", 1e-3 if facts.cuda else 3e-3)
    fill("training.weight_decay", 0.05 if varied else 0.01)
    if varied and facts.cuda:
        fill("training.ema", 0.999)  # steadier captions: on Flickr8k 60 % of them differ, without it and faster 26 %
