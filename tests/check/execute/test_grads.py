import pytest

from instep.check.execute.grads import factor
from instep.check.execute.values import Unknown
from tests.check.execute.run import SETUP, events, executed


def touched(line):
    source = SETUP + f"for p in model.parameters():\n    {line}\noptimizer.step()"
    return [event for event in events(source) if event[0] not in {"grad_read", "step"}]


@pytest.mark.parametrize(
    ("line", "event"),
    [
        ("p.grad = None", ("zero", ("optimizer",), True)),
        ("p.grad.zero_()", ("zero", ("optimizer",), True)),
        ("p.grad.data.zero_()", ("zero", ("optimizer",), True)),
        ("p.grad.mul_(0.5)", ("grad_edited", ("optimizer",), 0.5)),
        ("p.grad.div_(4)", ("grad_edited", ("optimizer",), 0.25)),
        ("p.grad *= 0.5", ("grad_edited", ("optimizer",), 0.5)),
        ("p.grad.add_(noise)", ("grad_edited", ("optimizer",), None)),
        ("p.grad = q", ("grad_edited", ("optimizer",), None)),
        ("p.grad.clamp_(-1, 1)", ("clip", ("optimizer",), "value", None)),
    ],
)
def test_gradients_touched_by_hand(line, event):
    assert touched(line) == [event]


def test_looking_changes_nothing():
    assert touched("n = p.grad.norm()") == []


@pytest.mark.parametrize(
    "line",
    [
        "n = p.grad.norm() if p.grad is not None else 0",
        "n = hasattr(p, 'grad') and p.grad.norm()",
        "if p.grad is None: continue\n    n = p.grad.norm()",
        "try: n = p.grad.norm()\n    except AttributeError: pass",
    ],
)
def test_reads_that_are_ready_for_none(line):
    source = SETUP + f"for p in model.parameters():\n    {line}\noptimizer.step()"
    assert {event[2] for event in events(source, "grad_read")} == {True}


def test_factors():
    steps = Unknown("steps")
    inverse = Unknown("1/steps")
    inverse.inverse = steps
    assert factor([4], "div_") == 0.25
    assert factor([0], "div_") is None
    assert factor([steps], "Div") == (steps, -1)
    assert factor([inverse], "mul_") == (steps, -1)
    assert factor([], "mul_") is None


def test_parameters_are_frozen_one_by_one_but_not_by_some_of_them():
    def frozen(body):
        _, scope = executed(SETUP + f"for n, p in model.named_parameters():\n    {body}")
        return scope.names["model"].frozen

    assert frozen("p.requires_grad_(False)")
    assert not frozen("p.requires_grad_()")
    assert not frozen("if 'head' in n:\n        p.requires_grad_(False)")
    assert not frozen("p.requires_grad_(False)\n    p.requires_grad_(True)")


@pytest.mark.parametrize(
    ("line", "guarded"),
    [
        ("print(p.grad)", True),
        ("print('grad', p.grad)", True),
        ("print(p.grad.norm())", False),
        ("total += p.grad", False),
    ],
)
def test_a_gradient_that_is_only_printed_may_be_none(line, guarded):
    source = SETUP + f"for p in model.parameters():\n    {line}\noptimizer.step()"
    assert {event[2] for event in events(source, "grad_read")} == {guarded}
