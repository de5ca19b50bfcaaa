import subprocess
import sys
from types import ModuleType, SimpleNamespace

import pytest

from instep.check import tools
from instep.check.sources import units_from_bytes

LOOP = b"for x in y:\n    loss.backward()\n"


@pytest.fixture
def modules(monkeypatch):
    """A judge and a mender that write down how they are called."""
    calls = []
    judging, fixing = ModuleType("judge"), ModuleType("fixing")

    def judge(unit, *, project):
        calls.append((unit.path, project))
        return SimpleNamespace(findings=())

    judging.Project, judging.judge = lambda texts: object(), judge
    fixing.with_fixes = lambda unit, judgement, *, judge, findings: (unit, judgement, findings)
    fixing.fix_unit = lambda unit, *, unsafe, judge, accept: (unit, unsafe, judge, accept)
    monkeypatch.setattr(tools, "_judging", lambda: judging)
    monkeypatch.setattr(tools, "_fixing", lambda: fixing)
    return calls


def test_the_real_ones_are_called_as_they_want_to_be(modules):
    [a] = units_from_bytes(LOOP, "a.py")
    [b] = units_from_bytes(LOOP, "b.py")
    real = tools.load()
    for unit in (a, b, a):
        real.judge(unit)
    assert [path for path, _ in modules] == ["a.py", "b.py", "a.py"]
    assert len({id(project) for _, project in modules}) == 1
    tools.load().judge(a)
    assert modules[-1][1] is not modules[0][1]
    assert real.with_fixes(a, 1, 2, 3) == (a, 1, 2)
    assert real.mend(a, True, 2, 3) == (a, True, 2, 3)


def test_what_holds_no_loop_is_not_judged(modules):
    [unit] = units_from_bytes(b"x = 1\n", "a.py")
    judged = tools.load().judge(unit)
    assert not modules
    assert (judged.findings, judged.elsewhere, judged.unjudged) == ((), (), ())
    assert (judged.loops, judged.followed, judged.nodes) == (0, frozenset(), {})


def test_loading_them_loads_no_executor():
    code = (
        "import sys; from instep.check import tools; tools.load(); "
        "sys.exit('instep.check.execute' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
