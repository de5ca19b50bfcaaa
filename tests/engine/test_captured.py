"""What of captured windows can be tested without a device: the rest is in tests/gpu."""

from __future__ import annotations

import warnings

import pytest
import torch

import instep
from instep.engine.captured import Captures, Line, width_for
from instep.engine.flat_buffers import FlatBuffers
from instep.engine.recordings import Series
from instep.errors import InstepWarning, SetupError


def test_capture_needs_flat_buffers():
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(SetupError, match="without fused=True"):
        instep.Stepper(model, optimizer, capture=True)


@pytest.mark.parametrize("capture", [-1, 2.5, "yes", None])
def test_what_capture_can_be(capture):
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(SetupError, match="side by side"):
        instep.Stepper(model, optimizer, fused=True, capture=capture)


@pytest.mark.parametrize("is_known", [True, False])
def test_where_nothing_can_be_recorded_a_warning_says_so(is_known):
    pytest.importorskip("triton")
    model = torch.nn.Linear(2, 2)
    kind = torch.optim.SGD if is_known else torch.optim.Rprop
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        instep.Stepper(model, kind(model.parameters(), lr=0.1), fused=True, capture=True)
    text = str(said[-1].message)
    assert said[-1].category is InstepWarning
    assert "capture has no effect" in text
    assert said[-1].filename == __file__


class Letters:
    """A source whose pieces are letters, and whose key is the letter's case."""

    def __init__(self, text):
        self._text = text

    def __iter__(self):
        return iter(self._text)

    def key(self, given):
        return given.isupper()


def groups(text, count):
    line = Line(Letters(text))
    return ["".join([one, *line.take_alike(one.isupper(), count - 1)]) for one in line]


@pytest.mark.parametrize(
    ("text", "count", "expected"),
    [
        ("abcdef", 3, ["abc", "def"]),
        ("abcde", 3, ["abc", "d", "e"]),
        ("abCdef", 3, ["a", "b", "C", "def"]),
        ("ab", 3, ["a", "b"]),
        ("abc", 1, ["a", "b", "c"]),
        ("", 2, []),
    ],
)
def test_pieces_come_in_groups_of_one_kind_and_in_order(text, count, expected):
    assert groups(text, count) == expected


def test_widths_cut_a_window_evenly():
    assert [width_for(4, 1, pieces) for pieces in (1, 2, 3, 4, 5, 6, 7, 8, 9)] == [
        1, 2, 3, 4, 2, 3, 3, 4, 3,
    ]  # fmt: skip
    assert [width_for(most, 4, 8) for most in (1, 2, 3, 4, 8)] == [1, 2, 2, 4, 4]
    assert width_for(1, 1, 8) == 1


class Note:
    """Stands for a recording and its inputs, and for the stash."""

    writes = frozenset({1})

    def __init__(self, name, width=1):
        self.name, self.width, self.inputs, self.said = name, width, self, []
        self.window = 0

    def begin(self, batch):
        self.said.append(batch)

    def flush(self, steps):
        self.said.append(steps)


def played(series, pieces):
    """Play a window; return the names in order."""
    series.begin("batch", is_first=bool(series.writes(pieces)))
    names = []
    while pieces:
        count = series.width if series.width <= pieces else 1
        names.append(series.next(count).name)
        pieces -= count
    series.finish()
    return " ".join(names)


def test_a_round_of_singles_and_wide_recordings():
    stash = Note("stash")
    singles = [Note(name) for name in "abcd"]
    assert played(Series(singles, stash), 6) == "a b c d a b"
    assert stash.said == [2]
    halves = [Note("ab", 2), Note("cd", 2)]
    assert played(Series(singles, stash, halves), 7) == "ab cd ab c"
    assert stash.said == [2, 3]
    assert [one.said for one in halves] == [["batch"], ["batch"]]
    assert played(Series(singles, stash, [Note("abcd", 4)]), 6) == "abcd a b"
    assert stash.said == [2, 3, 2]
    assert played(Series(singles, stash, [Note("abcd", 4)]), 8) == "abcd abcd"
    assert stash.said == [2, 3, 2]


def test_wide_recordings_without_a_round():
    stash = Note("stash")
    assert played(Series([Note("a")], stash, [Note("www", 3)]), 8) == "www www a a"
    assert stash.said == []


def test_the_first_products_of_a_window():
    stash, first = Note("stash"), Note("D")
    singles = [Note(name) for name in "abcd"]
    series = Series(singles, stash, first=first)
    for _ in range(2):  # each window anew
        assert played(series, 9) == "a b c D a b c d a"
    # A round that is not complete is added to zeros.
    assert series.writes(3) == frozenset()
    assert played(series, 3) == "a b c"
    halves = [Note("ab", 2), Note("cd", 2)]
    assert played(Series(singles, stash, halves, Note("CD", 2)), 8) == "ab CD ab cd"
    assert played(Series(singles, stash, [Note("abcd", 4)], Note("ABCD", 4)), 9) == "ABCD abcd a"
    wide = Series([Note("a")], stash, [Note("www", 3)], Note("WWW", 3))
    assert played(wide, 7) == "WWW www a"
    assert wide.writes(2) == frozenset()
    assert played(wide, 2) == "a a"
    assert played(Series([Note("a")], stash, first=Note("A")), 3) == "A a a"


class Lane:
    def __init__(self, model):
        self.buffers = FlatBuffers([torch.optim.SGD(model.parameters(), lr=0.1)], None)
        self.buffers.open()


def test_a_recording_is_of_a_model_as_it_stands():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout(), torch.nn.Linear(2, 2))
    captures, lane = Captures([model]), Lane(model)

    def loss(piece):
        return model(piece).sum()

    first = captures._identity(loss, lane)[0]
    assert captures._identity(loss, lane)[0] == first
    model[0].requires_grad_(False)
    frozen = captures._identity(loss, lane)[0]
    assert frozen != first
    model.requires_grad_(True)
    model[1].eval()
    assert captures._identity(loss, lane)[0] not in (first, frozen)
    model.train()
    assert captures._identity(loss, lane)[0] == first
    lane.buffers.close(keep=False)
    lane.buffers._optimizers[0].add_param_group({"params": torch.nn.Linear(2, 2).parameters()})
    lane.buffers.open()
    assert captures._identity(loss, lane)[0] != first
