from html.parser import HTMLParser

from hypothesis import given

from instep.reports.prose import html_of, inline, remedy
from instep.rules.registry import rulebook
from tests.reports.kit import texts

KNOWN = {"p", "pre", "code", "strong", "ul", "li"}


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.met = []

    def handle_starttag(self, tag, attrs):
        assert not attrs
        self.met.append(tag)


@given(texts)
def test_nothing_but_known_tags_comes_out(text):
    tags = Tags()
    tags.feed(html_of(text) + inline(text))
    assert set(tags.met) <= KNOWN


def test_blocks():
    text = "One\ntwo `a < b`.\n\n    x = 1\n\n    y\n\n- first\n  goes on\n- **second**"
    assert html_of(text).splitlines() == [
        "<p>One two <code>a &lt; b</code>.</p>",
        "<pre><code>x = 1</code></pre>",
        "<pre><code>y</code></pre>",
        "<ul><li>first goes on</li><li><strong>second</strong></li></ul>",
    ]


def test_every_rule_says_what_to_do():
    for code, rule in rulebook().items():
        fix, why = remedy(rule.__doc__)
        assert fix, code
        assert why, code
        assert "**Fix.**" not in fix + why, code
        tags = Tags()
        tags.feed(html_of(fix))
        assert set(tags.met) <= KNOWN


def test_a_page_without_a_fix():
    assert remedy("title\n\nwords") == ("", "words")
    assert remedy("") == ("", "")
