"""How fast do models write with their caches, beside computing everything anew for every token?

    python benchmarks/decoding.py [--device cpu|cuda] [--rows transformer …] [--repeats 5] [--quick] [--json FILE]

`cached` is what `seqwise predict` does: a recurrent model carries its state, a Transformer its keys and values, and
each token costs one step. `anew` is the plain way: the whole text so far is read again for each token. Both must write
the same; `same` says what share of the tokens is equal where nothing is drawn at random. `generate` is that of
transformers, with its cache, on a GPT-2 of the same size with weights of its own, where it is installed.

Language models continue a prompt of 32 tokens, greedily or by sampling (temperature 0.8, the 50 best, 0.9 of the
probability). Encoder-decoders search with a beam of 5 over 24 sources of 20 tokens; each sequence has all its tokens.
Tokens per second are those written, in float32, of the median run. The beam beside that of transformers on the same
weights, with rows that end, is `translation.py`. Required: cached at least as fast as anew in every row, and equal.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

import torch
from measuring import QUICK, Column, Report, chosen, in_turn, parser, settle
from torch import Tensor

from seqwise.backbones.memory import Memory
from seqwise.config import DataSettings, NetworkSettings, Settings, TransformerSettings
from seqwise.decoding.beam import beam_search
from seqwise.decoding.generate import generate
from seqwise.decoding.options import BeamSearchOptions, SamplingOptions
from seqwise.decoding.sampling import pick
from seqwise.tasks.language.task import LanguageModel
from seqwise.tasks.writing import Writer

PROMPT, SOURCE, BEAM = 32, 20, 5
BEGIN, END = 1, 2
CHOICES = {"greedy": SamplingOptions(greedy=True), "sampling": SamplingOptions(temperature=0.8, top_k=50, top_p=0.9)}
EQUAL = 0.98  # share of equal tokens that is required: rounding may turn one choice, and all that follow it
Write = Callable[[], Tensor]  # → ids


@dataclass(frozen=True)
class Row:
    model: str
    how: str  # greedy, sampling, beam
    rows: int
    depth: int
    width: int
    vocabulary: int
    tokens: int  # written by each row

    def __str__(self) -> str:
        return f"{self.model} {self.depth}×{self.width}, {self.how}, B {self.rows}, {self.tokens} tokens"


def rows_of(device: str, quick: bool) -> list[Row]:
    width, vocabulary = (768, 50_304) if device == "cuda" else (256, 10_000)
    depths = {"lstm": 2, "gru": 2, "transformer": 12 if device == "cuda" else 4}
    tokens = 16 if quick else 64
    if quick:
        depths = {"lstm": 1, "transformer": 2}
    rows = [Row(m, "greedy", b, d, width, vocabulary, tokens) for m, d in depths.items() for b in (1, 16)]
    rows += [Row(m, "sampling", 16, d, width, vocabulary, tokens) for m, d in depths.items()]
    beams = {"lstm": 1, "transformer": 1 if quick else 3}
    length = 8 if quick else 20
    return rows + [Row(m, "beam", 24, d, width, min(vocabulary, 16_000), length) for m, d in beams.items()]


def settings_of(row: Row) -> Settings:
    return Settings(
        model=row.model,
        network=NetworkSettings(width=row.width, depth=row.depth, embedding=row.width, dropout=0.0),
        data=DataSettings(window=PROMPT + row.tokens),
        transformer=TransformerSettings(heads=max(1, row.width // 64)),
    )


# Language models


def continuing(row: Row, device: torch.device) -> dict[str, Write]:
    torch.manual_seed(0)
    model = LanguageModel(settings_of(row), row.vocabulary).to(device).eval()
    prompt = torch.randint(row.vocabulary, (row.rows, PROMPT), device=device)
    choice = CHOICES[row.how]

    def cached() -> Tensor:
        return torch.stack(list(islice(generate(model, prompt, choice), row.tokens)), 1)

    @torch.inference_mode()
    def anew() -> Tensor:
        ids, generator = prompt, torch.Generator(device).manual_seed(0)
        for _ in range(row.tokens):
            scores, _ = model.next(ids, None)
            ids = torch.cat((ids, pick(choice, scores, None, generator)[:, None]), 1)
        return ids[:, PROMPT:]

    return {"cached": cached, "anew": anew}


def peer_of(row: Row, device: torch.device) -> Write | None:
    """`generate` of transformers on a GPT-2 of this size, where it is installed and the model is a Transformer."""
    if row.model != "transformer" or row.how == "beam" or importlib.util.find_spec("transformers") is None:
        return None
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=row.vocabulary, n_positions=PROMPT + row.tokens, n_embd=row.width, n_layer=row.depth,
        n_head=max(1, row.width // 64), bos_token_id=BEGIN, eos_token_id=END, pad_token_id=END,
    )  # fmt: skip
    model = GPT2LMHeadModel(config).to(device).eval()
    prompt = torch.randint(row.vocabulary, (row.rows, PROMPT), device=device)
    drawn = {"do_sample": True, "temperature": 0.8, "top_k": 50, "top_p": 0.9}
    options: dict[str, Any] = {"do_sample": False} if row.how == "greedy" else drawn
    options |= {"min_new_tokens": row.tokens, "max_new_tokens": row.tokens, "use_cache": True}
    mask = torch.ones_like(prompt)

    @torch.inference_mode()
    def write() -> Tensor:
        return model.generate(prompt, attention_mask=mask, **options)[:, PROMPT:]

    return write


# Encoder-decoders


def searching(row: Row, device: torch.device) -> dict[str, Write]:
    """Beam search over random memories, none of which ends before all tokens are written."""
    torch.manual_seed(0)
    writer = Writer(settings_of(row), row.vocabulary, row.width, row.tokens + 1, attention="additive")
    writer = writer.to(device).eval()
    lengths = torch.full((row.rows,), SOURCE, device=device)
    memory = Memory(torch.randn(row.rows, SOURCE, row.width, device=device), lengths)
    how = BeamSearchOptions(beam=BEAM, length_penalty=0.0, min_length=row.tokens)

    def cached() -> Tensor:
        found = beam_search(writer, memory, begin=BEGIN, end=END, options=how, max_length=row.tokens)
        return torch.tensor([best[0].ids for best in found])

    return {"cached": cached, "anew": lambda: plain_beam(writer, memory, row.tokens)}


@torch.inference_mode()
def plain_beam(writer: Writer, memory: Memory, length: int) -> Tensor:
    """The best of a beam (B, length); every step reads all beams from their beginning."""
    rows = len(memory.vectors)
    wide = Memory(memory.vectors.repeat_interleave(BEAM, 0), memory.lengths.repeat_interleave(BEAM))
    device = memory.vectors.device
    ids = torch.full((rows * BEAM, 1), BEGIN, device=device)
    scores = torch.full((rows, BEAM), -torch.inf, device=device)
    scores[:, 0] = 0.0  # all beams are the same at first
    for _ in range(length):
        after, _ = writer.next(ids, None, wide)
        after[:, END] = -torch.inf
        total = (scores[..., None] + after.view(rows, BEAM, -1)).flatten(1)  # (B, beam · V)
        scores, places = total.topk(BEAM)
        from_beam = (places // after.shape[-1] + torch.arange(rows, device=device)[:, None] * BEAM).flatten()
        ids = torch.cat((ids[from_beam], (places % after.shape[-1]).view(-1, 1)), 1)
    return ids.view(rows, BEAM, -1)[:, 0, 1:].cpu()


# Side by side


def measure(row: Row, device: torch.device, repeats: int) -> dict[str, Any]:
    sides = (searching if row.how == "beam" else continuing)(row, device)
    same = None
    if row.how != "sampling":
        ours, plain = (side().cpu() for side in sides.values())
        same = float((ours == plain).float().mean())
    peer = peer_of(row, device)
    runs: dict[str, Callable[[], object]] = {**sides, **({} if peer is None else {"generate": peer})}
    times = in_turn(runs, device, repeats, warm=1)
    count = row.rows * row.tokens
    rates = {f"{name}_tokens_per_second": count / each.median for name, each in times.items()}
    found = {**rates, "ratio": times["anew"].median / times["cached"].median, "same": same, "repeats": repeats}
    if peer is not None:
        found["generate_ratio"] = times["generate"].median / times["cached"].median
    return found


def missed_of(rows: Sequence[dict[str, Any]]) -> list[str]:
    found = []
    for row in rows:
        if "failed" not in row and row["ratio"] < 1:
            found.append(f"{row['name']}: {row['ratio']:.3f} times as fast with a cache as without")
        if row.get("same") is not None and row["same"] < EQUAL:
            found.append(f"{row['name']}: {row['same']:.1%} of the tokens are those of the plain way")
    return found


COLUMNS = (
    Column("name", "tokens/s", width=-46),
    Column("cached_tokens_per_second", "cached", ",.0f", width=10),
    Column("anew_tokens_per_second", "anew", ",.0f", width=10),
    Column("ratio", "ratio", ".2f", width=8),
    Column("generate_tokens_per_second", "generate", ",.0f", width=10),
    Column("generate_ratio", "ratio", ".2f", width=8),
    Column("same", "same", ".1%", width=8),
)


def main(arguments: Sequence[str] | None = None) -> int:
    command = parser(__doc__)
    command.add_argument("--rows", nargs="+", default=[], metavar="WORD", help="only models or ways of these names")
    options = command.parse_args(arguments)
    device = settle(options)
    repeats = options.repeats or (QUICK if options.quick or device.type == "cuda" else 5)
    rows = chosen(rows_of(device.type, options.quick), options.rows, lambda row: {row.model, row.how})
    planned = [str(row) for row in rows]
    report = Report("decoding", options, device, COLUMNS, arguments, planned=planned, judge=missed_of)
    for row in rows:
        report.measured({"name": str(row), **asdict(row)}, lambda row=row: measure(row, device, repeats))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
