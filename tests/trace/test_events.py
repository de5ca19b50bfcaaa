import dataclasses
import pickle
import subprocess
import sys
from pathlib import Path
from types import UnionType
from typing import Literal, get_args, get_origin

import pytest
from hypothesis import given

import instep.trace
from instep.trace import KINDS, Backward, Created, Event, Opaque, Place, Step, Zero
from instep.trace.base import OnOptimizer, OnOptimizers
from tests.trace.strategies import events

SRC = Path(__file__).resolve().parents[2] / "src"


def concrete(cls):
    """The names of all classes below that have a kind of their own."""
    for sub in cls.__subclasses__():
        yield from concrete(sub)
        if "kind" in vars(sub):
            yield sub.__name__


def test_the_table_holds_every_event():
    assert {cls.__name__ for cls in KINDS.values()} == set(concrete(Event))
    assert all(cls.kind == kind for kind, cls in KINDS.items())
    assert {cls.__name__ for cls in KINDS.values()} <= set(instep.trace.__all__)


def allowed(hint):
    if get_origin(hint) is UnionType or get_args(hint):
        return all(allowed(arg) for arg in get_args(hint) if arg is not ...)
    return hint in {str, int, float, bool, type(None), Place} or isinstance(hint, str)


@pytest.mark.parametrize("cls", KINDS.values(), ids=KINDS)
def test_fields_are_plain_data(cls):
    for field in dataclasses.fields(cls):
        is_facts = cls is Created and field.name == "facts"
        assert is_facts or get_origin(field.type) is Literal or allowed(field.type), field.name


@pytest.mark.parametrize("cls", KINDS.values(), ids=KINDS)
def test_events_are_small_frozen_and_documented(cls):
    assert cls.__doc__
    assert not cls.__doc__.startswith(cls.__name__ + "(")
    assert cls.__dataclass_params__.frozen
    assert "__slots__" in vars(cls)
    assert not hasattr(cls.__new__(cls), "__dict__")


@given(events)
def test_events_are_values(event):
    assert dataclasses.replace(event) == event
    assert hash(dataclasses.replace(event)) == hash(event)
    assert pickle.loads(pickle.dumps(event)) == event


@given(events)
def test_touches_names_optimizers_or_all(event):
    touched = event.touches()
    match event:
        case OnOptimizer(optimizer=name):
            assert touched == (None if name is None else (name,))
        case OnOptimizers(optimizers=names):
            assert touched == names
        case Created(role="optimizer", id=name):
            assert touched == (name,)
        case _:
            assert touched is None


def test_place_and_time_are_keywords():
    place = Place("train.py", 7)
    event = Backward(("optimizer",), factor=0.25, place=place, time=1.5)
    assert (event.place, event.time) == (place, 1.5)
    assert Step("optimizer").place is None


def test_facts_are_copied_and_made_plain():
    facts = {"models": ["net"], "lr": 0.1}
    event = Created("optimizer", "optimizer", facts)
    facts["lr"] = 0.2
    assert event.facts == {"models": ("net",), "lr": 0.1}


def test_live_objects_are_refused_as_facts():
    with pytest.raises(TypeError, match="not object"):
        Created("model", "model", {"model": object()})


def test_the_common_case_is_short_to_write():
    assert Zero(("optimizer",)).set_to_none is True
    assert Opaque(None, "engine.train_step").touches() is None


def test_importing_the_trace_needs_the_standard_library_only():
    script = (
        "import sys; before = set(sys.modules); import instep.trace\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(new - sys.stdlib_module_names - {'instep'}))\n"
        "print(sorted(name for name in sys.modules if name.startswith('instep.')"
        " and not name.startswith('instep.trace')))\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": str(SRC)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split("\n") == ["[]", "[]", "False", ""]
