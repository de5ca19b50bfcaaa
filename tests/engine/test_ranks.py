"""What ranks conclude from what they say: plain numbers, without a process group."""

from __future__ import annotations

import math
import time
from contextlib import nullcontext
from unittest import mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from instep.engine.arithmetic import Part, total
from instep.engine.ranks import exchange as exchanges
from instep.engine.ranks import farewell, headers, reduction, wire
from instep.engine.ranks.exchange import HEAD, SLOT, Exchange, _read, _slot
from instep.engine.ranks.headers import Kind, Said, Share, Verdict
from instep.engine.ranks.reduction import Reduction, places_of
from instep.engine.ranks.rollcall import Absence
from instep.engine.ranks.sharded import ShardedBuffers
from instep.engine.ranks.world import ALONE, Ranks, ranks_of, wrapped_in
from instep.errors import WindowError

floats = st.floats(allow_nan=False, width=64)
counts = st.integers(0, 2**53).map(float)
shares = st.builds(Share, floats, floats, counts, st.integers(-20, 20).map(lambda n: 2.0**n))
said = st.builds(
    Said,
    st.sampled_from(list(Kind)),
    st.text(max_size=20),
    has_more=st.booleans(),
    is_over=st.booleans(),
    touched=st.lists(st.text(max_size=5), max_size=3).map(tuple),
    print_of=st.integers(0, 2**32),
    weights=st.lists(floats, max_size=2).map(tuple),
    alike=st.text("0123456789abcdef", max_size=40),
    replaced=st.text(max_size=20),
    micro_batches=st.integers(0, 10**6),
    scale=st.floats(1e-30, 1e30),
    terms=st.dictionaries(st.text(max_size=8), shares, max_size=4),
    holders=st.lists(st.booleans(), max_size=70).map(headers.pack_flags),
    sparse=st.lists(st.integers(0, 99), max_size=3).map(tuple),
    can_pad=st.booleans(),
    out_of_memory=st.booleans(),
)


@given(said)
def test_what_is_said_arrives_bit_for_bit(one):
    assert headers.unpack(one.pack()) == one


@given(said)
def test_a_slot_holds_it_or_says_how_long_it_is(one):
    packed = one.pack()
    slot = _slot(packed, one.kind, SLOT)
    assert len(slot) == SLOT
    assert int.from_bytes(slot[:4], "little") == len(packed)
    if len(packed) <= SLOT - HEAD:
        assert _read(slot, len(packed)) == one
    else:
        # Its kind is known all the same: a rank that gave up is heard by all.
        assert _read(slot, len(packed)).kind is one.kind
        assert _read(_slot(packed, one.kind, len(packed) + HEAD), len(packed)) == one


@given(st.lists(st.booleans(), max_size=200))
def test_flags_come_back(flags):
    assert headers.unpack_flags(headers.pack_flags(flags), len(flags)) == flags


parts = st.builds(
    Part, st.floats(-1e3, 1e3), st.integers(0, 1000).map(float), st.floats(0.1, 3.0), st.booleans()
)


@given(st.lists(st.lists(parts, max_size=5), min_size=1, max_size=5))
def test_terms_of_all_ranks_are_those_of_one_process(ranks):
    heard = []
    for mine in ranks:
        own = total(mine)
        share = Share(
            own.loss * own.items if own.items else 0.0, own.weighted * own.items, own.items, 1.0
        )
        heard.append(Said(Kind.CLOSE, terms={"loss": share} if mine else {}))
    found = headers.totals(heard)
    expected = total([part for mine in ranks for part in mine])
    if not any(ranks):
        assert found == {}
        return
    assert found["loss"].items == expected.items
    if expected.items:
        scale = max(abs(part.loss) * max(part.items, 1.0) for mine in ranks for part in mine)
        assert found["loss"].loss == pytest.approx(expected.loss, abs=1e-12 * scale)
        assert found["loss"].weighted == pytest.approx(expected.weighted, abs=1e-11 * scale)
    else:
        assert math.isnan(found["loss"].loss)


def closing(items, reference=4.0, holders="*", **options):
    term = {"loss": Share(items, items, items, reference)} if items is not None else {}
    options = {"is_one_factor": True, "micro_batches": 1, **options}
    return Said(Kind.CLOSE, "optimizer", terms=term, holders=holders, **options)


