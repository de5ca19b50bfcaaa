import ast

from instep.check.execute.defining import decorators
from tests.check.execute.run import SETUP, events, value


def test_the_last_names_of_decorators():
    node = ast.parse("@a.b\n@c(1)\n@d\ndef f(): ...").body[0]
    assert decorators(node) == {"b", "c", "d"}


def test_classes_hold_methods_and_values():
    made = value("class A:\n    n = 1\n    class B: ...\n    def f(self): ...\nv = A")
    assert set(made.members) == {"n", "B", "f"}


def test_a_setter_does_not_replace_its_property():
    source = """
class A:
    @property
    def n(self):
        return 1
    @n.setter
    def n(self, x): ...
v = A().n
"""
    assert value(source) == 1


def test_settings():
    assert value("@dataclass\nclass A: ...\nv = A").settings
    assert value("from pydantic import BaseModel\nclass A(BaseModel): ...\nv = A").settings
    assert not value("class A: ...\nv = A").settings


def test_functions_without_gradients():
    assert value("@torch.no_grad()\ndef f(): ...\nv = f").wraps_no_grad
    assert not value("def f(): ...\nv = f").wraps_no_grad


def test_old_names_in_decorators_are_noted():
    source = (
        SETUP + "@torch.cuda.amp.autocast()\ndef f(): ...\n@torch.cuda.amp.custom_fwd\ndef g(): ..."
    )
    assert events(source, "called") == [
        ("called", "torch.cuda.amp.autocast"),
        ("called", "torch.cuda.amp.custom_fwd"),
    ]
