import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from instep.reports import page
from instep.reports.record import Owner, Record
from tests.reports.jobs import EVIL, evil, long, small


class Tree(HTMLParser):
    """Checks that elements nest, and keeps what can reach out of the page."""

    VOID = frozenset({"meta", "path", "rect", "circle"})
    LOOSE = frozenset({"th"})

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.out, self.scripts = [], [], [], []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.ids += [given["id"]] if "id" in given else []
        self.out += [given[name] for name in ("src", "href", "action", "data") if name in given]
        assert not [name for name in given if name.startswith("on")], attrs
        if tag == "script":
            self.scripts.append(given.get("type"))
        if tag not in self.VOID | self.LOOSE:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        if tag in self.LOOSE:
            return
        assert self.open.pop() == tag


def tree(record):
    found = Tree()
    found.feed(page.render(record))
    found.close()
    return found


def data(record):
    text = page.render(record)
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])


EMPTY = Record(title="nothing.py")


@pytest.mark.parametrize(
    "record", [small(), long(), evil(), EMPTY], ids=["small", "long", "evil", "none"]
)
def test_the_page_is_whole_and_reaches_nowhere(record):
    found = tree(record)
    assert not found.open
    assert len(found.ids) == len(set(found.ids))
    assert all(link.startswith("#") for link in found.out)
    assert {link[1:] for link in found.out} <= set(found.ids)
    assert found.scripts == ["application/json", None]
    text = page.render(record)
    assert "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'" in text
    assert not re.search(r"https?://|url\(|@import|fetch\(|XMLHttp|innerHTML", text)


def test_nothing_of_the_job_reaches_the_page_as_markup():
    text = page.render(evil())
    assert EVIL not in text
    assert "<img" not in text
    assert text.count("<script") == 2
    assert "\x1b" not in text
    text.encode()
    assert data(evil())["timeline"]["events"][1]["note"] == EVIL


def test_the_head_says_how_it_went():
    text = page.render(small())
    assert "<title>train.py · instep</title>" in text
    assert "1 error</p>" in text
    assert "<h1>train.py --epochs 1</h1>" in text
    assert "No problems found" in page.render(long())
    failed = page.render(small(ending="failed", error="ValueError: <b>", rank=1, ranks=4))
    assert "ValueError: &lt;b&gt;" in failed
    assert "rank 1 of 4" in failed
    assert "still running when this was written" in page.render(small(ending="running"))


def test_what_is_not_known_of_other_ranks_is_said_wherever_it_counts():
    text = page.render(replace(long(), ranks=4, unheard=(1, 3)))
    assert ">No problems found so far</p>" in text.replace("\n", "")
    assert "ranks 1, 3 not heard to the end · rank 0 of 4" in text
    said = "This page was written before ranks 1, 3 had come to the end: what is found there later"
    assert f"closed as it should. {said}" in text
    assert f"<li>{said}" in text
    assert "Nothing that is known of" not in text
    assert "1 error</p>" in page.render(replace(small(), unheard=(1,)))


def test_windows_of_several_sizes():
    record = small()
    events, moments = record.events, [(0.1 * at, number) for at, number in enumerate(
        [0, 2, 3, 0, 0, 2, 3, 0, 0, 2, 3]
    )]  # fmt: skip
    text = page.render(replace(record, events=events, first=tuple(moments), latest=()))
    tiles = dict(re.findall(r"<div><dt>(.*?)</dt><dd>(.*?)</dd></div>", text))
    assert tiles["backwards in a window"] == "1 to 2"
    assert "<td>2 (1 of others)</td>" in text


def test_the_summary_counts():
    text = page.render(small())
    tiles = dict(re.findall(r"<div><dt>(.*?)</dt><dd>(.*?)</dd></div>", text))
    assert tiles["updates"] == "1"
    assert tiles["windows"] == "2"
    assert tiles["backwards in a window"] == "2"
    assert tiles["skipped steps"] == "1"
    assert tiles["watched"] == "2 s"
    assert tiles["torch"] == "2.13.0"
    assert "Losses on a device were not read." in text


def test_a_job_without_optimizers():
    text = page.render(EMPTY)
    assert "No update was seen" in text
    assert "<canvas" not in text
    assert "Nothing was measured" in text
    calm = page.render(Record(title="", optimizers=(Owner("o", updates=3),)))
    assert "Every window that was seen closed as it should." in calm


def test_the_page_of_a_long_job_is_bounded():
    assert len(page.render(long(20_000))) < 3_000_000


def test_the_page_is_written(tmp_path):
    page.write(small(), tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == page.render(small())
