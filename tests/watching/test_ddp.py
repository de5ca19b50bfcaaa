"""Loops under DDP that are written by hand, on real processes: what is wrong with which ranks."""

import os
import subprocess
import sys
from pathlib import Path
from textwrap import indent

import pytest

import instep
from tests.watching.ranked import START, on_ranks

PLAIN = """\
for update in range(12):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).pow(2).mean().backward()
    optimizer.step()
"""
ACCUMULATED = """\
for update in range(4):
    optimizer.zero_grad()
    for micro in range(3):
        with model.no_sync() if {quiet} else nullcontext():
            loss = model(torch.randn(8, 4)).pow(2).mean() / 3
            loss.backward()
    optimizer.step()
"""
JOINED = """\
for epoch in range(4):
    with model.join():
        for batch in range(5 + {more}):
            optimizer.zero_grad()
            model(torch.randn(8, 4)).pow(2).mean().backward()
            optimizer.step()
"""
JOINED_WINDOWS = """\
for epoch in range(3):
    batches = 4 + rank
    with model.join():
        for batch in range(batches):
            size = min(2, batches - batch // 2 * 2)
            is_last = (batch + 1) % 2 == 0 or batch == batches - 1
            with nullcontext() if is_last else model.no_sync():
                (model(torch.randn(8, 4)).pow(2).mean() / size).backward()
            if is_last:
                optimizer.step()
                optimizer.zero_grad()
"""
LEFT_OUT = PLAIN.replace("    optimizer.step()", "    if {when}:\n        optimizer.step()")
LOADED = "with torch.no_grad():\n    model.module.weight.add_(0.5 * (rank == {which}))\n"


TWO = {
    "plain": PLAIN,
    "quiet": ACCUMULATED.format(quiet="micro < 2"),
    "synced": ACCUMULATED.format(quiet="False"),
    "never synced": ACCUMULATED.format(quiet="True"),
    "joined": JOINED.format(more="rank"),
    "joined windows": JOINED_WINDOWS,
    "left out": LEFT_OUT.format(when="rank == 0 or update != 5"),
    "left out at once": LEFT_OUT.format(when="rank == 1 or update"),
    "left out late": LEFT_OUT.format(when="rank == 0 or update != 75").replace(
        "range(12)", "range(100)"
    ),
}
THREE = {
    "plain": PLAIN,
    "joined": JOINED.format(more="rank % 2"),
    "last": LOADED.format(which=2) + PLAIN,
    "first": LOADED.format(which=0) + PLAIN,
    "left out": LEFT_OUT.format(when="rank != 1 or update % 4"),
}
SOURCE = str(Path(instep.__file__).parents[1])


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    return on_ranks(tmp_path_factory.mktemp("two"), 2, TWO)


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    return on_ranks(tmp_path_factory.mktemp("three"), 3, THREE)


@pytest.mark.parametrize("name", ["plain", "quiet", "joined", "joined windows"])
def test_right_loops_on_two_ranks(two, name):
    assert [rank["found"] for rank in two[name]] == [{}, {}]
    assert two[name][0]["weights"] == two[name][1]["weights"]
    if "joined" in name:
        assert two[name][0]["updates"] != two[name][1]["updates"]


@pytest.mark.parametrize("name", ["plain", "joined"])
def test_right_loops_on_three_ranks(three, name):
    assert [rank["found"] for rank in three[name]] == [{}, {}, {}]


def test_a_reduction_at_every_micro_batch(two):
    for rank in two["synced"]:
        assert rank["found"] == {
            "INS603": "the gradients of `model` are reduced over all ranks 3 times per update, "
            "where once per update is enough."
        }
        assert rank["lines"]["INS603"] == START.count("\n") + 5


def apart(ranks):
    """Return what rank 0 says about ranks that have gone apart; the others leave it to it."""
    assert all(rank["found"] == {} for rank in ranks[1:])
    assert ranks[0]["found"].keys() == {"INS606"}
    return ranks[0]["found"]["INS606"].removeprefix("ranks have gone apart under `optimizer`: ")


def test_a_window_that_is_never_reduced(two):
    assert apart(two["never synced"]) == "rank 1 has other weights than rank 0 after 4 updates."


