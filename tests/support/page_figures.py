"""Figures of every kind with values as models have them, for tests of how figures are drawn."""

from __future__ import annotations

import numpy as np

from seqwise.page.figures import (
    BarChart,
    Figure,
    Finding,
    Findings,
    Heatmap,
    HeatmapGrid,
    ImageOverlay,
    LineChart,
    Reference,
    ScatterPlot,
    Series,
    Table,
    TokenText,
    Tree,
    TreeNode,
)

SENTENCE = "the bank raised its rate because the river bank had flooded twice in the spring of that year ."
TOKENS = SENTENCE.split()
HOSTILE = "</script><b onclick='x'>&amp;{{DATA}}\u2028\x1b\u202e"
HOSTILE_SHOWN = "</script><b onclick='x'>&amp;{{DATA}}⟨U+2028⟩␛⟨U+202E⟩"


def make_attention(num_tokens: int, head: int, is_causal: bool = True) -> np.ndarray:
    """Returns attention weights whose pattern depends on the head: previous token, first token, or broad."""
    query, key = np.indices((num_tokens, num_tokens))
    noise = np.random.default_rng(head).normal(size=(num_tokens, num_tokens))
    patterns = (
        -1.2 * np.abs(query - key - 1),
        np.where(key == 0, 4.0, 0.0),
        np.where(query == key, 3.0, 0.0),
        0.0 * key,
    )
    scores = patterns[head % 4] + 0.8 * noise
    if is_causal:
        scores = np.where(key <= query, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def attention_head(num_tokens: int = len(TOKENS), head: int = 0, **fields: object) -> Heatmap:
    tokens = [TOKENS[at % len(TOKENS)] for at in range(num_tokens)]
    values: dict[str, object] = {
        "title": f"Layer {head // 4 + 1}, head {head % 4 + 1}",
        "values": make_attention(num_tokens, head),
        "rows": tokens,
        "columns": tokens,
        "row_label": "query token",
        "column_label": "key token",
        "value_label": "attention weight",
        "low": 0.0,
        "high": 1.0,
        "role": "attention",
    }
    return Heatmap(**(values | fields))  # type: ignore[arg-type]


def attention_grid(num_layers: int = 3, num_heads: int = 4, num_tokens: int = len(TOKENS)) -> HeatmapGrid:
    panels = [
        attention_head(
            num_tokens,
            layer * num_heads + head,
            title=f"Layer {layer + 1}, head {head + 1}",
            note="previous token" if head % 4 == 0 else "",
        )
        for layer in range(num_layers)
        for head in range(num_heads)
    ]
    return HeatmapGrid(title="Attention of all heads", panels=panels, num_columns=num_heads)


def gate(name: str = "forget", num_units: int = 40, num_tokens: int = len(TOKENS)) -> Heatmap:
    generator = np.random.default_rng(len(name))
    drift = np.cumsum(generator.normal(scale=0.7, size=(num_units, num_tokens)), axis=1)
    return Heatmap(
        title=f"{name} gate, layer 1",
        note=f"The {num_units} of 512 units whose state varies most.",
        values=1 / (1 + np.exp(-drift)),
        rows=[str(int(unit)) for unit in generator.permutation(512)[:num_units]],
        columns=[TOKENS[at % len(TOKENS)] for at in range(num_tokens)],
        row_label="unit",
        column_label="token",
        value_label=f"{name} gate f",
        low=0.0,
        high=1.0,
        role=name,
    )


def confusion() -> Heatmap:
    values = np.array([[52.0, 3, 1], [4, 40, 9], [0, 11, 60]])
    names = ("negative", "neutral", "positive")
    return Heatmap(
        title="Confusion matrix",
        values=values,
        rows=names,
        columns=names,
        row_label="true label",
        column_label="predicted label",
        value_label="examples",
        low=0.0,
    )


def masked_scores() -> Heatmap:
    scores = np.round(8 * (make_attention(6, 0, is_causal=False) - 0.3), 2)
    scores[np.triu_indices(6, 1)] = np.nan
    return Heatmap(
        title="Scores before softmax",
        values=scores,
        rows=TOKENS[:6],
        columns=TOKENS[:6],
        row_label="query token",
        column_label="key token",
        value_label="q · k / √d",
        scale="diverging",
    )


def gradients() -> LineChart:
    steps = np.arange(len(TOKENS), dtype=float)
    lines = []
    for name, rate, role in (("rnn", 0.55, ""), ("gru", 0.86, ""), ("lstm", 0.93, "")):
        norms = rate ** (len(TOKENS) - 1 - steps) * (1 + 0.2 * np.sin(steps))
        lines.append(Series(name=name, x=steps, y=norms, low=0.8 * norms, high=1.25 * norms, role=role))
    return LineChart(
        title="Gradient of the last state with respect to earlier ones",
        series=lines,
        x_label="token k",
        y_label="‖∂h_T/∂h_k‖",
        y_log=True,
        x_names=TOKENS,
        references=(Reference(axis="y", value=1.0, label="no change"),),
        note="A line that falls steeply to the left belongs to a model that forgets.",
    )


def horizon() -> LineChart:
    visible = np.array([1.0, 2, 4, 8, 16, 32, 64, 128])
    lines = []
    for name, gain, base in (("lstm", 1.4, 4.6), ("transformer", 1.7, 4.4)):
        loss = base + gain / np.sqrt(visible)
        lines.append(Series(name=name, x=visible, y=loss, low=loss - 0.06, high=loss + 0.06))
    references = (Reference(axis="x", value=30.0, label="90 % of the benefit"),)
    return LineChart(
        title="Loss against visible context",
        series=lines,
        x_label="visible past tokens",
        y_label="loss in nats per token",
        x_log=True,
        references=references,
    )


def states(num_points: int = 120) -> ScatterPlot:
    generator = np.random.default_rng(3)
    centres = np.array([[-2.0, 0.5], [1.5, 1.8], [1.0, -1.6]])
    group = np.arange(num_points) % 3
    points = centres[group] + generator.normal(scale=0.7, size=(num_points, 2))
    return ScatterPlot(
        title="Hidden states of the last layer",
        x=points[:, 0],
        y=points[:, 1],
        names=[f"{TOKENS[at % len(TOKENS)]}" for at in range(num_points)],
        x_label="first component (31 %)",
        y_label="second component (14 %)",
        groups=[("noun", "verb", "other")[at] for at in group],
        is_labelled=True,
    )


def states_by_time() -> ScatterPlot:
    turns = np.linspace(0, 9, 90)
    return ScatterPlot(
        title="States along one text",
        x=turns * np.cos(turns),
        y=turns * np.sin(turns),
        names=[f"step {at}" for at in range(90)],
        x_label="first component",
        y_label="second component",
        values=np.arange(90.0),
        value_label="position in the text",
    )


def time_constants() -> BarChart:
    values = 40 * 0.86 ** np.arange(18)
    units = gate().rows[:18]
    return BarChart(
        title="Units that remember longest",
        names=[f"unit {unit}" for unit in units],
        values=values,
        value_label="time constant 1 / (1 − f) in tokens",
        low=0.9 * values,
        high=1.12 * values,
        roles=["forget"] * 18,
    )


def contributions() -> BarChart:
    return BarChart(
        title="Contribution of each gate",
        names=("input gate", "forget gate", "output gate"),
        values=np.array([0.42, -0.18, 0.07]),
        value_label="change of the log-probability",
        roles=("input", "forget", "output"),
    )


def attribution() -> TokenText:
    values = np.round(np.random.default_rng(8).normal(scale=0.4, size=len(TOKENS)), 3)
    values[7], values[12] = 1.32, np.nan
    return TokenText(
        title="Which words decided for “river bank”",
        tokens=TOKENS,
        values=values,
        value_label="contribution to the log-probability",
        details=[f"integrated gradients over {50 + at} steps" for at in range(len(TOKENS))],
        selected=(8,),
    )


def head_roles() -> Table:
    roles = ("previous token", "first token", "same token", "broad")
    rows = []
    for layer in range(3):
        for head, role in enumerate(roles):
            tokens = None if head == 3 else 12_345.678
            rows.append(
                (f"layer {layer + 1}, head {head + 1}", role, 1.9 - 0.13 * head + 0.21 * layer, 1 + 3.3 * head, tokens)
            )
    return Table(
        title="Heads", columns=("head", "detected role", "entropy in nats", "mean distance", "tokens"), rows=rows
    )


def beam() -> Tree:
    nodes = [TreeNode(parent=-1, label="<s>", value=0.0)]

    def add(parent: int, label: str, value: float, state: str = "kept", detail: str = "") -> int:
        nodes.append(TreeNode(parent=parent, label=label, value=value, state=state, detail=detail))  # type: ignore[arg-type]
        return len(nodes) - 1

    the, two = add(0, "a", -0.7), add(0, "two", -1.4)
    add(0, "the", -3.1, "pruned", "not among the best 2: −3.10 against −1.40")
    man, dog = add(the, "man", -1.5), add(the, "dog", -2.4)
    men = add(two, "men", -2.0)
    add(two, "dogs", -4.2, "pruned", "not among the best 2")
    walks = add(man, "walks", -2.6)
    add(men, "walk", -2.9, "pruned", "not among the best 2")
    add(dog, "runs", -3.5, "pruned", "not among the best 2")
    add(walks, ".", -2.8, "best", "finished with length penalty 0.6")
    home = add(walks, "home", -3.3)
    add(home, ".", -3.6, "finished", "finished, but with a lower score")
    return Tree(title="Beam search with two beams", nodes=nodes, value_label="log-probability")


def regions() -> ImageOverlay:
    y, x = np.mgrid[0:96, 0:128]
    image = np.stack([200 + 0 * x, 205 + 0 * x, 190 + y // 3], axis=-1).astype(np.uint8)
    image[(x - 35) ** 2 + (y - 48) ** 2 < 24**2] = (196, 60, 40)
    image[(abs(x - 92) < 20) & (abs(y - 46) < 20)] = (40, 90, 180)
    rows, columns = np.mgrid[0:6, 0:8]
    centres = {
        "a": (3, 4),
        "red": (3, 2),
        "circle": (3, 2),
        "left": (2, 2),
        "of": (3, 4),
        "a ": (2, 5),
        "blue": (3, 6),
        "square": (2, 6),
    }
    weights = np.stack(
        [
            np.exp(-((rows - r) ** 2 + (columns - c) ** 2) / (1.5 if word not in ("a", "of") else 20))
            for word, (r, c) in centres.items()
        ]
    )
    weights /= weights.sum(axis=(1, 2), keepdims=True)
    return ImageOverlay(
        title="Regions of each word",
        image=image,
        weights=weights,
        captions=list(centres),
        value_label="attention weight",
    )


def health() -> Findings:
    return Findings(
        title="Findings",
        findings=(
            Finding(
                text="The loss is stuck at the entropy of token frequencies.",
                severity="problem",
                evidence="Validation loss 6.55 since epoch 3; the entropy of single tokens is 6.56.",
                command="seqwise train data.txt --model lstm --training.learning-rate 0.001 --out runs/lstm-2",
            ),
            Finding(
                text="A third of the forget gates is saturated.",
                severity="warning",
                evidence="34 % are above 0.9 in layer 2.",
            ),
            Finding(
                text="The model uses the last 18 tokens.", severity="note", evidence="90 % of the benefit, ± 3 tokens."
            ),
            Finding(
                text="Gradients neither vanish nor explode.", severity="good", evidence="Norms between 0.2 and 1.9."
            ),
        ),
    )


def page_figures() -> list[Figure]:
    """Returns a figure of every kind, some of them twice with other options."""
    return [
        health(),
        attention_grid(),
        attention_head(),
        gate(),
        masked_scores(),
        confusion(),
        gradients(),
        horizon(),
        states(),
        states_by_time(),
        time_constants(),
        contributions(),
        attribution(),
        head_roles(),
        beam(),
        regions(),
    ]
