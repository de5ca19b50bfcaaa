"""Who keeps the graphs of earlier updates: a name of the user's, if there is one to see."""

from __future__ import annotations

import sys
from collections import deque
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from instep.watching.locals_of import locals_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from types import FrameType

_INNER = (str(Path(torch.__file__).parent) + "/", __file__[: -len("watching/holders.py")])
_MOST_FRAMES, _MOST_NAMES, _MOST_PARTS = 24, 400, 8


class Holder(NamedTuple):
    """What holds graphs."""

    name: str
    is_bounded: bool
    """It never holds more than so many."""


def holder(graphs: int) -> Holder | None:
    """Return what holds at least so many graphs, by the name that the user's frames have for it.

    Looked for once, when it is certain that something does. Nothing of the user's is called.

    >>> weight = torch.ones(2, requires_grad=True)
    >>> kept = [weight.sum() for _ in range(9)]
    >>> holder(8)
    Holder(name='kept', is_bounded=False)
    """
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # `inspect` would read source files
    for _ in range(_MOST_FRAMES):
        if frame is None:
            break
        if not frame.f_code.co_filename.startswith(_INNER):
            for name, value in _names(frame):
                if _holds(value, graphs):
                    is_bounded = type(value) is deque and value.maxlen is not None
                    return Holder(name, is_bounded)
        frame = frame.f_back
    return None


def _names(frame: FrameType) -> Iterator[tuple[str, Any]]:
    for names in (locals_of(frame), frame.f_globals):
        yield from _own(names)
        me = names.get("self")
        yield from _own(getattr(me, "__dict__", {}), "self.")


def _own(names: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in list(islice(names.items(), _MOST_NAMES)):
        if not name.startswith("__"):
            yield f"{prefix}{name}", value


def _holds(value: Any, graphs: int) -> bool:
    if type(value) in {list, deque, tuple}:
        return len(value) >= graphs and all(map(_has_graph, _last(value, graphs)))
    if type(value) is dict:
        if len(value) >= graphs and all(map(_has_graph, _last(list(value.values()), graphs))):
            return True
        # A history by name: each is a list of its own.
        return any(type(each) is list and _holds(each, graphs) for each in list(value.values()))
    return type(value) is torch.Tensor and _is_sum(value.grad_fn, graphs)


def _last(values: Any, count: int) -> Iterable[Any]:
    return [values[-at] for at in range(1, count + 1)]


def _has_graph(value: Any) -> bool:
    if type(value) in {list, tuple}:
        return any(type(each) is torch.Tensor and _has_graph(each) for each in value[:_MOST_PARTS])
    if type(value) is dict:
        return any(map(_has_graph, list(islice(value.values(), _MOST_PARTS))))
    return type(value) is torch.Tensor and value.grad_fn is not None


def _is_sum(node: Any, terms: int) -> bool:
    """Say whether a value is a running sum: `total += loss`."""
    for _ in range(terms):
        if node is None or node.name() != "AddBackward0":
            return False
        node = node.next_functions[0][0]
    return True
