"""`instep watch` runs the user's own program, and nothing else: no network, no text that acts."""

import html
import json
import re
from pathlib import Path

import pytest

from tests.reports import browser as real
from tests.reports.kit import raw_controls
from tests.security.guard import Guard

HURT = "<img src=x onerror=hurt=1>"
OUT = "</script><script>window.hurt=1</script>"
FILE = "<script>hurt=1<script>\x1b[2J\n::error::owned.py"
JOB = f"""\
import torch

class {{cls}}(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_parameter({HURT!r}, torch.nn.Parameter(torch.ones(3)))
        self.register_parameter("idle \\x1b[2J\\n::error::owned", torch.nn.Parameter(torch.ones(3)))

    def forward(self, x):
        return (getattr(self, {HURT!r}) * x).mean()

model = {{cls}}()
{{cls}}.__name__ = {OUT!r}
optimizer = type({OUT!r}, (torch.optim.SGD,), {{{{}}}})(model.parameters(), lr=0.1)
for _ in range(5):
    loss = model(torch.ones(3))  # {OUT}{HURT}
    loss.backward()
    optimizer.step()
raise ValueError({OUT + HURT!r} + "\\x1b[2J")
""".format(cls="Net")
"""A wrong loop in which every name that somebody may choose tries to become a part of the page."""


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """Reports of a job whose names mean harm, and what was done to the system meanwhile."""
    folder = tmp_path_factory.mktemp("watched")
    tree = folder / "tree"
    tree.mkdir()
    (tree / FILE).write_text(JOB)
    (folder / "aside").mkdir()
    guard = Guard(tree, folder / "aside")
    made = {}
    for name in ("sarif", "github", "text"):
        words = (f"--output-format={name}", f"--output-file=report.{name}")
        drawn = ("--report=page.html", "--chrome-trace=trace.json") if name == "text" else ()
        done = guard.instep("watch", *words, *drawn, FILE, OUT)
        assert done.returncode == 1
        made[name] = (tree / f"report.{name}").read_text()
    return tree, made, done, guard


def test_the_page_has_only_scripts_of_ours(watched):
    text = (watched[0] / "page.html").read_text()
    assert text.count("<script") == text.count("</script>") == 2
    assert "<img" not in text
    assert not raw_controls(text) - {"\n", "\t"}
    for word in (HURT, OUT):
        assert word not in text
        assert html.escape(word, quote=False) in text or html.escape(word) in text
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])
    assert data["timeline"]


def test_reports_for_programs(watched):
    _, made, _, _ = watched
    sarif = json.loads(made["sarif"])
    uris = re.findall(r'"uri": ?"([^"]*)"', json.dumps(sarif["runs"][0]["results"]))
    assert uris
    assert not any(set(uri) & set("<>\n\x1b ") for uri in uris)
    lines = made["github"].split("\n")[:-1]
    assert lines
    assert all(re.match("::(error|warning|notice) file=", line) for line in lines)
    json.loads((watched[0] / "trace.json").read_text())


def test_what_people_read(watched):
    _, made, done, _ = watched
    assert not raw_controls(made["text"]) - {"\n"}
    assert not any(line.startswith("::") for line in made["text"].split("\n"))
    # Python shows the error of the user's program by itself, as it would without us.
    ours = [line for line in done.stderr.split("\n") if "INS" in line or line.startswith("instep")]
    assert ours
    assert not any(raw_controls(line) for line in ours)
    assert not any(line.startswith("::") for line in ours)


def test_no_network_and_no_other_process(watched):
    _, _, _, guard = watched
    ran = {said for event, said in guard.done() if event == "exec"}
    ran -= {"'<_remote_module_non_scriptable>.py'"}  # torch makes it, and it is in no file
    assert ran == {ascii(str(guard.tree / FILE))}
    calls = {event for event, _ in guard.done()}
    assert not {event for event in calls if event.startswith(("socket.", "urllib.", "http."))}
    inside = {path for path in guard.written() if not path.startswith("..")}
    assert {re.sub(r"^\.(.*)\.\w+$", r"\1", path) for path in inside} == {
        "report.text", "page.html", "trace.json",
    }  # fmt: skip


@pytest.mark.browser
@pytest.mark.skipif(real.DRIVER is None or real.CHROMIUM is None, reason=real.WHY_NOT)
def test_no_script_of_the_job_runs_in_a_browser(watched, tmp_path):
    chromium = real.Browser()
    try:
        page = tmp_path / "page.html"
        page.write_bytes((watched[0] / "page.html").read_bytes())
        chromium.open(page)
        chromium.run("for (const each of document.querySelectorAll('details')) each.open = true")
        chromium.settle()
        assert chromium.run("return window.hurt") is None
        assert chromium.run("return document.scripts.length") == 2
        assert chromium.run("return document.images.length") == 0
        assert OUT in chromium.run("return document.body.textContent")  # it is shown, as text
        assert chromium.console() == []
        assert chromium.requests() == [page.as_uri()]
        Path(page).write_text(f"<!doctype html><p>{OUT}")
        chromium.open(page)
        assert chromium.run("return window.hurt") == 1  # the test has teeth
    finally:
        chromium.close()
