from instep.check.execute.values import Context, Unknown
from tests.check.execute.run import SETUP, evaluated, events, executed, once, problems, value


def test_helpers_return_what_they_compute():
    assert value("def double(x):\n    return 2 * x\nv = double(double(3))") == 12
    assert value("v = (lambda x, y=2: x + y)(3)") == 5


def test_closures_see_what_is_around_them():
    assert value("def f(n):\n    def g():\n        return n\n    return g\nv = f(4)()") == 4


def test_helpers_act_on_what_they_are_given():
    source = (
        SETUP
        + """
def update(loss, o):
    loss.backward()
    o.step()
update(model(x).sum(), optimizer)
"""
    )
    assert [event[0] for event in events(source)] == ["forward", "backward", "step"]


def test_methods_static_methods_and_class_methods():
    source = """
class A:
    n = 3
    def f(self, x): return self.n + x
    @staticmethod
    def g(x): return x
    @classmethod
    def h(cls): return cls.n
a = A()
"""
    assert evaluated("a.f(1)", source) == 4
    assert evaluated("a.g(7)", source) == 7
    assert evaluated("A.h()", source) == 3
    assert evaluated("A.f(a, 2)", source) == 5


def test_decorated_functions_may_make_no_graph():
    source = SETUP + "@torch.no_grad()\ndef f(x):\n    return model(x)\nv = f(x)"
    assert not value(source).graph


def test_recursion_comes_to_an_end():
    source = SETUP + "def f(x):\n    return f(x)\nv = f(model(x))"
    assert value(source).nets
    source = SETUP + "def f(x):\n    optimizer.step()\n    f(x)\nf(1)"
    assert len(events(source, "step")) == 2


def test_calls_that_are_nested_too_deeply_are_a_problem():
    chain = "".join(f"def f{i}():\n    f{i + 1}()\n" for i in range(20))
    source = SETUP + chain + "def f20():\n    optimizer.step()\nf0()"
    assert "calls are nested too deeply" in problems(source)


def test_generators_are_not_followed():
    source = "def batches():\n    yield 1\nv = batches()"
    assert isinstance(value(source), Unknown)
    source = (
        SETUP
        + """
def train():
    optimizer.step()
    yield 1
for x in train():
    optimizer.zero_grad()
"""
    )
    assert any("generator in which gradients change" in reason for reason in problems(source))
    assert ("opaque", None, "train") in once(source)


def test_context_managers_of_the_project():
    source = "@contextmanager\ndef timed():\n    yield\nv = timed()"
    assert isinstance(value(source), Context)
    source = (
        SETUP
        + """
@contextmanager
def f():
    yield
    optimizer.step()
with f():
    pass
optimizer.zero_grad()
"""
    )
    assert any("context manager in which gradients change" in reason for reason in problems(source))


def test_a_cold_function_is_executed_once_per_call():
    m, _ = executed("def f(x):\n    return helper(x)\nfor i in (1, 2, 3):\n    f(i)")
    assert len(m.memo) == 1


def test_raising_gives_nothing_known():
    assert isinstance(value("def f():\n    raise ValueError\nv = f()"), Unknown)


MADE = "net = torch.nn.Linear(2, 2); opt = torch.optim.SGD(net.parameters())"
TRAINED = """
def {name}(option, *given):
    {made}
    for x, y in loader:
        F.mse_loss(net(x), y).backward()
        opt.step()
        opt.zero_grad()
    {end}
"""


def calls_of(name="test_training", *, made=MADE, given="", end="pass"):
    """Return how often a function was gone through that is called three times."""
    source = SETUP + TRAINED.format(name=name, made=made, end=end) + given
    one = f"\n{name}(1{', net, opt' * bool(given)})"
    return len(events(source + 3 * one, "backward")) / len(events(source + one, "backward"))


def test_a_test_that_begins_anew_is_gone_through_once():
    assert calls_of() == 1


def test_what_is_no_test_is_gone_through_as_often_as_it_is_called():
    assert calls_of("train") == 3


def test_a_test_that_steps_what_was_there_before_is_gone_through_each_time():
    assert calls_of(made="net, opt = given", given=MADE) == 3


def test_a_test_that_returns_something_is_gone_through_each_time():
    assert calls_of(end="return net") == 3
