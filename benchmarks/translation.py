"""How fast is our beam search beside `generate` of transformers, on the same Transformer with the same weights?

    pip install transformers
    python benchmarks/translation.py [--rows small …] [--repeats 5] [--threads N] [--quick] [--json FILE]

Both get the same 64 sources of mixed length, the same weights, drawn at random, and a beam of 5. Each sentence must end
at a given length near that of its source: both are kept from ending before, so they do the same work, and the table
says how many of the 64 translations are the same, token for token. Both run in this process in float32, in turn, so
that whatever else the machine does falls on both alike; times are medians, and hold the encoder too.

`ratio` is the peer's time divided by ours where both get all sentences in one batch: above 1 we are faster. We encode
them in groups of like length before the search; a sentence that is done leaves our batch, and waits in the peer's.
`sorted` is the same where the peer gets them sorted by length, in batches of the size that is best for it: several are
tried, and the fastest counts. `cpu` after each counts processor time instead of the clock, which a busy machine
disturbs less. The exit status is 1 if `ratio` by the clock is below 3; `sorted` is for information. It runs on CPUs.
"""

from __future__ import annotations

import importlib.util
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from measuring import QUICK, Column, Report, parser, settle
from torch import Tensor, nn

from seqwise.backbones.encoder import build_encoder
from seqwise.backbones.memory import Memory, concat_memories
from seqwise.config import NetworkSettings, Settings, TransformerSettings
from seqwise.decoding.beam import beam_search
from seqwise.decoding.options import BeamSearchOptions
from seqwise.layers.embedding import Embedding
from seqwise.tasks.writing import Writer

REQUIRED, BEAM = 3.0, 5
PAD, BEGIN, END = 0, 1, 2
LONGEST = 64
ENCODED = 16  # sentences that we encode at a time


@dataclass(frozen=True)
class Row:
    """One size: encoder and decoder have `depth` layers each."""

    name: str
    depth: int
    width: int
    heads: int
    vocabulary: int
    sentences: int = 64

    def __str__(self) -> str:
        return f"{self.depth}+{self.depth} layers of {self.width}, V {self.vocabulary:,}"


ROWS = (
    Row("tiny", 2, 128, 4, 4_000),
    Row("small", 3, 256, 4, 8_000),
    Row("base", 6, 512, 8, 16_000),
)
BATCHES = (8, 16, 32)  # sizes that are tried for the peer


@dataclass(frozen=True)
class Work:
    """Sources (ids, without padding) and the length that each translation must have."""

    sources: list[list[int]]
    lengths: list[int]


def draw(row: Row) -> Work:
    """Lengths as in a corpus of captions: 5 to 40 tokens, 14 in the mean; translations within a fifth of that."""
    generator = torch.Generator().manual_seed(1)
    lengths = torch.distributions.Gamma(5.0, 0.4)
    torch.manual_seed(1)
    sizes = lengths.sample((row.sentences,)).round().long().clamp(5, 40)
    targets = (sizes * (0.8 + 0.4 * torch.rand(row.sentences, generator=generator))).round().long()
    sources = [torch.randint(3, row.vocabulary, (int(n),), generator=generator).tolist() for n in sizes]
    return Work([[*source, END] for source in sources], targets.tolist())


def padded(sources: Sequence[list[int]]) -> tuple[Tensor, Tensor]:
    """ids (B, S) and lengths (B,)."""
    lengths = torch.tensor([len(source) for source in sources])
    ids = torch.full((len(sources), int(lengths.max())), PAD)
    for number, source in enumerate(sources):
        ids[number, : len(source)] = torch.tensor(source)
    return ids, lengths


# Ours


class Ours(nn.Module):
    """Encoder and writer with one vocabulary, post-norm as the peer's."""

    def __init__(self, row: Row):
        super().__init__()
        settings = Settings(
            model="transformer",
            network=NetworkSettings(width=row.width, depth=row.depth, embedding=row.width, dropout=0.0),
            transformer=TransformerSettings(heads=row.heads, positions="learned", norm="post", activation="relu"),
        )
        self.embedding = Embedding(row.vocabulary, row.width)
        self.encoder = build_encoder(settings, row.width, LONGEST)
        self.writer = Writer(settings, row.vocabulary, row.width, LONGEST, embedding=self.embedding)
        self.eval()

    def encode(self, sources: Sequence[list[int]]) -> Memory:
        ids, lengths = padded(sources)
        return Memory(self.encoder(self.embedding(ids), lengths=lengths).vectors, lengths)

    @torch.inference_mode()
    def translate(self, sources: Sequence[list[int]], targets: Sequence[int]) -> list[list[int]]:
        memory = concat_memories([self.encode(sources[i : i + ENCODED]) for i in range(0, len(sources), ENCODED)])
        how, longest = BeamSearchOptions(beam=BEAM), torch.tensor(targets)
        found = beam_search(
            self.writer, memory, begin=BEGIN, end=END, options=how, max_length=longest, banned=(PAD, END)
        )
        return [hypotheses[0].ids for hypotheses in found]


