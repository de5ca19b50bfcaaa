"""The simulator of scale: its arithmetic, and its predictions beside what was measured."""

import math
import os
import statistics
from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch import distributed
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks.scale import __main__ as command
from benchmarks.scale import failures, fit, gpu, measure, tables, uneven
from benchmarks.scale.assumed import RANKS, Assumed
from benchmarks.scale.machines import Links, Machine, moved
from benchmarks.scale.windows import KINDS, SYNCS, Job, window
from tests.distributed.crew import run_once

CLUSTER = Assumed().machine()
JOB = Job(10**9, 8, 0.02, 0.006, layers=10)


def test_a_ring_by_hand():
    machine = Machine("", Links(1.0, 0.1), Links(5.0, 0.5), node=4, has_trees=False)
    assert machine.seconds("all-reduce", 80, 1) == 0
    assert machine.seconds("all-reduce", 80, 4) == pytest.approx(2 * 3 * 1.0 + 120 * 0.1)
    assert machine.seconds("all-gather", 80, 4) == pytest.approx(3 * 1.0 + 60 * 0.1)
    # Over two nodes a message is that of the network; its bytes go over four ports.
    assert machine.seconds("all-gather", 80, 8) == pytest.approx(7 * 5.0 + 70 * 0.5 / 4)


def test_few_bytes_go_over_a_tree():
    ring = replace(CLUSTER, has_trees=False)
    assert CLUSTER.seconds("all-reduce", 1e3, 4096) < ring.seconds("all-reduce", 1e3, 4096) / 50
    assert CLUSTER.seconds("all-reduce", 1e12, 16) == ring.seconds("all-reduce", 1e12, 16)


def test_ranks_take_turns_on_cores():
    shared = replace(CLUSTER, cores=2)
    assert shared.seconds("all-reduce", 1e6, 8) == 4 * CLUSTER.seconds("all-reduce", 1e6, 8)
    one, eight = (window(shared, JOB, ranks, "ddp", "window") for ranks in (1, 8))
    assert eight.seconds > 4 * one.seconds


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sync", SYNCS)
def test_every_way(kind, sync):
    alone = window(CLUSTER, JOB, 1, kind, sync)
    assert (alone.sent, alone.waited, alone.exposed) == (0, 0, 0)
    assert alone.seconds == pytest.approx(8 * 0.02 + 0.006)
    slow = replace(CLUSTER, outside=Links(1e-3, 1e-8))
    hidden = replace(CLUSTER, overlap=1.0)
    for ranks in RANKS[1:]:
        made = window(CLUSTER, JOB, ranks, kind, sync)
        assert window(slow, JOB, ranks, kind, sync).seconds >= made.seconds
        assert window(hidden, JOB, ranks, kind, sync).seconds <= made.seconds
        assert made.exposed > 0  # the last bucket hides behind nothing
        often = window(CLUSTER, JOB, ranks, kind, "micro-batch")
        assert window(CLUSTER, JOB, ranks, kind, "window").seconds <= often.seconds


def test_bytes_by_hand():
    sent = {way: window(CLUSTER, JOB, 4, *way).sent / 1e9 for way in tables._ways()}
    assert sent == {
        ("ddp", "window"): 6.0,  # 2 · 3/4 of 4 GB
        ("ddp", "micro-batch"): 48.0,
        ("fsdp", "window"): 51.0,  # 16 gathers and a reduction of 3 GB
        ("fsdp", "micro-batch"): 72.0,
        ("fsdp-kept", "window"): 6.0,
    }
    held = {way: window(CLUSTER, JOB, 4, *way).held / 1e9 for way in tables._ways()}
    assert held == {
        ("ddp", "window"): 16.0,
        ("ddp", "micro-batch"): 16.0,
        ("fsdp", "window"): 8.0,  # a quarter of 16 bytes, and the gradients of the rank
        ("fsdp", "micro-batch"): 4.0,
        ("fsdp-kept", "window"): 12.0,
    }


