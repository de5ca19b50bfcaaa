import ast
import io
import tokenize
from pathlib import Path

import pytest

from instep.rules.finding import Finding, Severity
from instep.rules.silencing import _comments, ends_of_statements, hits, read_comments
from instep.trace import Place

ROOT = Path(__file__).parents[2]
FOUND = Finding("INS101", "missing-zero-grad", Severity.ERROR, Place("a.py", 2), "m")


def test_a_comment_silences_by_code_by_name_or_everything():
    for said in ("noqa: INS101", "instep: ignore[missing-zero-grad]", "instep: ignore", "noqa"):
        assert hits(read_comments(f"x = 1\ny = 2  # {said}"), FOUND, {2}), said
    for said in ("noqa: INS102", "instep: ignore[zero-fill]", "noqa in words: INS102 no"):
        comments = read_comments(f"x = 1  # {said}\ny = 2")
        assert not hits(comments, FOUND, {2}), said


def test_the_first_and_the_last_line_of_a_statement_count_for_all_of_it():
    text = "call(\n    1,\n)\nfor x in (\n    y\n):\n    pass\n"
    call, head = (1, 3), (4, 6)
    ends = {1: call, 2: call, 3: call, 4: head, 5: head, 6: head}
    assert ends_of_statements(ast.parse(text)) == ends


def by_tokenize(text):
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [
        (token.start[0], len(token.line[: token.start[1]].encode()), token.string)
        for token in tokens
        if token.type == tokenize.COMMENT
    ]


@pytest.mark.parametrize(
    "text",
    [
        "x = 1  # a\n# b\n\n    # c\n",
        "x = '# no'  # a",
        'x = "# no \\" # no"  # a',
        "x = '''\n# no\n'' # no\n'''  # a",
        'x = """it\'s\n# no""" # a # b',
        "x = r'\\'# no'  # a",
        "x = ''  # a\ny = \"\"  # b\nz = b  # c",
        "x = 'é'  # a\n'é' # é b",
        "x = 'one \\\n# no'  # a",
        "x = f'{y} # no'  # a",
        "",
        "#",
        "x = 1  # a\r\n",
    ],
)
def test_comments_are_those_of_tokenize(text):
    assert [*_comments(text)] == by_tokenize(text)


def test_comments_of_whole_files_are_those_of_tokenize():
    files = [*(ROOT / "src").rglob("*.py"), *(ROOT / "tests" / "rules").glob("*.py")]
    assert len(files) > 200
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert [*_comments(text)] == by_tokenize(text), file
