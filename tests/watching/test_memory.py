"""A job may run for ever: what the watcher keeps of it has an end."""

from __future__ import annotations

import copy
import random

import pytest
import torch
from torch import nn

import instep
from instep.watching import series, stream

SHORT, LONG = 10_000, 100_000


def sizes(job):
    """Entries of every table that a job's watcher has, by name."""
    book, recorder, sampler = job.book, job.recorder, job.sampler
    tables = {
        "trace": job.trace,
        "first": job.series.first,
        "latest": job.series.latest,
        "lines": job.series.lines,
        "numbers": job.stream._numbers,
        "follows": job.stream._follows,
        "held": job.stream._held,
        "parameters": book.parameters,
        "models": book.models,
        "optimizers": book.optimizers,
        "grown": book.grown,
        "names": book._names,
        "owners": book._owners,
        "touched": book._touched,
        "handles": book._handles,
        "fresh": book.fresh,
        "events": recorder._events,
        "facts": recorder.facts,
        "since": recorder.since,
        "lines_told": recorder.backwards._latest,
        "known": recorder._known,
        "lines_cleared": recorder.clearing._latest,
        "lines_stepped": recorder._steps,
        "lines_called": recorder.models._latest,
        "scaled": recorder.scaled,
        "drawn": recorder.feeds._drawn,
        "fed": recorder.feeds._places,
        "witnesses": recorder.witnesses._all,
        "factors": recorder.losses._factors,
        "losses": recorder.losses._names,
        "waiting": sampler._waiting,
        "losses_waiting": sampler._losses,
        "places": sampler._places,
        "added": sampler._added,
        "weights": sampler.ratios._weights,
        "ratios": sampler.ratios._latest,
        "sizes": sampler.ratios._first,
        "ratios_waiting": sampler.ratios._waiting,
        "tokens": sampler.kept._tokens,
        "filled": sampler.unreached._filled,
        "missing": sampler.unreached._missing,
        "followed": sampler.unreached._followed,
        "called": sampler.unreached._called,
        "hooks": sampler.unreached._handles,
        "foreign": sampler.foreign._parts,
        "gauges": job.gauges._shown,
        "seen": job.judge._seen,
        "undo": job.seam.patches._undo,
    }
    found = {name: len(table) for name, table in tables.items()}
    found["points"] = max(map(len, job.series.lines.values()))
    found["together"] = max((len(held.optimizers) for held in book.parameters.values()), default=0)
    found["backwards"] = max((len(counted) for counted in recorder.since.values()), default=0)
    return found


class Tiny:
    """The smallest job: every way to train is a function from an update's number to nothing."""

    def __init__(self):
        torch.manual_seed(0)
        self.random = random.Random(0)
        self.inputs = torch.randn(2, 2)
        self.restart()

    def restart(self):
        self.model = nn.Linear(2, 1)
        self.renew()

    def renew(self):
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)

    def update(self, backwards=1, factor=1.0, clip=None):
        self.optimizer.zero_grad()
        for _ in range(backwards):
            loss = self.model(self.inputs).square().mean()
            (loss * factor).backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), clip)
        self.optimizer.step()


def same(tiny, number):
    tiny.update()


def windows_of_any_size(tiny, number):
    tiny.update(backwards=tiny.random.choice((1, 1, 1, 1, 1, 1, 2, 3, 4, 9)))


def factors_of_any_size(tiny, number):
    tiny.update(factor=tiny.random.random())


def limits_of_any_size(tiny, number):
    tiny.update(clip=tiny.random.random())


def optimizers_again_and_again(tiny, number):
    if number % 100 == 0:
        tiny.renew()
    tiny.update()


def models_again_and_again(tiny, number):
    if number % 100 == 0:
        tiny.restart()
    tiny.update()


def copies_again_and_again(tiny, number):
    if number % 100 == 0:
        tiny.model = copy.deepcopy(tiny.model)
        tiny.renew()
    tiny.update()


def any_part_of_the_model(tiny, number):
    if number == 0:
        tiny.parts = nn.ParameterList(nn.Parameter(torch.ones(())) for _ in range(16))
        tiny.optimizer = torch.optim.SGD(tiny.parts.parameters(), lr=1e-3)
    tiny.optimizer.zero_grad()
    sum(tiny.random.sample(list(tiny.parts), 8)).backward()
    tiny.optimizer.step()


def loaders_again_and_again(tiny, number):
    if number % 10 == 0:
        length = tiny.random.randint(11, 40)
        tiny.batches = iter(torch.utils.data.DataLoader(range(length)))
    next(tiny.batches)
    if number % 10 == 9:
        list(tiny.batches)
    tiny.update()


def gradients_of_nobody(tiny, number):
    if number == 0:
        tiny.parts = nn.ParameterList(nn.Parameter(torch.ones(())) for _ in range(16))
        tiny.head = nn.Sequential(nn.Linear(2, 1))
        tiny.head.parts = tiny.parts
        tiny.optimizer = torch.optim.SGD(tiny.head[0].parameters(), lr=1e-3)
    tiny.optimizer.zero_grad()
    some = sum(tiny.random.sample(list(tiny.parts), 8))
    (tiny.head[0](tiny.inputs).mean() * some).backward()
    tiny.optimizer.step()


JOBS = [
    same,
    windows_of_any_size,
    factors_of_any_size,
    limits_of_any_size,
    optimizers_again_and_again,
    models_again_and_again,
    copies_again_and_again,
    any_part_of_the_model,
    loaders_again_and_again,
    gradients_of_nobody,
]

# Tables that fill up to a limit of their own. Everything else must not grow with the job at all.
LIMITS = {
    "trace": stream.MOST_EVENTS + 10_000,
    "numbers": stream.MOST_NUMBERED,
    "follows": stream.MOST_EVENTS,
    "first": series.MOST_FIRST,
    "latest": series.MOST_LAST,
    "points": series.MOST_POINTS,
    "touched": 1024,
    "backwards": 1001,
    "parameters": 4096,
    "names": 4096,
    "handles": 4096,
    "optimizers": 4096,
}


def compare(job_of, first, second):
    """Watch a job; its tables after `second` updates must be those after `first`."""
    tiny, early = Tiny(), None
    with instep.watch() as job:
        for number in range(second):
            job_of(tiny, number)
            if number + 1 == first:
                early = sizes(job)
        late = sizes(job)
    assert job.seam.faults == []
    grown = {
        name: (early[name], size)
        for name, size in late.items()
        if size > LIMITS.get(name, early[name] + 16)
    }
    assert grown == {}


@pytest.mark.parametrize("job_of", JOBS, ids=lambda job_of: job_of.__name__)
def test_tables_have_an_end(job_of):
    compare(job_of, 1_500, 3_000)


@pytest.mark.slow
@pytest.mark.parametrize("job_of", JOBS, ids=lambda job_of: job_of.__name__)
def test_tables_have_an_end_in_long_jobs(job_of):
    compare(job_of, SHORT, LONG)
