import ast

from instep.check.rewriting import apply
from instep.rules.deletion import delete
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


def deleted(text, *names):
    return changed(text, lambda s: delete(s, *(find(s, name) for name in names)))


def test_delete_takes_its_comment_along():
    assert deleted("a()\nb()  # é\nc()\n", "b") == "a()\nc()\n"
    assert deleted("a()\n# of b\nb()\n\nc()\n", "b") == "a()\n\nc()\n"


def test_delete_leaves_the_comment_of_a_group():
    assert deleted("# update\na()\nb()\nc()\n", "a") == "# update\nb()\nc()\n"


def test_delete_leaves_no_double_blanks():
    assert deleted("a()\n\nb()\n\nc()\n", "b") == "a()\n\nc()\n"
    assert deleted("if x:\n    b()\n\n    c()\n", "b") == "if x:\n    c()\n"
    assert deleted("if x:\n    a()\n\n    b()\nc()\n", "b") == "if x:\n    a()\nc()\n"
    assert deleted("if x:\n    a()\n    b()\n\nc()\n", "b") == "if x:\n    a()\n\nc()\n"
    assert deleted("a()\n\nb()", "b") == "a()"
    assert deleted("a()\nb()", "b") == "a()"


def test_delete_several_lines():
    assert deleted("a()\nb(\n  '''\nx\n''')\nc()\n", "b") == "a()\nc()\n"


def test_delete_several_statements():
    assert deleted("a()\n\nb()\n\nc()\n\nd()\n", "b", "c") == "a()\n\nd()\n"
    assert deleted("a()\nb()\nc()\nd()\n", "b", "d") == "a()\nc()\n"


def test_delete_from_one_line():
    assert deleted("a(); b(); c()  # x\n", "b") == "a(); c()  # x\n"
    assert deleted("a(); b(); c()  # x\n", "c") == "a(); b()  # x\n"
    assert deleted("a(); b(); c()  # x\n", "a") == "b(); c()  # x\n"
    assert deleted("if x: a(); b()\n", "a") == "if x: b()\n"


def test_delete_the_only_statement_of_a_block():
    assert deleted("a()\nif i % 2 == 0:\n    b()\nc()\n", "b") == "a()\nc()\n"
    assert deleted("a()\nif i % 2 == 0: b()\nc()\n", "b") == "a()\nc()\n"
    assert deleted("c()\nfor p in m.parameters():\n    b(p)\n", "b") == "c()\n"
    # What is asked may do something, or the other branch is needed.
    assert deleted("if f():\n    b()  # x\n", "b") == "if f():\n    pass\n"
    assert deleted("if f(): b()\n", "b") == "if f(): pass\n"
    assert deleted("if x:\n    b()\nelse:\n    c()\n", "b") == "if x:\n    pass\nelse:\n    c()\n"
    assert deleted("if x:\n    c()\nelse:\n    b()\n", "b") == "if x:\n    c()\nelse:\n    pass\n"
    assert deleted("while x:\n    b()\n", "b") == "while x:\n    pass\n"
    text = "if x:\n    c()\nelif y:\n    b()\nd()\n"
    assert deleted(text, "b") == "if x:\n    c()\nd()\n"
    assert deleted("if x:\n    if y:\n        b()\nd()\n", "b") == "d()\n"


def test_delete_the_only_statement_of_all():
    assert deleted("b()", "b") == "pass"
