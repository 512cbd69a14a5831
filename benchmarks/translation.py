"""Speed of our beam search compared with `generate` of Hugging Face transformers, with the same weights.

    pip install transformers
    python benchmarks/translation.py [--rows small …] [--repeats 5] [--threads N] [--quick] [--json FILE]

Both translate the same 64 sources of different lengths with the same random weights and a beam of 5. Each translation
has a prescribed length near that of its source, and cannot end earlier, so that both do the same work; `identical` is
the number of translations that are equal token by token. Both run in this process in float32 with interleaved runs, so
that other load affects both equally; times are medians and include the encoder.

`ratio` is the baseline's time divided by ours when both get all sentences in one batch: above 1 ours is faster. Our
search encodes sentences in groups of similar length, and finished sentences leave the batch; the baseline keeps them.
`sorted` is the baseline with sentences sorted by length, in batches of its fastest size. `CPU` ratios compare processor
time instead of wall-clock time, which depends less on other load. The exit status is 1 if `ratio` is below 3; `sorted`
is for information. The benchmark runs on CPUs.
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
from measuring import QUICK_REPEATS, Column, Report, build_parser, set_up_device
from torch import Tensor, nn

from seqwise.backbones.encoder import build_encoder
from seqwise.backbones.memory import Memory, concat_memories
from seqwise.config import NetworkSettings, Settings, TransformerSettings
from seqwise.decoding.generate import decode_sequences
from seqwise.decoding.options import BeamSearchOptions
from seqwise.layers.embedding import Embedding
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.token_decoder import TokenDecoder

MIN_RATIO, BEAM = 3.0, 5
PAD, BEGIN, END = 0, 1, 2  # token ids
MAX_LENGTH = 64
ENCODER_BATCH_SIZE = 16


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
BATCH_SIZES = (8, 16, 32)  # candidates for the baseline


@dataclass(frozen=True)
class TranslationInputs:
    """Source token ids, without padding, and the prescribed length of each translation."""

    sources: list[list[int]]
    lengths: list[int]


def generate_inputs(row: Row) -> TranslationInputs:
    """Returns random sources with the lengths of captions, 5 to 40 tokens, mean 14; targets differ by up to a fifth."""
    generator = torch.Generator().manual_seed(1)
    lengths = torch.distributions.Gamma(5.0, 0.4)
    torch.manual_seed(1)
    sizes = lengths.sample((row.sentences,)).round().long().clamp(5, 40)
    targets = (sizes * (0.8 + 0.4 * torch.rand(row.sentences, generator=generator))).round().long()
    sources = [torch.randint(3, row.vocabulary, (int(n),), generator=generator).tolist() for n in sizes]
    return TranslationInputs([[*source, END] for source in sources], targets.tolist())


def pad_sources(sources: Sequence[list[int]]) -> tuple[Tensor, Tensor]:
    """Returns ids (B, S) and lengths (B,)."""
    lengths = torch.tensor([len(source) for source in sources])
    ids = torch.full((len(sources), int(lengths.max())), PAD)
    for number, source in enumerate(sources):
        ids[number, : len(source)] = torch.tensor(source)
    return ids, lengths


# Seqwise


class TranslationModel(nn.Module):
    """Encoder and decoder with a shared vocabulary, post-norm like the baseline."""

    def __init__(self, row: Row):
        super().__init__()
        settings = ResolvedSettings.from_settings(
            Settings(
                model="transformer",
                network=NetworkSettings(width=row.width, depth=row.depth, embedding=row.width, dropout=0.0),
                transformer=TransformerSettings(heads=row.heads, positions="learned", norm="post", activation="relu"),
            )
        )
        self.embedding = Embedding(row.vocabulary, row.width)
        self.encoder = build_encoder(settings, row.width, MAX_LENGTH)
        self.token_decoder = TokenDecoder(settings, row.vocabulary, row.width, MAX_LENGTH, embedding=self.embedding)
        self.eval()

    def encode(self, sources: Sequence[list[int]]) -> Memory:
        ids, lengths = pad_sources(sources)
        return Memory(self.encoder(self.embedding(ids), lengths=lengths).vectors, lengths)

    @torch.inference_mode()
    def translate(self, sources: Sequence[list[int]], targets: Sequence[int]) -> list[list[int]]:
        memory = concat_memories(
            [self.encode(sources[i : i + ENCODER_BATCH_SIZE]) for i in range(0, len(sources), ENCODER_BATCH_SIZE)]
        )
        options, max_length = BeamSearchOptions(beam=BEAM), torch.tensor(targets)
        results = decode_sequences(
            self.token_decoder, memory, begin=BEGIN, end=END, options=options, max_length=max_length, banned=(PAD, END)
        )
        return [hypotheses[0].ids for hypotheses in results]


# The baseline


def build_baseline(row: Row) -> Any:
    """Returns Marian, the encoder-decoder of transformers with the architecture of the original paper."""
    try:
        from transformers import MarianConfig, MarianMTModel
    except ImportError:
        raise SystemExit("transformers is not installed: pip install transformers") from None
    sizes_by_stack = {
        f"{part}_{name}": value
        for part in ("encoder", "decoder")
        for name, value in (("layers", row.depth), ("attention_heads", row.heads), ("ffn_dim", 4 * row.width))
    }
    config = MarianConfig(
        vocab_size=row.vocabulary, d_model=row.width, max_position_embeddings=MAX_LENGTH, activation_function="relu",
        scale_embedding=False, pad_token_id=PAD, eos_token_id=END, decoder_start_token_id=BEGIN,
        forced_eos_token_id=None, **sizes_by_stack,
    )  # fmt: skip
    return MarianMTModel(config).eval()


class PrescribedLengths:
    """A logits processor of transformers that ends each sentence at its prescribed length."""

    def __init__(self, lengths: Sequence[int]):
        self.lengths = torch.tensor(lengths).repeat_interleave(BEAM)

    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
        scores[:, PAD] = scores[:, END] = -torch.inf
        done = self.lengths <= ids.shape[1] - 1  # without the begin token
        scores[done] = -torch.inf
        scores[done, END] = 0.0  # ends at no cost, as in our search
        return scores


@torch.inference_mode()
def translate_with_baseline(model: Any, sources: Sequence[list[int]], targets: Sequence[int]) -> list[list[int]]:
    ids, lengths = pad_sources(sources)
    mask = torch.arange(ids.shape[1]) < lengths[:, None]
    outputs = model.generate(
        input_ids=ids, attention_mask=mask.long(), num_beams=BEAM, do_sample=False, early_stopping=True,
        max_new_tokens=max(targets) + 1, logits_processor=[PrescribedLengths(targets)],
    )  # fmt: skip
    return [row[1 : 1 + target] for target, row in zip(targets, outputs.tolist(), strict=True)]


@torch.no_grad()
def share_weights(model: TranslationModel, baseline: Any) -> None:
    """Initialises the baseline's weights and copies them to our model; larger embeddings make attention matter."""
    for part in baseline.parameters():
        if part.dim() == 2:
            nn.init.normal_(part, std=part.shape[1] ** -0.5)
    baseline.model.shared.weight.normal_(std=0.15)
    model.embedding.weight.copy_(baseline.model.shared.weight)
    model.token_decoder.output.bias.zero_()
    for baseline_stack, backbone, stack in (
        (baseline.model.encoder, model.encoder, model.encoder.encoder),
        (baseline.model.decoder, model.token_decoder.decoder, model.token_decoder.decoder.decoder),
    ):
        backbone.positions.weight.copy_(baseline_stack.embed_positions.weight)  # type: ignore[union-attr]
        for baseline_layer, layer in zip(baseline_stack.layers, stack.layer, strict=True):  # type: ignore[union-attr]
            _share_attention(layer.attention, baseline_layer.self_attn)
            layer.attention_norm.load_state_dict(baseline_layer.self_attn_layer_norm.state_dict())
            if layer.has_cross_attention:
                _share_attention(layer.cross_attention, baseline_layer.encoder_attn)
                layer.cross_attention_norm.load_state_dict(baseline_layer.encoder_attn_layer_norm.state_dict())
            layer.feedforward.in_proj.load_state_dict(baseline_layer.fc1.state_dict())
            layer.feedforward.out_proj.load_state_dict(baseline_layer.fc2.state_dict())
            layer.feedforward_norm.load_state_dict(baseline_layer.final_layer_norm.state_dict())


