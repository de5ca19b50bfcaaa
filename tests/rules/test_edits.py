import ast

import pytest

from instep.check.rewriting import apply
from instep.rules import edits
from instep.rules.finding import Edit
from instep.rules.source import Source


def source_of(text):
    return Source(text, ast.parse(text), {})


def find(source, name):
    """The innermost statement that calls or assigns a name."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Name) and node.id == name:
            return source.statement(node)
    raise LookupError(name)


def changed(text, build):
    source = source_of(text)
    made = build(source)
    if made is None:
        return None
    new = apply(text, made)
    ast.parse(new)
    return new


def inserted(text, name, code="new()", after=False):
    return changed(text, lambda s: edits.insert(s, find(s, name), code, after=after))


def moved(text, names, to, after=False):
    return changed(
        text, lambda s: edits.move(s, [find(s, n) for n in names.split()], find(s, to), after=after)
    )


def test_insert_before_and_after():
    text = "for x in xs:\n\ta()  # é\n\tb()\n"
    assert inserted(text, "a") == "for x in xs:\n\tnew()\n\ta()  # é\n\tb()\n"
    assert inserted(text, "a", after=True) == "for x in xs:\n\ta()  # é\n\tnew()\n\tb()\n"


def test_insert_before_goes_above_the_comment_of_a_statement():
    text = "x = 1\n# what a does\n# and why\na()\n"
    assert inserted(text, "a") == "x = 1\nnew()\n# what a does\n# and why\na()\n"


@pytest.mark.parametrize("mark", ["# %% train", "#%%", "#\x1f\x1f cell 2", "#!/bin/python"])
def test_insert_stays_below_the_mark_of_a_cell(mark):
    assert inserted(f"{mark}\na()\n", "a") == f"{mark}\nnew()\na()\n"


def test_insert_at_the_end_of_a_text_without_a_line_end():
    assert inserted("if x:\n    a()", "a", after=True) == "if x:\n    a()\n    new()"
    assert inserted("if x:\n    a()\n", "a", after=True) == "if x:\n    a()\n    new()\n"


def test_insert_after_a_block_goes_behind_its_comments():
    text = "for x in xs:\n    a()\n\n    # done\n\n# then\nb()\n"
    assert inserted(text, "xs", after=True) == (
        "for x in xs:\n    a()\n\n    # done\nnew()\n\n# then\nb()\n"
    )


def test_insert_several_lines():
    assert inserted("if x:\n  a()\n", "a", "if y:\n  b()") == "if x:\n  if y:\n    b()\n  a()\n"


def test_insert_into_one_line():
    assert inserted("a(); b()  # c\n", "b") == "a(); new(); b()  # c\n"
    assert inserted("a(); b()  # c\n", "b", after=True) == "a(); b(); new()  # c\n"
    assert inserted("if x: a()\n", "a", after=True) == "if x: a(); new()\n"
    assert inserted("if x: a()\n", "a", "if y:\n  b()") is None


def test_insert_respects_continued_lines():
    text = "y = a(\n    1,\n)  # end\nz = '''\n  b\n'''\n"
    assert inserted(text, "y", after=True) == text.replace("# end\n", "# end\nnew()\n")
    assert inserted(text, "z", after=True) == text + "new()\n"
    assert inserted("if x: \\\n    a()\n", "a") == "if x: \\\n    new(); a()\n"


def test_nothing_is_put_before_an_elif():
    text = "if x:\n    a()\nelif y:\n    b()\n"
    assert inserted(text, "y") is None
    assert inserted(text, "x") == "new()\n" + text


def test_insert_before_a_decorated_function():
    text = "@d\ndef f():\n    a()\n"
    assert inserted(text, "d") == "new()\n" + text


def test_move_out_of_a_block():
    text = "for x in xs:\n    a()\n    b()  # é\nc()\n"
    assert moved(text, "b", "xs") == "b()  # é\nfor x in xs:\n    a()\nc()\n"
    assert moved(text, "b", "xs", after=True) == "for x in xs:\n    a()\nb()  # é\nc()\n"
    assert moved(text, "a b", "xs", after=True) is not None


def test_move_into_a_block():
    text = "for x in xs:\n\tif y:\n\t\ta()\n\t# of b\n\tb(\n\t\t1,\n\t)\n"
    assert moved(text, "b", "a", after=True) == (
        "for x in xs:\n\tif y:\n\t\ta()\n\t\t# of b\n\t\tb(\n\t\t\t1,\n\t\t)\n"
    )


def test_move_keeps_strings_as_they_are():
    text = "if x:\n    b('''\n    k\n    ''')\n    a()\nc()\n"
    assert moved(text, "b", "c") == "if x:\n    a()\nb('''\n    k\n    ''')\nc()\n"


def test_move_a_compound_statement():
    text = "for x in xs:\n    for p in ps:\n        b(p)\n\n    a()\n"
    assert moved(text, "ps", "a", after=True) == (
        "for x in xs:\n    a()\n    for p in ps:\n        b(p)\n"
    )


def test_move_within_one_line():
    assert moved("a(); b()\n", "a", "b", after=True) == "b(); a()\n"
    assert moved("if x: a(); b()\nc()\n", "b", "c") == "if x: a()\nb()\nc()\n"
    assert moved("if x: a()\nb()  # said\n", "b", "a", after=True) is None
    assert moved("if x: a()\nb()\n", "b", "a", after=True) == "if x: a(); b()\n"


def test_move_to_the_end_of_a_text():
    assert moved("a()\nb()", "a", "b", after=True) == "b()\na()"


def test_move_next_to_a_blank_line():
    # The blank line that would go with `b` is where it is put.
    assert moved("a()\n\nb()\n\nc()\n", "b", "a", after=True) is not None


def test_edits_that_meet():
    assert edits.are_apart([Edit(1, 0, 2, 0, ""), Edit(2, 0, 2, 0, "x")])
    assert not edits.are_apart([Edit(1, 0, 2, 0, ""), Edit(1, 3, 1, 4, "x")])
    assert edits.are_apart([Edit(1, 0, 1, 0, "a"), Edit(1, 0, 1, 0, "b")])