def test_weights_that_are_changed_on_one_rank(three):
    said = "{} after 8 updates.".format
    assert apart(three["last"]) == said("rank 2 has other weights than rank 0")
    assert apart(three["first"]) == said("rank 0 has other weights than ranks 1, 2")


@pytest.mark.parametrize(
    ("size", "name", "says"),
    [
        ("two", "left out", ("rank 1 has stepped another number of times than rank 0: "
         "8 updates after 9 averaged gradients, where rank 0 made 9.")),
        ("two", "left out at once", ("rank 1 has stepped another number of times than rank 0: "
         "8 updates after 8 averaged gradients, where rank 0 made 7.")),
        ("two", "left out late", ("rank 1 has stepped another number of times than rank 0: "
         "96 updates after 97 averaged gradients, where rank 0 made 97.")),
        ("three", "left out", ("rank 1 has stepped another number of times than rank 0: "
         "8 updates after 11 averaged gradients, where rank 0 made 11.")),
    ],
)  # fmt: skip
def test_a_rank_that_steps_another_number_of_times(request, size, name, says):
    assert apart(request.getfixturevalue(size)[name]) == says


# The end of a program, which only `instep watch` sees

PROGRAM = """\
import os, pathlib, gc, time, torch
rank = int(os.environ["RANK"])
torch.distributed.init_process_group(
    "gloo", init_method=f"file://{os.getcwd()}/store", rank=rank, world_size=2
)
try:
{job}
finally:
    while rank == 0 and not pathlib.Path("go").exists():
        time.sleep(0.01)
"""
"""Rank 0, which tells for both, ends when the other one is over."""
END = "del model, optimizer\ngc.collect()\ntorch.distributed.destroy_process_group()\n"


LEFT = """\
import atexit, os, torch
rank = int(os.environ["RANK"])
torch.distributed.init_process_group(
    "gloo", init_method=f"file://{os.getcwd()}/store", rank=rank, world_size=2
)
atexit.register(os._exit, rank)  # nothing is to be freed any more, see `ranked`
"""
"""Rank 0 leaves with the group as it is: until then, the other one waits for it."""


def both(folder, source):
    """Run a program on two ranks under `instep watch`."""
    (folder / "train.py").write_text(source)
    common = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_PORT": folder.name}
    path = os.pathsep.join([SOURCE, os.environ.get("PYTHONPATH", "")])
    return [
        subprocess.Popen(
            [sys.executable, "-m", "instep", "watch", "--quiet", "train.py"],
            cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, **common, "PYTHONPATH": path, "RANK": rank, "LOCAL_RANK": rank},
        )
        for rank in "01"
    ]  # fmt: skip


def watched(folder, job):
    """Run a job that rank 0 ends last; return what that tells."""
    whole = indent(f"{START}{job}{END}", "    ")
    ranks = both(folder, PROGRAM.replace("{job}", whole))
    _, said = ranks[1].communicate(timeout=100)
    assert "INS606" not in said
    (folder / "go").touch()
    _, said = ranks[0].communicate(timeout=100)
    return [line for line in said.splitlines() if "INS606" in line]


def test_the_last_update_is_left_out(tmp_path):
    [said] = watched(tmp_path, LEFT_OUT.format(when="rank == 0 or update != 11"))
    assert said.endswith("rank 1 has made 11 updates, where rank 0 has made 12.")


def test_a_rank_that_has_fewer_batches(tmp_path):
    [said] = watched(tmp_path, PLAIN.replace("range(12)", "range(12 - 3 * rank)"))
    assert said.endswith(
        "rank 1 ended after 9 updates, while rank 0 waited for it in another backward."
    )


def test_rank_0_has_fewer_batches_and_leaves_the_other_one_waiting(tmp_path):
    ranks = both(tmp_path, f"{LEFT}{START}{PLAIN.replace('range(12)', 'range(9 + 3 * rank)')}")
    (_, first), (_, second) = (rank.communicate(timeout=100) for rank in ranks)
    assert first == ""
    [said] = [line for line in second.splitlines() if "INS606" in line]
    assert said.endswith(
        "rank 0 ended after 9 updates, while rank 1 waited for it in another backward."
    )


def test_a_program_that_fails_on_its_own(tmp_path):
    assert watched(tmp_path, PLAIN + "if rank == 0:\n    raise ValueError\n") == []
