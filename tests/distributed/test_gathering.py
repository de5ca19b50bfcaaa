"""Rows of all ranks: of any type and from any device, and no rank waits for one without memory."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import distributed

import instep
from instep.engine.ranks import gathering
from instep.engine.ranks.gathering import Representations, describe, gather_rows
from instep.engine.ranks.headers import Kind, Said
from instep.engine.ranks.world import Ranks
from instep.errors import InstepError
from tests.distributed.kit import dealt, spread, values
from tests.engine.kit import mlp

TYPES = ["bool", "int16", "uint8", "int64", "bfloat16", "float64", "complex64", "float8_e5m2"]


def rows_of(rank, dtype):
    """As many rows as the rank's number, of two by one numbers each."""
    start = torch.arange(2 * rank).reshape(rank, 2, 1) + 10 * rank
    return start.to(getattr(torch, dtype))


def gathered(rank, world, dtype):
    own = rows_of(rank, dtype)
    found = gather_rows(own, distributed.group.WORLD)
    return [(str(each.dtype), each.shape, each.to(torch.complex64).tolist()) for each in found]


@pytest.mark.parametrize("dtype", TYPES)
def test_rows_of_any_type_arrive_as_they_were(three, dtype):
    expected = [rows_of(rank, dtype) for rank in range(3)]
    for found in three.run(gathered, dtype):
        assert found == [
            (f"torch.{dtype}", each.shape, each.to(torch.complex64).tolist()) for each in expected
        ]


def two_passes(rank, stepper, model):
    """A loss on the samples of all ranks, with masks and labels that travel along."""
    batch = dealt([[3], [2]])[rank][0]

    def encode(b):
        return {"out": model(b[0]), "kept": b[1] > 0, "label": b[1].to(torch.int16)}

    def loss_of(found, _):
        logits, labels = found["out"][found["kept"]], found["label"][found["kept"]].long()
        return torch.nn.functional.cross_entropy(logits, labels, reduction="sum"), len(labels)

    return stepper.step(batch, loss_of, encode=encode, split=2, gather=True)


def without_room(rank, world, kind):
    """Rank 1 has no memory to send from, once: both raise, and go on."""
    plain = mlp()
    model = spread(plain, kind)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    before = values(plain)
    usual = gathering.Parcel.of

    def fail(*_):
        raise torch.OutOfMemoryError("nothing left")

    if rank == 1:
        gathering.Parcel.of = fail
    try:
        two_passes(rank, stepper, model)
        said = "went on"
    except (InstepError, torch.OutOfMemoryError) as error:
        said = str(error)
    gathering.Parcel.of = usual
    assert values(plain) == before
    update = two_passes(rank, stepper, model)
    return said, update.items, values(plain)


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_a_rank_without_memory_for_representations(two, kind):
    first, second = two.run(without_room, kind)
    assert first[0].startswith("rank 1 ran out of memory at the gathering of representations.")
    assert second[0] == "nothing left"
    assert first[1:] == second[1:]


def on(*kinds):
    """Ranks whose group sends from these kinds of devices only, as one of NCCL from CUDA's."""
    group = SimpleNamespace(_device_types=[torch.device(kind) for kind in kinds])
    return Ranks(0, 2, group, "replicas")


@pytest.fixture(autouse=True)
def _device(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 0)


def ways(ranks, own, heard=None):
    told = describe(heard if heard is not None else own)
    said = [Said(Kind.SHAPES, shapes=told if own else []), Said(Kind.SHAPES, shapes=told)]
    found = Representations(own, said, ranks, device=torch.device("meta"), summed=False)
    return [parcel.sent.device.type for parcel in found._parcels]


def test_what_a_group_cannot_send_from_the_host_goes_by_its_device():
    """The device "meta" stands for CUDA, which need not be there."""
    host, device = torch.zeros(2, 3), torch.zeros(2, 3, device="meta")
    assert ways(on("meta"), [host, device]) == ["meta", "meta"]
    assert ways(on("cpu", "meta"), [host, device]) == ["cpu", "meta"]
    assert ways(on("cpu"), [host]) == ["cpu"]


def test_a_rank_without_samples_sends_from_where_the_others_do():
    """With a transport for each kind of device, another one would wait for ever."""
    host, device = torch.zeros(2, 3), torch.zeros(2, 3, device="meta")
    assert ways(on("cpu", "meta"), [], [host, device]) == ["cpu", "meta"]
    assert ways(on("meta"), [], [host, device]) == ["meta", "meta"]
    # Where the ranks differ, what the first one has counts.
    said = [Said(Kind.SHAPES, shapes=describe([each])) for each in (device, host)]
    found = Representations(
        [host], said, on("cpu", "meta"), device=torch.device("cpu"), summed=False
    )
    assert found._parcels[0].sent.device.type == "meta"
