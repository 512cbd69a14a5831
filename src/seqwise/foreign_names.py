"""The names that other tools have for our options and settings, and the answer with ours.

It knows nothing of any command or setting: the caller passes the names that exist.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

# Name in PyTorch examples, Keras, Hugging Face, fairseq, gensim, fastText … → our options; {} is the value.
# The first option that exists is the answer. Settings have the same names with underscores, without the dashes.
FOREIGN_NAMES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("lr", "learning-rate", "alpha"), ("--training.learning-rate {}", "--learning-rate {}")),
    **dict.fromkeys(
        ("epochs", "max-epochs", "num-epochs", "num-train-epochs", "epoch", "iter", "ep"),
        ("--epochs {}", "--budget {}-epochs"),
    ),
    **dict.fromkeys(("max-tokens", "tokens"), ("--data.max-tokens {}", "--budget {}-tokens")),
    **dict.fromkeys(
        ("batch-size", "bs", "per-device-train-batch-size", "train-batch-size"), ("--training.batch-size {}",)
    ),
    **dict.fromkeys(
        ("hidden-size", "hidden", "hidden-dim", "d-model", "nhid", "units", "rnn-size", "n-embd"),
        ("--network.width {}",),
    ),
    **dict.fromkeys(("num-layers", "layers", "nlayers", "n-layer", "num-hidden-layers"), ("--network.depth {}",)),
    **dict.fromkeys(("vector-size", "size", "dimension"), ("--dim {}",)),
    **dict.fromkeys(("emb-size", "embedding-dim", "emsize", "embed-dim", "embed-size"), ("--network.embedding {}",)),
    **dict.fromkeys(("num-heads", "heads", "nhead", "n-head", "num-attention-heads"), ("--transformer.heads {}",)),
    **dict.fromkeys(("bptt", "seq-len", "seq-length", "block-size", "context-length"), ("--data.window {}",)),
    **dict.fromkeys(("max-len", "max-seq-length", "max-seq-len", "max-source-length"), ("--data.max-length {}",)),
    **dict.fromkeys(("vocab-size", "max-vocab", "vocab"), ("--text.vocabulary {}",)),
    **dict.fromkeys(("clip", "grad-clip", "clip-norm", "max-grad-norm"), ("--training.clip-threshold {}",)),
    **dict.fromkeys(("wd", "weight-decay", "l2"), ("--training.weight-decay {}",)),
    **dict.fromkeys(("adam-beta1", "b1"), ("--training.beta1 {}",)),
    **dict.fromkeys(("adam-beta2", "b2"), ("--training.beta2 {}",)),
    **dict.fromkeys(("adam-epsilon", "adam-eps", "eps"), ("--training.epsilon {}",)),
    **dict.fromkeys(("warmup-ratio", "warmup-steps"), ("--training.warmup {}",)),
    "dropout": ("--network.dropout {}",),
    **dict.fromkeys(("opt", "optim", "optimizer"), ("--training.optimizer {}",)),
    **dict.fromkeys(("fp16", "bf16", "mixed-precision", "amp"), ("--training.precision bfloat16",)),
    **dict.fromkeys(("arch", "model-type", "architecture", "rnn-type"), ("--model {}", "--models {}")),
    **dict.fromkeys(("output-dir", "output", "o", "save", "save-dir", "checkpoint-dir", "logdir"), ("--out {}",)),
    **dict.fromkeys(("random-seed", "manual-seed", "random-state"), ("--seed {}",)),
    **dict.fromkeys(("gpu", "gpus", "cuda", "use-cuda", "use-gpu"), ("--device cuda",)),
    **dict.fromkeys(("cpu", "no-cuda", "no-gpu"), ("--device cpu",)),
    **dict.fromkeys(("nproc-per-node", "num-gpus", "num-processes"), ("--nproc {}",)),
    **dict.fromkeys(("resume-from-checkpoint", "restore", "checkpoint", "ckpt"), ("--resume {}",)),
    **dict.fromkeys(("temp", "t"), ("--temperature {}",)),
    **dict.fromkeys(("beam-size", "num-beams", "beam-width"), ("--beam {}",)),
    **dict.fromkeys(("max-new-tokens", "length", "n-tokens", "max-gen-length"), ("--max-length {}",)),
    **dict.fromkeys(("num-return-sequences", "nbest"), ("--n-best {}",)),
    **dict.fromkeys(("patience", "early-stopping-patience"), ("--training.patience {}",)),
    **dict.fromkeys(("eval-steps", "eval-interval", "val-check-interval"), ("--training.validate-every {}",)),
    **dict.fromkeys(("gradient-accumulation-steps", "update-freq"), ("--training.accumulate {}",)),
    **dict.fromkeys(("time", "max-time", "timeout"), ("--budget {}",)),
    **dict.fromkeys(("text-column", "label-column", "column"), ("--columns {}",)),
    **dict.fromkeys(("neg", "ns"), ("--negative {}",)),
    **dict.fromkeys(("ws", "win"), ("--window {}",)),
}
# Answers that are not an option of ours; a command with such an option has it under this name.
OTHER_ANSWERS = {
    **dict.fromkeys(
        ("threads", "num-threads", "thread"), "the number of threads is an environment variable: OMP_NUM_THREADS={}"
    ),
    **dict.fromkeys(("num-workers", "dataloader-num-workers"), "the training process reads the data itself"),
    **dict.fromkeys(("verbose", "quiet", "q", "v"), "progress goes to standard error: 2> /dev/null hides it"),
}  # fmt: skip


def find_our_option(option: str, value: str | None, known: Collection[str]) -> str:
    """Returns a sentence with our name for `option` and its value; empty if it is not a name of another tool."""
    text = value if value is not None and not value.startswith("--") else ""
    for ours in FOREIGN_NAMES.get(option, ()):
        name = ours.partition(" ")[0]
        if name in known:
            return f"--{option} is {name} here: {ours.format(text or 'VALUE')}"
    if option in OTHER_ANSWERS:
        return f"there is no option --{option}: {OTHER_ANSWERS[option].format(text or 'N')}."
    return ""


def find_our_setting(name: str, value: Any, known: Collection[str]) -> tuple[str, Any] | None:
    """Returns the dotted name of our setting and its value; None if `name` is not a name of another tool."""
    for ours in FOREIGN_NAMES.get(name.replace("_", "-"), ()):
        option, _, template = ours.partition(" ")
        setting = option.removeprefix("--").replace("-", "_")
        if setting in known:
            return setting, value if template == "{}" else template.format(value)
    return None
