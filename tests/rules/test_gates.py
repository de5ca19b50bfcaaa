import pytest

from instep.rules.gates import gate_of
from tests.rules.mends import Text

LOOP = """\
for i, (x, y) in enumerate(loader):
    loss.backward()
    {gate}
"""


def gate_in(text, code="optimizer.step()"):
    shown = Text(text)
    return shown, gate_of(shown.source, shown.statement(code))


@pytest.mark.parametrize(
    ("test", "counter", "number"),
    [
        ("(i + 1) % n == 0", "i + 1", "n"),
        ("i % args.n == args.n - 1", "i", "args.n"),
        ("not (i + 1) % 4", "i + 1", "4"),
        ("amp and (i + 1) % n == 0", "i + 1", "n"),
        ("(i + 1) % n == 0 or i + 1 == len(loader)", "i + 1", "n"),
        ("not (i + 1) % n != 0", "i + 1", "n"),
        ("count >= self.n", "count", "self.n"),
        ("i - last == n", "i - last", "n"),
        ("count > 0 and count == 8", "count", "8"),
    ],
)
def test_gates(test, counter, number):
    text = LOOP.format(gate=f"if {test}: optimizer.step()")
    shown, gate = gate_in(text)
    assert (shown.source.code(gate.counter), shown.source.code(gate.number)) == (counter, number)


@pytest.mark.parametrize(
    "test", ["ready", "scaler is None", "i > 0", "count == 1", "(i + 1) % n != 0", "loss(x) > 3"]
)
def test_what_is_no_gate(test):
    assert gate_in(LOOP.format(gate=f"if {test}: optimizer.step()"))[1] is None


def test_a_remainder_goes_before_a_threshold():
    text = LOOP.format(gate="if epoch >= warmup:\n        if i % n == 0: optimizer.step()")
    shown, gate = gate_in(text)
    assert shown.source.code(gate.asked) == "i % n == 0"


def test_guards_and_else():
    guard = LOOP.format(gate="if (i + 1) % n != 0: continue\n    optimizer.step()")
    shown, gate = gate_in(guard)
    assert not gate.is_passed
    assert shown.source.code(gate.test) == "(i + 1) % n != 0"
    other = LOOP.format(gate="if (i + 1) % n:\n        pass\n    else:\n        optimizer.step()")
    assert not gate_in(other)[1].is_passed


def test_flags():
    text = LOOP.format(gate="last = (i + 1) % n == 0\n    if last: optimizer.step()")
    shown, gate = gate_in(text)
    assert shown.source.code(gate.test) == "(i + 1) % n == 0"
    guard = text.replace("if last: ", "if not last: continue\n    ")
    assert gate_in(guard)[1].is_passed
    twice = text + "    last = False\n"
    assert gate_in(twice)[1] is None


def test_the_gate_of_an_outer_loop_is_another():
    text = "for i in r:\n    if i % n == 0:\n        for x in xs:\n            optimizer.step()\n"
    assert gate_in(text)[1] is None