def _share_attention(attention: Any, baseline: Any) -> None:
    parts = [baseline.q_proj, baseline.k_proj, baseline.v_proj]
    attention.in_proj.weight.copy_(torch.cat([part.weight for part in parts]))
    attention.in_proj.bias.copy_(torch.cat([part.bias for part in parts]))
    attention.out_proj.load_state_dict(baseline.out_proj.state_dict())


# Measurement


Translate = Callable[[Sequence[list[int]], Sequence[int]], list[list[int]]]


def translate_in_batches(translate: Translate, inputs: TranslationInputs, size: int) -> list[list[int]]:
    """Returns all translations in the original order, from batches of sentences of similar length."""
    order = sorted(range(len(inputs.sources)), key=lambda i: len(inputs.sources[i]))
    results: list[list[int]] = [[] for _ in order]
    for start in range(0, len(order), size):
        indices = order[start : start + size]
        translations = translate([inputs.sources[i] for i in indices], [inputs.lengths[i] for i in indices])
        for i, ids in zip(indices, translations, strict=True):
            results[i] = ids
    return results


def find_fastest_batch_size(translate: Translate, inputs: TranslationInputs) -> int:
    """Returns the batch size with the least processor time in the better of two runs; the first one allocates."""
    seconds = {
        size: min(time_call(lambda size=size: translate_in_batches(translate, inputs, size))[1] for _ in range(2))
        for size in BATCH_SIZES
    }
    return min(seconds, key=seconds.__getitem__)