# The peer


def peer_of(row: Row) -> Any:
    """Marian, the encoder-decoder of transformers that is the Transformer as published."""
    try:
        from transformers import MarianConfig, MarianMTModel
    except ImportError:
        raise SystemExit("the peer is missing: pip install transformers") from None
    sides = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in (("layers", row.depth), ("attention_heads", row.heads), ("ffn_dim", 4 * row.width))
    }
    config = MarianConfig(
        vocab_size=row.vocabulary, d_model=row.width, max_position_embeddings=LONGEST, activation_function="relu",
        scale_embedding=False, pad_token_id=PAD, eos_token_id=END, decoder_start_token_id=BEGIN,
        forced_eos_token_id=None, **sides,
    )  # fmt: skip
    return MarianMTModel(config).eval()


class Lengths:
    """A logits processor of transformers: a sentence ends at its length, not before."""

    def __init__(self, lengths: Sequence[int]):
        self.lengths = torch.tensor(lengths).repeat_interleave(BEAM)

    def __call__(self, written: Tensor, scores: Tensor) -> Tensor:
        scores[:, PAD] = scores[:, END] = -torch.inf
        done = self.lengths <= written.shape[1] - 1  # the first token is the begin
        scores[done] = -torch.inf
        scores[done, END] = 0.0  # an end that costs nothing: ours are cut at their length
        return scores


@torch.inference_mode()
def peer_translate(model: Any, sources: Sequence[list[int]], targets: Sequence[int]) -> list[list[int]]:
    ids, lengths = padded(sources)
    mask = torch.arange(ids.shape[1]) < lengths[:, None]
    found = model.generate(
        input_ids=ids, attention_mask=mask.long(), num_beams=BEAM, do_sample=False, early_stopping=True,
        max_new_tokens=max(targets) + 1, logits_processor=[Lengths(targets)],
    )  # fmt: skip
    return [row[1 : 1 + target] for target, row in zip(targets, found.tolist(), strict=True)]


@torch.no_grad()
def share_weights(ours: Ours, peer: Any) -> None:
    """Our model with the peer's weights; its rows and positions are drawn anew, so that the two sides must attend."""
    for part in peer.parameters():
        if part.dim() == 2:
            nn.init.normal_(part, std=part.shape[1] ** -0.5)
    peer.model.shared.weight.normal_(std=0.15)
    ours.embedding.weight.copy_(peer.model.shared.weight)
    ours.writer.output.bias.zero_()
    for side, backbone, stack in (
        (peer.model.encoder, ours.encoder, ours.encoder.encoder),
        (peer.model.decoder, ours.writer.decoder, ours.writer.decoder.decoder),
    ):
        backbone.positions.weight.copy_(side.embed_positions.weight)  # type: ignore[union-attr]
        for theirs, layer in zip(side.layers, stack.layer, strict=True):  # type: ignore[union-attr]
            _share_attention(layer.attention, theirs.self_attn)
            layer.attention_norm.load_state_dict(theirs.self_attn_layer_norm.state_dict())
            if hasattr(layer, "cross"):
                _share_attention(layer.cross, theirs.encoder_attn)
                layer.cross_norm.load_state_dict(theirs.encoder_attn_layer_norm.state_dict())
            layer.feedforward.inward.load_state_dict(theirs.fc1.state_dict())
            layer.feedforward.outward.load_state_dict(theirs.fc2.state_dict())
            layer.feedforward_norm.load_state_dict(theirs.final_layer_norm.state_dict())


def _share_attention(ours: Any, theirs: Any) -> None:
    parts = [theirs.q_proj, theirs.k_proj, theirs.v_proj]
    ours.inward.weight.copy_(torch.cat([part.weight for part in parts]))
    ours.inward.bias.copy_(torch.cat([part.bias for part in parts]))
    ours.outward.load_state_dict(theirs.out_proj.state_dict())


# Side by side


