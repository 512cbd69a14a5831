"""Time and memory of a call while its activations are recorded.

    python benchmarks/recording.py [--length 256] [--width 256] [--repeats 5]

Runs the backbone of each family (two layers, one sequence, without gradients) plainly, with all values recorded
(`seqwise.record`), and with each value reduced to its mean as soon as it is computed (`transform`). Times are the
smallest processor time of several alternating calls, in milliseconds on one thread, so that other load does not matter
much. The operations per token are those that `seqwise inspect --view cost` counts. The exit status is 1 if an output
differs.

A Transformer also computes the attention weights, which its fused kernel never forms. A recurrent layer that PyTorch's
own kernel computes runs the reference implementation as well, step by step; those of this package return their values.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from seqwise.backbones.encoder import build_backbone
from seqwise.config import DataSettings, NetworkSettings, Settings, TransformerSettings
from seqwise.layers.record import record
from seqwise.lens.cost_models import count_model
from seqwise.resolved_settings import ResolvedSettings

FAMILIES = ("feedforward", "rnn", "gru", "lstm", "attentive-rnn", "transformer")
DEPTH, HEAD_WIDTH = 2, 64


def build(family: str, length: int, width: int) -> nn.Module:
    """Returns the backbone of a family in evaluation mode."""
    settings = Settings(
        model=family,
        network=NetworkSettings(width=width, depth=DEPTH, dropout=0.0),
        data=DataSettings(window=length),
        transformer=TransformerSettings(heads=max(1, width // HEAD_WIDTH)),
    )
    torch.manual_seed(0)
    return build_backbone(ResolvedSettings.from_settings(settings), width).eval()


def time_call(call: Callable[[], Any], context: Callable[[], Any]) -> float:
    """Returns the processor time of a call inside a context, in milliseconds."""
    started_at = time.process_time()
    with context():
        call()
    return 1000 * (time.process_time() - started_at)


@torch.no_grad()
def measure(family: str, length: int, width: int, repeats: int) -> dict[str, Any]:
    """Returns times, the memory of the recorded values, and the operations per token."""
    backbone, x = build(family, length, width), torch.randn(1, length, width)
    contexts: dict[str, Callable[[], Any]] = {
        "plain": nullcontext,
        "recorded": lambda: record(backbone),
        "reduced": lambda: record(backbone, transform=lambda name, value: value.mean()),
    }
    times: dict[str, float] = dict.fromkeys(contexts, float("inf"))
    for _ in range(repeats + 1):  # the first warms up, and is hardly ever the fastest
        for name, context in contexts.items():
            times[name] = min(times[name], time_call(lambda: backbone(x), context))
    with record(backbone) as recording:
        outputs: Tensor = backbone(x).vectors
    is_equal = torch.equal(outputs, backbone(x).vectors)
    size = sum(value.untyped_storage().nbytes() for name in recording for value in recording.every(name))
    operations = count_model(backbone).count_operations(length) / length
    return {**times, "megabytes": size / 2**20, "operations": operations, "is_equal": is_equal}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=256, help="tokens (256)")
    parser.add_argument("--width", type=int, default=256, help="width of the layers (256)")
    parser.add_argument("--repeats", type=int, default=5, help="timed calls of each kind (5)")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    print(
        f"{'':<14} {'plain ms':>9} {'recorded':>9} {'factor':>7} {'reduced':>9} {'MB':>7} {'operations':>12}  outputs"
    )
    are_equal = True
    for family in FAMILIES:
        row = measure(family, options.length, options.width, options.repeats)
        print(
            f"{family:<14} {row['plain']:9.2f} {row['recorded']:9.2f} {row['recorded'] / row['plain']:7.2f} "
            f"{row['reduced']:9.2f} {row['megabytes']:7.1f} {row['operations']:12,.0f}  "
            f"{'equal' if row['is_equal'] else 'DIFFERENT'}",
            flush=True,
        )
        are_equal &= row["is_equal"]
    return int(not are_equal)


if __name__ == "__main__":
    sys.exit(main())
