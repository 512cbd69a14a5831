"""Plots as PNG: the same lines, areas and texts as in the SVG, at twice its size."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from PIL import Image

from seqwise.errors import UsageError
from seqwise.image import SCALE, _split_by_font, draw_png, write_plot
from seqwise.svg import BLUE, LEFT, ORANGE, TOP, WIDTH, Chart, build_document

BLUE_PIXEL = (0x5B, 0x8D, 0xEF)


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


def find_ink(image: Image.Image) -> tuple[float, ...]:
    """Returns left, top, right and bottom of what is dark, in pixels of the SVG."""
    box = image.convert("L").point(lambda value: 255 * (value < 128)).getbbox()
    return tuple(edge / SCALE for edge in box)


def test_a_rectangle_is_filled_between_its_edges():
    image = draw(['<rect x="10" y="20" width="30" height="15" fill="#5b8def" stroke="none"/>'])
    assert image.getpixel((10 * SCALE, 20 * SCALE)) == image.getpixel((40 * SCALE - 1, 35 * SCALE - 1)) == BLUE_PIXEL
    assert count_pixels(image, BLUE_PIXEL) == 30 * 15 * SCALE**2


def test_the_outline_of_a_rectangle_leaves_its_inside_white():
    image = draw(['<rect x="10" y="20" width="30" height="15" fill="none" stroke="#5b8def" stroke-width="1"/>'])
    assert image.getpixel((10 * SCALE, 25 * SCALE)) == BLUE_PIXEL
    assert image.getpixel((25 * SCALE, 27 * SCALE)) == (255, 255, 255)


def test_pixels_of_an_image_become_rectangles():
    file = io.BytesIO()
    Image.fromarray(np.array([[[255, 0, 0], [0, 0, 255]]], dtype=np.uint8)).save(file, "PNG")
    address = "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
    image = draw([f'<image x="10" y="20" width="40" height="10" href="{address}"/>'])
    assert count_pixels(image, (255, 0, 0)) == count_pixels(image, (0, 0, 255)) == 20 * 10 * SCALE**2
    assert image.getpixel((29 * SCALE, 25 * SCALE)) == (255, 0, 0)
    assert image.getpixel((31 * SCALE, 25 * SCALE)) == (0, 0, 255)


@pytest.mark.parametrize(("anchor", "top", "bottom"), [("start", 10, 60), ("end", 60, 110), ("middle", 35, 85)])
def test_a_vertical_text_reads_from_bottom_to_top(anchor: str, top: float, bottom: float):
    text = f'<text x="100" y="60" text-anchor="{anchor}" fill="#000" transform="rotate(-90 100 60)">HHHHHH</text>'
    left, upper, right, lower = find_ink(draw([text], 120))
    assert right == pytest.approx(100, abs=1)
    assert left == pytest.approx(100 - 9, abs=2)  # the height of a letter
    assert (upper, lower) == pytest.approx((top, bottom), abs=6)


def test_a_larger_font_makes_larger_letters():
    left, top, right, bottom = find_ink(draw(['<text x="10" y="60" fill="#000">H</text>']))
    large = find_ink(draw(['<text x="10" y="60" fill="#000" font-size="36">H</text>']))
    assert large[3] - large[1] == pytest.approx(3 * (bottom - top), rel=0.1)
    assert large[2] - large[0] == pytest.approx(3 * (right - left), rel=0.2)


def test_parts_of_a_text_are_anchored_together_and_can_be_raised():
    parts = '<tspan fill="#000">HHH</tspan><tspan dy="-20" fill="#000">H</tspan>'
    left, top, right, bottom = find_ink(draw([f'<text x="100" y="60" text-anchor="end">{parts}</text>']))
    assert right == pytest.approx(100, abs=2)
    assert left == pytest.approx(100 - 4 * 9, abs=6)
    assert bottom - top == pytest.approx(20 + 9, abs=2)


def test_edges_that_are_not_along_an_axis_are_smooth():
    shapes = [
        '<polyline points="10,10 90,50" stroke="#000" stroke-width="2"/>',
        '<circle cx="50" cy="50" r="9" fill="#000"/>',
    ]
    for shape in shapes:
        colours = draw([shape]).convert("L").getcolors()
        assert len(colours) > 5
    straight = draw(['<polyline points="10,10 90,10" stroke="#000" stroke-width="2"/>']).convert("L")
    assert len(straight.getcolors()) == 2


def test_an_outlined_shape_has_two_colours():
    image = draw(['<polygon points="10,10 50,10 50,50 10,50" fill="#5b8def" stroke="#000" stroke-width="2"/>'])
    assert image.getpixel((30 * SCALE, 30 * SCALE)) == BLUE_PIXEL
    assert image.getpixel((30 * SCALE, 10 * SCALE)) == (0, 0, 0)


def test_a_character_that_no_font_has_is_replaced_or_takes_room():
    assert "".join(run for _, run in _split_by_font("é…", 24)) in ("é…", "e...")
    for text in ("日本語", "שלום", "\U0010fffd"):
        assert sum(font.getlength(run) for font, run in _split_by_font(text, 24)) > 10


def test_letters_of_a_word_have_one_font():
    fonts = {id(font) for font, _ in _split_by_font("Größe", 24)}
    assert len(fonts) == 1


def test_the_suffix_decides_the_format(tmp_path):
    svg = build_document([], 50, "empty")
    write_plot(tmp_path / "a.svg", svg)
    write_plot(tmp_path / "a.PNG", svg)
    assert (tmp_path / "a.svg").read_text() == svg
    assert Image.open(tmp_path / "a.PNG").size == (WIDTH * SCALE, 50 * SCALE)
    with pytest.raises(UsageError, match=r"a\.pdf"):
        write_plot(tmp_path / "a.pdf", svg)
