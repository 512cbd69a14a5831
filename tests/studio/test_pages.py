"""Every page opens, in light and dark mode, wide and at 390 pixels, without an error and without network."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow

PAGES = ("runs", "new", "use", "inside", "compare", "lab", "vectors")


@pytest.mark.parametrize("page", PAGES)
def test_a_page_opens(page, open_tab):
    for width, scheme in ((1300, "light"), (390, "dark")):
        tab = open_tab(width, scheme).open(page)
        assert tab.locator("main h1").count() == 1
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
