import ast
from pathlib import Path
from textwrap import dedent

import pytest

from instep.check.execute.scan import Scan
from instep.check.parsing import parse


def scan(source):
    return Scan(ast.parse(dedent(source)))


def test_a_statement_is_hot_if_it_calls_what_can_be_an_event():
    tree = ast.parse("loss.backward()\nprint(loss)\nx = p.grad")
    hot = Scan(tree).hot
    assert [hot(node) for node in tree.body] == [True, False, True]


def test_callers_of_hot_functions_are_hot():
    found = scan("""
        def update():
            loss.backward()
        def train():
            update()
        def show():
            print(train)
    """)
    assert {"update", "train"} <= found.hot_names
    assert "show" not in found.hot_names


def test_defining_a_function_causes_nothing():
    tree = ast.parse("if debug:\n    def f():\n        loss.backward()\n    g()")
    assert not Scan(tree).hot(tree.body[0])


def test_common_names_heat_nobody_else():
    assert "forward" not in scan("def forward(self):\n    x.backward()").hot_names


def test_a_class_is_hot_if_making_it_is():
    found = scan("class T:\n    def __init__(self):\n        loss.backward()")
    assert "T" in found.hot_names


def test_what_is_learned_spreads():
    tree = ast.parse("def f():\n    helper()\ndef g():\n    f()")
    found = Scan(tree)
    assert not found.hot(tree.body[1])
    assert not found.any_hot(tree.body)
    found.learn({"helper"})
    assert found.hot(tree.body[1])
    assert found.any_hot(tree.body)
    assert not found.any_hot([])


def test_uses_of_names():
    uses = scan("self.opt.step()\nnet(x).sum()\nmodel(y)").uses
    assert uses["opt"] == {"step"}
    assert uses["net"] == {"()", "sum"}
    assert uses["model"] == {"()"}


def test_loops_and_generators():
    found = scan("""
        def outer():
            def inner():
                for x in y: ...
        def gen():
            yield 1
        def plain(): ...
    """)
    assert {code.name for code in found.looping} == {"outer", "inner"}
    assert {code.name for code in found.generators} == {"gen"}


def test_methods_know_their_class():
    found = scan("class A:\n    def f(self):\n        def g(): ...")
    names = [(code.name, owner and owner.name) for code, owner in found.definitions]
    assert names == [("f", "A"), ("g", None)]


def test_imports_of_the_module_come_first():
    found = scan("def f():\n    import a\nimport b")
    assert [node.names[0].name for node in found.imports] == ["b", "a"]


@pytest.mark.parametrize(
    ("position", "name"),
    [
        ((1, 0), "<module>"),
        ((2, 4), "<module>"),  # the definition itself is around
        ((3, 8), "A.f"),
        ((5, 12), "A.f.<locals>.g"),
        ((6, 8), "A.f"),
        ((7, 23), "A.f.<locals>.<lambda>"),
        ((8, 0), "<module>"),
    ],
)
def test_the_function_at_a_position(position, name):
    source = """\
class A:
    def f(self):
        x = 1
        def g():
            return x
        g()
        return lambda: g()
f()
"""
    assert Scan(ast.parse(source)).function_at(*position) == name


@pytest.mark.parametrize(
    ("text", "off"),
    [
        ("config.hidden_dropout_prob = 0.0", True),
        ("dropout: float = 0", True),
        ("net = Net(3, dropout=0)", True),
        ("config = {'attention_dropout': 0.0, 'layers': 2}", True),
        ("class A:\n    def f(self, rate):\n        self.drop = nn.Dropout(0.)", True),
        ("f(lambda: Net(drop=0))", True),
        ("loader = DataLoader(data, drop_last=False)", False),
        ("dropout = 0.1", False),
        ("a = dropout = 0", False),
        ("dropout: float", False),
        ("net = Dropout(0, 1)", False),
        ("net = Net(rate=0)", False),
        ("config = {0: 0, **other}", False),
    ],
)
def test_a_rate_of_dropout_that_is_set_to_nothing(text, off):
    assert Scan(ast.parse(text)).undropped is off


def is_python(text):
    return isinstance(parse(text), ast.Module)


LABELLED = sorted((Path(__file__).parents[1] / "labelled").rglob("*.py"))
NESTED = """
def outer(key=lambda pair: pair[0], *, other=lambda: (lambda: 1)):
    @mark(lambda f: f)
    def inner():
        return [x for x in map(lambda y: y + 1, range(3))]
    class Held:
        def __call__(self): return lambda: lambda z: z
    return inner
after = lambda: outer
"""


@pytest.mark.parametrize("text", [NESTED, *filter(is_python, map(Path.read_text, LABELLED[::5]))])
def test_the_function_around_a_place_is_the_innermost_there_is(text):
    tree = ast.parse(text)
    scan = Scan(tree)
    for node in ast.walk(tree):
        if hasattr(node, "lineno"):
            at = node.lineno, node.col_offset
            around = [span for span in scan.spans if span.start <= at < span.end]
            name = max(around, key=lambda span: span.start).name if around else "<module>"
            assert scan.function_at(*at) == name
