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


def test_a_loop_around_that_runs_once_repeats_nothing():
    assert not loop("loader").is_repeated()
    assert loop("loader", loop("range")).is_repeated()
    once = {"literal": True, "length": 1}
    assert not loop("loader", loop("range", **once)).is_repeated()
    assert loop("loader", loop("range", **once, supposed=True)).is_repeated()
    assert loop("loader", loop("range", literal=False, length=1)).is_repeated()
    assert not loop("loader", loop("range", text="range(1)", supposed=True)).is_repeated()


def test_pieces_come_again_if_their_batch_is_drawn_outside_of_what_repeats_them():
    batches = loop("loader")
    assert loop("range", loop("range", batches), again=True).comes_again()
    assert not loop("range", loop("range", batches)).comes_again()
    assert not loop("range", batches, again=True).comes_again()
    assert not loop("range", loop("range", batches, draws=True), again=True).comes_again()
    once = loop("range", batches, literal=True, length=1)
    assert not loop("range", once, again=True).comes_again()
