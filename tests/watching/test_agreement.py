import gc
import json
import os
import socket
from types import SimpleNamespace

import pytest
import torch

from instep.rules.registry import rulebook
from instep.watching import agreement as ranks
from instep.watching.gauges import Gauges
from instep.watching.series import Series
from tests.distributed.crew import run_once
from tests.watching.jobs import found, run

RULE = rulebook()["INS606"]


class Store:
    """The store of a process group, of which nobody may wait for anything."""

    def __init__(self):
        self.kept = {}

    def set(self, key, value):
        self.kept[key] = value

    def check(self, keys):
        return all(key in self.kept for key in keys)

    def multi_get(self, keys):
        return [self.kept[key].encode() for key in keys]


@pytest.fixture
def world(monkeypatch):
    """Two ranks in one process: each is whoever is asked at the moment."""
    store, now = Store(), SimpleNamespace(rank=0)
    monkeypatch.setattr(ranks, "_store", lambda: store)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: now.rank)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    weights = [torch.nn.Parameter(torch.ones(10)) for _ in range(2)]
    both = []
    for weight in weights:
        series, gauges = Series(), Gauges()
        watcher = ranks.Ranks(series, gauges)
        watcher._shared = {id(weight): lambda: None}
        both.append((watcher, series, gauges, torch.optim.SGD([weight], lr=0.1)))

    def update(rank, skipped=None):
        now.rank = rank
        watcher, series, _, optimizer = both[rank]
        series.updated("sgd", skipped)
        if skipped is None:
            watcher.after_step(optimizer, "sgd", None)

    return SimpleNamespace(
        update=update, weights=weights, shown=lambda: list(both[0][2]), store=store, both=both
    )


def test_ranks_that_agree(world):
    for _ in range(300):
        world.update(0)
        world.update(1)
    assert world.shown() == []
    assert len(world.store.kept) <= 2 * 16  # however long it takes
    assert len(world.both[0][0]._open) <= 2


def test_other_weights(world):
    world.weights[1].data[3] += 0.01
    for rank in (0, 1, 0):
        world.update(rank)
    [gauge] = world.shown()
    assert gauge.subject == "rank 1 has other weights than rank 0 after 1 update"
    assert (gauge.optimizers, gauge.value) == (("sgd",), 1.0)


def test_weights_that_have_changed_places(world):
    world.weights[0].data[3], world.weights[1].data[4] = 2.0, 2.0
    for rank in (0, 1, 0):
        world.update(rank)
    assert len(world.shown()) == 1


def test_another_number_of_updates(world):
    world.update(1, skipped="nonfinite")
    for rank in (0, 1, 0):
        world.update(rank)
    [gauge] = world.shown()
    assert gauge.subject == "rank 1 skipped other updates than rank 0 on the way to 1 update"


def test_a_rank_that_is_behind_is_not_waited_for(world):
    for _ in range(100):
        world.update(0)
    assert world.shown() == []
    for _ in range(100):
        world.update(1)
    assert world.shown() == []
    world.weights[1].data.add_(1.0)
    for _ in range(64):
        world.update(1)
        world.update(0)
    assert len(world.shown()) == 1


def test_how_ranks_have_ended(world):
    for rank, updates in enumerate((3, 2)):
        world.both[rank][0]._reduced = 3
        for _ in range(updates):
            world.update(rank)
    watcher = world.both[0][0]
    ends = [each[0].endings(has_finished=True) for each in world.both]
    watcher.compare(dict(enumerate(ends)))
    [gauge] = world.shown()
    assert gauge.subject == "rank 1 has made 2 updates, where rank 0 has made 3"
    watcher.compare({0: ends[1], 1: ends[0]})
    assert world.shown() == [gauge]  # the first to be said is nearest to the cause


def test_the_weights_of_the_last_update_are_compared_at_the_end(world):
    for watcher, *_ in world.both:
        watcher._reduced = 3
    for _ in range(3):
        world.update(0)
        world.update(1)
    one, other = (watcher.endings(has_finished=True) for watcher, *_ in world.both)
    assert one["sgd"].weights == other["sgd"].weights != ()
    with torch.no_grad():
        world.weights[1] += 1.0
    assert world.both[1][0].endings(has_finished=True)["sgd"].weights == ()  # after the last one
    world.update(0)
    world.update(1)
    everybody = {rank: each[0].endings(has_finished=True) for rank, each in enumerate(world.both)}
    world.both[0][0].compare(everybody)
    assert [gauge.subject for gauge in world.shown()][-1].endswith("after 4 updates, at the end")


def test_ranks_that_join_are_not_compared(world):
    world.weights[1].data[3] += 0.01
    for watcher, *_ in world.both:
        watcher._reduced = 1
        watcher._is_joined = True
    for rank in (0, 1, 0):
        world.update(rank)
    assert world.shown() == []
    assert world.both[0][0].endings(has_finished=True) == {}


def test_without_a_group_there_is_nothing_to_compare():
    watcher, gauges = ranks.Ranks(Series(), Gauges()), Gauges()
    watcher.after_step(torch.optim.SGD([torch.nn.Parameter(torch.ones(1))]), "sgd", None)
    watcher.finish()
    assert list(gauges) == []


def work(rank, port, folder):
    """Run both examples on one of two ranks, and write down what was found and what came of it."""
    os.environ.update(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1")
    said = {}
    for number, (kind, watched) in enumerate([("BAD", True), ("GOOD", True), ("GOOD", False)]):
        os.environ["MASTER_PORT"] = str(port + number)
        # Before the block is left, so that rank 0 finds what rank 1 has written.
        source = getattr(RULE, kind) + "torch.distributed.barrier()\n"
        job = run(source, watched=watched)
        weight = job.left["model"].module.weight
        said[f"{kind} {watched}"] = (found(job), weight.tolist())
        # A model that outlives its group frees it while holding Python's lock, which a thread of
        # the group may be waiting for: torch hangs then.
        del weight
        job.left.clear()
        gc.collect()
        torch.distributed.destroy_process_group()
    (folder / f"{rank}.json").write_text(json.dumps(said))
    os._exit(0)  # for the same reason: nothing is to be freed any more


def test_two_processes(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    run_once(2, work, port, tmp_path)
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    [line] = [n for n, text in enumerate(RULE.BAD.splitlines(), 1) if text.endswith("# <- here")]
    assert first["BAD True"][0] == [["INS606", line]]
    assert first["BAD True"][1] != second["BAD True"][1]
    assert first["GOOD True"][0] == second["GOOD True"][0] == []
    assert first["GOOD True"][1] == first["GOOD False"][1] == second["GOOD True"][1]