Translate = Callable[[Sequence[list[int]], Sequence[int]], list[list[int]]]


def in_batches(translate: Translate, work: Work, size: int) -> list[list[int]]:
    """All translations in the order of the work, from batches of sentences of like length."""
    order = sorted(range(len(work.sources)), key=lambda i: len(work.sources[i]))
    results: list[list[int]] = [[] for _ in order]
    for start in range(0, len(order), size):
        chosen = order[start : start + size]
        found = translate([work.sources[i] for i in chosen], [work.lengths[i] for i in chosen])
        for i, ids in zip(chosen, found, strict=True):
            results[i] = ids
    return results


def fastest(translate: Translate, work: Work) -> int:
    """The size of batches that takes the least processor time, each tried twice: the first run allocates."""
    seconds = {
        size: min(timed(lambda size=size: in_batches(translate, work, size))[1] for _ in range(2)) for size in BATCHES
    }
    return min(seconds, key=seconds.__getitem__)


def measure(row: Row, repeats: int) -> dict[str, Any]:
    """Seconds of the median run, ours and the peer's, by the clock and in processor time."""
    torch.manual_seed(0)
    work, model, peer = draw(row), Ours(row), peer_of(row)
    share_weights(model, peer)

    def theirs(sources: Sequence[list[int]], targets: Sequence[int]) -> list[list[int]]:
        return peer_translate(peer, sources, targets)

    mine, size = in_batches(model.translate, work, row.sentences), fastest(theirs, work)
    same = sum(a == b for a, b in zip(mine, in_batches(theirs, work, size), strict=True))
    runs = {"ours": (model.translate, row.sentences), "peer": (theirs, row.sentences), "sorted": (theirs, size)}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, (side, batch) in runs.items():
            times[name].append(timed(lambda side=side, batch=batch: in_batches(side, work, batch)))
    medians = {
        f"{name}_{kind}": statistics.median(pair[at] for pair in pairs)
        for name, pairs in times.items()
        for at, kind in enumerate(("seconds", "cpu"))
    }
    ratios = {
        "ratio": medians["peer_seconds"] / medians["ours_seconds"],
        "cpu_ratio": medians["peer_cpu"] / medians["ours_cpu"],
        "sorted_ratio": medians["sorted_seconds"] / medians["ours_seconds"],
        "sorted_cpu_ratio": medians["sorted_cpu"] / medians["ours_cpu"],
    }
    facts = {"beam": BEAM, "tokens": sum(work.lengths), "same": same, "sorted_batch": size, "repeats": repeats}
    return {**asdict(row), **facts, **medians, **ratios}


def timed(run: Callable[[], object]) -> tuple[float, float]:
    clock, cpu = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - clock, time.process_time() - cpu


def missed_of(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The ratio on the same batch decides."""
    return [
        f"{row['name']}: {row['ratio']:.3f} times as fast, not {REQUIRED}"
        for row in rows
        if "failed" not in row and row["ratio"] < REQUIRED
    ]


COLUMNS = (
    Column("size", "seconds", width=-36),
    Column("ours_seconds", "ours", ".2f"),
    Column("peer_seconds", "peer", ".2f"),
    Column("ratio", "ratio", ".2f", width=8),
    Column("cpu_ratio", "cpu", ".2f", width=7),
    Column("sorted_seconds", "sorted", ".2f"),
    Column("sorted_ratio", "ratio", ".2f", width=8),
    Column("sorted_cpu_ratio", "cpu", ".2f", width=7),
    Column("same", "same", width=7),
    Column("sentences", "of", width=5),
)


def main(arguments: Sequence[str] | None = None) -> int:
    command = parser(__doc__)
    names = [row.name for row in ROWS]
    command.add_argument("--rows", nargs="+", choices=names, metavar="ROW", help=", ".join(names))
    options = command.parse_args(arguments)
    if importlib.util.find_spec("transformers") is None:
        print("skipped: transformers is not installed. pip install transformers", file=sys.stderr)
        return 0
    options.device = "cpu"
    device = settle(options)
    chosen = [row for row in ROWS if row.name in (options.rows or names[: 1 if options.quick else None])]
    repeats = options.repeats or (QUICK if options.quick else 5)
    planned = [row.name for row in chosen]
    report = Report("translation", options, device, COLUMNS, arguments, {"beam": BEAM}, planned, missed_of)
    for row in chosen:
        report.measured({**asdict(row), "size": str(row)}, lambda row=row: measure(row, repeats))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
