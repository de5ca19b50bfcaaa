"""Values that hold each other without end: one problem, never a crash.

Python's own limit is switched off for these. In a compiled build there is none for most calls, and
what has no limit of its own ends the process.
"""

import subprocess
import sys

import pytest

from instep.check.execute.levels import MOST, goes_down

SETUP = """
import itertools, functools, torch
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler()
for x, y in loader:
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
MANY, CLASSES, DOUBLED = 5000, 400, 40
DEEP_BODY = "(" * 60 + "f(x)" + " + 1)" * 60


def again(statement: str) -> str:
    return f"{statement}\n" * MANY


def classes(body: str) -> str:
    first = "class C0(torch.nn.Module):\n    pass\n"
    rest = (body.format(this=f"C{n + 1}", other=f"C{n}") for n in range(CLASSES))
    return first + "".join(rest)


BOMBS = {
    "formula": again("t = t * a") + "t.backward()",
    "formula of two": again("t = a - t") + "(t * loss).backward()",
    "list in itself": "p = []\np.append(p)\ntorch.optim.SGD(p)",
    "list in itself, scaled": "p = []\np.append(p)\nscaler.scale(p)",
    "dict": "d = {}\n" + again('d = {"params": d}') + "torch.optim.SGD(d)",
    "tuple": again("t = (t,)") + "torch.optim.SGD(t)\nscaler.scale(t)\nt.backward()",
    "returned": "def f(x):\n    t = (loss,)\n    "
    + "    ".join(["t = (t, loss)\n"] * MANY)
    + "    return t\nf(1)[0].backward()",
    "forward": "class Net(torch.nn.Module):\n    def forward(self, t):\n        "
    + "        ".join(["t = (t,)\n"] * MANY)
    + "        return t\nNet()(x)",
    "iterator": again("it = enumerate(it)") + "for x in it: pass\nv = [x for x in it]\nlen(it)",
    "zip": again("it = zip(it, it)") + "for x in it: pass",
    "partial": again("f = functools.partial(f)") + "f(1)",
    "partial of a map": "f = print\n" + again("f = functools.partial(map, f)") + "f([1])",
    "lambda": "f = lambda x: f(x)\nf(1)",
    "long lambda": f"f = lambda x: {DEEP_BODY}\nf(1)",
    "two lambdas": "f = lambda x: g(x)\ng = lambda x: [f(i) for i in x]\nf([1])",
    "function": f"def f(x):\n    return {DEEP_BODY}\nf(1)",
    "method": "class A:\n    def __call__(self, x):\n        return self(x)\nA()(1)",
    "property": "class A:\n    @property\n    def p(self):\n        return self.p\nA().p",
    "bases": classes("class {this}({other}):\n    pass\n") + f"C{CLASSES}()(x)",
    "bases of bases": classes("class {this}({other}, {other}):\n    pass\n") + f"C{CLASSES}()",
    "parts": classes(
        "class {this}(torch.nn.Module):\n    def __init__(self):\n        self.part = {other}()\n"
    )
    + f"C{CLASSES}()(x)",
    "attributes": "net = Unknown()\n" + again("net = net.model") + "net.train()\nnet(x).backward()",
    "members": again("model = model.layer") + "torch.optim.SGD(model.parameters()).step()",
    "items": again("model = model[0]") + "torch.optim.SGD(model.parameters()).step()",
    "pairs": "t = (loss,)\n" + "t = (t, t)\n" * DOUBLED + "torch.optim.SGD(t)",
    "pairs, scaled": "t = (loss,)\n" + "t = (t, t)\n" * DOUBLED + "scaler.scale(t)",
    "pairs of iterators": "it = zip(it, it)\n" * DOUBLED + "for x in it: pass",
    "pairs of elements": "it = zip(it, it)\n" * DOUBLED + "v = [x for x in it]",
    "unpacked": "a = 1\n" + "a = (*a, a)\n" * DOUBLED + "torch.optim.SGD(a)",
    "closure": "def f():\n    def g():\n        return f()\n    return g()\nf()",
    "default": "def f(x=lambda: f()):\n    return x()\nf()",
    "reduce": again("t = sum([t, t])") + "t.backward()",
    "context": "def f():\n    with f():\n        f()\nf()",
}
CHECKED = """
import sys
from tests.check.execute.run import run
sys.setrecursionlimit(1_000_000)
try:
    run(sys.stdin.read())
except RecursionError:
    pass  # the file is not checked, and `instep check` says so
print("came back")
"""


@pytest.mark.parametrize("name", BOMBS)
def test_it_comes_back(name):
    done = subprocess.run(
        [sys.executable, "-c", CHECKED],
        input=SETUP + BOMBS[name],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "came back\n"), done.stderr[-2000:]


def test_what_stops_it_can_be_used_again():
    @goes_down
    def depth(value):
        return 1 + max(map(depth, value), default=0)

    deep = []
    for _ in range(MOST):
        deep = [deep]
    for _ in range(2):
        with pytest.raises(RecursionError, match="nested too deeply"):
            depth(deep)
        assert depth(deep[0]) == MOST
