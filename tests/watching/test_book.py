"""Who is who: what has died is not kept."""

import itertools

import torch
from torch import nn

import instep
from instep.watching import book as module
from instep.watching.book import Book
from tests.watching.jobs import run


def bare(count):
    """Optimizers whose parameters are in no model."""
    return [torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1) for _ in range(count)]


def test_models_of_all_that_is_alive_already_are_looked_for_once(monkeypatch):
    kept, searches = bare(30), []
    monkeypatch.setattr(Book, "find_models", lambda book: searches.append(id(book)))
    run("pass")
    assert len(searches) == 1
    assert len(kept) == 30


def test_no_clock_decides_whether_the_models_of_a_job_are_found(monkeypatch):
    kept, clock = bare(30), itertools.count(0, 1000)
    monkeypatch.setattr(module, "thread_time", lambda: next(clock))
    job = run("""
layers = [torch.nn.Linear(2, 2) for _ in range(4)]
for layer in layers:
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
""")
    held = [job.book.parameters[id(layer.weight)] for layer in job.left["layers"]]
    assert [each.name for each in held] == ["weight"] * 4
    assert len(kept) == 30


def test_whoever_makes_models_all_the_time_does_without_their_names(monkeypatch):
    clock = itertools.count(0, 1000)
    monkeypatch.setattr(module, "thread_time", lambda: next(clock))
    book, layers = Book(()), [nn.Linear(2, 2) for _ in range(20)]
    made = []
    for layer in layers:
        parameter = torch.nn.Parameter(torch.zeros(1))
        layer.register_parameter("late", parameter)
        made.append(torch.optim.SGD([parameter], lr=0.1))
        book.take_group(made[-1], [parameter], None)
    names = [book.parameters[id(layer.late)].name for layer in layers]
    assert names == ["late"] * 16 + ["parameter 0"] * 4
    book.close()


def test_a_parameter_knows_no_dead_optimizers():
    book, model = Book(()), nn.Linear(2, 1)
    kept = torch.optim.SGD(model.parameters(), lr=0.1)
    book.take_group(kept, model.parameters(), None)
    for _ in range(50):
        latest = torch.optim.SGD(model.parameters(), lr=0.1)
        book.take_group(latest, model.parameters(), None)
    held = book.parameters[id(model.weight)]
    assert {id(kept), id(latest)} <= set(held.optimizers)
    assert len(held.optimizers) <= 3  # the one before lived while the latest was made
    assert [weak() for weak in book.owners(held)] == [kept, latest]
    book.close()


class Loader:
    """Something that dies."""


class Larger:
    """Something that does not come to lie where one of the others was."""

    __slots__ = ("__weakref__", *(f"field_{number}" for number in range(40)))


def test_names_that_are_given_on_do_not_add_up():
    book = Book(())
    loaders = [Loader() for _ in range(3000)]
    for loader in loaders:
        book.rename(loader, "loader")
    del loader, loaders
    alive = [Larger() for _ in range(100)]
    for number, each in enumerate(alive):
        book.rename(each, f"loader {number}")
    assert len(book._names) == 100
    assert [book.met(each) for each in alive] == [f"loader {number}" for number in range(100)]


def test_a_lazy_model_is_met_when_it_has_parameters():
    lazy = torch.nn.Sequential(torch.nn.LazyLinear(4), torch.nn.Linear(4, 2))
    with instep.watch() as job:
        other = torch.nn.Linear(3, 2)
        torch.optim.SGD(other.parameters(), lr=0.1)
        lazy(torch.ones(2, 3))
        optimizer = torch.optim.SGD(lazy.parameters(), lr=0.1)
        for _ in range(4):
            optimizer.zero_grad()
            lazy(torch.ones(2, 3)).mean().backward()
            optimizer.step()
    assert job.seam.faults == []
    assert job.series.updates == {"optimizer": 4}
    assert {held.label for held in job.book.parameters.values()} >= {"lazy.0.weight", "lazy.1.bias"}
    assert [finding.code for finding in job.findings] == []


class Refuses(torch.nn.Module):
    def named_parameters(self, *args, **kwargs):
        raise RuntimeError("not now")


def test_what_cannot_be_read_is_no_model():
    others = Refuses(), torch.nn.Module.__new__(torch.nn.Module)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    book = Book(())
    book.take_group(optimizer, list(model.parameters()), None)
    assert [held.model for held in book.of_optimizer(optimizer)] == ["model"] * 2
    del others
