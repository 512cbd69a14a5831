"""Word vectors in the studio: the map, nearest words, analogies and similarities."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from run_folders import write_comparison
from studio_server import StudioServer

from seqwise.vectors.keyed import KeyedVectors

pytestmark = pytest.mark.slow

TIMEOUT = 60_000  # milliseconds
HOSTILE = "<b onclick='x'>bold</b>"


def make_vectors(count: int = 60) -> KeyedVectors:
    """Three clusters of words, and an analogy that holds exactly."""
    rng = np.random.default_rng(0)
    clusters = 3 * np.eye(3, 8)[np.arange(count) % 3] + 0.2 * rng.standard_normal((count, 8))
    royal = np.array([[1, 0, 0, 9], [0, 1, 0, 9], [1, 0, 1, 9], [0, 1, 1, 9]]) @ np.eye(4, 8, 4)
    words = (HOSTILE, *(f"word{index}" for index in range(count - 1)), "man", "woman", "king", "queen")
    return KeyedVectors(words, np.vstack([clusters, royal]).astype(np.float32))


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory, runs_folder: Path) -> Iterator[str]:
    """A studio with a file of vectors and the run of a language model."""
    folder = tmp_path_factory.mktemp("vectors") / "runs"
    folder.mkdir()
    make_vectors().save(folder / "words.safetensors")
    (folder / "damaged.vec").write_text("3 2\nword 1 2\n", encoding="utf-8")
    write_comparison(folder / "search")
    with StudioServer(folder, runs_folder / "book-lstm") as server:
        yield server.address


def open_file(open_tab, address: str, width: int = 1300, scheme: str = "light", query: str = ""):
    tab = open_tab(width, scheme, address).open("vectors", f"?source=file%3Aruns%2Fwords.safetensors{query}")
    tab.wait_for_selector(".vectors-plot canvas", timeout=TIMEOUT)
    return tab


def find_nearest(tab, word: str) -> None:
    tab.get_by_label("Word", exact=True).fill(word)
    tab.keyboard.press("Enter")


def test_a_file_is_chosen_and_its_map_is_drawn(open_tab, address):
    tab = open_tab(address=address).open("vectors")
    assert tab.locator("optgroup[label=Files] option").count() == 2
    assert tab.locator("optgroup[label='Embeddings of runs'] option").all_inner_texts() == [
        "book-lstm · lstm, language"
    ]
    tab.select_option("select", "file:runs/words.safetensors")
    tab.wait_for_selector(".vectors-plot canvas", timeout=TIMEOUT)
    assert tab.inner_text(".vectors-info").startswith("64 words · 8 dimensions")
    assert tab.inner_text(".vectors-map h2") == "The 64 most frequent words"
    assert tab.locator(".vectors-map .legend button").count() >= 2
    assert tab.locator(".vectors-plot .point-name").count() > 10
    tab.click("[aria-label='Zoom in']")
    assert tab.locator("[aria-label='Show all points']").is_visible()
    tab.click("[aria-label='Show all points']")
    tab.click("[data-choice=pca]")
    tab.wait_for_selector(".vectors-map .hint:has-text('PCA of unit vectors')")


def test_nearest_words_lead_from_one_to_the_next_and_back(open_tab, address):
    tab = open_file(open_tab, address)
    find_nearest(tab, "king")
    tab.wait_for_selector(".vectors-table")
    rows = tab.locator(".vectors-table tbody tr")
    assert rows.count() == 20
    assert rows.first.inner_text().split()[1] == "man"
    assert tab.locator(".vectors-plot .pinned circle").count() > 1
    tab.click(".vectors-table tbody button >> text=queen")
    tab.wait_for_selector(".vectors-trail:has-text('king › queen')")
    assert "word=queen" in tab.url
    tab.go_back()
    tab.wait_for_selector(".vectors-answer .hint:has-text('king')")
    tab.reload()
    tab.wait_for_selector(".vectors-answer .hint:has-text('king')", timeout=TIMEOUT)


def test_a_click_on_the_map_lists_the_neighbours(open_tab, address):
    tab = open_file(open_tab, address)
    tab.locator(".vectors-plot .plot").focus()
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("Enter")
    tab.wait_for_selector(".vectors-table")


def test_an_analogy_and_a_similarity(open_tab, address):
    tab = open_file(open_tab, address)
    for label, word in (("a", "man"), ("is to b", "king"), ("as c", "woman")):
        tab.get_by_label(label, exact=True).fill(word)
    tab.click("button:text-is('Solve')")
    tab.wait_for_selector(".vectors-analogy .vectors-table")
    assert tab.locator(".vectors-analogy tbody button").first.inner_text() == "queen"
    tab.get_by_label("First word").fill("king")
    tab.get_by_label("Second word").fill("queen")
    tab.click("button:text-is('Compare')")
    tab.wait_for_selector(".vectors-number")
    assert tab.inner_text(".vectors-number") == f"{82 / 83:.3f} cosine"


def test_an_unknown_word_gets_suggestions_and_markup_stays_text(open_tab, address):
    tab = open_file(open_tab, address, 390, "dark")
    find_nearest(tab, "qeen")
    tab.click(".vectors-unknown button >> text=queen")
    tab.wait_for_selector(".vectors-table")
    find_nearest(tab, HOSTILE)
    tab.wait_for_selector(".vectors-answer .hint:has-text('onclick')")
    assert tab.locator("main b[onclick]").count() == 0
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_damaged_file_is_explained_and_a_file_can_be_sent(open_tab, address, tmp_path: Path):
    tab = open_tab(address=address).open("vectors")
    tab.select_option("select", "file:runs/damaged.vec")
    tab.wait_for_selector("main .error", timeout=TIMEOUT)
    assert "declares 3 words, but the file ends after 1" in tab.inner_text("main .error")
    make_vectors(30).save(tmp_path / "sent.safetensors")
    tab.set_input_files("input[type=file]", tmp_path / "sent.safetensors")
    tab.wait_for_selector(".vectors-info:has-text('34 words')", timeout=TIMEOUT)


def test_the_embedding_of_a_run_is_shown(open_tab, address):
    tab = open_tab(address=address).open("vectors", "?source=run%3Abook-lstm")
    tab.wait_for_selector(".vectors-plot canvas", timeout=TIMEOUT)
    assert "dimensions" in tab.inner_text(".vectors-info")
    tab.locator(".vectors-plot .plot").focus()
    tab.keyboard.press("Enter")
    tab.wait_for_selector(".vectors-table")
