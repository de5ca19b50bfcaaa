"""A function that is made anew in each step is the same one, and another one is not."""

from __future__ import annotations

import functools

from instep.engine.identities import name_of


def named(function):
    return name_of(function, [])


def test_functions_are_known_by_code_and_closure():
    model, other = object(), object()

    def made(inside, weight):
        return lambda piece: (inside, weight, piece)

    first = named(made(model, 0.5))
    assert named(made(model, 0.5)) == first
    assert named(made(model, 0.25)) != first
    assert named(made(other, 0.5)) != first
    assert named(lambda piece: piece) != first


class Losses:
    def __init__(self):
        self.weight = 1.0

    def one(self, piece):
        return piece.sum()

    def other(self, piece):
        return piece.mean()

    __call__ = one


def test_methods_partials_and_objects_are_known_in_every_step():
    held, another = Losses(), Losses()
    assert held.one is not held.one
    assert named(held.one) == named(held.one)
    assert len({named(held.one), named(held.other), named(another.one), named(held)}) == 4
    partial = functools.partial
    assert named(partial(held.one, 2, key=3)) == named(partial(held.one, 2, key=3))
    others = [partial(held.one, 2), partial(held.one, 2, key=4), partial(held.other, 2, key=3)]
    assert named(partial(held.one, 2, key=3)) not in map(named, others)
    inside = []
    name_of(partial(held.one, another), inside)
    assert any(one is held for one in inside)
    assert any(one is another for one in inside)


def test_a_name_that_is_given_later():
    def made():
        def loss(piece):
            return later(piece)

        first = named(loss)
        later = abs
        return first, named(loss)

    first, second = made()
    assert first != second
