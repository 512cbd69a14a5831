"""Generation speed: cached states compared with the loop a PyTorch user writes, and with recomputing for every token.

    python benchmarks/decoding.py [--device cpu|cuda] [--rows transformer …] [--repeats 5] [--quick] [--json FILE]

`cached` is what `seqwise predict` does: a recurrent model keeps its state, a Transformer its keys and values, and each
token costs one step. `plain` is the loop over modules of `torch.nn` with the same sizes (`plain_loops.py`): one step of
`nn.LSTM`, `nn.GRU` or `nn.RNN` per token, and for the Transformer `nn.TransformerEncoder`, which has no cache, over the
whole sequence. `uncached` reads the whole sequence so far again for each token with our model. It must generate the
same tokens; `agreement` is the share of equal tokens where nothing is sampled. `generate` is the cached generation of
Hugging Face transformers with a randomly initialised GPT-2 of the same size, where the package is installed.

Language models continue a prompt of 32 tokens, greedily or by sampling (temperature 0.8, top-k 50, top-p 0.9).
Encoder-decoders use beam search with a beam of 5 on 24 sources of 20 tokens; every sequence has the full length. Tokens
per second are generated tokens of the median run, in float32. `translation.py` compares beam search with transformers
on the same weights, with sequences that end early. Required: cached at least as fast as uncached in every row, and the
same tokens; for one sequence, greedily, at least twice as fast as the plain loop on a CPU, and faster on a GPU.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

import torch
from measuring import QUICK_REPEATS, Column, Report, build_parser, select_rows, set_up_device, time_interleaved
from plain_loops import build_plain_model, generate_plainly
from torch import Tensor

from seqwise.backbones.memory import Memory
from seqwise.config import DataSettings, NetworkSettings, Settings, TransformerSettings
from seqwise.decoding.generate import decode_sequences, generate
from seqwise.decoding.options import BeamSearchOptions, SamplingOptions
from seqwise.decoding.sampling import choose_token
from seqwise.families import RECURRENT_FAMILIES
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.language.task import LanguageModel
from seqwise.tasks.token_decoder import TokenDecoder

PROMPT, SOURCE, BEAM = 32, 20, 5  # tokens of a prompt, tokens of a source, beam size
BEGIN, END = 1, 2  # token ids
SAMPLING = {"greedy": SamplingOptions(greedy=True), "sampling": SamplingOptions(temperature=0.8, top_k=50, top_p=0.9)}
MIN_PLAIN_RATIO = {"cpu": 2, "cuda": 1}  # for one sequence, greedily
MIN_AGREEMENT = 0.98  # rounding may change one token, and then all that follow
Generate = Callable[[], Tensor]  # → ids


@dataclass(frozen=True)
class Row:
    model: str
    method: str  # greedy, sampling, beam
    batch_size: int
    depth: int
    width: int
    vocabulary: int
    tokens: int  # generated per sequence

    def __str__(self) -> str:
        return f"{self.model} {self.depth}×{self.width}, {self.method}, B {self.batch_size}, {self.tokens} tokens"


def list_rows(device: str, quick: bool) -> list[Row]:
    width, vocabulary = (768, 50_304) if device == "cuda" else (256, 10_000)
    depth, transformer_depth = (2, 12) if device == "cuda" else (1, 4)
    depths = {"feedforward": 2} | dict.fromkeys(RECURRENT_FAMILIES, depth) | {"transformer": transformer_depth}
    tokens = 16 if quick else 64
    if quick:
        depths = {"lstm": 1, "transformer": 2}
    rows = [Row(m, "greedy", b, d, width, vocabulary, tokens) for b in (1, 16) for m, d in depths.items()]
    sampled = ("lstm", "transformer")
    rows += [Row(m, "sampling", b, depths[m], width, vocabulary, tokens) for b in (1, 16) for m in sampled]
    beams = {"lstm": 1, "transformer": 1 if quick else 3}
    length = 8 if quick else 20
    return rows + [Row(m, "beam", 24, d, width, min(vocabulary, 16_000), length) for m, d in beams.items()]


def build_settings(row: Row) -> ResolvedSettings:
    settings = Settings(
        model=row.model,
        network=NetworkSettings(width=row.width, depth=row.depth, embedding=row.width, dropout=0.0),
        data=DataSettings(window=PROMPT + row.tokens),
        transformer=TransformerSettings(heads=max(1, row.width // 64)),
    )
    return ResolvedSettings.from_settings(settings)


# Language models


def build_continuations(row: Row, device: torch.device) -> dict[str, Generate]:
    """Returns functions that continue a random prompt: with and without cached states, and with `torch.nn` modules."""
    torch.manual_seed(0)
    model = LanguageModel(build_settings(row), row.vocabulary).to(device).eval()
    prompt = torch.randint(row.vocabulary, (row.batch_size, PROMPT), device=device)
    sampling = SAMPLING[row.method]

    def generate_cached() -> Tensor:
        return torch.stack(list(islice(generate(model, prompt, sampling), row.tokens)), 1)

    @torch.inference_mode()
    def generate_uncached() -> Tensor:
        ids, generator = prompt, torch.Generator(device).manual_seed(0)
        for _ in range(row.tokens):
            scores, _ = model.next(ids, None)
            ids = torch.cat((ids, choose_token(sampling, scores, None, generator)[:, None]), 1)
        return ids[:, PROMPT:]

    return {"cached": generate_cached, "uncached": generate_uncached, "plain": build_plain_loop(row, device)}


def build_plain_loop(row: Row, device: torch.device) -> Generate:
    """Returns generation with modules of `torch.nn` of the same sizes, from other random weights."""
    model = build_plain_model(build_settings(row), row.vocabulary).to(device).eval()
    prompt = torch.randint(row.vocabulary, (row.batch_size, PROMPT), device=device)

    def run() -> Tensor:
        generator = torch.Generator(device).manual_seed(0)

        def choose(scores: Tensor) -> Tensor:
            if row.method == "greedy":
                return scores.argmax(-1)
            return choose_token(SAMPLING[row.method], scores, None, generator)

        return torch.stack(list(islice(generate_plainly(model, prompt, choose), row.tokens)), 1)

    return run


def build_transformers_generate(row: Row, device: torch.device) -> Generate | None:
    """Returns `generate` of transformers for a GPT-2 of this size, if installed and the model is a Transformer."""
    if row.model != "transformer" or row.method == "beam" or importlib.util.find_spec("transformers") is None:
        return None
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=row.vocabulary, n_positions=PROMPT + row.tokens, n_embd=row.width, n_layer=row.depth,
        n_head=max(1, row.width // 64), bos_token_id=BEGIN, eos_token_id=END, pad_token_id=END,
    )  # fmt: skip
    model = GPT2LMHeadModel(config).to(device).eval()
    prompt = torch.randint(row.vocabulary, (row.batch_size, PROMPT), device=device)
    sampling = {"do_sample": True, "temperature": 0.8, "top_k": 50, "top_p": 0.9}
    options: dict[str, Any] = {"do_sample": False} if row.method == "greedy" else sampling
    options |= {"min_new_tokens": row.tokens, "max_new_tokens": row.tokens, "use_cache": True}
    mask = torch.ones_like(prompt)

    @torch.inference_mode()
    def run() -> Tensor:
        return model.generate(prompt, attention_mask=mask, **options)[:, PROMPT:]

    return run


# Encoder-decoders


def build_beam_searches(row: Row, device: torch.device) -> dict[str, Generate]:
    """Returns beam searches over random memories in which no sequence ends early."""
    torch.manual_seed(0)
    token_decoder = TokenDecoder(build_settings(row), row.vocabulary, row.width, row.tokens + 1, attention="additive")
    token_decoder = token_decoder.to(device).eval()
    lengths = torch.full((row.batch_size,), SOURCE, device=device)
    memory = Memory(torch.randn(row.batch_size, SOURCE, row.width, device=device), lengths)
    options = BeamSearchOptions(beam=BEAM, length_penalty=0.0, min_length=row.tokens)

    def search_cached() -> Tensor:
        hypotheses = decode_sequences(
            token_decoder, memory, begin=BEGIN, end=END, options=options, max_length=row.tokens
        )
        return torch.tensor([best[0].ids for best in hypotheses])

    return {"cached": search_cached, "uncached": lambda: search_uncached(token_decoder, memory, row.tokens)}


@torch.inference_mode()
def search_uncached(token_decoder: TokenDecoder, memory: Memory, length: int) -> Tensor:
    """Returns the best hypotheses (B, length); every step reads all hypotheses from their beginning."""
    batch_size = len(memory.vectors)
    expanded = Memory(memory.vectors.repeat_interleave(BEAM, 0), memory.lengths.repeat_interleave(BEAM))
    device = memory.vectors.device
    ids = torch.full((batch_size * BEAM, 1), BEGIN, device=device)
    scores = torch.full((batch_size, BEAM), -torch.inf, device=device)
    scores[:, 0] = 0.0  # all beams are equal at first
    for _ in range(length):
        log_probs, _ = token_decoder.next(ids, None, expanded)
        log_probs[:, END] = -torch.inf
        total = (scores[..., None] + log_probs.view(batch_size, BEAM, -1)).flatten(1)  # (B, beam · V)
        scores, indices = total.topk(BEAM)
        first_beams = torch.arange(batch_size, device=device)[:, None] * BEAM  # of each source
        parents = (indices // log_probs.shape[-1] + first_beams).flatten()
        ids = torch.cat((ids[parents], (indices % log_probs.shape[-1]).view(-1, 1)), 1)
    return ids.view(batch_size, BEAM, -1)[:, 0, 1:].cpu()


# Measurement


def measure(row: Row, device: torch.device, repeats: int) -> dict[str, Any]:
    generators = (build_beam_searches if row.method == "beam" else build_continuations)(row, device)
    agreement = None
    if row.method != "sampling":
        cached_ids, uncached_ids = (generators[name]().cpu() for name in ("cached", "uncached"))
        agreement = float((cached_ids == uncached_ids).float().mean())
    transformers_generate = build_transformers_generate(row, device)
    runs: dict[str, Callable[[], object]] = {
        **generators,
        **({} if transformers_generate is None else {"generate": transformers_generate}),
    }
    times = time_interleaved(runs, device, repeats, num_warmup=1)
    num_tokens = row.batch_size * row.tokens
    rates = {f"{name}_tokens_per_second": num_tokens / time.median for name, time in times.items()}
    results = {
        **rates,
        "ratio": times["uncached"].median / times["cached"].median,
        "agreement": agreement,
        "repeats": repeats,
    }
    if "plain" in times:
        results["plain_ratio"] = times["plain"].median / times["cached"].median
    if row.batch_size == 1 and row.method == "greedy":
        results["required_plain_ratio"] = MIN_PLAIN_RATIO[device.type]
    if transformers_generate is not None:
        results["generate_ratio"] = times["generate"].median / times["cached"].median
    return results


def check_rows(rows: Sequence[dict[str, Any]]) -> list[str]:
    missed = []
    for row in rows:
        if "failed" not in row and row["ratio"] < 1:
            missed.append(f"{row['name']}: {row['ratio']:.3f} times as fast with a cache as without, required 1")
        required = row.get("required_plain_ratio", 0)
        if row.get("plain_ratio", required) < required:
            missed.append(f"{row['name']}: {row['plain_ratio']:.3f} times as fast as a plain loop, required {required}")
        if row.get("agreement") is not None and row["agreement"] < MIN_AGREEMENT:
            missed.append(f"{row['name']}: {row['agreement']:.1%} of the tokens agree, required {MIN_AGREEMENT:.0%}")
    return missed


COLUMNS = (
    Column("name", "tokens/s", width=-46),
    Column("cached_tokens_per_second", "cached", ",.0f", width=10),
    Column("uncached_tokens_per_second", "uncached", ",.0f", width=10),
    Column("ratio", "ratio", ".2f", width=8),
    Column("plain_tokens_per_second", "plain", ",.0f", width=10),
    Column("plain_ratio", "ratio", ".2f", width=8),
    Column("generate_tokens_per_second", "generate", ",.0f", width=10),
    Column("generate_ratio", "ratio", ".2f", width=8),
    Column("agreement", "agreement", ".1%", width=11),
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = build_parser(__doc__)
    parser.add_argument("--rows", nargs="+", default=[], metavar="WORD", help="only these models or methods")
    options = parser.parse_args(arguments)
    device = set_up_device(options)
    torch.backends.cudnn.allow_tf32 = False  # all implementations multiply in float32, so that their tokens agree
    repeats = options.repeats or (QUICK_REPEATS if options.quick or device.type == "cuda" else 5)
    rows = select_rows(list_rows(device.type, options.quick), options.rows, lambda row: {row.model, row.method})
    row_names = [str(row) for row in rows]
    report = Report("decoding", options, device, COLUMNS, arguments, row_names=row_names, check=check_rows)
    for row in rows:
        report.add_measurement({"name": str(row), **asdict(row)}, lambda row=row: measure(row, device, repeats))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
