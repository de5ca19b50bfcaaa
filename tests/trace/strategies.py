"""Hypothesis strategies for places, facts, events and traces."""

from dataclasses import fields
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from hypothesis import strategies as st

from instep.trace import KINDS, Created, Event, Place

optimizer_ids = st.sampled_from(["a", "b", "c"])
text = st.text(max_size=6)
numbers = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False)
scalars = st.none() | st.booleans() | numbers | text
facts = st.dictionaries(
    text | st.sampled_from(["float", "facts", "path"]),
    st.recursive(scalars, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=4),
    max_size=3,
)
places = st.builds(
    Place,
    path=text,
    line=st.integers(1, 999),
    column=st.none() | st.integers(0, 99),
    end_line=st.none() | st.integers(1, 999),
    end_column=st.none() | st.integers(0, 99),
    function=st.none() | text,
    snippet=st.none() | text,
    cell=st.none() | st.integers(0, 9),
)


def _of_hint(name: str, hint: Any) -> st.SearchStrategy[Any]:
    if name == "optimizer":
        return st.none() | optimizer_ids
    if name == "optimizers":
        return st.none() | st.lists(optimizer_ids, unique=True, max_size=3).map(tuple)
    if get_origin(hint) is UnionType or get_origin(hint) is Union:
        return st.one_of([_of_hint("", arg) for arg in get_args(hint)])
    if get_origin(hint) is Literal:
        return st.sampled_from(get_args(hint))
    if get_origin(hint) is tuple:
        return st.lists(_of_hint("", get_args(hint)[0]), max_size=3).map(tuple)
    by_type = {str: text, int: st.integers(), float: numbers, bool: st.booleans(), Place: places}
    return by_type.get(hint, st.none())


def of_kind(cls: type[Event]) -> st.SearchStrategy[Event]:
    """Events of one class, every field drawn by its annotation."""
    return st.builds(cls, **{f.name: _of_hint(f.name, f.type) for f in fields(cls)})


created = st.builds(
    Created,
    id=optimizer_ids,
    role=st.sampled_from(["optimizer", "loader"]),
    facts=facts,
    place=st.none() | places,
)
events = st.one_of(*(of_kind(cls) for cls in KINDS.values() if cls is not Created), created)
event_lists = st.lists(events, max_size=25)
