import pytest

from tests.check.execute.run import SETUP, executed, run


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


BRANCH = """
import torch
from torch.amp import autocast, GradScaler
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = GradScaler()
for x, y in loader:
    optimizer.zero_grad()
    with autocast(device_type="cuda"{}):
        loss = torch.nn.functional.mse_loss(model(x), y)
{}if torch.is_autocast_enabled():
{}    scaler.scale(loss).backward()
{}else:
{}    loss.backward()
    optimizer.step()
"""


def scaled(options, indent):
    paths = run(BRANCH.format(options, *[indent] * 4)).paths
    kinds = [[bool(e.scaled) for e in p.trace if e.kind == "backward"] for p in paths]
    return {any(each) for each in kinds}


def test_outside_of_its_block_autocast_is_off():
    assert scaled("", " " * 4) == {False}


def test_inside_of_its_block_autocast_is_on():
    assert scaled("", " " * 8) == {True}
    assert scaled(", enabled=False", " " * 8) == {False}
    assert scaled(", enabled=fast", " " * 8) == {True, False}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ('"cuda", torch.float16, False', {False}),
        ('"cuda", torch.float16, True', {True}),
        ('"cuda", torch.float16, fast', {True, False}),
        ('"cuda", torch.float16', {True}),
    ],
)
def test_whether_autocast_is_on_can_be_given_by_position(given, expected):
    text = BRANCH.format("", *[" " * 8] * 4).replace('device_type="cuda"', given)
    paths = run(text).paths
    assert {any(e.scaled for e in p.trace if e.kind == "backward") for p in paths} == expected


def test_a_function_without_a_block_of_its_own_may_be_called_in_one():
    text = BRANCH.format("", *["    "] * 4).replace("    with autocast", "    if True:  # ")
    kinds = [any(bool(e.scaled) for e in p.trace if e.kind == "backward") for p in run(text).paths]
    assert set(kinds) == {True, False}
