import ast

from instep.rules.finding import Finding, Severity
from instep.rules.silencing import first_lines, hits, read_comments
from instep.trace import Place

FOUND = Finding("INS101", "missing-zero-grad", Severity.ERROR, Place("a.py", 2), "m")


def test_a_comment_silences_by_code_by_name_or_everything():
    for said in ("noqa: INS101", "instep: ignore[missing-zero-grad]", "instep: ignore", "noqa"):
        assert hits(read_comments(f"x = 1\ny = 2  # {said}"), FOUND, {2}), said
    for said in ("noqa: INS102", "instep: ignore[zero-fill]", "noqa in words: INS102 no"):
        comments = read_comments(f"x = 1  # {said}\ny = 2")
        assert not hits(comments, FOUND, {2}), said


def test_the_first_line_of_a_statement_counts_for_its_other_lines():
    text = "call(\n    1,\n)\nfor x in (\n    y\n):\n    pass\n"
    assert first_lines(ast.parse(text)) == {2: 1, 3: 1, 5: 4, 6: 4}
