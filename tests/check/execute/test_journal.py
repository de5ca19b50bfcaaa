import ast

from instep.check.execute.journal import Loop


def loop(kind, outer=None, **more):
    made = Loop(ast.parse(""), kind, None, outer)
    for name, value in more.items():
        setattr(made, name, value)
    return made


def test_a_loader_gives_batches_wherever_it_is():
    assert loop("loader", loop("loader")).is_batches()


def test_a_range_gives_batches_if_it_steps():
    assert not loop("range").is_batches()
    assert loop("range", steps=1).is_batches()


def test_inside_a_loader_there_are_pieces():
    inner = loop("range", loop("loader"), steps=1)
    assert not inner.is_batches()


def test_the_feeder_is_the_loop_that_draws():
    batches = loop("loader")
    middle = loop("range", batches)
    assert loop("unknown", middle).feeder() is batches
    assert loop("range", loop("range")).feeder() is None
    drawing = loop("while", draws=True)
    assert loop("range", drawing).feeder() is drawing