def test_a_factor_that_all_have_is_applied_after_the_sum():
    verdict = Verdict.of([closing(3.0), closing(5.0), closing(None, holders="")], 2)
    assert verdict.factor == 4.0 / 8.0
    assert verdict.terms["loss"].items == 8.0
    assert verdict.holders == [True, True]
    assert verdict.micro_batches == 3


def test_a_factor_that_differs_is_applied_before_it():
    assert Verdict.of([closing(3.0), closing(5.0, 8.0)], 2).factor is None
    assert Verdict.of([closing(3.0), closing(5.0, is_one_factor=False)], 2).factor is None


def test_a_loss_that_is_the_same_everywhere_counts_once():
    heard = [closing(None, holders=""), closing(7.0, is_gathered=True)]
    heard.append(closing(7.0, is_gathered=True))
    assert Verdict.of(heard, 1).terms["loss"].items == 7.0


@pytest.mark.parametrize(
    ("heard", "words"),
    [
        ([Said(Kind.CLOSE), Said(Kind.FAILED, "no")], "rank 1 gave up"),
        ([Said(Kind.FAILED, "a"), Said(Kind.FAILED, "b")], "ranks 0 and 1 gave up"),
        ([Said(Kind.CLOSE, "g"), Said(Kind.CLOSE, "c")], "not in the same place"),
        ([Said(Kind.CLOSE, "g"), Said(Kind.NEXT, "g")], "not in the same place"),
    ],
)
def test_ranks_that_are_elsewhere(heard, words):
    with pytest.raises(WindowError, match=words) as caught:
        headers.require_agreement(heard, "the close")
    assert headers.is_agreed(caught.value)


@pytest.mark.parametrize(
    ("heard", "words"),
    [
        ([closing(1.0), closing(1.0, print_of=1)], "different parameters"),
        ([closing(1.0), closing(1.0, scale=2.0)], "different loss scales"),
        ([closing(1.0), closing(1.0, is_gathered=True)], "some ranks gathered"),
        ([closing(1.0), closing(1.0, out_of_memory=True)], "rank 1 ran out of memory"),
    ],
)
def test_ranks_that_do_not_fit_together(heard, words):
    with pytest.raises(WindowError, match=words) as caught:
        headers.require_same_close(heard, "optimizer")
    assert headers.is_agreed(caught.value)


def test_all_replay_if_all_can():
    heard = [closing(1.0, can_retry=True), closing(1.0, can_retry=True, out_of_memory=True)]
    with pytest.raises(headers.PeerOutOfMemoryError, match="rank 1"):
        headers.require_same_close(heard, "optimizer")


def test_many_ranks_are_named_in_short():
    assert headers.ranks_that([True] * 20) == "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 12 more"


def test_a_plain_model_is_alone():
    model = nn.Linear(2, 2)
    assert ranks_of([model], None, "window") is ALONE
    assert not list(wrapped_in([model, nn.Sequential(model)]))


def test_types_of_gradients_that_are_not_there():
    narrow, wide = nn.Linear(1, 1).bfloat16().weight, nn.Linear(1, 1).double().weight
    assert [p.dtype for p in places_of([narrow, wide], torch.float32)] == [
        torch.float32,
        torch.float64,
    ]
    assert [p.dtype for p in places_of([narrow], None)] == [torch.bfloat16]


def test_the_end_of_a_program_waits_for_a_moment_once():
    farewell.wait_at_exit.cache_clear()
    with mock.patch("atexit.register") as register:
        farewell.wait_at_exit()
        farewell.wait_at_exit()
    register.assert_called_once_with(time.sleep, farewell.MOMENT)
    farewell.wait_at_exit.cache_clear()


def test_memory_for_large_gradients_is_taken_before_ranks_agree(monkeypatch):
    """Of those that are not there, or not as they have to be to be sent, and will be sent."""
    monkeypatch.setattr(reduction, "LARGE", 64)
    asked = []
    usual = torch.empty

    def noted(size, **options):
        asked.append((size, options["dtype"]))
        return usual(size, **options)

    monkeypatch.setattr(torch, "empty", noted)
    whole, turned, none, unused = (nn.Parameter(torch.zeros(4, 6)) for _ in range(4))
    whole.grad, turned.grad = torch.ones(4, 6), torch.ones(6, 4).t()
    small = nn.Parameter(torch.zeros(3))
    places = places_of([whole, turned, none, unused, small], torch.float64)
    Reduction(places, [True, True, True, False, True])
    assert asked == [(48, torch.float64), (3, torch.float64)]
    asked.clear()
    Reduction(places)
    assert asked == [(3, torch.float64)]


