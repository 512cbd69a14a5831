"""A small figure of each kind, and the elements of an SVG document with their positions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from xml.etree import ElementTree

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


def make_heatmap(values: object, title: str = "Attention of one head", **settings: object) -> Heatmap:
    array = np.array(values, dtype=float)
    defaults: dict[str, object] = {
        "rows": [f"row{index}" for index in range(array.shape[0])],
        "columns": [f"col{index}" for index in range(array.shape[1])],
        "row_label": "query token",
        "column_label": "key token",
        "value_label": "attention weight",
    }
    return Heatmap(title=title, values=array, **{**defaults, **settings})  # type: ignore[arg-type]


def make_grid(num_layers: int = 2, num_heads: int = 3, size: int = 4) -> HeatmapGrid:
    """Head h of layer l has one large cell: row l, column h."""
    panels = []
    for layer in range(num_layers):
        for head in range(num_heads):
            values = np.zeros((size, size))
            values[layer % size, head % size] = 1
            panels.append(make_heatmap(values, f"layer {layer + 1}, head {head + 1}", role="attention"))
    return HeatmapGrid(title="All heads", panels=panels, num_columns=num_heads)


def make_series(name: str, y: object, **settings: object) -> Series:
    array = np.array(y, dtype=float)
    return Series(name=name, x=np.arange(len(array)), y=array, **settings)  # type: ignore[arg-type]


def make_lines(*series: Series, **settings: object) -> LineChart:
    labels = {"title": "Loss of two models", "x_label": "step (updates)", "y_label": "loss (nats)"}
    return LineChart(series=series, **{**labels, **settings})  # type: ignore[arg-type]


def make_tree() -> Tree:
    """Two hypotheses of "a dog barks" and one that is pruned."""
    nodes = [
        TreeNode(parent=-1, label="<s>", value=0.0),
        TreeNode(parent=0, label="a", value=-0.5),
        TreeNode(parent=0, label="the", value=-0.9),
        TreeNode(parent=1, label="cat", value=-2.5, state="pruned", detail="not among the best 2"),
        TreeNode(parent=1, label="dog", value=-1.1),
        TreeNode(parent=4, label="barks", value=-1.3, state="best"),
        TreeNode(parent=2, label="fox", value=-1.75, state="finished"),
    ]
    return Tree(title="Beam search of width 2", nodes=nodes, value_label="log-probability")


def make_overlay() -> ImageOverlay:
    """The second word looks at the upper right region."""
    weights = np.full((2, 2, 2), 0.1)
    weights[1, 0, 1] = 0.7
    image = np.full((20, 40, 3), 200, dtype=np.uint8)
    return ImageOverlay(
        title="Regions", image=image, weights=weights, captions=["a", "dog"], value_label="attention weight"
    )


FIGURES: tuple[Figure, ...] = (
    make_heatmap([[0.25, 0.75], [1, 0]], low=0, high=1, role="attention", note="Weights of a row sum to one."),
    make_grid(),
    make_lines(
        make_series("lstm", [3, 2, 1], low=np.array([2.5, 1.5, 0.5]), high=np.array([3.5, 2.5, 1.5])),
        make_series("rnn", [3, 2.5, 2.25]),
        references=[Reference(axis="y", value=2.2, label="baseline"), Reference(axis="x", value=1, label="warm-up")],
    ),
    ScatterPlot(
        title="States",
        x=np.array([0.0, 1, 2, 3]),
        y=np.array([0.0, 4, 1, 2]),
        names=["alpha", "beta", "gamma", "delta"],
        x_label="component 1",
        y_label="component 2",
        groups=["noun", "verb", "noun", "verb"],
        is_labelled=True,
    ),
    BarChart(
        title="Contributions",
        names=["good", "bad"],
        values=np.array([0.5, -0.25]),
        low=np.array([0.4, -0.3]),
        high=np.array([0.6, -0.2]),
        value_label="contribution (nats)",
        roles=["positive", "negative"],
    ),
    TokenText(
        title="Attribution",
        tokens=["not", "good", "\n", "at", "all"],
        values=np.array([-0.8, 0.32, 0.0, 0.01, np.nan]),
        value_label="contribution",
        selected=[1],
    ),
    Table(title="Heads", columns=["head", "role", "entropy"], rows=[[1, "previous token", 0.12345], [2, None, 1.5]]),
    make_tree(),
    make_overlay(),
    Findings(
        title="Findings",
        findings=[
            Finding(text="The loss is stuck.", severity="problem", evidence="loss 6.5", command="seqwise train x"),
            Finding(text="No overfitting.", severity="good"),
        ],
    ),
)


@dataclass(frozen=True)
class Element:
    """An element of a drawing with its position in the document."""

    tag: str
    values: dict[str, str]
    text: str
    x: float
    y: float


def list_elements(svg: str) -> list[Element]:
    """Returns all elements that are drawn; parsing fails if the document is not well-formed."""
    found: list[Element] = []

    def visit(parent: ElementTree.Element, left: float, top: float) -> None:
        for element in parent:
            tag = element.tag.rpartition("}")[2]
            if tag == "g":
                x, y = re.findall(r"[-\d.]+", element.attrib["transform"])
                visit(element, left + float(x), top + float(y))
                continue
            x = left + float(element.attrib.get("x", element.attrib.get("cx", 0)))
            y = top + float(element.attrib.get("y", element.attrib.get("cy", 0)))
            found.append(Element(tag, dict(element.attrib), "".join(element.itertext()), x, y))

    visit(ElementTree.fromstring(svg), 0.0, 0.0)
    return found


def list_texts(svg: str) -> list[str]:
    return [element.text for element in list_elements(svg) if element.tag == "text"]


def find_text(svg: str, text: str) -> Element:
    """Returns the only element with this text."""
    [found] = [element for element in list_elements(svg) if element.tag == "text" and element.text == text]
    return found


def get_size(svg: str) -> tuple[float, float]:
    width, height = ElementTree.fromstring(svg).attrib["viewBox"].split()[2:]
    return float(width), float(height)
