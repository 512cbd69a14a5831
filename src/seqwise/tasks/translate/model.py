"""The translation model: one encoder, and a decoder for each target or one for all.

    source ids → embedding → encoder → memory → decoder → losses (training) or hypotheses (inference)

The module knows nothing of text or files. The decoder is in `tasks/token_decoder.py`, the search in `decoding/beam.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from seqwise.backbones.encoder import build_encoder
from seqwise.backbones.memory import Memory
from seqwise.data.batch import Batch, pad_sequences
from seqwise.layers.dropout import build_dropout
from seqwise.layers.embedding import Embedding
from seqwise.layers.initialise import EMBEDDING_STD
from seqwise.losses import Loss, add_losses
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.token_decoder import TokenDecoder


@dataclass(frozen=True)
class PairBatch(Batch):
    """Sources with their targets in N languages: the decoder reads `inputs[:, n]` and predicts `targets[:, n]`."""

    position_unit = "pair"

    source: Tensor  # (B, S) int64
    lengths: Tensor  # (B,) int64
    inputs: Tensor  # (B, N, T) int64: <bos>, then the target
    targets: Tensor  # (B, N, T) int64: the target, then <eos>
    mask: Tensor  # (B, N, T) bool: False for padding
    first_target: int = 0  # index of the first of the N languages in the run: a view reads one of them alone

    @property
    def length(self) -> int:
        return max(self.source.shape[1], self.targets.shape[2])

    @property
    def num_targets(self) -> int:
        return int(self.mask.sum())


BosEosIds = Sequence[tuple[int, int]]  # ids of <bos> and <eos> of each target


def collate(token_ids: Sequence[Sequence[np.ndarray]], bos_eos_ids: BosEosIds, max_length: int) -> PairBatch:
    """Returns a batch of pairs; padding has id 0. `token_ids[0]` are the sources, the others the targets by language.

    Texts are truncated to `max_length`. A truncated target has no <eos>: the model must not learn to stop there.
    """
    sources = [ids[:max_length] for ids in token_ids[0]]
    inputs, outputs = [], []
    for targets in zip(*token_ids[1:]):
        for ids, (bos_id, eos_id) in zip(targets, bos_eos_ids):
            inputs.append(np.append(bos_id, ids[:max_length]))
            outputs.append(np.append(ids, eos_id) if len(ids) <= max_length else ids[:max_length])
    # Padded together, so that outputs are as wide as inputs even if all of them are truncated.
    padded = torch.from_numpy(pad_sequences([*inputs, *outputs]))
    mask = torch.arange(padded.shape[1]) < torch.tensor([len(ids) for ids in outputs])[:, None]
    shape = (len(sources), len(bos_eos_ids), -1)
    return PairBatch(
        torch.from_numpy(pad_sequences(sources)),
        torch.tensor([len(ids) for ids in sources]),
        padded[: len(inputs)].view(shape),
        padded[len(inputs) :].view(shape),
        mask.view(shape),
    )


class Translator(nn.Module):
    """Embedding and encoder of the source, and the decoders.

    `vocabulary_sizes` are the size of the source's vocabulary and the sizes of the decoders' vocabularies. With the
    `counts` of the target tokens, an untrained model already predicts each token by its frequency. The training loop
    sets `progress`, the fraction of the budget that is spent, unless it is None: only scheduled sampling depends on it.
    """

    def __init__(
        self,
        settings: ResolvedSettings,
        vocabulary_sizes: tuple[int, Sequence[int]],
        counts: Sequence[Tensor] | None = None,
    ):
        super().__init__()
        network, translate = settings.network, settings.translate
        max_length = settings.data.max_length + 1
        source_size, target_sizes = vocabulary_sizes
        is_transformer = settings.model == "transformer"
        self.embedding = Embedding(source_size, network.embedding)
        if is_transformer:  # small vectors, as in the language model: states after the final norm are large
            nn.init.normal_(self.embedding.weight, std=EMBEDDING_STD)
        self.input_dropout = build_dropout(network.dropout, variational=not is_transformer)
        self.encoder = build_encoder(settings, network.embedding, max_length)
        memory_width: int = self.encoder.width  # type: ignore[assignment]
        shared_embedding = self.embedding if translate.vocabulary == "shared" else None
        counts_by_target: Sequence[Tensor | None] = counts or [None] * len(target_sizes)
        self.decoders = nn.ModuleList(
            TokenDecoder(settings, size, memory_width, max_length, embedding=shared_embedding, counts=target_counts)
            for size, target_counts in zip(target_sizes, counts_by_target)
        )
        self.smoothing, self.teacher_forcing = translate.label_smoothing, translate.teacher_forcing
        self.r_drop = translate.r_drop
        self.progress: float | None = 0.0 if self.teacher_forcing < 1 else None

    def forward(self, batch: PairBatch, state: None = None) -> tuple[Loss, None]:
        """Returns the summed loss of all targets in all languages, and no state; in training, smoothed or of R-Drop."""
        smoothing = self.smoothing if self.training else 0.0
        has_two_passes = self.training and self.r_drop > 0

        def repeat(tensor: Tensor) -> Tensor:
            return torch.cat([tensor, tensor]) if has_two_passes else tensor

        memory = self.encode(repeat(batch.source), repeat(batch.lengths))
        losses = []
        for n in range(batch.inputs.shape[1]):
            decoder, inputs = self.get_decoder(batch.first_target + n), repeat(batch.inputs[:, n])
            if self.training and self.true_token_share < 1:
                inputs = self.mix_predictions(decoder, memory, inputs)
            targets, mask = batch.targets[:, n], batch.mask[:, n]
            if has_two_passes:
                losses.append(decoder.r_drop_loss(memory, inputs, targets, mask, smoothing, self.r_drop))
            else:
                losses.append(decoder.loss(memory, inputs, targets, mask, smoothing))
        return add_losses(losses), None

    def encode(self, ids: Tensor, lengths: Tensor | None = None) -> Memory:
        """Returns the memory of sources (B, S); `lengths` (B,) are their numbers of tokens without padding."""
        return Memory(self.encoder(self.input_dropout(self.embedding(ids)), lengths=lengths).vectors, lengths)

    def get_decoder(self, target_index: int) -> TokenDecoder:
        """Returns the decoder of a target language; there may be one decoder for all."""
        return self.decoders[target_index if len(self.decoders) > 1 else 0]  # type: ignore[return-value]

    # Scheduled sampling

    @property
    def true_token_share(self) -> float:
        """The share of decoder inputs that are true tokens, at the present progress of training."""
        return 1.0 - (self.progress or 0.0) * (1.0 - self.teacher_forcing)

    @torch.no_grad()
    def mix_predictions(self, decoder: TokenDecoder, memory: Memory, inputs: Tensor) -> Tensor:
        """Returns the inputs with some tokens replaced by the model's own predictions.

        Scheduled sampling (Bengio et al. 2015) in two passes (Mihaylova & Martins 2019), for decoders that read all
        steps at once: the first reads the true tokens, the second the mixture. No gradient flows through the first.
        """
        predicted = decoder.logits(decoder.decode(inputs[:, :-1], None, memory).vectors).argmax(-1)
        is_true = torch.rand(predicted.shape, device=predicted.device) < self.true_token_share
        return torch.cat([inputs[:, :1], torch.where(is_true, inputs[:, 1:], predicted)], dim=1)
