"""Figures as text."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
from rich.cells import cell_len
from sample_figures import FIGURES, make_grid, make_heatmap, make_lines, make_overlay, make_series, make_tree

from seqwise.page.figures import (
    BarChart,
    Figure,
    Finding,
    Findings,
    HeatmapGrid,
    Reference,
    ScatterPlot,
    Table,
    TokenText,
    Tree,
    TreeNode,
)
from seqwise.page.terminal import DRAW, draw_text

NAN = np.nan


def draw(figure: Figure, width: int = 80) -> list[str]:
    """Returns the lines below the title of the figure."""
    text = draw_text("", [], [figure], width=width, has_colour=False)
    assert all(cell_len(line) <= width for line in text.splitlines())
    return text.splitlines()[1:]


def test_every_kind_of_figure_can_be_drawn():
    assert set(DRAW) == set(Figure.__subclasses__())
    assert {type(figure) for figure in FIGURES} == set(DRAW)


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.kind)
@pytest.mark.parametrize("width", [80, 120])
def test_lines_fit_the_width_and_have_no_colour(figure: Figure, width: int):
    text = draw_text("Title", ["A sentence."], [figure], width=width, has_colour=False)
    assert all(cell_len(line) <= width for line in text.splitlines())
    assert text.startswith("Title\n\nA sentence.\n\n" + figure.title)
    assert "\x1b" not in text
    assert all(line == line.rstrip() for line in text.splitlines())


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.kind)
def test_colours_change_nothing_but_colours(figure: Figure):
    plain = draw_text("Title", [], [figure], width=80, has_colour=False)
    coloured = draw_text("Title", [], [figure], width=80, has_colour=True)
    lines = re.sub(r"\x1b\[[\d;]*m", "", coloured).splitlines()
    assert [line.rstrip() for line in lines] == plain.splitlines()
    assert "\x1b[1m" in coloured


def test_text_for_a_file_has_no_colour(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.stdout", io.StringIO())
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    assert "\x1b" not in draw_text("Title", [], FIGURES)


def test_the_width_is_that_of_the_terminal_up_to_120(monkeypatch: pytest.MonkeyPatch):
    for columns, expected in (("90", 90), ("500", 120)):
        monkeypatch.setenv("COLUMNS", columns)
        text = draw_text("", [], [make_lines(make_series("a", [1, 2, 3]))])
        assert max(map(cell_len, text.splitlines())) == expected


def test_summary_and_note_are_wrapped():
    figure = make_heatmap([[1]], note="word " * 30)
    text = draw_text("", ["sentence " * 20], [figure], width=80, has_colour=False)
    assert text.count("sentence") == 20
    assert text.count("word") == 30
    assert max(map(cell_len, text.splitlines())) <= 80


def test_a_small_heatmap_shows_numbers_with_tokens():
    figure = make_heatmap([[0.25, 0.75], [1, NAN]], rows=["the", "cat"], columns=["the", "cat"])
    assert draw(figure) == [
        "    the cat",
        "the  25  75",
        "cat 100   ·",
        "rows: query token; columns: key token",
        "cells: attention weight, in units of 0.01; · no value",
    ]


def test_whole_numbers_are_written_in_full():
    figure = make_heatmap([[812, 12], [3, 1207]], rows=["PER", "ORG"], columns=["PER", "ORG"], value_label="examples")
    assert draw(figure)[1:3] == ["PER  812   12", "ORG    3 1207"]
    assert draw(figure)[-1] == "cells: examples"


def test_long_column_names_are_written_from_top_to_bottom():
    figure = make_heatmap(np.eye(20), columns=[f"{letter}yz" for letter in "abcdefghijklmnopqrst"])
    lines = draw(figure, 70)
    assert lines[0].split() == list("abcdefghijklmnopqrst")
    assert lines[2].split() == ["z"] * 20


def test_a_large_heatmap_is_shaded_and_reduced():
    values = np.zeros((100, 200))
    values[:50, :100] = 1
    lines = draw(make_heatmap(values), 100)
    cells = [line.split(" ", 1) for line in lines if "█" in line and line.startswith("row")]
    assert 20 <= len(cells) <= 25
    assert {name for name, _ in cells} <= {f"row{index}" for index in range(50)}
    assert "attention weight: 0 [ ░▒▓█] 1" in lines
    assert lines[-1] == "100 × 200 values; each cell is the mean of up to 3 × 3 of them."


def test_shades_show_the_sign_and_missing_values():
    values = np.tile([-2.0, -1.0, 0.0, 1.0, 2.0, NAN], (30, 1))
    lines = draw(make_heatmap(values, scale="diverging"))
    assert any(line.endswith("##~~  ▒▒██··") for line in lines)
    assert "attention weight: -2 [#=~-] 0 [░▒▓█] 2   · no value" in lines


def test_a_grid_shows_each_panel_at_its_place():
    lines = draw(make_grid(2, 3, 4))
    assert lines[0].split() == ["head", "1", "head", "2", "head", "3"]
    start = lines[0].index("head 2")
    width = lines[0].index("head 3") - start
    layer_2 = next(index for index, line in enumerate(lines) if line.startswith("layer 2"))
    panel = [line[start : start + width].ljust(width) for line in lines[layer_2 : layer_2 + 4]]
    assert [set(line.strip()) for line in panel] == [set(), {"█"}, set(), set()]
    assert panel[1].index("█") == (width - 1) // 4  # the second of four cells
    assert "largest: 1 (row0, col0) in layer 1 head 1" in lines


def test_stacked_panels_have_one_heading():
    titles, tokens = ("input gate", "forget gate"), ["xyz"] * 30
    panels = [make_heatmap(np.eye(30), title, value_label=title, columns=tokens) for title in titles]
    lines = draw(HeatmapGrid(title="Gates", panels=panels, num_columns=1))
    assert lines.index("input gate") < lines.index("forget gate")
    assert sum(line.split() == ["y"] * 30 for line in lines) == 1


def test_a_line_is_drawn_from_corner_to_corner():
    lines = draw(make_lines(make_series("loss", [10, 0]), title="t"))
    assert lines[0] == "loss (nats)"
    assert lines[1].startswith("10 ┤⠉")
    assert lines[14].startswith(" 0 ┤")
    assert lines[14][-1] in "⠢⢄⣀⠤⠄⡀"
    assert lines[15].startswith("   └┬")
    assert lines[16].split() == ["0", "0.2", "0.4", "0.6", "0.8", "1"]
    assert lines[17].strip() == "step (updates)"
    assert lines[-2].split() == ["series", "first", "last", "lowest", "highest"]
    assert lines[-1].split() == ["⠒", "loss", "10", "0", "0", "10"]


def test_several_lines_have_letters_and_end_values():
    high, low = make_series("lstm", [4, 4], low=np.array([3, 3.5]), high=np.array([5, 4.5])), make_series("rnn", [1, 1])
    lines = draw(make_lines(high, low, references=[Reference(axis="y", value=2.5, label="baseline")]))
    rows = {letter: next(index for index, line in enumerate(lines) if letter in line[4:]) for letter in "AB┄"}
    assert rows["A"] < rows["┄"] < rows["B"]
    assert "┄ baseline: 2.5" in lines
    assert lines[-2].split() == ["A", "lstm", "4", "4", "[3.50,", "4.50]", "4", "4"]


def test_an_axis_names_its_tokens_and_its_scale():
    figure = make_lines(make_series("a", [1, 1000, 10]), x_names=["the", "cat", "sat"], y_log=True)
    lines = draw(figure)
    assert lines[0] == "loss (nats) (log scale)"
    assert lines[1].startswith("1,000 ┤")
    assert lines[16].split() == ["the", "cat", "sat"]


def test_a_scatter_plot_has_letters_names_and_extremes():
    lines = draw(next(figure for figure in FIGURES if isinstance(figure, ScatterPlot)))
    assert "A alpha" in lines[14]
    assert "B beta" in lines[1]
    assert lines[-4] == "A noun (2)   B verb (2)"
    assert lines[-3:] == [
        "4 points",
        "component 1: from alpha (0) to delta (3)",
        "component 2: from alpha (0) to beta (4)",
    ]


def test_bars_extend_to_both_sides_of_zero():
    figure = BarChart(title="t", names=["up", "down"], values=np.array([2.0, -1.0]), value_label="effect")
    up, down, legend = draw(figure, 60)
    zero = up.index("│")
    assert down[zero] == "│"
    assert up.count("█") == pytest.approx(2 * down.count("█"), abs=1)
    assert up.index("█") == zero + 1
    assert down.rindex("█") == zero - 1
    assert (up.split()[-1], down.split()[-1], legend) == ("2", "-1", "bars: effect")


def test_fractions_of_a_column_are_drawn():
    figure = BarChart(title="t", names=["a", "b"], values=np.array([1.0, 0.5]), value_label="v")
    full, half, _ = draw(figure, 61)
    length = full.count("█")
    assert half.count("█") + ("▌" in half) * 0.5 == length / 2


def test_the_strongest_tokens_have_their_values():
    lines = draw(next(figure for figure in FIGURES if isinstance(figure, TokenText)))
    assert lines[0] == "[not -0.800] «[good 0.320]» [↵ 0]"
    assert lines[1] == "[at 0.0100] all"
    assert lines[3].split()[0] == "not"
    assert lines[3].endswith("-0.800")


def test_a_table_aligns_numbers_and_leaves_none_empty():
    lines = draw(next(figure for figure in FIGURES if isinstance(figure, Table)))
    assert lines == [
        "head  role            entropy",
        "────  ──────────────  ───────",
        "   1  previous token    0.123",
        "   2                     1.50",
    ]


def test_a_wide_table_is_shortened_and_a_very_wide_one_continues_below():
    narrow = Table(title="t", columns=["name", "text"], rows=[["a", "x" * 200]])
    assert draw(narrow)[-1].endswith("x…")
    wide = Table(title="t", columns=[f"column {index}" for index in range(30)], rows=[list(range(30))])
    lines = draw(wide)
    assert [line.split()[0] for line in lines if line and line.split()[0].isdigit()] == ["0", "0", "0", "0"]
    assert lines[-1].split()[-1] == "29"


def test_a_tree_joins_chains_and_pruned_leaves():
    assert draw(make_tree()) == [
        "<s>  0",
        "├ a dog barks  -1.30  ★ best",
        "│ └ × pruned (not among the best 2): cat -2.50",
        "└ the fox  -1.75  ✓ finished",
        "numbers: log-probability",
    ]


def test_a_deep_tree_fits():
    nodes = [TreeNode(parent=-1, label="root", value=0)]
    for depth in range(300):
        nodes += [TreeNode(parent=2 * depth - (depth > 0), label=name, value=-depth) for name in "ab"]
    lines = draw(Tree(title="t", nodes=nodes, value_label="v"))
    assert lines[-2].startswith("(80 of ")


def test_each_caption_has_its_grid():
    lines = draw(make_overlay())
    assert lines[0].split() == ["a", "dog"]
    start = lines[0].index("dog")
    assert set(lines[1][start:].strip()) == {"░", "█"} or lines[1][start:].count("█") > 0
    assert "█" not in lines[1][:start] + lines[2]


def test_findings_have_evidence_and_a_command_in_one_piece():
    command = "seqwise train " + "--option value " * 10
    finding = Finding(text="The loss is stuck. " * 10, severity="problem", evidence="loss 6.5", command=command)
    text = draw_text("", [], [Findings(title="t", findings=[finding])], width=80, has_colour=False)
    assert text.splitlines()[1].startswith("problem   The loss is stuck.")
    assert "          evidence: loss 6.5" in text.splitlines()
    assert f"try: {command}".strip() in text


def test_right_to_left_names_leave_the_columns_in_place():
    lines = draw(make_heatmap([[1, 2], [3, 4]], rows=["שלום", "ab"], columns=["x", "y"]))
    assert lines[1] == "שלום\u200e   1   2"
    assert lines[2] == "ab     3   4"
