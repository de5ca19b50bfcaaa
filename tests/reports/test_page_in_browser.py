"""The page as people meet it: drawn, zoomed, read in the dark, on a phone, without scripts."""

from __future__ import annotations

import base64
import struct
import zlib

import pytest

from instep.reports import page
from tests.reports import browser as real
from tests.reports.jobs import evil, long, small

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(real.DRIVER is None or real.CHROMIUM is None, reason=real.WHY_NOT),
]


@pytest.fixture(scope="module")
def chromium():
    made = real.Browser()
    yield made
    made.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    made = {}
    for make in (small, long, evil):
        made[make.__name__] = folder / f"{make.__name__}.html"
        page.write(make(), made[make.__name__])
    return made


def pixels(browser):
    """The colours of the timeline's canvas, by how many pixels have each."""
    return browser.run(
        """const canvas = document.getElementById("lanes");
        const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
        const found = {};
        for (let i = 0; i < data.length; i += 4) {
          const key = [data[i], data[i + 1], data[i + 2], data[i + 3]].join();
          found[key] = (found[key] ?? 0) + 1;
        }
        return found"""
    )


def view(browser):
    return browser.run(
        "const d = document.getElementById('lanes').dataset; return [+d.from, +d.to]"
    )


def colour(browser, name):
    """A colour of the page as the canvas has it."""
    said = browser.run(
        "return getComputedStyle(document.documentElement).getPropertyValue(arguments[0]).trim()",
        f"--{name}",
    )
    return ",".join(str(int(said[at : at + 2], 16)) for at in (1, 3, 5)) + ",255"


@pytest.mark.parametrize("name", ["small", "long", "evil"])
@pytest.mark.parametrize("dark", [False, True])
def test_no_complaints_and_no_requests(chromium, pages, name, dark):
    chromium.open(pages[name], dark=dark)
    assert chromium.console() == []
    assert chromium.requests() == [pages[name].as_uri()]


def test_a_complaint_would_be_noticed(chromium, tmp_path):
    bad = tmp_path / "bad.html"
    bad.write_text(
        page.render(small()).replace("</body>", "<img src='http://127.0.0.1:9/x'></body>")
    )
    chromium.open(bad)
    assert any("Content Security Policy" in said for said in chromium.console())


@pytest.mark.parametrize("dark", [False, True])
def test_the_timeline_shows_every_kind_in_its_colour(chromium, pages, dark):
    chromium.open(pages["small"], dark=dark)
    drawn = pixels(chromium)
    for kind in ("backward", "clear", "clip", "unscale", "step", "skipped", "epoch"):
        assert drawn.get(colour(chromium, kind), 0) > 10, kind


def test_the_colours_follow_the_reader(chromium, pages):
    chromium.open(pages["small"])
    light = colour(chromium, "step")
    features = [{"name": "prefers-color-scheme", "value": "dark"}]
    chromium.devtools("Emulation.setEmulatedMedia", features=features)
    chromium.settle()
    dark = colour(chromium, "step")
    assert dark != light
    drawn = pixels(chromium)
    assert drawn.get(dark, 0) > 20
    assert light not in drawn


def test_the_wheel_zooms_where_it_points(chromium, pages):
    chromium.open(pages["small"])
    left, top, width, height = chromium.box("#lanes")
    before = view(chromium)
    chromium.mouse("mouseWheel", left + width / 4, top + height / 2, deltaX=0, deltaY=-240)
    after = view(chromium)
    assert after[1] - after[0] < 0.7 * (before[1] - before[0])
    assert before[0] < after[0]
    assert after[0] - before[0] < before[1] - after[1]  # a quarter from the left: there it stays
    chromium.mouse("mouseWheel", left + width / 4, top + height / 2, deltaX=0, deltaY=2400)
    chromium.mouse("mouseWheel", left + width / 4, top + height / 2, deltaX=0, deltaY=2400)
    assert view(chromium) == pytest.approx(before)


def test_dragging_moves_and_the_overview_jumps(chromium, pages):
    chromium.open(pages["long"])
    left, top, width, height = chromium.box("#lanes")
    before = view(chromium)
    middle = top + height * 0.7
    held = {"button": "left", "buttons": 1, "clickCount": 1}
    chromium.mouse("mousePressed", left + width * 0.8, middle, **held)
    chromium.mouse("mouseMoved", left + width * 0.3, middle, **held)
    chromium.mouse("mouseReleased", left + width * 0.3, middle, **held)
    moved = view(chromium)
    assert moved[0] > before[0]
    assert moved[1] - moved[0] == pytest.approx(before[1] - before[0])
    chromium.mouse("mousePressed", left + width * 0.9, top + 16, **held)
    chromium.mouse("mouseReleased", left + width * 0.9, top + 16, **held)
    assert view(chromium)[0] > moved[1]


