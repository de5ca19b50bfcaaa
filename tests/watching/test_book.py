"""Who is who: what has died is not kept."""

import torch
from torch import nn

from instep.watching.book import Book


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
