"""Plots as PNG: the same lines, areas and texts as in the SVG, at twice its size."""

from __future__ import annotations

import io

import pytest
from PIL import Image

from seqwise.errors import UsageError
from seqwise.image import SCALE, draw_png, write_plot
from seqwise.svg import BLUE, LEFT, ORANGE, TOP, WIDTH, Chart, build_document


def draw(parts: list[str], height: int = 100) -> Image.Image:
    image = Image.open(io.BytesIO(draw_png(build_document(parts, height, "test"))))
    assert image.size == (WIDTH * SCALE, height * SCALE)
    return image


def count_pixels(image: Image.Image, colour: tuple[int, int, int]) -> int:
    return sum(count for count, each in image.getcolors(1 << 24) if each == colour)


def test_a_line_is_drawn_where_the_chart_places_it():
    chart = Chart(100, 10, [0, 1])
    chart.parts.clear()
    chart.add_line([(0, 1), (10, 1)], BLUE, 2.0)
    image = draw(chart.parts)
    assert image.getpixel((LEFT * SCALE + 5, TOP * SCALE)) == (0x5B, 0x8D, 0xEF)
    assert image.getpixel((LEFT * SCALE + 5, TOP * SCALE + 10)) == (255, 255, 255)
    length = (WIDTH - LEFT - 16) * SCALE
    assert count_pixels(image, (0x5B, 0x8D, 0xEF)) == pytest.approx(length * 2 * SCALE, rel=0.3)


def test_a_dashed_line_has_the_share_of_its_dashes():
    chart = Chart(100, 10, [0, 1])
    chart.parts.clear()
    chart.add_line([(0, 1), (10, 1)], BLUE, 1.0)
    solid = count_pixels(draw(chart.parts), (0x5B, 0x8D, 0xEF))
    chart.parts.clear()
    chart.add_line([(0, 1), (10, 1)], BLUE, 1.0, ' stroke-dasharray="10 10"')
    assert count_pixels(draw(chart.parts), (0x5B, 0x8D, 0xEF)) == pytest.approx(solid / 2, rel=0.1)


def test_areas_are_transparent_and_groups_are_moved():
    chart = Chart(100, 10, [0, 1])
    chart.parts.clear()
    chart.add_area([(0, 0), (0, 1), (10, 1), (10, 0)], ORANGE)
    chart.add_text(300, 20, "a legend", anchor="middle")
    image = draw(['<g transform="translate(0 100)">', *chart.parts, "</g>"], 200)
    middle = image.getpixel((400 * SCALE, 150 * SCALE))
    assert middle == pytest.approx([255 - 0.22 * (255 - part) for part in (0xE0, 0x7A, 0x3F)], abs=2)
    assert image.getpixel((400 * SCALE, 50 * SCALE)) == (255, 255, 255)
    box = image.crop((0, 100 * SCALE, WIDTH * SCALE, 130 * SCALE)).convert("L").point(lambda value: 255 * (value < 200))
    left, _, right, _ = box.getbbox()
    assert (left + right) / 2 == pytest.approx(300 * SCALE, abs=4)


def test_the_suffix_decides_the_format(tmp_path):
    svg = build_document([], 50, "empty")
    write_plot(tmp_path / "a.svg", svg)
    write_plot(tmp_path / "a.PNG", svg)
    assert (tmp_path / "a.svg").read_text() == svg
    assert Image.open(tmp_path / "a.PNG").size == (WIDTH * SCALE, 50 * SCALE)
    with pytest.raises(UsageError, match=r"a\.pdf"):
        write_plot(tmp_path / "a.pdf", svg)
