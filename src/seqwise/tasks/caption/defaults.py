"""Default settings of captioning. Kind and size of the images come from the data."""

from __future__ import annotations

from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.defaults import RECURRENT, DefaultsContext, Fill, choose_num_heads

VARIED_VOCABULARY = 1_000  # with fewer tokens the image determines every word; with more, captions vary by author


def fill_caption(settings: ResolvedSettings, context: DefaultsContext, fill: Fill) -> None:
    """Fills in sizes: a CPU processes some hundred images per second, a GPU many thousand."""
    is_transformer = settings.model == "transformer"
    fill("network.width", (256 if is_transformer else 384) if context.cuda else 96)
    fill("network.depth", (3 if context.cuda else 2) if is_transformer else 1)
    fill("network.embedding", settings.network.width)
    width = settings.network.width
    if is_transformer or settings.caption.encoder == "patches":
        fill("transformer.heads", choose_num_heads(width, 32))
        fill("transformer.hidden", 4 * width if context.cuda else 2 * width)
    if settings.model in RECURRENT:
        fill("recurrent.weight_dropout", 0.0)
    _fill_encoder(settings, context, fill)
    _fill_training(settings, context, fill)


def _fill_encoder(settings: ResolvedSettings, context: DefaultsContext, fill: Fill) -> None:
    size = settings.caption.image_size
    # On builtin:shapes 25 s of one core made 813 updates with a grid of 4 (loss 0.27), 464 with one of 8 (loss 0.36).
    fill("caption.grid", 4 if size <= 32 else 8)
    fill("caption.blocks", 1 if context.cuda else 0)
    fill("caption.patch", max(4, size // 8))  # 8 × 8 regions, as many as the convolutions leave
    fill("caption.shift", size // 32 if context.vocabulary <= VARIED_VOCABULARY else size // 16)


def _fill_training(settings: ResolvedSettings, context: DefaultsContext, fill: Fill) -> None:
    is_varied = context.vocabulary > VARIED_VOCABULARY
    fill("network.dropout", 0.3 if is_varied else 0.0)
    fill("caption.label_smoothing", 0.1 if is_varied else 0.0)
    batch_size = min(128 if context.cuda else 32, context.examples)
    fill("training.batch_size", max(1, -(-batch_size // context.processes)) * context.processes)
    fill("data.max_tokens", 64 * settings.training.batch_size)
    fill("data.max_length", context.max_length)
    fill("training.learning_rate", 1e-3 if context.cuda else 3e-3)
    fill("training.weight_decay", 0.05 if is_varied else 0.01)
    if is_varied and context.cuda:
        fill("training.ema", 0.999)  # on Flickr8k 60 % of the captions are distinct, without it only 26 %
