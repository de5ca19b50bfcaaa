from functools import partial

from instep.trace import Backward, Drawn, Step, Zero
from tests.rules.mends import candidates

step = partial(Step, "optimizer")
backward = partial(Backward, ("optimizer",))
zero = partial(Zero, ("optimizer",))


def lines(*code):
    return "".join(f"{line}\n" for line in code)


def first(rule, text, *events):
    return candidates(rule, text, *events)[0]


PIECES = lines(
    "for image in loader:",
    "    for patch in {iterated}:",
    "        opt.zero_grad()",
    "        loss = f(model(patch))",
    "        loss.backward()",
    "",
    "        clip_grad_norm_(ps, 1.0)",
    "        opt.step()",
    "    log()",
)
PIECE_EVENTS = [
    (step, "opt.step()"),
    (backward, "loss.backward()"),
    (zero, "opt.zero_grad()"),
    (partial(Drawn, "patches", of="loader"), "patch"),
]


def test_one_update_for_all_pieces():
    assert first("step_per_patch", PIECES.format(iterated="patches"), *PIECE_EVENTS) == lines(
        "for image in loader:",
        "    opt.zero_grad()",
        "    for patch in patches:",
        "        loss = f(model(patch))",
        "        (loss / len(patches)).backward()",
        "    clip_grad_norm_(ps, 1.0)",
        "    opt.step()",
        "    log()",
    )


def test_pieces_get_a_name_where_they_need_one():
    found = first("step_per_patch", PIECES.format(iterated="image.split(8)"), *PIECE_EVENTS)
    assert found.splitlines()[1:4] == [
        "    patches = image.split(8)",
        "    opt.zero_grad()",
        "    for patch in patches:",
    ]
    unknown = first("step_per_patch", PIECES.format(iterated="cut(image)"), *PIECE_EVENTS)
    assert "    patches = list(cut(image))" in unknown
    assert unknown.endswith("    opt.step()\n    log()\n")
    taken = PIECES.format(iterated="cut(image, patches, pieces, parts)")
    assert "/ len" not in first("step_per_patch", taken, *PIECE_EVENTS)


GRID = lines(
    "for image in loader:",
    "    for top in {first}:",
    "        for left in range(0, 64, 32):",
    "            patch = image[:, {cut}, left:left + 32]",
    "            opt.zero_grad()",
    "            loss = f(model(patch))",
    "            loss.backward()",
    "            opt.step()",
)


def test_a_grid_of_pieces_is_one_batch():
    text = GRID.format(first="range(0, size, 32)", cut="top:top + 32")
    assert first("step_per_patch", text, *PIECE_EVENTS) == lines(
        "for image in loader:",
        "    patches = len(range(0, size, 32)) * len(range(0, 64, 32))",
        "    opt.zero_grad()",
        "    for top in range(0, size, 32):",
        "        for left in range(0, 64, 32):",
        "            patch = image[:, top:top + 32, left:left + 32]",
        "            loss = f(model(patch))",
        "            (loss / patches).backward()",
        "    opt.step()",
    )


def test_a_loop_that_does_not_cut_is_no_part_of_a_grid():
    for given in ({"first": "range(3)", "cut": "0:32"}, {"first": "tops", "cut": "top:top + 32"}):
        mended = first("step_per_patch", GRID.format(**given), *PIECE_EVENTS)
        assert "        opt.step()\n" in mended
        assert "        opt.zero_grad()\n        for left" in mended


def test_rows_of_other_lengths_have_no_number():
    text = GRID.format(first="range(0, size, 32)", cut="top:top + 32")
    text = text.replace("range(0, 64, 32)", "range(top % 7, 64, 32)")
    assert "patches = " not in first("step_per_patch", text, *PIECE_EVENTS)
