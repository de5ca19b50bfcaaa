import ast

import pytest

from instep.rules.layout import Layout, Marks, Spot
from instep.rules.source import Source
from tests.check.programs import SOURCES

TEXT = '''\
x = """one
  two"""  # é
y = f(  # ü
    1,
)
if x: \\
    z = 1
# last'''

ODD = [
    TEXT,
    "x = 1; y = (\n  2)  # b\nz = 3",
    'x = """\n  a\n"""; y = 1  # c\nz = 2\n',
    '# a\n\n@(\n  f)  # b\nclass A:\n  # c\n  x = f"""{\n1}\n"""\n\n# d\nif x:\n  pass\n# e\n',
    "def f(): pass\n  # odd\n\\\nx = 1  # é\n\x0c\ny = 'ü'  # ü",
    "",
]


def test_what_tokens_tell():
    marks = Layout(TEXT).marks(1)
    assert marks.quoted == {2}
    assert marks.continued == {2, 4, 5, 7}
    assert marks.comments == {2: 10, 3: 8, 8: 0}


def test_formatted_strings_are_strings_too():
    marks = Layout('x = f"""{a}\n  b{c}\nd"""\n').marks(1)
    assert marks.quoted == {2, 3}


def test_a_statement_is_cut_up_by_itself():
    layout = Layout(TEXT, [1, 3, 6])
    assert layout.marks(2) == Marks({2: 10}, frozenset({2}), frozenset({2}))
    assert layout.marks(4) == Marks({3: 8}, frozenset({4, 5}), frozenset())
    assert layout.marks(99) == Marks({8: 0}, frozenset({7}), frozenset())
    assert [layout.comment(line) for line in (2, 3, 4)] == [10, 8, None]


def test_what_cannot_be_cut_up_spoils_no_other_statement():
    layout = Layout("x = 1  # a\ny = (\n# c\n", [1, 2])
    assert layout.comment(1) == 7
    assert layout.comment(3) is None


@pytest.mark.parametrize("text", [*(text.removeprefix("\ufeff") for text in SOURCES[::4]), *ODD])
def test_statements_by_themselves_have_the_marks_of_the_whole(text):
    whole = Layout(text)
    cut = Source(text, ast.parse(text), {}).layout
    for line in range(1, len(whole.lines) + 1):
        expected, found = whole.marks(line), cut.marks(line)
        assert found.comments.get(line) == expected.comments.get(line)
        assert (line in found.continued) == (line in expected.continued)
        assert (line in found.quoted) == (line in expected.quoted)


def test_columns_count_bytes():
    layout = Layout("é = 'ü'  # ß\n")
    assert layout.comment(1) == len("é = 'ü'  ".encode())
    assert layout.between(Spot(1, 5), Spot(1, 9)) == "'ü'"


def test_only_newlines_end_lines():
    layout = Layout("a = 1\x0c\nb = '\x85'\nc = 3\n")
    assert [layout.line(n) for n in (1, 2, 3, 4, 5)] == ["a = 1\x0c", "b = '\x85'", "c = 3", "", ""]


def test_spans_over_lines():
    assert Layout(TEXT).between(Spot(3, 4), Spot(5, 1)) == "f(  # ü\n    1,\n)"


def test_lines_and_comments():
    layout = Layout("if x:\n\t # a\n\ty()  # b\n\n")
    assert layout.is_comment(2)
    assert not layout.is_comment(3)
    assert layout.indent(2) == "\t "
    assert layout.is_blank(4)
    assert layout.is_blank(99)


def test_what_cannot_be_cut_into_tokens_has_no_marks():
    assert Layout("x = (\n# c\n").marks(1).comments == {}


def test_the_end_of_a_text_without_a_line_end():
    layout = Layout("a\nbc")
    assert layout.after(1) == Spot(2, 0)
    assert layout.after(2) == layout.end == Spot(2, 2)
    assert layout.insertion(layout.end, "d") == "\nd"
    assert layout.insertion(Spot(2, 0), "d") == "d\n"
    ended = Layout("a\n")
    assert ended.insertion(ended.after(1), "d") == "d\n"
