"""The pages that are generated say what the rules say."""

from pathlib import Path

import pytest

from docs import rule_pages
from instep.rules.registry import names, rulebook, watched


def test_the_files_are_current():
    assert rule_pages.stale() == [], "run `make docs`"


def test_every_rule_has_a_page_and_a_line_in_every_list():
    made = rule_pages.files()
    index, readme = made[Path("docs/rules/README.md")], made[Path("README.md")]
    for code, name in names().items():
        assert made[Path(f"docs/rules/{name}.md")].startswith(f"# {code} {name}\n")
        assert f"| {code} | [{name}](./{name}.md) |" in index
        assert f"| {code} | [{name}](docs/rules/{name}.md) |" in readme


def test_the_lists_say_who_sees_what():
    index = rule_pages.files()[Path("docs/rules/README.md")]
    rows = [line.split(" | ") for line in index.splitlines() if line.startswith("| INS")]
    seen = {row[0].removeprefix("| "): row[4] for row in rows}
    assert {code for code, who in seen.items() if who == "watch"} == watched()
    # A running job shows graphs that stay alive, by the name of INS605, and not that one is a loss.
    assert {code for code, who in seen.items() if who == "check"} == {"INS601"}
    others = {who for code, who in seen.items() if code not in watched() | {"INS601"}}
    assert others == {"check, watch"}


def test_every_rule_is_of_a_family():
    assert {code[:4] for code in rulebook()} == set(rule_pages.FAMILIES)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("INS101", "Severity: error or warning. Mended by `instep check --fix`: clear"),
        ("INS103", "Severity: warning or info. Mended by `instep check --fix --unsafe-fixes`: "),
        ("INS203", "Severity: warning or info. No automatic fix."),
        ("INS505", "Severity: error. Seen by `instep watch` alone"),
    ],
)
def test_a_page_says_how_bad_it_is_and_who_mends_it(code, says):
    page = rule_pages.page(code)
    assert page.splitlines()[2].startswith(says)
    assert f"# <- here  # instep: ignore[{names()[code]}]\n" in page


def test_writing_mends_what_is_stale_and_removes_what_is_gone(tmp_path):
    rule_pages.write(tmp_path)
    assert rule_pages.stale(tmp_path) == []
    gone, edited = tmp_path / "docs/rules/no-such-rule.md", tmp_path / "docs/rules/zero-fill.md"
    gone.write_text("A rule of old.")
    edited.write_text("# Something else")
    changed = [Path("docs/rules/no-such-rule.md"), Path("docs/rules/zero-fill.md")]
    assert rule_pages.stale(tmp_path) == changed
    assert rule_pages.write(tmp_path) == changed
    assert not gone.exists()
    assert rule_pages.stale(tmp_path) == []
