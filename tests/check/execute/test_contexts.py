import pytest

from tests.check.execute.run import SETUP, executed


@pytest.mark.parametrize(
    ("context", "graph"),
    [
        ("torch.no_grad()", False),
        ("torch.inference_mode()", False),
        ("torch.set_grad_enabled(False)", False),
        ("torch.set_grad_enabled(True)", True),
        ("torch.set_grad_enabled(1 % 2 == 0)", False),
        ("torch.autocast('cuda')", True),
        ("contextlib.nullcontext()", True),
    ],
)
def test_whether_a_graph_is_made_inside(context, graph):
    m, scope = executed(SETUP + f"import contextlib\nwith {context}:\n    v = model(x)")
    assert scope.names["v"].graph is graph
    assert m.no_grad == 0


def test_gradients_can_be_switched_on_again():
    source = (
        SETUP
        + """
with torch.no_grad():
    with torch.enable_grad():
        a = model(x)
    b = model(x)
"""
    )
    _, scope = executed(source)
    assert scope.names["a"].graph
    assert not scope.names["b"].graph


def test_an_exit_stack_has_a_name():
    _, scope = executed("import contextlib\nwith contextlib.ExitStack() as stack:\n    pass")
    assert scope.names["stack"].known_as == "stack"


def test_what_compiles_a_model_gives_it_back():
    _, scope = executed(SETUP + "v = torch.compile(model)")
    assert scope.names["v"] is scope.names["model"]