def test_the_keyboard_does_it_all(chromium, pages):
    chromium.open(pages["long"])
    chromium.run("document.getElementById('lanes').focus()")
    chromium.press("0")
    whole = view(chromium)
    chromium.press("+", "+")
    near = view(chromium)
    assert near[1] - near[0] == pytest.approx(0.49 * (whole[1] - whole[0]))
    chromium.press("ArrowRight")
    assert view(chromium)[0] > near[0]
    chromium.press("End")
    assert view(chromium)[1] == pytest.approx(whole[1])
    chromium.press("Home")
    assert view(chromium)[0] == pytest.approx(whole[0])
    chromium.press("]", "]", "]")
    tip = chromium.run("return document.getElementById('tip').innerText")
    assert "step" in tip
    assert "train.py:15" in tip
    assert "optimizer.step()" in tip
    assert "ms" in tip
    assert "step" in chromium.run("return document.getElementById('said').textContent")
    chromium.press("Escape")
    assert chromium.run("return document.getElementById('tip').hidden")


def test_a_pointer_shows_the_line_and_the_time(chromium, pages):
    chromium.open(pages["small"])
    left, top, width, _ = chromium.box("#lanes")
    low, high = view(chromium)
    at = left + 14 + (0.5 - low) / (high - low) * (width - 28)  # the first step
    chromium.mouse("mouseMoved", at, top + 34 + 26 + 50)
    tip = chromium.run("return document.getElementById('tip').innerText")
    assert tip.splitlines() == ["step", "train.py:15 · 500 ms", "optimizer.step()"]


def test_kinds_can_be_hidden(chromium, pages):
    chromium.open(pages["small"])
    blue = colour(chromium, "backward")
    chromium.run("document.querySelector('button[data-kind=backward]').click()")
    chromium.settle()
    assert blue not in pixels(chromium)
    chromium.run("document.querySelector('button[data-kind=backward]').click()")
    chromium.settle()
    assert pixels(chromium).get(blue, 0) > 20


def test_charts_have_a_cursor(chromium, pages):
    chromium.open(pages["small"])
    left, top, width, height = chromium.box(".plot")
    chromium.mouse("mouseMoved", left + width - 12, top + height / 2)
    assert chromium.run("return document.querySelector('.plot .tip').innerText").split("\n") == [
        "update 2",
        "loss: 1.5",
    ]
    chromium.run("document.querySelector('.plot').focus()")
    chromium.press("ArrowLeft")
    assert "loss: 2" in chromium.run("return document.querySelector('.plot .tip').innerText")


def test_nothing_of_the_job_runs(chromium, pages):
    chromium.open(pages["evil"])
    chromium.run("document.getElementById('lanes').focus()")
    chromium.press("]", "]")
    assert chromium.run("return window.hurt") is None
    assert chromium.run("return document.images.length") == 0
    assert chromium.run("return document.scripts.length") == 2
    assert "</script>" in chromium.run("return document.querySelector('h1').textContent")


@pytest.mark.parametrize("name", ["small", "long", "evil"])
def test_a_phone_does_not_scroll_sideways(chromium, pages, name):
    chromium.open(pages[name], width=360, height=740, touch=True)
    wide = "return document.documentElement.scrollWidth"
    assert chromium.run(wide) <= 360


def test_without_scripts_the_findings_are_there(chromium, pages):
    chromium.open(pages["small"], scripts=False)
    text = chromium.devtools("Runtime.evaluate", expression="document.body.innerText")
    said = text["result"]["value"]
    for words in ("unscaled-accumulation", "loss.backward()", "What to do", "scripts are off"):
        assert words.casefold() in said.casefold()
    shown = "getComputedStyle(document.querySelector('.drawn')).display"
    value = chromium.devtools("Runtime.evaluate", expression=shown)["result"]["value"]
    assert value == "none"
    chromium.devtools("Emulation.setScriptExecutionDisabled", value=False)


def test_words_can_be_read_on_their_ground(chromium, pages):
    """WCAG's ratio for small text is 4.5."""
    for dark in (False, True):
        chromium.open(pages["small"], dark=dark)
        tones = {
            name: _luminance(colour(chromium, name))
            for name in "ink soft brand error warning info clean paper card code".split()  # noqa: SIM905
        }
        grounds = {name: _luminance(colour(chromium, f"{name}-bg")) for name in ("error", "clean")}
        for ground in ("paper", "card", "code"):
            for word in ("ink", "soft", "brand"):
                assert _contrast(tones[word], tones[ground]) >= 4.5, (dark, word, ground)
        for mood, ground in grounds.items():
            assert _contrast(tones[mood], ground) >= 4.5, (dark, mood)


def _luminance(said):
    parts = [int(part) / 255 for part in said.split(",")[:3]]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one, other):
    high, low = max(one, other), min(one, other)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_pictures_are_as_dark_as_asked_for(chromium, pages, dark):
    chromium.open(pages["small"], dark=dark, width=640, height=400)
    shot = chromium.devtools("Page.captureScreenshot", format="png")
    red, green, blue = _corner(base64.b64decode(shot["data"]))
    assert (red + green + blue < 120) is dark


def _corner(png):
    """The first pixel of a picture: no filter changes that one."""
    assert png[25] in {2, 6}  # RGB, with or without alpha
    parts, at = b"", 8
    while at < len(png):
        (size,) = struct.unpack(">I", png[at : at + 4])
        if png[at + 4 : at + 8] == b"IDAT":
            parts += png[at + 8 : at + 8 + size]
        at += size + 12
    return zlib.decompressobj().decompress(parts, 4)[1:4]
