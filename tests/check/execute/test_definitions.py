from tests.check.execute.run import value

CLASSES = """
import torch
class A(torch.nn.Module):
    def f(self): ...
class B(A):
    x = 1
class C(B, object):
    pass
v = C
"""


def test_bases_come_nearest_first():
    assert [cls.known_as for cls in value(CLASSES).mro()] == ["C", "B", "A"]


def test_bases_outside_the_project_are_names():
    assert "torch.nn.Module" in value(CLASSES).outside()


def test_functions_know_their_names():
    assert value("def f(): ...\nv = f").known_as == "f"
    assert value("v = lambda: 1").known_as == "<lambda>"
