"""Trees as SVG: the root on the left, a column per step, pruned branches dashed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from seqwise.page.drawing.canvas import INK, MARGIN, MUTED, Canvas, replace_minus
from seqwise.page.figures import Tree, TreeNode
from seqwise.page.labels import format_number, measure_pixels, shorten_all
from seqwise.page.palette import ROLES

MAX_NODES, MAX_DEPTH = 400, 40
ROW_HEIGHT, COLUMN_GAP = 20, 34
NAME_WIDTH = 110
# State → colour, width and dashes of the line to a node.
LINES = {
    "best": (ROLES["input"][0], 2.4, ""),
    "finished": (ROLES["output"][0], 1.6, "10 3 2 3"),
    "kept": (MUTED, 1.2, ""),
    "pruned": ("#8a8a8a", 1.0, "2 3"),
}


def draw_tree(figure: Tree) -> Canvas:
    """Returns a tree whose lines show what became of each node; the numbers are the values of nodes."""
    canvas = Canvas()
    nodes = _choose_nodes(figure.nodes)
    if not nodes:
        canvas.add_paragraph("no nodes", colour=MUTED)
        return canvas
    _add_legend(canvas, figure, nodes)
    children, depths = _find_children(nodes)
    names = shorten_all([node.label for node in nodes], NAME_WIDTH, measure_pixels)
    values = [replace_minus(format_number(node.value)) for node in nodes]
    rows = _place_rows(nodes, children)
    widths = [measure_pixels(name) + 6 + measure_pixels(value) for name, value in zip(names, values)]
    starts = _place_columns(depths, widths)
    top = canvas.height + 16
    best = _find_ancestors(nodes, "best")
    for index, node in sorted(enumerate(nodes), key=lambda each: each[0] in best):  # the best path is drawn last
        x, y = starts[depths[index]], top + rows[index] * ROW_HEIGHT
        if node.parent >= 0:
            parent = node.parent
            end = starts[depths[parent]] + widths[parent] + 5
            parent_y = top + rows[parent] * ROW_HEIGHT
            state = "best" if index in best else node.state
            colour, width, dashes = LINES[state]
            bend = (max(end, x - COLUMN_GAP + 8), parent_y)
            canvas.add_line([(end, parent_y), bend, (x - 5, y)], colour, width, dashes)
        ink = MUTED if node.state == "pruned" else INK
        canvas.add_text(x, y + 4, names[index], colour=LINES["best"][0] if index in best else ink)
        canvas.add_text(x + measure_pixels(names[index]) + 6, y + 4, values[index], colour=MUTED)
    if len(nodes) < len(figure.nodes):
        canvas.height += 6
        canvas.add_paragraph(f"{len(nodes)} of {len(figure.nodes):,} nodes: those nearest the root.", colour=MUTED)
    return canvas


def _add_legend(canvas: Canvas, figure: Tree, nodes: Sequence[TreeNode]) -> None:
    x = float(MARGIN)
    for state, (colour, width, dashes) in LINES.items():
        if any(node.state == state for node in nodes):
            canvas.add_line([(x, 8), (x + 28, 8)], colour, width, dashes)
            x += 34 + canvas.add_text(x + 34, 12, state) + 18
    canvas.add_text(x, 12, f"numbers: {figure.value_label}", colour=MUTED)


def _choose_nodes(nodes: Sequence[TreeNode]) -> list[TreeNode]:
    """Returns the first nodes of a tree, without those far from the root."""
    depths: list[int] = []
    for node in nodes[:MAX_NODES]:
        depths.append(depths[node.parent] + 1 if node.parent >= 0 else 0)
    indices = {index: place for place, index in enumerate(i for i, depth in enumerate(depths) if depth < MAX_DEPTH)}
    return [replace(nodes[index], parent=indices.get(nodes[index].parent, -1)) for index in indices]


def _find_children(nodes: Sequence[TreeNode]) -> tuple[list[list[int]], list[int]]:
    """Returns the children and the depth of each node; a parent comes before its children."""
    children: list[list[int]] = [[] for _ in nodes]
    depths = [0] * len(nodes)
    for index, node in enumerate(nodes):
        if node.parent >= 0:
            children[node.parent].append(index)
            depths[index] = depths[node.parent] + 1
    return children, depths


def _place_rows(nodes: Sequence[TreeNode], children: Sequence[Sequence[int]]) -> list[float]:
    """Returns the row of each node: leaves below each other, a parent in the middle of its children."""
    rows = [0.0] * len(nodes)
    waiting = [index for index, node in enumerate(nodes) if node.parent < 0][::-1]
    num_leaves = 0
    while waiting:
        index = waiting.pop()
        if not children[index]:
            rows[index] = float(num_leaves)
            num_leaves += 1
        waiting += reversed(children[index])
    for index in reversed(range(len(nodes))):
        if children[index]:
            rows[index] = (rows[children[index][0]] + rows[children[index][-1]]) / 2
    return rows


def _place_columns(depths: Sequence[int], widths: Sequence[float]) -> list[float]:
    """Returns where the nodes of each depth begin."""
    starts = [float(MARGIN)]
    for depth in range(max(depths)):
        widest = max(width for width, each in zip(widths, depths) if each == depth)
        starts.append(starts[-1] + widest + COLUMN_GAP)
    return starts


def _find_ancestors(nodes: Sequence[TreeNode], state: str) -> set[int]:
    """Returns the nodes of a state and all nodes on the way to them."""
    found: set[int] = set()
    for index, node in enumerate(nodes):
        if node.state == state:
            while index >= 0:
                found.add(index)
                index = nodes[index].parent
    return found
