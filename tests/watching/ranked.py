"""Jobs on several real processes: every rank runs a source under watch and writes what it saw."""

from __future__ import annotations

import gc
import json
import os
from typing import TYPE_CHECKING, Any

from torch import distributed

from tests.distributed.crew import run_once
from tests.watching.jobs import run

if TYPE_CHECKING:
    from pathlib import Path

START = """\
from contextlib import nullcontext
from torch.nn.parallel import DistributedDataParallel

rank = torch.distributed.get_rank()
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(rank)
"""
"""What the jobs begin with: the same model on all ranks, and other data on each."""


def on_ranks(folder: Path, size: int, jobs: dict[str, str]) -> dict[str, list[dict[str, Any]]]:
    """Run jobs one after the other on so many ranks; return for each what every rank has seen."""
    run_once(size, _work, size, folder, jobs)
    ranks = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(size)]
    return {name: [said[name] for said in ranks] for name in jobs}


def _work(rank: int, size: int, folder: Path, jobs: dict[str, str]) -> None:
    gc.freeze()  # torch is not looked through again after every job
    said = {}
    for number, (name, source) in enumerate(jobs.items()):
        where = f"file://{folder}/store{number}"
        distributed.init_process_group("gloo", init_method=where, rank=rank, world_size=size)
        # A barrier before the watch ends, so that rank 0 finds what the others have written.
        job = run(f"{START}{source}torch.distributed.barrier()\n")
        weight = job.left["model"].module.weight
        said[name] = {
            "found": {each.code: each.message for each in job.findings},
            "lines": {each.code: each.place.line for each in job.findings},
            "updates": job.series.updates,
            "weights": weight.tolist(),
        }
        # A model that outlives its group frees it while holding Python's lock, which a thread of
        # the group may be waiting for: torch hangs then.
        del weight
        job.left.clear()
        gc.collect()
        distributed.destroy_process_group()
    (folder / f"{rank}.json").write_text(json.dumps(said))
    os._exit(0)  # for the same reason: nothing is to be freed any more
