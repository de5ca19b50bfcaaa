import pytest

from instep.rules.comments import first_line, heading
from tests.rules.mends import Text

TEXT = """\
x = 1

    # elsewhere
# of a
# and why
a()
b()
# of c
c()

# of d
d()
if x:
    # of e
    e()
# of f
f()
# of g
"""


def test_the_comment_lines_above_a_statement():
    shown = Text(TEXT.replace("    # elsewhere\n", ""))
    lines = {code: heading(shown.source, shown.statement(f"{code}()")) for code in "abcdef"}
    assert lines == {"a": 3, "b": 6, "c": 7, "d": 10, "e": 13, "f": 15}


def test_a_comment_above_several_belongs_to_all_of_them():
    shown = Text(TEXT.replace("    # elsewhere\n", ""))
    lines = {code: first_line(shown.source, shown.statement(f"{code}()")) for code in "abcdef"}
    assert lines == {"a": 5, "b": 6, "c": 7, "d": 11, "e": 13, "f": 15}


def test_a_comment_of_another_indent_is_not_above():
    text = "if x:\n    a()\n    # of a\nb()\n"
    shown = Text(text)
    assert heading(shown.source, shown.statement("b()")) == 4


@pytest.mark.parametrize("mark", ["# %% cell", "#!/usr/bin/env python", "# -*- coding: utf-8 -*-"])
def test_marks_are_no_headings(mark):
    shown = Text(f"{mark}\n# why\na()\n")
    assert heading(shown.source, shown.statement("a()")) == 2