class Counting(TorchDispatchMode):
    """Counts collectives by their name and the bytes of the whole."""

    def __init__(self):
        super().__init__()
        self.calls = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = str(function)
        if name.startswith("c10d."):
            tensors = [each for each in tree_leaves(args) if isinstance(each, torch.Tensor)]
            self.calls[name.split(".")[1], max(t.numel() * 4 for t in tensors)] += 1
        return function(*args, **(kwargs or {}))


def count(rank, folder):
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2
    )
    whole = fit.measurements()["parameters"] * 4
    shape = measure.USUAL
    layer = whole // shape.layers
    for kind in measure.KINDS:
        for sync in measure.SYNCS:
            _, run = measure.window_of(shape, kind, sync)
            run()
            run()  # DDP makes its buckets anew in the second window
            with Counting() as counting:
                run()
            reductions = shape.micro_batches if sync == "micro-batch" else 1
            expected = {("allreduce_", whole): reductions}
            if kind == "fsdp":
                gathers = 2 * shape.micro_batches * shape.layers
                expected = {
                    ("_allgather_base_", layer): gathers,
                    ("_reduce_scatter_base_", layer): reductions * shape.layers,
                }
            assert dict(counting.calls) == expected
            job = fit.job_of(fit.measurements(), kind)
            sent = sum(
                moved("all-reduce" if name[3:10] == "reduce_" else "all-gather", size, 2) * times
                for (name, size), times in expected.items()
            )
            assert window(CLUSTER, job, 2, kind, sync).sent == sent
    (folder / f"{rank}").touch()
    os._exit(0)  # a model that outlives its group hangs when it is freed


def test_collectives_are_as_many_and_as_large_as_the_model_says(tmp_path):
    run_once(2, count, tmp_path)
    assert (tmp_path / "0").exists()
    assert (tmp_path / "1").exists()


# Fitted, and predicted


@pytest.fixture(scope="module")
def data():
    return fit.measurements()


def errors(data, machine, *, windows):
    """Return how far off everything is that was not fitted."""
    return [
        abs(each.error)
        for each in fit.points(data, machine)
        if not each.fitted and ("window" in each.what) is windows
    ]


def test_windows_on_gloo_are_predicted(data):
    found = errors(data, fit.fitted(data), windows=True)
    assert len(found) == 10
    assert max(found) < 0.35
    assert statistics.median(found) < 0.10


def test_windows_that_no_choice_knew_of_are_predicted(data):
    """Another model on 5 and 6 ranks, measured when the model was done."""
    found = errors(data["fresh"], fit.fitted(data), windows=True)
    assert len(found) == 8
    assert max(found) < 0.35
    assert statistics.median(found) < 0.20


def test_collectives_on_gloo_are_predicted(data):
    found = errors(data, fit.fitted(data), windows=False)
    assert len(found) == 36
    assert statistics.median(found) < 0.15
    assert sorted(found)[-3] < 0.5  # a small one in the shade of somebody else's work may be worse


def test_the_tolerance_has_teeth(data):
    """A model in which bytes, messages or sharding cost nothing, or too much, does not pass."""
    machine = fit.fitted(data)
    links = machine.inside
    for wrong in (
        replace(machine, inside=Links(0.0, links.byte)),
        replace(machine, inside=Links(links.message * 2, links.byte)),
        replace(machine, inside=Links(links.message, 0.0), copy=0.0),
        replace(machine, inside=Links(links.message, links.byte * 3), copy=machine.copy * 3),
    ):
        assert statistics.median(errors(data, wrong, windows=False)) > 0.15
    for wrong in (replace(machine, shard_call=0.0), replace(machine, shard_call=5e-3)):
        assert max(errors(data, wrong, windows=True)) > 0.35


def test_the_window_of_a_gpu_is_predicted():
    found = gpu.figures()
    model = gpu.fitted(found)
    assert model.window(1024) == pytest.approx(found["gpt-1024"][gpu.WAY][0] / 1e3, rel=0.10)
    held = found["gpt-512"][gpu.LEAST_WAY][1]
    assert pytest.approx(held, rel=0.03) == gpu.PARAMETERS * 16 / 2**30
    assert 1e14 < model.rate < 9.9e14  # below what the vendor says it can do at most