class Group:
    """Stands for a process group that sends from these kinds of devices only."""

    def __init__(self, *kinds):
        self._device_types = [torch.device(kind) for kind in kinds]


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        (["cpu"], "cpu"),
        (["cpu", "cuda"], "cpu"),
        (["cuda", "cpu"], "cpu"),
        (["cuda"], "cuda:3"),
    ],
)
def test_numbers_are_sent_from_the_host_where_a_group_can(monkeypatch, kinds, expected):
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 3)
    ranks = Ranks(0, 2, Group(*kinds), "replicas")
    assert ranks.device() == torch.device(expected)
    assert ranks.way_from(torch.device("cpu")) == torch.device(expected)
    if "cuda" in kinds:
        assert ranks.way_from(torch.device("cuda", 1)) == torch.device("cuda", 1)


def test_ranks_whose_current_device_is_the_same_send_from_their_own(monkeypatch):
    """As where a model was moved to cuda:1, and torch.cuda.set_device was never called."""
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 0)
    entered = []
    monkeypatch.setattr(
        torch.accelerator, "device_index", lambda index: entered.append(index) or nullcontext()
    )
    home = torch.device("cuda", 1)
    for kinds, expected in ([["cuda"], home], [["cpu", "cuda"], torch.device("cpu")]):
        ranks = Ranks(1, 2, Group(*kinds), "replicas", home=home)
        assert ranks.device() == expected
        with ranks.at_home():
            pass
    assert entered == [1, 1]
    bound = Group("cuda")
    bound.bound_device_id = torch.device("cuda", 2)
    assert Ranks(1, 2, bound, "replicas").device() == torch.device("cuda", 2)
    with Ranks(1, 2, bound, "replicas").at_home():
        assert entered == [1, 1]


def test_the_device_of_the_parameters_is_found():
    group = mock.Mock(**{"rank.return_value": 0, "size.return_value": 2})
    on_host = nn.Linear(2, 2)
    there = mock.Mock(spec=nn.Module, **{"parameters.return_value": [mock.Mock()]})
    there.children.return_value = []
    there.parameters.return_value[0].device = torch.device("cuda", 1)
    assert ranks_of([on_host], group, "window").home is None
    assert ranks_of([on_host, there], group, "window").home == torch.device("cuda", 1)


def test_nothing_on_the_host_is_given_to_a_group_of_another_device(monkeypatch):
    """Headers and norms over NCCL; the device "meta" stands for CUDA, which need not be there."""
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 0)
    ranks = Ranks(0, 2, Group("meta"), "replicas")
    exchange = Exchange(ranks)
    exchange.prepare()
    norms = ShardedBuffers([], None, mock.Mock(ranks=ranks))
    norms._make_sent()
    sent = [*exchange._usual, *exchange._last, *exchange._tensors(SLOT + 1), norms._sent]
    assert {each.device.type for each in sent} == {"meta"}


def test_a_sum_on_a_device_is_waited_for_and_given_up_when_a_rank_is_silent(monkeypatch):
    """The headers may travel between the hosts; the gradients are where the parameters are."""
    asked = []

    class Stream:
        def record_event(self):
            return mock.Mock(**{"query.side_effect": lambda: asked.append(1) or len(asked) > 3})

    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: Stream())
    monkeypatch.setattr(wire, "LOOK", 0.0)
    home = torch.device("cuda", 1)
    exchange = Exchange(Ranks(0, 2, Group("cpu"), "replicas", home=home))
    exchange._roll = mock.Mock(**{"is_silent.return_value": False})
    times = []
    monkeypatch.setattr(exchanges, "timeout_of", lambda _, device: times.append(device) or 60.0)
    with exchange.waiting("the sum"):
        pass
    assert len(asked) == 4
    assert set(times) == {home}
    asked[:] = []
    exchange._roll.is_silent.return_value = True
    exchange._roll.call.return_value = Absence([False, True], {1: "KeyboardInterrupt"})
    told = pytest.raises(WindowError, match="rank 1 gave up, so the sum did not happen")
    with told, exchange.waiting("the sum"):
        pass
    assert len(asked) < 4
