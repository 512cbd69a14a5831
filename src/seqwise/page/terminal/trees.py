"""Trees by indentation. A chain of nodes shares one line, and so do the pruned leaves beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from seqwise.page.figures import Tree, TreeNode
from seqwise.page.labels import format_number, measure_cells, shorten
from seqwise.page.terminal.screen import Screen, fit_name, show_line

MAX_LINES = 80
NAME_WIDTH = 24
STATES = {"best": "  ★ best", "finished": "  ✓ finished", "pruned": "  × pruned", "kept": ""}


@dataclass
class Branch:
    """A chain of nodes, the pruned leaves beside it, and the branches at its end."""

    nodes: list[TreeNode]
    pruned: list[TreeNode] = field(default_factory=list)
    children: list[Branch] = field(default_factory=list)


def draw_tree(figure: Tree, screen: Screen) -> list[str]:
    """Returns a tree as lines, each the nodes up to the next branching and the value of the last of them."""
    lines = [line for root in build_branches(figure.nodes) for line in _draw_branch(root, screen)]
    if len(lines) > MAX_LINES:
        lines = [*lines[:MAX_LINES], f"({MAX_LINES} of {len(lines):,} lines)"]
    return [*lines, f"numbers: {show_line(figure.value_label)}"] if lines else ["(no nodes)"]


def build_branches(nodes: Sequence[TreeNode]) -> list[Branch]:
    """Returns the roots of a tree as branches."""
    children: list[list[int]] = [[] for _ in nodes]
    for index, node in enumerate(nodes):
        if node.parent >= 0:
            children[node.parent].append(index)
    roots: list[Branch] = []
    waiting = [(index, roots) for index, node in enumerate(nodes) if node.parent < 0][::-1]
    while waiting:
        index, siblings = waiting.pop()
        branch = Branch([])
        siblings.append(branch)
        following = [index]
        while len(following) == 1:
            branch.nodes.append(nodes[following[0]])
            leaves = {each for each in children[following[0]] if not children[each] and nodes[each].state == "pruned"}
            branch.pruned += [nodes[each] for each in sorted(leaves)]
            following = [each for each in children[following[0]] if each not in leaves]
        waiting += [(each, branch.children) for each in reversed(following)]
    return roots


def _draw_branch(root: Branch, screen: Screen) -> Iterator[str]:
    """Yields the lines of a branch and of all below it."""
    waiting = [(root, "", "")]
    while waiting:
        branch, start, indent = waiting.pop()
        indent = indent[-screen.width // 2 :]
        yield _draw_chain(branch.nodes, start[-screen.width // 2 :], screen)
        if branch.pruned:
            line = f"{indent}{'├' if branch.children else '└'} {_describe_pruned(branch.pruned)}"
            yield screen.paint(shorten(line, screen.width), "dim")
        for child in reversed(branch.children):
            is_last = child is branch.children[-1]
            waiting.append((child, indent + ("└ " if is_last else "├ "), indent + ("  " if is_last else "│ ")))


def _draw_chain(nodes: Sequence[TreeNode], start: str, screen: Screen) -> str:
    text = " ".join(fit_name(node.label, NAME_WIDTH) for node in nodes)
    ending = f"  {format_number(nodes[-1].value)}{STATES[nodes[-1].state]}"
    room = screen.width - measure_cells(start + ending)
    return start + screen.paint(shorten(text, room) + ending, "bold" if nodes[-1].state == "best" else "")


def _describe_pruned(nodes: Sequence[TreeNode]) -> str:
    """Returns pruned nodes in one line, the most probable first, with the reason if it is the same for all."""
    reasons = {node.detail for node in nodes}
    reason = f" ({show_line(reasons.pop())})" if len(reasons) == 1 and nodes[0].detail else ""
    ordered = sorted(nodes, key=lambda node: -node.value)
    return f"× pruned{reason}: " + ", ".join(
        f"{fit_name(node.label, NAME_WIDTH)} {format_number(node.value)}" for node in ordered
    )
