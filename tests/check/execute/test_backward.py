from tests.check.execute.run import SETUP, base, events, executed


def test_a_gradient_from_elsewhere_makes_the_factor_unknown():
    assert events(SETUP + "model(x).backward(g)\noptimizer.step()", "backward") == [
        ("backward", ("optimizer",), None)
    ]


def test_inputs_limit_what_is_reached():
    source = SETUP + "model(x).sum().backward(inputs=[w])\noptimizer.step()"
    assert events(source, "backward") == [("backward", None, 1.0)]


def test_what_went_backward_is_remembered():
    m, scope = executed(SETUP + "a = model(x).sum()\nb = a / 2\nc = b + a\nc.backward()")
    ident = {name: scope.names[name].ident for name in "abc"}
    assert ident["c"] in m.backed
    assert {ident["a"], ident["b"]} <= m.summed


def test_a_loss_that_is_known_but_for_a_factor_went_backward_too():
    m, scope = executed(SETUP + "a = model(x).sum()\n(a / 4).backward()")
    assert scope.names["a"].ident in m.backed


def test_the_id_of_a_loss_is_where_it_was_made():
    source = SETUP + "loss = model(x).sum()\nloss.backward()\noptimizer.step()"
    assert next(event for event in base(source) if event.kind == "backward").loss == "loss#5"
