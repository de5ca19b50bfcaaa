from instep.check.execute.tensors import Tensor
from instep.check.execute.ticks import Tick
from instep.check.execute.values import Unknown
from tests.check.execute.run import SETUP, UPDATE, events, executed, once, value


def test_assignments():
    assert value("a = v = 3") == 3
    assert value("v: int = 4") == 4
    assert value("v: int\nv = 5") == 5
    assert value("v = 1\nv += 2") == 3
    assert value("v = [1]\nw = v\nw += [2]").items == [1, 2]


def test_counting_up_makes_a_counter():
    assert isinstance(value("v = 0\nv += 1"), Tick)
    assert isinstance(value("v = 0\nv = v + 1"), Tick)
    assert not isinstance(value("v = 2\nv *= 2"), Tick)


def test_showing_is_passed_over():
    m, _ = executed("print(f(x))")
    assert m.derived == {}
    assert once(SETUP + "def log(o):\n    o.step()\nlog(optimizer)") == [
        ("step", "optimizer", None)
    ]


def test_a_loss_that_is_added_up_is_kept():
    source = "total = 0\nfor x, y in loader:\n    if 1:" + UPDATE + "    total += loss"
    assert events(SETUP + source, "loss_kept") == [("loss_kept", "total")] * 3
    assert once(SETUP + source.replace("+= loss", "+= loss.item()"), "loss_kept") == []
    assert once(SETUP + source.replace("total += loss", "total = total + loss"), "loss_kept") == [
        ("loss_kept", "total")
    ]


def test_a_total_that_begins_anew_keeps_nothing():
    source = """
for x, y in loader:
    total = 0
    for part in model(x):
        loss = part.mean()
        loss.backward()
        total += loss
    optimizer.step()
"""
    assert once(SETUP + source, "loss_kept") == []


def test_gradients_changed_in_place():
    source = SETUP + "for p in model.parameters():\n    p.grad /= 4\noptimizer.step()"
    assert ("grad_edited", ("optimizer",), 0.25) in events(source)


def test_no_grad_is_entered_and_left():
    source = SETUP + "with torch.no_grad():\n    a = model(x)\nb = model(x)"
    _, scope = executed(source)
    assert not scope.names["a"].graph
    assert scope.names["b"].graph
    _, scope = executed(source.replace("no_grad()", "no_grad"))
    assert not scope.names["a"].graph
    assert scope.names["b"].graph


def test_what_is_entered_has_its_name():
    made = value(
        SETUP
        + """
loss = model(x).sum()
from apex import amp
with amp.scale_loss(loss, optimizer) as v:
    pass
"""
    )
    assert isinstance(made, Tensor)


def test_distributed_autograd_counts_by_itself():
    m, _ = executed("with dist_autograd.context() as ctx:\n    dist_autograd.backward(ctx, [loss])")
    assert m.managed == "dist_autograd"


def test_global_and_nonlocal():
    assert value("v = 1\ndef f():\n    global v\n    v = 2\nf()") == 2
    assert value("v = 1\ndef f():\n    v = 2\nf()") == 1
    source = """
def f():
    n = 1
    def g():
        nonlocal n
        n = 2
    g()
    return n
v = f()
"""
    assert value(source) == 2


def test_what_is_deleted_is_unknown_again():
    assert isinstance(value("x = 1\ndel x\nv = x"), Unknown)
