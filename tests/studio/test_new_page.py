"""The page of a new training, in Chromium: real trainings are checked, started, stopped and resumed from it."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from studio_server import StudioServer, StudioTab, wait_until

from seqwise.cli.options import parse
from seqwise.cli.train import Train
from seqwise.locks import find_owner

pytestmark = pytest.mark.slow

TIMEOUT = 60_000  # milliseconds
TINY = "&task=language&model=gru&device=cpu&network.width=8&network.depth=1&text.tokenizer=words"


@pytest.fixture
def studio(tmp_path) -> Iterator[StudioServer]:
    (tmp_path / "runs").mkdir()
    with StudioServer(tmp_path / "runs") as server:
        yield server
    for folder in (tmp_path / "runs").iterdir():  # after a failed test
        if (owner := find_owner(folder)) is not None:
            os.kill(owner.pid, signal.SIGKILL)


@pytest.fixture
def tab(studio, chromium) -> Iterator[StudioTab]:
    tab = StudioTab(chromium, studio.address)
    tab.tab.set_default_timeout(TIMEOUT)
    yield tab
    tab.check()
    tab.close()


def get_card(page: Any, run: str, state: str) -> Any:
    card = page.locator(f".new-job[data-run='{run}'][data-state={state}]")
    card.wait_for()
    return card


def wait_for_command(page: Any, words: str) -> str:
    page.wait_for_function("words => document.querySelector('.new-command')?.textContent.includes(words)", arg=words)
    return page.evaluate("document.querySelector('.new-command').textContent")


def test_a_training_is_started_stopped_resumed_and_finished(tab, book, tmp_path):
    page = tab.open("new", f"?data={book}{TINY}&budget=10m")
    command = wait_for_command(page, "--out")
    page.get_by_role("button", name="Start the training").click()
    page.get_by_text("The data can be trained on").wait_for()
    get_card(page, "runs/book-gru", "running").get_by_text("step").wait_for()  # a row of metrics was written
    folder = tmp_path / "runs" / "book-gru"
    assert find_owner(folder).command == command
    page.get_by_role("button", name="Stop runs/book-gru").click()
    get_card(page, "runs/book-gru", "stopped")
    assert find_owner(folder) is None
    config = folder / "config.yaml"
    tokens = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])["tokens"]
    config.write_text(config.read_text().replace("budget: 10m", f"budget: {tokens + 50_000}-tokens"))  # it ends soon
    page.get_by_role("button", name="Resume runs/book-gru").click()
    card = get_card(page, "runs/book-gru", "finished")
    assert "validation perplexity" in card.inner_text()
    assert (folder / "summary.json").exists()
    # The next run gets another name, and the first one can be opened.
    wait_for_command(page, "book-gru-2")
    assert card.get_by_role("link", name="runs/book-gru").get_attribute("href") == "#/run?id=runs%2Fbook-gru"


def test_a_training_survives_its_server_and_another_one_shows_it(tab, studio, book, chromium, tmp_path):
    """The first server is killed, the second one ends by Ctrl-C."""
    folder = tmp_path / "runs" / "book-gru"
    page = tab.open("new", f"?data={book}{TINY}&budget=10m")
    wait_for_command(page, "--out")
    page.get_by_role("button", name="Start the training").click()
    get_card(page, "runs/book-gru", "running")
    owner = find_owner(folder)
    page.goto("about:blank")
    studio.process.kill()
    studio.process.wait()
    with StudioServer(tmp_path / "runs") as later:
        other = StudioTab(chromium, later.address)
        other.tab.set_default_timeout(TIMEOUT)
        get_card(other.open("new"), "runs/book-gru", "running")
        other.check()
        other.close()
        metrics = folder / "metrics.jsonl"
        wait_until(metrics.exists, 60, "training begins")
        size = metrics.stat().st_size
        wait_until(lambda: metrics.stat().st_size > size, 60, "training goes on")
    assert owner is not None
    assert find_owner(folder) == owner
    os.kill(owner.pid, signal.SIGTERM)
    wait_until(lambda: find_owner(folder) is None)


def test_problems_of_the_data_are_shown_with_file_and_line_and_nothing_starts(tab, tmp_path):
    data = tmp_path / "reviews.csv"
    data.write_text("text,label\ngood film,yes\n,no\nbad film,no\n" + "fine film,yes\nold film,no\n" * 20)
    page = tab.open("new", f"?data={data}&task=classify")
    wait_for_command(page, "--out")
    page.get_by_role("button", name="Start the training").click()
    report = page.locator(".new-report.is-bad")
    report.wait_for()
    text = report.inner_text()
    assert "1 problem in the data" in text
    assert f"{data}, line 3" in text
    assert "--data.on-empty drop" in text
    assert list((tmp_path / "runs").iterdir()) == []
    # The fix that is suggested: set it, and the check succeeds.
    page.get_by_label("Search the settings").fill("empty")
    page.get_by_label("On empty").select_option("drop")
    wait_for_command(page, "--data.on-empty drop")
    page.get_by_role("button", name="Check the data").click()
    page.locator(".new-report.is-good").wait_for()


@pytest.mark.skipif(torch.cuda.is_available(), reason="the training would not fail")
def test_a_training_that_fails_shows_why(tab, book):
    page = tab.open("new", f"?data={book}{TINY.replace('cpu', 'cuda')}")
    wait_for_command(page, "--out")
    page.get_by_role("button", name="Start the training").click()
    card = get_card(page, "runs/book-gru", "failed")
    assert "PyTorch finds no CUDA device here." in card.inner_text()
    page.get_by_role("button", name="Dismiss runs/book-gru").click()
    card.wait_for(state="detached")


def test_the_command_follows_the_form_and_parses_to_what_is_filled_in(tab, tmp_path):
    page = tab.open("new")
    assert page.get_by_role("button", name="Start the training").is_disabled()
    page.get_by_role("button", name="Built-in data builtin:docs").click()
    page.get_by_label("Model", exact=True).select_option("transformer")
    page.get_by_label("Budget").fill("3-epochs")
    page.get_by_label("Name", exact=True).fill("my run")
    page.get_by_label("Search the settings").fill("heads")
    page.get_by_label("Heads").fill("4")
    page.get_by_label("Search the settings").fill("lower case")
    page.get_by_label("Lowercase").check()
    text = wait_for_command(page, "--text.lowercase")
    words = shlex.split(text)
    parsed = parse(Train, words[2:], prog="seqwise train", example="")
    assert (words[:2], parsed.data, parsed.out) == (["seqwise", "train"], "builtin:docs", tmp_path / "runs" / "my run")
    settings = parsed.settings.model_dump(exclude_defaults=True)
    assert settings == {
        "model": "transformer", "budget": "3-epochs", "transformer": {"heads": 4}, "text": {"lowercase": True}
    }  # fmt: skip
    # A reload keeps what is filled in, and settings of another model are neither shown nor in the command.
    page.reload()
    assert wait_for_command(page, "--text.lowercase") == text
    page.get_by_label("Model", exact=True).select_option("lstm")
    page.wait_for_function("() => !document.querySelector('.new-command').textContent.includes('heads')")
    assert page.locator(".new-section[data-section=transformer]").is_hidden()
    assert page.locator(".new-section[data-section=classify]").is_hidden()


def test_a_wrong_value_is_explained_beside_its_field(tab):
    page = tab.open("new", "?data=builtin:docs&network.width=0&budget=5")
    field = page.locator(".new-field[data-name='network.width']")
    field.locator(".new-problem:not(:empty)").wait_for()
    assert "greater than or equal to 1" in field.inner_text()
    assert "5s or 5-tokens" in page.locator(".new-field[data-name=budget]").inner_text()
    assert page.get_by_role("button", name="Start the training").is_disabled()
    page.get_by_label("Width", exact=True).fill("8")
    page.get_by_label("Budget").fill("5s")
    page.wait_for_selector("button.primary:enabled")


def test_a_comparison_has_its_own_fields(tab):
    page = tab.open("new", "?data=builtin:docs")
    page.get_by_role("button", name="Compare models").click()
    page.get_by_role("heading", name="New comparison").wait_for()
    for family in ("rnn", "attentive-rnn", "transformer"):
        page.get_by_label(family, exact=True).uncheck()
    page.get_by_label("Seeds").fill("2")
    text = wait_for_command(page, "--seeds 2")
    assert re.fullmatch(r"seqwise compare builtin:docs --models gru,lstm --seeds 2 --out \S+/docs-compare", text)


def test_paths_are_completed_below_the_working_folder_only(studio, tab):
    page = tab.open("new")
    listed = page.evaluate("fetch('/api/paths?prefix=').then((answer) => answer.json())")
    assert all(not path.startswith((".", "/")) for path in listed)
    for prefix in ("../", "/etc/", "..", "a/../../", "%00"):
        found = page.evaluate(f"fetch('/api/paths?prefix={prefix}').then((answer) => answer.json())")
        assert found == []
