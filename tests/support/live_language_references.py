"""What the live figures about attention, positions and words compute, computed with this package.

The pseudo-random numbers and the hash of a word are those of the browser: they state the input.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from seqwise.lab.exercises.catalogue import get_exercise
from seqwise.layers import Dot, ScaledDot, SinusoidalPositions, attend_with_weights, rotary

Values = Mapping[str, Any]
Numbers = dict[str, Any]
DTYPE = torch.float64


def make_tensor(values: Any) -> Tensor:
    return torch.tensor(values, dtype=DTYPE)


def generate_normal(seed: int) -> Iterator[float]:
    """Yields the normal random numbers of `createNormal` in numerics.js."""
    state = seed % 2**32

    def draw_uniform() -> float:
        nonlocal state
        state = (1664525 * state + 1013904223) % 2**32
        return state / 2**32

    for _ in range(8):
        draw_uniform()
    while True:
        yield math.sqrt(-2 * math.log(1 - draw_uniform())) * math.cos(2 * math.pi * draw_uniform())


def draw_tensor(numbers: Iterator[float], *shape: int) -> Tensor:
    return make_tensor([next(numbers) for _ in range(math.prod(shape))]).reshape(shape)


# --- attention and positions
def attend(
    vectors: Tensor, queries: Tensor, kind: str, temperature: float, *, causal: bool = False
) -> tuple[Tensor, Tensor]:
    score = {"scaled": ScaledDot(), "unscaled": Dot()}[kind]
    return attend_with_weights(queries / temperature, vectors, vectors, score=score, causal=causal)


def compute_sentence(values: Values) -> Numbers:
    words = values["text"].split()[:12]
    if not words:
        return {"words": [], "weights": [], "context": []}
    vectors = torch.stack([make_word_vector(word) for word in words])
    is_causal = values["mask"] == "causal"
    context, weights = attend(vectors, vectors, values["scaling"], values["temperature"], causal=is_causal)
    return {"words": words, "weights": weights.tolist(), "context": context.tolist()}


def make_word_vector(word: str, width: int = 16) -> Tensor:
    letters = f"<{word.lower()}>"
    pairs = [letters[at : at + 2] for at in range(len(letters) - 1)]
    vectors = torch.stack([draw_tensor(generate_normal(compute_hash(pair)), width) for pair in pairs])
    return vectors.sum(0) / len(pairs) ** 0.5


def compute_hash(text: str) -> int:
    """Returns the FNV-1a hash of the characters."""
    code = 2166136261
    for character in text:
        code = (code ^ ord(character)) * 16777619 % 2**32
    return code


def compute_scaling(values: Values) -> Numbers:
    vectors = draw_tensor(generate_normal(values["seed"]), 33, 512)
    widths = [2**power for power in range(10)]
    numbers: Numbers = {"widths": widths}
    for kind, score in (("scaled", ScaledDot()), ("unscaled", Dot())):

        def compute_weights(width: int, kind: str = kind) -> Tensor:
            return attend(vectors[1:, :width], vectors[:1, :width], kind, values["temperature"])[1][0]

        def compute_entropy(width: int) -> float:
            return float(torch.special.entr(compute_weights(width)).sum())

        d = values["d"]
        numbers[f"weights_{kind}"] = compute_weights(d).sort(descending=True).values.tolist()
        numbers[f"entropy_{kind}"] = compute_entropy(d)
        numbers[f"variance_{kind}"] = float(score(vectors[:1, :d], vectors[1:, :d]).var())
        numbers[f"entropies_{kind}"] = [compute_entropy(width) for width in widths]
    return numbers


def compute_saturation(values: Values) -> Numbers:
    scores = make_tensor([0.9 + values["lead"], 0.9, 0.3, 0.1, -0.4, -0.7, -1.4])

    def compute_norm(factor: float) -> float:
        jacobian = torch.autograd.functional.jacobian(lambda one: one.softmax(0), factor * scores)
        return float(torch.linalg.matrix_norm(jacobian, ord=2))

    weights = (values["scale"] * scores).softmax(0)
    norms = [compute_norm(factor) for factor in torch.linspace(0, 60, 121, dtype=DTYPE).tolist()]
    return {
        "weights": weights.tolist(),
        "largest_weight": float(weights.max()),
        "norm": compute_norm(values["scale"]),
        "norms": norms,
    }


def encode_positions(length: int, width: int) -> Tensor:
    return SinusoidalPositions(width)(torch.zeros(length, width, dtype=DTYPE))


def compute_position_encodings(values: Values) -> Numbers:
    codes = encode_positions(values["length"], values["width"])
    first, second = (min(values[name], values["length"] - 1) for name in ("first", "second"))
    distances = (codes - codes[first]).norm(dim=1)
    others = torch.cat((distances[:first], distances[first + 1 :]))
    return {
        "codes": codes.tolist(),
        "distances": distances.tolist(),
        "first": first,
        "second": second,
        "distance": float(distances[second]),
        "smallest": float(others.min()),
    }


def compute_rotation(values: Values) -> Numbers:
    position, shift, pair = values["position"], values["shift"], values["pair"] - 1
    codes = encode_positions(200, 16)
    entries = slice(2 * pair, 2 * pair + 2)
    # `rotary` rotates pairs (cosine, sine) by the same frequencies; here a sine precedes its cosine.
    swapped = codes[position].reshape(-1, 2).flip(1).reshape(1, -1)
    rotated = rotary(swapped, start=shift).reshape(-1, 2).flip(1).flatten()
    return {
        "angle": shift * 10000 ** (-2 * pair / 16),
        "before": codes[position, entries].tolist(),
        "after": codes[position + shift, entries].tolist(),
        "rotated": rotated[entries].tolist(),
        "products": (codes[position : position + 61] @ codes[position]).tolist(),
    }


# --- words and decoding
def compute_beam(values: Values) -> Numbers:
    the, it, we = values["the"], 0.6 * (1 - values["the"]), 0.4 * (1 - values["the"])
    rest = (1 - values["dog"]) / 2
    chains = {
        "the": (the, {"dog": values["dog"], "cat": rest, "sun": rest}),
        "it": (it, {"rains": values["rains"], "snows": 1 - values["rains"]}),
        "we": (we, {"sing": values["sing"], "dance": 1 - values["sing"]}),
    }
    words = ["<end>", "<start>", *chains, *(second for _, seconds in chains.values() for second in seconds)]
    p = torch.zeros(len(words), len(words), dtype=DTYPE)
    for word, (probability, seconds) in chains.items():
        p[1, words.index(word)] = probability
        for second, follows in seconds.items():
            p[words.index(word), words.index(second)] = follows
            p[words.index(second), 0] = 1.0
    solve = get_exercise("G10").load()["solve"]

    def search(beam: int) -> tuple[str, float]:
        tokens, score = solve(p.log().numpy(), 1, 0, beam, 3)
        return " ".join(words[token] for token in tokens[:2]), math.exp(score)

    every = {f"{word} {second}": q * r for word, (q, seconds) in chains.items() for second, r in seconds.items()}
    (found, found_probability), (best, best_probability) = search(values["beam"]), search(9)
    return {
        "first_words": sorted(chains, key=lambda word: -chains[word][0])[: values["beam"]],
        "sentences": list(every),
        "probabilities": list(every.values()),
        "found": found,
        "found_probability": found_probability,
        "greedy": search(1)[0],
        "best": best,
        "best_probability": best_probability,
    }


@cache
def list_skip_gram_pairs() -> Tensor:
    """Returns (centre, context) of all pairs: words 0 to 2 occur with 3 and 4, words 5 to 7 with 8 and 9."""
    pairs = [(noun + topic, verb + topic) for topic in (0, 5) for noun in range(3) for verb in (3, 4)]
    return torch.tensor([pair for a, b in pairs for pair in ((a, b), (b, a))])


def compute_skip_gram(values: Values) -> Numbers:
    numbers = generate_normal(values["seed"])
    v, u = (0.3 * draw_tensor(numbers, 10, 2) for _ in range(2))
    centres, contexts = list_skip_gram_pairs().T
    losses = []
    for step in range(401):
        if step == values["steps"]:
            shown = v.detach()
        v, u = v.detach().requires_grad_(), u.detach().requires_grad_()
        loss = F.cross_entropy(v[centres] @ u.T, contexts)
        grad_v, grad_u = torch.autograd.grad(loss, (v, u))
        v, u = v - values["rate"] * grad_v, u - values["rate"] * grad_u
        losses.append(loss.item())
    cosines = torch.cosine_similarity(shown[:, None], shown[None], dim=-1)
    groups = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 3, 3])
    is_pair = torch.ones(10, 10, dtype=torch.bool).tril(-1)
    is_same = groups[:, None] == groups[None]
    return {
        "vectors": shown.tolist(),
        "losses": losses,
        "loss": losses[values["steps"]],
        "cosine_same": float(cosines[is_pair & is_same].mean()),
        "cosine_different": float(cosines[is_pair & ~is_same].mean()),
    }


def compute_perplexity(values: Values) -> Numbers:
    words = ["sun", "rain", "snow", "wind", "fog"]
    logits = make_tensor([values[word] for word in words]).log()
    entropy = float(torch.distributions.Categorical(logits=logits).entropy())
    loss = float(F.cross_entropy(logits, torch.tensor(words.index(values["word"]))))
    p = logits.softmax(0)[None].numpy()
    bits, perplexity = get_exercise("H8").load()["solve"](p, torch.tensor([words.index(values["word"])]).numpy())
    return {
        "probabilities": logits.softmax(0).tolist(),
        "entropy_bits": entropy / math.log(2),
        "entropy_nats": entropy,
        "expected_perplexity": math.exp(entropy),
        "cross_entropy_bits": float(bits),
        "cross_entropy_nats": loss,
        "perplexity": float(perplexity),
    }


def compute_confidence(values: Values) -> Numbers:
    def make_distribution(first: float) -> Tensor:
        return make_tensor([first, *[(1 - first) / values["others"]] * values["others"]])

    def score(confidence: float) -> tuple[float, float]:
        q = make_distribution(confidence)
        return float(torch.special.entr(q).sum()), float(F.cross_entropy(q.log(), make_distribution(values["data"])))

    curve = [score(confidence) for confidence in torch.linspace(0.01, 0.99, 99, dtype=DTYPE).tolist()]
    entropy, cross_entropy = score(values["model"])
    return {
        "entropy": entropy,
        "cross_entropy": cross_entropy,
        "two_to_entropy": math.exp(entropy),
        "perplexity": math.exp(cross_entropy),
        "lowest_perplexity": math.exp(float(torch.special.entr(make_distribution(values["data"])).sum())),
        "powers": [math.exp(one) for one, _ in curve],
        "perplexities": [math.exp(one) for _, one in curve],
    }
