import dataclasses
import importlib
import pickle
import pkgutil
import subprocess
import sys
from typing import ClassVar

import pytest

from instep.trace import plain

ROOMS = ("check", "commands", "reports", "rules", "trace")


def bodies(dataclass, field):
    """Classes as both modules make them."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Base:
        kind: ClassVar[str] = "base"
        place: int | None = None

    @dataclass(frozen=True, slots=True)
    class Event(Base):
        name: str
        count: int = 1
        facts: dict = field(default_factory=dict, hash=False)
        hidden: int = field(default=7, repr=False, compare=False)

    @dataclass
    class Walk:
        start: int
        seen: list = field(default_factory=list)

        def __post_init__(self):
            self.twice = self.start * 2

    @dataclass(frozen=True)
    class One:
        only: "int"
        share: "ClassVar[int]" = 3

        def __hash__(self):
            return 5

    @dataclass(eq=False, repr=False)
    class Bare:
        pass

    return Base, Event, Walk, One, Bare


OURS = {made.__name__: made for made in bodies(plain.dataclass, plain.field)}
THEIRS = {made.__name__: made for made in bodies(dataclasses.dataclass, dataclasses.field)}
for made in OURS.values():  # where pickle looks for them
    made.__qualname__ = made.__name__
    globals()[made.__name__] = made

CALLS = [
    ("Base", (), {}),
    ("Base", (), {"place": 2}),
    ("Event", ("a",), {}),
    ("Event", ("a", 2), {"place": 3, "facts": {"x": 1}}),
    ("Event", ("a", 2, {}, 8), {}),
    ("Event", (), {"name": "a", "hidden": 9}),
    ("Walk", (4,), {}),
    ("Walk", (4, [1]), {}),
    ("One", (1,), {}),
    ("Bare", (), {}),
]
REFUSED = [
    ("Base", (1,), {}),
    ("Event", (), {}),
    ("Event", ("a",), {"name": "b"}),
    ("Event", ("a",), {"other": 1}),
    ("Event", ("a", 1, {}, 2, 3), {}),
    ("Walk", (), {"seen": []}),
    ("Bare", (1,), {}),
]


@pytest.fixture(params=[0, plain._MANY], ids=["few", "many"])
def instances(request, monkeypatch):
    """With the `__init__` of a class without many instances, and with that of one that has many."""
    if request.param:
        monkeypatch.setattr(plain, "_MANY", 0)
    for made in OURS.values():
        monkeypatch.setattr(made, "__init__", plain._init)
        monkeypatch.setattr(made.__plain__, "_instances", 0)


def said(value):
    return repr(value).replace(type(value).__qualname__, type(value).__name__)


@pytest.mark.usefixtures("instances")
@pytest.mark.parametrize(("name", "args", "given"), CALLS)
def test_it_is_what_a_dataclass_would_be(name, args, given):
    ours, theirs = OURS[name](*args, **given), THEIRS[name](*args, **given)
    for field in dataclasses.fields(theirs):
        assert getattr(ours, field.name) == getattr(theirs, field.name)
    assert hasattr(ours, "__dict__") == hasattr(theirs, "__dict__")
    assert type(ours).__match_args__ == type(theirs).__match_args__
    if name == "Bare":
        assert ours != OURS[name]()
        return
    assert said(ours) == said(theirs)
    assert ours == OURS[name](*args, **given)
    assert ours != theirs
    assert (type(ours).__hash__ is None) == (type(theirs).__hash__ is None)
    if type(theirs).__hash__ is not None:
        assert hash(ours) == hash(theirs)
    assert pickle.loads(pickle.dumps(ours)) == ours
    assert dataclasses.replace(ours) == plain.replace(ours) == ours


@pytest.mark.usefixtures("instances")
@pytest.mark.parametrize(("name", "args", "given"), REFUSED)
def test_what_a_dataclass_refuses_is_refused_in_its_words(name, args, given):
    with pytest.raises(TypeError) as theirs:
        THEIRS[name](*args, **given)
    with pytest.raises(TypeError) as ours:
        OURS[name](*args, **given)
    assert str(ours.value) == str(theirs.value).replace("bodies.<locals>.", "")


def test_the_init_that_is_written_out_takes_over():
    @plain.dataclass(frozen=True, slots=True)
    class Many:
        number: int = 0

    made = [Many(number) for number in range(plain._MANY)]
    assert Many.__init__ is plain._init
    made += [Many(-1), Many()]
    assert Many.__init__ is not plain._init
    assert [each.number for each in made] == [*range(plain._MANY), -1, 0]


def test_equality_asks_for_the_compared_fields_of_one_class():
    event = OURS["Event"]
    assert event("a", hidden=1) == event("a", hidden=2)
    assert event("a", facts={"x": 1}) != event("a", facts={"x": 2})
    assert hash(event("a", facts={"x": 1})) == hash(event("a", facts={"x": 2}))
    assert event("a", place=1) != event("a", place=2)
    assert plain.replace(event("a"), name="b", place=4) == event("b", place=4)
    with pytest.raises(TypeError, match="unexpected keyword"):
        plain.replace(event("a"), other=1)


def test_frozen_ones_stay_as_they_are():
    event = OURS["Event"]("a")
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'name'"):
        event.name = "b"
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'name'"):
        del event.name
    OURS["Walk"](1).start = 2


def test_one_that_holds_itself_is_said_once():
    walk = OURS["Walk"](1)
    walk.seen.append(walk)
    assert repr(walk) == "Walk(start=1, seen=[...])"


def test_every_class_of_ours_can_be_made_a_dataclass():
    """What `dataclasses` would refuse is not noticed before there are many instances."""
    found = 0
    for room in ROOMS:
        package = importlib.import_module(f"instep.{room}")
        for module in pkgutil.walk_packages(package.__path__, f"instep.{room}."):
            for made in vars(importlib.import_module(module.name)).values():
                if isinstance(made, type) and "__plain__" in vars(made):
                    found += 1
                    assert [f.name for f in dataclasses.fields(made)] == [*made.__plain__.fields]
    assert found > 60


def test_a_check_of_a_small_file_loads_no_dataclasses(tmp_path):
    loop = tmp_path / "loop.py"
    loop.write_text(
        "import torch\n"
        "model = torch.nn.Linear(3, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for inputs, targets in loader:\n"
        "    optimizer.zero_grad()\n"
        "    torch.nn.functional.mse_loss(model(inputs), targets).backward()\n"
        "    optimizer.step()\n"
    )
    code = (
        "import sys; from instep.cli import main; "
        f"assert main(['check', '--no-cache', {str(loop)!r}]) == 0; "
        "assert 'instep.check.execute.entries' in sys.modules; "
        "assert not {'dataclasses', 'inspect'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