def measure(row: Row, repeats: int) -> dict[str, Any]:
    """Returns the median wall-clock and processor seconds of both, and their ratios."""
    torch.manual_seed(0)
    inputs, model, baseline = generate_inputs(row), TranslationModel(row), build_baseline(row)
    share_weights(model, baseline)

    def translate_baseline(sources: Sequence[list[int]], targets: Sequence[int]) -> list[list[int]]:
        return translate_with_baseline(baseline, sources, targets)

    translations, size = (
        translate_in_batches(model.translate, inputs, row.sentences),
        find_fastest_batch_size(translate_baseline, inputs),
    )
    num_identical = sum(
        a == b for a, b in zip(translations, translate_in_batches(translate_baseline, inputs, size), strict=True)
    )
    runs = {
        "seqwise": (model.translate, row.sentences),
        "baseline": (translate_baseline, row.sentences),
        "sorted": (translate_baseline, size),
    }
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, (translate, batch) in runs.items():
            times[name].append(
                time_call(lambda translate=translate, batch=batch: translate_in_batches(translate, inputs, batch))
            )
    medians = {
        f"{name}_{kind}": statistics.median(pair[index] for pair in pairs)
        for name, pairs in times.items()
        for index, kind in enumerate(("seconds", "cpu"))
    }
    ratios = {
        "ratio": medians["baseline_seconds"] / medians["seqwise_seconds"],
        "cpu_ratio": medians["baseline_cpu"] / medians["seqwise_cpu"],
        "sorted_ratio": medians["sorted_seconds"] / medians["seqwise_seconds"],
        "sorted_cpu_ratio": medians["sorted_cpu"] / medians["seqwise_cpu"],
    }
    workload = {
        "beam": BEAM,
        "tokens": sum(inputs.lengths),
        "identical": num_identical,
        "sorted_batch": size,
        "repeats": repeats,
    }
    return {**asdict(row), **workload, **medians, **ratios}


def time_call(run: Callable[[], object]) -> tuple[float, float]:
    """Returns the wall-clock and processor seconds of a call."""
    clock, cpu = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - clock, time.process_time() - cpu


def check_rows(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Returns the rows whose ratio with the same batch is below the requirement."""
    return [
        f"{row['name']}: {row['ratio']:.3f} times as fast, required {MIN_RATIO}"
        for row in rows
        if "failed" not in row and row["ratio"] < MIN_RATIO
    ]


COLUMNS = (
    Column("size", "seconds", width=-36),
    Column("seqwise_seconds", "seqwise", ".2f"),
    Column("baseline_seconds", "baseline", ".2f", width=10),
    Column("ratio", "ratio", ".2f", width=8),
    Column("cpu_ratio", "CPU", ".2f", width=7),
    Column("sorted_seconds", "sorted", ".2f"),
    Column("sorted_ratio", "ratio", ".2f", width=8),
    Column("sorted_cpu_ratio", "CPU", ".2f", width=7),
    Column("identical", "identical", width=11),
    Column("sentences", "of", width=5),
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = build_parser(__doc__)
    names = [row.name for row in ROWS]
    parser.add_argument("--rows", nargs="+", choices=names, metavar="ROW", help=", ".join(names))
    options = parser.parse_args(arguments)
    if importlib.util.find_spec("transformers") is None:
        print("skipped: transformers is not installed. pip install transformers", file=sys.stderr)
        return 0
    options.device = "cpu"
    device = set_up_device(options)
    rows = [row for row in ROWS if row.name in (options.rows or names[: 1 if options.quick else None])]
    repeats = options.repeats or (QUICK_REPEATS if options.quick else 5)
    row_names = [row.name for row in rows]
    report = Report("translation", options, device, COLUMNS, arguments, {"beam": BEAM}, row_names, check_rows)
    for row in rows:
        report.add_measurement({**asdict(row), "size": str(row)}, lambda row=row: measure(row, repeats))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