# Uneven work, and failures


def test_the_slowest_of_many():
    assert uneven.expected_maximum(3) == pytest.approx(1.5 / math.sqrt(math.pi), rel=1e-6)
    for ranks in (2, 8, 64):
        mean, error = uneven.simulated_maximum(ranks, 4000, seed=1)
        assert abs(mean - uneven.expected_maximum(ranks)) < 4 * error


def test_windows_that_vary():
    """Played, rank by rank and micro-batch by micro-batch."""
    draw = torch.Generator().manual_seed(0)
    times = 1 + 0.1 * torch.randn(2000, 64, 8, generator=draw, dtype=torch.float64)
    job = replace(JOB, micro_seconds=1.0, variation=0.1)
    for sync, played in (("window", times.sum(2).amax(1)), ("micro-batch", times.amax(1).sum(1))):
        made = window(CLUSTER, job, 64, "ddp", sync).waited
        error = float(played.std()) / math.sqrt(len(played))
        assert abs(float(played.mean()) - 8 - made) < 4 * error


PLANTS = [
    failures.Plant(1000, 3.6e7, 30.0, 300.0),
    failures.Plant(16384, 1.8e8, 30.0, 300.0),
    failures.Plant(16384, 1.8e7, 60.0, 600.0),  # fails twice in an hour
]


@pytest.mark.parametrize("plant", PLANTS)
def test_what_failures_cost_is_what_is_played(plant):
    for work in (failures.best(plant), 3 * failures.best(plant)):
        mean, error = failures.simulated(plant, work, 5000, seed=2)
        assert abs(mean - failures.expected(plant, work)) < 4 * error


@pytest.mark.parametrize("plant", PLANTS)
def test_the_best_interval_is_the_best(plant):
    best = failures.best(plant)
    most = failures.useful(plant)
    for factor in (0.5, 0.9, 0.99, 1.01, 1.1, 2.0):
        assert failures.useful(plant, factor * best) < most
    assert failures.daly(plant) == pytest.approx(best, rel=0.01)
    assert failures.young(plant) == pytest.approx(best, rel=0.2)


def test_nothing_fails():
    plant = failures.Plant(8, 1e15, 30.0, 300.0)
    assert failures.expected(plant, 3600.0) == pytest.approx(3630.0)
    assert failures.useful(plant) == pytest.approx(1.0, abs=1e-5)
    assert failures.useful(failures.Plant(10**6, 1.0, 30.0, 300.0), 3600.0) == 0.0
    assert failures.daly(failures.Plant(1, 10.0, 30.0, 0.0)) == 10.0


# The command


def test_the_page_is_what_the_command_says():
    page = command.PAGE.read_text(encoding="utf-8")
    for name, section in command.SECTIONS.items():
        between = page.split(f"<!-- begin scale-{name} -->")[1].split("<!-- end")[0].strip()
        assert between == section(Assumed()).strip()


def test_other_assumptions_are_not_written(capsys):
    assert command.main(["--write", "--network", "20"]) == 2
    assert "usual assumptions" in capsys.readouterr().err


def test_assumptions_are_options(capsys):
    assert command.main(["--only", "windows", "--network", "1", "--tokens", "512"]) == 0
    slow = capsys.readouterr().out
    assert command.main(["--only", "windows", "--tokens", "512"]) == 0
    assert slow != capsys.readouterr().out


def test_the_least_of_two_rounds_counts():
    one = {"cores": 2, "collectives": [{"name": "a", "wall": 1.0, "cores": 4.0}], "windows": []}
    other = {"cores": 2, "collectives": [{"name": "a", "wall": 2.0, "cores": 3.0}], "windows": []}
    assert measure.least(one, other)["collectives"] == [{"name": "a", "wall": 1.0, "cores": 3.0}]
