from instep.rules.scaler_names import scaler_near, updates_scaler
from tests.rules.mends import Text

TEXT = """\
def train(self):
    self.scaler.scale(loss).backward()
    opt.step()
    self.scaler.update()
"""


def test_the_scaler_of_a_function():
    shown = Text(TEXT)
    step = shown.statement("opt.step()")
    assert scaler_near(shown.source, step) == "self.scaler"
    assert updates_scaler(shown.source, "self.scaler", step)
    assert not updates_scaler(shown.source, "scaler", step)


def test_two_scalers_are_none():
    shown = Text(TEXT + "    other.scale(loss)\n")
    assert scaler_near(shown.source, shown.statement("opt.step()")) is None


def test_a_scaler_of_another_method():
    shown = Text(
        "class T:\n    def b(self):\n        self.s.scale(l)\n    def c(self):\n        o.step()\n"
    )
    step = shown.statement("o.step()")
    assert scaler_near(shown.source, step) == "self.s"
    assert not updates_scaler(shown.source, "self.s", step)
    local = Text("def b():\n    s.scale(l)\ndef c():\n    o.step()\n")
    assert scaler_near(local.source, local.statement("o.step()")) is None
