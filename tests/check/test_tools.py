import sys
from types import ModuleType, SimpleNamespace

import pytest

from instep.check import tools
from instep.check.sources import units_from_bytes


@pytest.fixture
def modules(monkeypatch):
    """A judge and a mender that write down how they are called."""
    calls = []
    judging, fixing = ModuleType("judge"), ModuleType("fixing")

    class Project:
        def __init__(self, file):
            self.file, self.read = file, {f"{file}.followed"}

    def judge(unit, *, codes, project):
        calls.append((unit.path, codes, project))
        return SimpleNamespace(findings=())

    judging.Project, judging.judge, judging.wanted = Project, judge, str.isupper
    fixing.with_fixes = lambda unit, judgement, *, judge: (unit, judgement, judge)
    fixing.fix_unit = lambda unit, *, unsafe, judge, accept: (unit, unsafe, judge, accept)
    monkeypatch.setitem(sys.modules, "instep.check.judge", judging)
    monkeypatch.setitem(sys.modules, "instep.check.fixing", fixing)
    return calls


def test_the_real_ones_are_called_as_they_want_to_be(modules):
    [a] = units_from_bytes(b"x = 1\n", "a.py")
    [b] = units_from_bytes(b"x = 1\n", "b.py")
    real = tools.load()
    assert (real.wanted("X"), real.wanted("x")) == (True, False)
    codes = frozenset({"INS101"})
    for unit in (a, a, b, a):
        real.judge(unit, codes)
    assert [(path, given) for path, given, _ in modules] == [
        (path, codes) for path in ("a.py", "a.py", "b.py", "a.py")
    ]
    first, second, third, fourth = (project for _, _, project in modules)
    assert first is second
    assert len({id(first), id(third), id(fourth)}) == 3
    assert real.followed(a) == {"a.py.followed"}
    assert real.followed(b) is None
    assert real.with_fixes(a, 1, 2) == (a, 1, 2)
    assert real.mend(a, True, 2, 3) == (a, True, 2, 3)
