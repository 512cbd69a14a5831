"""A page that lost its connection receives what it missed, and nothing twice."""

from __future__ import annotations

import shutil

from run_folders import make_rows, write_rows, write_run

from seqwise.studio.catalogue import Catalogue
from seqwise.studio.feed import Feed
from seqwise.studio.watcher import choose_pause


def make_feed(tmp_path) -> Feed:
    for name in ("a", "b", "c"):
        write_run(tmp_path / "runs" / name)
    feed = Feed(Catalogue([tmp_path / "runs"]))
    assert feed.poll()
    return feed


def list_ids(content) -> list[str]:
    return sorted(row["id"] for row in content["rows"])


def test_the_first_event_has_all_runs(tmp_path):
    event, content = make_feed(tmp_path).collect("")
    assert content["is_complete"]
    assert list_ids(content) == ["runs/a", "runs/b", "runs/c"]
    assert event.endswith("-1")


def test_a_page_that_returns_receives_what_it_missed(tmp_path):
    feed = make_feed(tmp_path)
    last, _ = feed.collect("")
    assert feed.collect(last) == (last, {"rows": [], "is_complete": False})
    for name in ("a", "c"):  # two changes, while the page was not connected
        write_rows(tmp_path / "runs" / name / "metrics.jsonl", make_rows([1.0]), "a")
        feed.poll()
    event, content = feed.collect(last)
    assert not content["is_complete"]
    assert list_ids(content) == ["runs/a", "runs/c"]
    assert feed.collect(event)[1]["rows"] == []


def test_a_removed_run_is_reported_once_and_unknown_to_new_pages(tmp_path):
    feed = make_feed(tmp_path)
    last, _ = feed.collect("")
    shutil.rmtree(tmp_path / "runs" / "b")
    assert feed.poll()
    assert feed.collect(last)[1]["rows"] == [{"id": "runs/b", "is_gone": True}]
    assert list_ids(feed.collect("")[1]) == ["runs/a", "runs/c"]


def test_an_event_of_another_server_or_nonsense_gives_everything(tmp_path):
    feed = make_feed(tmp_path)
    for last in ("0123abcd-1", "x", f"{feed.server}-", f"{feed.server}-x", f"{feed.server}-" + "9" * 5000):
        _, content = feed.collect(last)
        assert content["is_complete"]
        assert len(content["rows"]) == 3


def test_a_change_between_the_number_and_the_rows_is_sent_again_rather_than_lost(tmp_path):
    feed = make_feed(tmp_path)
    last, _ = feed.collect("")
    describe, write = feed.describe, [lambda: write_rows(tmp_path / "runs/b/metrics.jsonl", make_rows([1.0]), "a")]

    def change_meanwhile(identifier):
        if write:
            write.pop()()
            feed.poll()
        return describe(identifier)

    feed.describe = change_meanwhile
    write_rows(tmp_path / "runs/a/metrics.jsonl", make_rows([1.0]), "a")
    feed.poll()
    event, content = feed.collect(last)
    assert list_ids(content) == ["runs/a"]
    assert list_ids(feed.collect(event)[1]) == ["runs/b"]


def test_looking_at_many_folders_needs_no_more_than_half_a_percent_of_a_core():
    assert choose_pause(0.001) == 2.0
    assert choose_pause(0.016) == 3.2
    assert choose_pause(1.0) == 10.0
